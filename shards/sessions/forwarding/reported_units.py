"""What the three forwardings have in common: units as brokers name them, and their shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, UnitAssignment
from shards.ports import HomeShards

T = TypeVar("T")


class NamedUnit(Protocol):
    """A unit in a broker's report."""

    @property
    def topic_id(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def epoch(self) -> int: ...


def unit_of_report(record: BrokerRecorded, named: NamedUnit, what: str) -> UnitAssignment:
    """Return a unit as assigned to the broker that reports it.

    Raises:
        InvalidRequest: Its name is malformed; the message says that the broker names ``what``.
    """
    try:
        parse_topic(named.name)
    except InvalidName as error:
        raise InvalidRequest(f"broker {record.broker_id} names {what}: {error}") from error
    return UnitAssignment(
        topic_id=named.topic_id,
        unit=named.unit,
        name=named.name,
        epoch=named.epoch,
        broker_id=record.broker_id,
        session_id=record.session_id,
    )


def home_of(homes: HomeShards, unit: UnitAssignment) -> int:
    """Return the shard of the unit's topic.

    Raises:
        MetadataError: The shard map is not known.
    """
    return homes.home_of(KIND_TOPIC, parse_topic(unit.name).base_text, unit.topic_id)


def by_home(
    homes: HomeShards, reported: Sequence[T], unit_of: Callable[[T], UnitAssignment]
) -> dict[int, list[T]]:
    """Return what was reported by the shards of the units' topics.

    Raises:
        MetadataError: The shard map is not known.
    """
    found: dict[int, list[T]] = {}
    for each in reported:
        found.setdefault(home_of(homes, unit_of(each)), []).append(each)
    return found
