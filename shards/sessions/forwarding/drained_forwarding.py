"""Forwards brokers' reports of drained units to the shards of the units' topics.

A report waits until its shard has settled it: noted it, or found that it is of no use; the broker
learns that. A shard that cannot be reached is asked again, and so is one that has not recorded yet
that the segment is sealed. What waits here ends with the term: a broker reports what is not settled
to the next manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded
from nextgen.kernel.limits.cluster import ASSIGN_TIMEOUT_MS
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    DRAINED_UNITS_PER_MESSAGE_MAX,
    DRAINED_UNITS_WAITING_MAX,
)
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.broker_service_pb2 import DrainedUnit, DrainedUnits, ManagerMessage
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import DrainedMark, MarkDrainedRequest
from shards.ports import HomeShards, TopicControllers
from shards.sessions.broker_sessions import BrokerSessions
from shards.sessions.forwarding.reported_units import home_of, unit_of_report

_PAUSE_MS_MIN = 50
"""First pause after a round that settled nothing; doubles from there. A segment is recorded as
sealed some milliseconds after its first subscription may be drained."""

_PAUSE_MS_MAX = 10_000

_Key = tuple[str, str, str, int, str]
"""Session, topic id, unit, epoch and subscription."""

_logger = structlog.get_logger(__name__)


class DrainedForwarding:
    """Forwards for the brokers of one shard's managers, for one term."""

    def __init__(
        self,
        shard_id: int,
        sessions: BrokerSessions,
        homes: HomeShards,
        controllers: TopicControllers,
    ) -> None:
        self._shard_id = shard_id
        self._sessions = sessions
        self._homes = homes
        self._controllers = controllers
        # The latest report of each, in the order in which they are to be forwarded.
        self._waiting: dict[_Key, DrainedMark] = {}
        self._has_news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        sessions.on_drained = self._take

    def __repr__(self) -> str:
        return f"<DrainedForwarding shard={self._shard_id} waiting={len(self._waiting)}>"

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _take(self, record: BrokerRecorded, drained: DrainedUnits) -> None:
        """Forward a broker's report.

        Raises:
            InvalidRequest: Too many units, or a malformed name.
            Overloaded: Too many reports wait.
        """
        if len(drained.units) > DRAINED_UNITS_PER_MESSAGE_MAX:
            raise InvalidRequest(
                f"{len(drained.units)} drained units in one message, "
                f"at most {DRAINED_UNITS_PER_MESSAGE_MAX} are allowed"
            )
        for mark in [_as_mark(record, unit) for unit in drained.units]:
            unit = mark.unit
            key = (unit.session_id, unit.topic_id, unit.unit, unit.epoch, mark.subscription)
            if key not in self._waiting and len(self._waiting) >= DRAINED_UNITS_WAITING_MAX:
                raise Overloaded(f"{DRAINED_UNITS_WAITING_MAX} drained units wait already")
            self._waiting[key] = mark
        self._has_news.set()
        if self._waiting and (self._task is None or self._task.done()):
            self._task = start("drained_forwarding", self._run())

    async def _run(self) -> None:
        """Return when nothing waits any more."""
        pause_ms = _PAUSE_MS_MIN
        while self._waiting:
            self._has_news.clear()
            waiting = len(self._waiting)
            await self._forward(list(islice(self._waiting, DRAINED_UNITS_PER_MESSAGE_MAX)))
            if len(self._waiting) < waiting:
                pause_ms = _PAUSE_MS_MIN
                continue
            await self._pause(pause_ms)
            pause_ms = min(2 * pause_ms, _PAUSE_MS_MAX)

    async def _pause(self, pause_ms: int) -> None:
        try:
            async with timeout(pause_ms / 1_000):
                await self._has_news.wait()
        except TimeoutError:
            return

    async def _forward(self, keys: Sequence[_Key]) -> None:
        by_shard: dict[int, list[_Key]] = {}
        for key in keys:
            # To the end: what is not settled does not hold up the others.
            mark = self._waiting[key] = self._waiting.pop(key)
            try:
                home = home_of(self._homes, mark.unit)
            except MetadataError as error:
                _logger.info("drained unit waits", unit=mark.unit.name, why=str(error))
                continue
            by_shard.setdefault(home, []).append(key)
        await asyncio.gather(*(self._forward_to(home, group) for home, group in by_shard.items()))

    async def _forward_to(self, shard_id: int, keys: Sequence[_Key]) -> None:
        marks = [self._waiting[key] for key in keys]
        try:
            response = await self._controllers.mark_drained(
                shard_id, MarkDrainedRequest(marks=marks), timeout_ms=ASSIGN_TIMEOUT_MS
            )
        except MetadataError as error:
            _logger.info("drained units wait", shard=shard_id, why=str(error))
            return
        settled: dict[tuple[str, str], list[DrainedUnit]] = {}
        for key, mark, is_settled in zip(keys, marks, response.settled, strict=False):
            # One that was repeated meanwhile has a reason that the shard may not know.
            if is_settled and self._waiting.get(key) is mark:
                del self._waiting[key]
                session = (mark.unit.broker_id, mark.unit.session_id)
                settled.setdefault(session, []).append(_as_reported(mark))
        for (broker_id, session_id), units in settled.items():
            self._answer(broker_id, session_id, units)

    def _answer(self, broker_id: str, session_id: str, units: Sequence[DrainedUnit]) -> None:
        """Notify a broker of what is settled, if it is there: on its next connection it reports
        again."""
        try:
            connection = self._sessions.live(broker_id, session_id).connection
        except MetadataError:
            return
        if connection is not None:
            connection.answer(ManagerMessage(drained_settled=DrainedUnits(units=units)))


def _as_reported(mark: DrainedMark) -> DrainedUnit:
    unit = mark.unit
    return DrainedUnit(
        topic_id=unit.topic_id,
        unit=unit.unit,
        name=unit.name,
        epoch=unit.epoch,
        subscription=mark.subscription,
    )


def _as_mark(record: BrokerRecorded, drained: DrainedUnit) -> DrainedMark:
    unit = unit_of_report(record, drained, "a drained unit")
    if not 0 < len(drained.subscription.encode()) <= SUBSCRIPTION_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"broker {record.broker_id} names a subscription of "
            f"{len(drained.subscription.encode())} bytes"
        )
    return DrainedMark(unit=unit, subscription=drained.subscription)
