"""Load reports: protobuf and the values of ``nextgen.kernel.governance.broker_load``."""

from __future__ import annotations

import math

from nextgen.kernel.governance.broker_load import BrokerLoad, Rates, UnitLoad, busiest_permille
from protos.nextgen.v1.events_pb2 import LoadReport, TopicLoad

_MESSAGE_BYTES = 256
"""The cost of a message beside its bytes, in bytes: many small messages are work too."""


def load_from_proto(report: LoadReport) -> BrokerLoad:
    """Return the load in a report. ``broker_load.refusal`` checks whether it is plausible."""
    bound = frozenset(report.bound)
    return BrokerLoad(
        units=report.topics,
        open_topics=report.open_topics,
        connections=report.connections,
        producers=report.producers,
        consumers=report.consumers,
        cpu_fraction=report.cpu_fraction,
        cores=report.cores,
        memory_bytes=report.memory_bytes,
        memory_limit_bytes=report.memory_limit_bytes,
        rates=_rates(report),
        busiest=tuple(
            [
                UnitLoad(
                    each.name,
                    each.unit,
                    _rates(each),
                    each.producers,
                    each.consumers,
                    each.measured_at_ms,
                    at in bound,
                )
                for at, each in enumerate(report.busiest)
            ]
        ),
        measured_at_ms=report.measured_at_ms,
    )


def load_to_proto(load: BrokerLoad) -> LoadReport:
    """Return ``load`` as a message."""
    return LoadReport(
        topics=load.units,
        open_topics=load.open_topics,
        connections=load.connections,
        producers=load.producers,
        consumers=load.consumers,
        cpu_fraction=load.cpu_fraction,
        cores=load.cores,
        memory_bytes=load.memory_bytes,
        memory_limit_bytes=load.memory_limit_bytes,
        messages_in_per_second=load.rates.messages_in,
        messages_out_per_second=load.rates.messages_out,
        bytes_in_per_second=load.rates.bytes_in,
        bytes_out_per_second=load.rates.bytes_out,
        busiest=[
            TopicLoad(
                name=each.name,
                unit=each.unit,
                messages_in_per_second=each.rates.messages_in,
                messages_out_per_second=each.rates.messages_out,
                bytes_in_per_second=each.rates.bytes_in,
                bytes_out_per_second=each.rates.bytes_out,
                producers=each.producers,
                consumers=each.consumers,
                measured_at_ms=each.measured_at_ms,
            )
            for each in load.busiest
        ],
        bound=[at for at, each in enumerate(load.busiest) if each.is_bound],
        measured_at_ms=load.measured_at_ms,
    )


def report_permille(report: LoadReport) -> int:
    """Return how full the broker's fuller resource is, 0 to 1,000: see ``busiest_permille``."""
    return busiest_permille(
        cpu_fraction=report.cpu_fraction,
        cores=report.cores,
        memory_bytes=report.memory_bytes,
        memory_limit_bytes=report.memory_limit_bytes,
    )


def rate_of(load: TopicLoad | LoadReport) -> int:
    """Return the traffic of a unit or a broker, see ``traffic_of``; 0 if it is no valid number."""
    traffic = traffic_of(load)
    return int(traffic) if math.isfinite(traffic) and traffic > 0 else 0


def traffic_of(load: TopicLoad | LoadReport) -> float:
    """Return traffic as reported, in bytes a second, with ``_MESSAGE_BYTES`` for each message."""
    messages = load.messages_in_per_second + load.messages_out_per_second
    return load.bytes_in_per_second + load.bytes_out_per_second + _MESSAGE_BYTES * messages


def _rates(report: LoadReport | TopicLoad) -> Rates:
    return Rates(
        report.messages_in_per_second,
        report.messages_out_per_second,
        report.bytes_in_per_second,
        report.bytes_out_per_second,
    )
