"""The loads of one shard's brokers, for one term: checked, reported, recorded.

    heartbeat ──▶ valid? ──no──▶ refused with the field's name, the last valid one stays
                     │ yes
                     ▼
               kept ──▶ changed by much, or a minute passed ──▶ cluster manager, at most every 5 s
                   ╰──▶ changed by much ──▶ BrokerLoadReported, at most once a minute

Brokers keep to the same times by themselves; those of an earlier release report with every
heartbeat.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from nextgen.client.wire.broker_load import load_from_proto
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.broker_load import BrokerLoad, has_changed, refusal
from nextgen.kernel.limits.placement import (
    LOAD_EVENT_MS_MIN,
    LOAD_REPORT_MS_MAX,
    LOAD_REPORT_MS_MIN,
)
from nextgen.tasks.background import start
from protos.nextgen.v1.events_pb2 import LoadReport
from shards.domain.broker_session import BrokerLoadReported
from shards.ports import Clock, SessionReports
from shards.sessions.session_hello import announced_units
from shards.sessions.session_soft_state import SessionSoftState
from shards.state.shard_state import ShardState

_logger = structlog.get_logger(__name__)

_NOTHING = BrokerLoad()


@dataclass(slots=True)
class _LastLoad:
    """The last load that one session reported, and the last one recorded, in monotonic seconds."""

    load: BrokerLoad = _NOTHING
    at: float = -math.inf
    recorded: BrokerLoad = _NOTHING
    recorded_at: float = -math.inf


class SessionLoads:
    """Takes the load reports of one shard's brokers, for one term of leadership."""

    def __init__(
        self, shard_id: int, state: ShardState, reports: SessionReports, clock: Clock
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._reports = reports
        self._clock = clock
        self._loads: dict[str, _LastLoad] = {}
        self._recording: set[asyncio.Task[None]] = set()
        self.on_refused: Callable[[], None] = lambda: None
        """Called for each report that is refused."""

    def __repr__(self) -> str:
        return f"<SessionLoads shard={self._shard_id} sessions={len(self._loads)}>"

    @property
    def session_count(self) -> int:
        """Sessions with a reported load."""
        return len(self._loads)

    def close(self) -> None:
        """Record nothing more."""
        for task in self._recording:
            task.cancel()

    def take(self, session: SessionSoftState, report: LoadReport) -> str:
        """Take the load report of a live session; return why it is refused, "" if it is not."""
        load = load_from_proto(report)
        # Where the capacity was lowered, the units above it leave one by one.
        refused = refusal(load, announced_units(session.record))
        if refused:
            _logger.info("load refused", broker=session.record.broker_id, why=refused)
            self.on_refused()
            return refused
        session.load = report
        last = self._loads.setdefault(session.record.session_id, _LastLoad())
        now = self._clock.monotonic()
        passed_ms = 1000 * (now - last.at)
        if passed_ms >= LOAD_REPORT_MS_MAX or (
            passed_ms >= LOAD_REPORT_MS_MIN and has_changed(last.load, load)
        ):
            last.load, last.at = load, now
            self._report(session)
        if 1000 * (now - last.recorded_at) >= LOAD_EVENT_MS_MIN and has_changed(
            last.recorded, load
        ):
            last.recorded, last.recorded_at = load, now
            self._record(session, report)
        return ""

    def forget(self, session_id: str) -> None:
        """Forget the loads of a session that ended."""
        self._loads.pop(session_id, None)

    def report_again(self, session: SessionSoftState) -> None:
        """Report the load to the cluster manager again: a new one knows no loads."""
        if session.record.session_id in self._loads:
            self._report(session)

    def _report(self, session: SessionSoftState) -> None:
        record = session.record
        self._reports.report_load(record.broker_id, record.session_id, session.load)

    def _record(self, session: SessionSoftState, report: LoadReport) -> None:
        start("load_event", self._propose(session, report), self._recording)

    async def _propose(self, session: SessionSoftState, report: LoadReport) -> None:
        broker_id, session_id = session.record.broker_id, session.record.session_id
        try:
            known = self._state.reads.load_session(broker_id)
            if known is None or known.session_id != session_id or not known.is_live:
                return
            payload = report.SerializeToString(deterministic=True)
            await self._state.proposer.propose(
                (BrokerLoadReported(broker_id, session_id, payload),)
            )
        except MetadataError as error:
            # A record for analysis: the next one comes in a minute, however much has changed.
            last = self._loads.get(session_id)
            if last is not None:
                last.recorded = _NOTHING
            _logger.debug("load not recorded", broker=broker_id, why=str(error))
