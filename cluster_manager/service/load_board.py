"""The brokers' last reported loads, at the cluster manager's leader. Soft state: never in the log.

Loads are collected for ``LOADS_GATHERED_MS`` and pushed to shard nodes together; no request waits
for them. A new leader starts without loads and has them all within ``LOAD_REPORT_MS_MAX``, because
broker managers send them again after each reconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import structlog

from cluster_manager.domain.broker_directory import BrokerDirectory
from cluster_manager.ports import Clock
from nextgen.client.wire.broker_load import load_from_proto
from nextgen.kernel.governance.broker_load import refusal
from nextgen.kernel.limits.placement import LOADS_GATHERED_MS, LOADS_PER_UPDATE_MAX
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

SHOWN_UNITS_MAX = 10
"""Busiest units per broker in the cluster's state, which is one message for all brokers."""

_logger = structlog.get_logger(__name__)


class LoadBoard:
    """The last load of each live session, for one term of leadership."""

    def __init__(
        self,
        clock: Clock,
        directory: Callable[[], BrokerDirectory],
        push: Callable[[cluster_pb.ClusterUpdate], None],
    ) -> None:
        """``directory`` includes pending events; ``push`` sends to every shard node."""
        self._clock = clock
        self._directory = directory
        self._push = push
        self._loads: dict[str, cluster_pb.BrokerLoad] = {}
        self._fresh: dict[str, None] = {}
        self._cancel: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<LoadBoard brokers={len(self._loads)} unsent={len(self._fresh)}>"

    def stop(self) -> None:
        """Stop pushing loads."""
        if self._cancel is not None:
            self._cancel()

    def take(self, load: cluster_pb.BrokerLoad) -> str:
        """Record a report; return why it is refused, "" if it is recorded or outdated."""
        broker = self._directory().brokers.get(load.broker_id)
        if broker is None or broker.session_id != load.session_id or not broker.is_live:
            return f"session {load.session_id} is not the live one of broker {load.broker_id}"
        # Where the capacity was lowered, the units above it leave one by one.
        announced = broker.announced_units or broker.capacity_units
        refused = refusal(load_from_proto(load.load), announced)
        if refused:
            _logger.info("load refused", broker=load.broker_id, why=refused)
            return refused
        known = self._loads.get(load.broker_id)
        if (
            known is not None
            and known.session_id == load.session_id
            and known.load.measured_at_ms > load.load.measured_at_ms
        ):
            return ""
        self._loads[load.broker_id] = load
        self._fresh[load.broker_id] = None
        if self._cancel is None:
            due_ms = self._clock.monotonic_ms() + LOADS_GATHERED_MS
            self._cancel = self._clock.call_at(due_ms, self._push_fresh)
        return ""

    def updates(self) -> Iterator[cluster_pb.ClusterUpdate]:
        """Yield the updates for a shard node that has just connected."""
        yield from _in_parts(self._live())

    def shown(self) -> list[cluster_pb.BrokerLoad]:
        """Return the loads with the busiest few units each, by broker id."""
        loads = []
        for load in sorted(self._live(), key=lambda each: each.broker_id):
            cut = cluster_pb.BrokerLoad()
            cut.CopyFrom(load)
            del cut.load.busiest[SHOWN_UNITS_MAX:]
            loads.append(cut)
        return loads

    def _push_fresh(self) -> None:
        self._cancel = None
        fresh, self._fresh = self._fresh, {}
        for update in _in_parts(load for load in self._live() if load.broker_id in fresh):
            self._push(update)

    def _live(self) -> list[cluster_pb.BrokerLoad]:
        """Return the loads of live sessions, and drop the others."""
        brokers = self._directory().brokers
        self._loads = {
            broker_id: load
            for broker_id, load in self._loads.items()
            if brokers[broker_id].is_live and brokers[broker_id].session_id == load.session_id
        }
        return list(self._loads.values())


def _in_parts(loads: Iterable[cluster_pb.BrokerLoad]) -> Iterator[cluster_pb.ClusterUpdate]:
    every = list(loads)
    for start in range(0, len(every), LOADS_PER_UPDATE_MAX):
        yield cluster_pb.ClusterUpdate(loads=every[start : start + LOADS_PER_UPDATE_MAX])
