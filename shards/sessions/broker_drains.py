"""Operators' requests about a broker's session: checked, recorded, reported to the cluster.

They drain the broker, cancel its drain, or change its capacity. All belong to the broker's session
and are recorded in the log of its manager's shard. Each shard moves its own units, see
``evacuation``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.broker_kind import shown_kind
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.tasks.background import start
from protos.nextgen.v1.broker_service_pb2 import DrainWish
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import (
    DrainRequest,
    DrainResponse,
    SetCapacityRequest,
    SetCapacityResponse,
)
from shards.domain.broker_session import BrokerSession, SetCapacity, SetDrain
from shards.ports import BrokerDirectory, Clock
from shards.sessions.broker_sessions import BrokerSessions
from shards.state.shard_state import ShardState

_logger = structlog.get_logger(__name__)


class BrokerDrains:
    """Drains of the brokers whose manager is in one shard, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        sessions: BrokerSessions,
        directory: BrokerDirectory,
        clock: Clock,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._sessions = sessions
        self._directory = directory
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        sessions.on_drain_wish = self._wish

    def __repr__(self) -> str:
        return f"<BrokerDrains shard={self._shard_id}>"

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def drain(self, request: DrainRequest) -> DrainResponse:
        """Record a drain or its cancellation; return when that is committed. May be repeated.

        Raises:
            Refused: The broker is not live, no other broker could take its units, or the rate is
                too high. Nothing has changed.
            StaleShardMap: The broker's slot is in another shard.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        broker_id = request.broker_id
        session = await self._live(broker_id)
        if not request.undo:
            self._check_others(session)
        command = SetDrain(
            broker_id, session.session_id, not request.undo, request.units_per_second
        )
        record = await self._sessions.carry_out(command)
        _logger.info(
            "drain recorded",
            shard=self._shard_id,
            broker=broker_id,
            draining=record.draining,
            units_per_second=record.drain_units_per_second,
        )
        return DrainResponse(broker=record)

    async def set_capacity(self, request: SetCapacityRequest) -> SetCapacityResponse:
        """Record another capacity; return when that is committed. May be repeated.

        Units above it leave the broker afterwards.

        Raises:
            Refused: The broker is not live, or never announced that much. Nothing has changed.
            StaleShardMap: The broker's slot is in another shard.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        session = await self._live(request.broker_id)
        command = SetCapacity(request.broker_id, session.session_id, request.capacity_units)
        record = await self._sessions.carry_out(command)
        _logger.info(
            "capacity recorded",
            shard=self._shard_id,
            broker=request.broker_id,
            units=record.capacity_units,
            announced=record.announced_units or record.capacity_units,
        )
        return SetCapacityResponse(broker=record)

    async def _live(self, broker_id: str) -> BrokerSession:
        self._state.slots.check_key(broker_id)
        session = self._state.reads.load_session(broker_id)
        if session is None or not session.is_live:
            await self._state.proposer.confirm()
            shown = broker_id[:NODE_ID_BYTES_MAX]
            raise Refused(RejectionCode.NO_BROKER, f"no broker {shown!a} is alive")
        return session

    def _check_others(self, session: BrokerSession) -> None:
        """Return if another broker of the same kind may be given units.

        Raises:
            Refused: None may. Without one, neither the drained topics nor new ones would have a
                broker.
        """
        now_ms = self._clock.wall_ms()
        broker_id, kind = session.broker_id, session.kind
        others = [
            each
            for each in self._directory.live()
            if each.broker_id != broker_id and each.kind == kind
        ]
        if any(not each.draining and each.quarantined_until_ms <= now_ms for each in others):
            return
        why = "each is draining or in quarantine" if others else "there is none"
        raise Refused(
            RejectionCode.NOT_ALLOWED,
            f"broker {broker_id} is the last that may be given units: "
            f"of {len(others)} other {shown_kind(kind)} brokers {why}",
        )

    def _wish(self, record: BrokerRecorded, wish: DrainWish) -> None:
        request = DrainRequest(broker_id=record.broker_id, units_per_second=wish.units_per_second)
        self._run(self._grant(request))

    async def _grant(self, request: DrainRequest) -> None:
        try:
            await self.drain(request)
        except MetadataError as error:
            # The broker sees in the directory that it does not drain, and stops without.
            _logger.info("not drained", broker=request.broker_id, why=str(error))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        start("drain_wish", work, self._tasks)
