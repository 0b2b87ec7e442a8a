"""Forwards brokers' reports of idle units to the shards that assigned the units.

A broker reports units of any shard to its manager; the topic controller of the unit's own shard
decides whether the assignment ends. The broker repeats a report that was lost.
"""

from __future__ import annotations

import asyncio

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.limits.cluster import ASSIGN_TIMEOUT_MS
from nextgen.kernel.limits.placement import IDLE_UNITS_PER_MESSAGE_MAX
from nextgen.tasks.background import start
from protos.nextgen.v1.broker_service_pb2 import IdleUnits
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import UnassignRequest
from shards.domain.assignment import REASON_IDLE
from shards.ports import HomeShards, TopicControllers
from shards.sessions.broker_sessions import BrokerSessions
from shards.sessions.forwarding.reported_units import by_home, unit_of_report

_FORWARDING_MAX = 64
"""Reports forwarded at a time. A report beyond it is dropped: the broker repeats it."""

_logger = structlog.get_logger(__name__)


class IdleForwarding:
    """Forwards for the brokers of one shard's managers, for one term."""

    def __init__(
        self,
        shard_id: int,
        sessions: BrokerSessions,
        homes: HomeShards,
        controllers: TopicControllers,
    ) -> None:
        self._shard_id = shard_id
        self._homes = homes
        self._controllers = controllers
        self._tasks: set[asyncio.Task[None]] = set()
        sessions.on_idle = self._take

    def __repr__(self) -> str:
        return f"<IdleForwarding shard={self._shard_id} on_their_way={len(self._tasks)}>"

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _take(self, record: BrokerRecorded, idle: IdleUnits) -> None:
        """Forward a broker's report.

        Raises:
            InvalidRequest: Too many units, or a malformed name.
        """
        if len(idle.units) > IDLE_UNITS_PER_MESSAGE_MAX:
            raise InvalidRequest(
                f"{len(idle.units)} idle units in one message, "
                f"at most {IDLE_UNITS_PER_MESSAGE_MAX} are allowed"
            )
        units = [unit_of_report(record, unit, "an idle unit") for unit in idle.units]
        if units and len(self._tasks) < _FORWARDING_MAX:
            start("idle_forwarding", self._forward(record.broker_id, units), self._tasks)

    async def _forward(self, broker_id: str, units: list[UnitAssignment]) -> None:
        try:
            by_shard = by_home(self._homes, units, lambda unit: unit)
        except MetadataError as error:
            _logger.info("idle units not forwarded", broker=broker_id, why=str(error))
            return
        for shard_id, group in by_shard.items():
            request = UnassignRequest(units=group, reason=REASON_IDLE)
            try:
                response = await self._controllers.unassign(
                    shard_id, request, timeout_ms=ASSIGN_TIMEOUT_MS
                )
            except MetadataError as error:
                _logger.info("idle units stay", broker=broker_id, shard=shard_id, why=str(error))
                continue
            ended = sum(outcome.unassigned for outcome in response.outcomes)
            _logger.info(
                "idle units", broker=broker_id, shard=shard_id, named=len(group), ended=ended
            )
