"""Forwards brokers' reports of segments' loads to the shards of the segments' topics.

One request for each report and shard, so that a report becomes one record there at most. Nothing
waits here: a broker measures again and repeats what it has no answer for.
"""

from __future__ import annotations

import asyncio

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.limits.cluster import ASSIGN_TIMEOUT_MS
from nextgen.kernel.limits.scalable import (
    SEGMENT_LOADS_FORWARDING_MAX,
    SEGMENT_LOADS_PER_REPORT_MAX,
)
from nextgen.tasks.background import start
from protos.nextgen.v1.broker_service_pb2 import (
    ManagerMessage,
    SegmentLoadReport,
    SegmentLoadReports,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import RecordLoadsRequest, SegmentSample
from shards.ports import HomeShards, TopicControllers
from shards.sessions.broker_sessions import BrokerSessions
from shards.sessions.forwarding.reported_units import by_home, unit_of_report

_logger = structlog.get_logger(__name__)


class LoadForwarding:
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
        self._tasks: set[asyncio.Task[None]] = set()
        sessions.on_loads = self._take

    def __repr__(self) -> str:
        return f"<LoadForwarding shard={self._shard_id} reports={len(self._tasks)}>"

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _take(self, record: BrokerRecorded, loads: SegmentLoadReports) -> None:
        """Forward a broker's report, unless too many are under way.

        Raises:
            InvalidRequest: Too many segments, or a malformed name.
        """
        if len(loads.segments) > SEGMENT_LOADS_PER_REPORT_MAX:
            raise InvalidRequest(
                f"the loads of {len(loads.segments)} segments in one message, "
                f"at most {SEGMENT_LOADS_PER_REPORT_MAX} are allowed"
            )
        samples = [_as_sample(record, each) for each in loads.segments]
        if samples and len(self._tasks) < SEGMENT_LOADS_FORWARDING_MAX:
            start("load_forwarding", self._forward(record, samples), self._tasks)

    async def _forward(self, record: BrokerRecorded, samples: list[SegmentSample]) -> None:
        try:
            by_shard = by_home(self._homes, samples, lambda sample: sample.unit)
        except MetadataError as error:
            _logger.info("loads not forwarded", broker=record.broker_id, why=str(error))
            return
        await asyncio.gather(
            *(self._forward_to(record, home, group) for home, group in by_shard.items())
        )

    async def _forward_to(
        self, record: BrokerRecorded, shard_id: int, samples: list[SegmentSample]
    ) -> None:
        try:
            response = await self._controllers.record_loads(
                shard_id, RecordLoadsRequest(samples=samples), timeout_ms=ASSIGN_TIMEOUT_MS
            )
        except MetadataError as error:
            _logger.info("loads not recorded", shard=shard_id, why=str(error))
            return
        recorded = [
            SegmentLoadReport(
                topic_id=sample.unit.topic_id,
                unit=sample.unit.unit,
                name=sample.unit.name,
                epoch=sample.unit.epoch,
                rates=each.rates,
            )
            for sample, each in zip(samples, response.recorded, strict=False)
            if each.HasField("rates")
        ]
        if recorded:
            self._answer(record, recorded)

    def _answer(self, record: BrokerRecorded, recorded: list[SegmentLoadReport]) -> None:
        """Tell a broker what is on record, if it is there."""
        try:
            connection = self._sessions.live(record.broker_id, record.session_id).connection
        except MetadataError:
            return
        if connection is not None:
            loads = SegmentLoadReports(segments=recorded)
            connection.answer(ManagerMessage(loads_recorded=loads))


def _as_sample(record: BrokerRecorded, load: SegmentLoadReport) -> SegmentSample:
    return SegmentSample(unit=unit_of_report(record, load, "a segment"), rates=load.rates)
