"""Reports of segments' loads reach the shards of their topics, and the answers their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.kernel.errors import InvalidRequest, MetadataError, SessionExpired, Unavailable
from nextgen.kernel.limits.scalable import (
    SEGMENT_LOADS_FORWARDING_MAX,
    SEGMENT_LOADS_PER_REPORT_MAX,
)
from protos.nextgen.v1.broker_service_pb2 import (
    ManagerMessage,
    SegmentLoadReport,
    SegmentLoadReports,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.layouts_pb2 import SegmentRates
from protos.nextgen.v1.shard_service_pb2 import (
    RecordedRates,
    RecordLoadsRequest,
    RecordLoadsResponse,
)
from shards.sessions.forwarding.load_forwarding import LoadForwarding
from tests.support.simulated.virtual_time import run_virtual

RECORD = BrokerRecorded(broker_id="b-1", session_id="s-1")
SHARDS = 3


class Shards:
    """The shards of all topics: what they were sent, and what they answer."""

    def __init__(self) -> None:
        self.on_loads: Callable[[BrokerRecorded, SegmentLoadReports], None] = lambda *_: None
        self.requests: list[tuple[int, list[Any]]] = []
        self.answers: list[tuple[str, float]] = []
        """What the broker was answered: names, and messages in per second on record."""
        self.is_live = True
        self.error: MetadataError | None = None
        self.pause_s = 0.001
        unused: Any = self
        self.forwarding = LoadForwarding(7, unused, self, unused)

    def live(self, broker_id: str, session_id: str) -> Any:
        assert (broker_id, session_id) == ("b-1", "s-1")
        if not self.is_live:
            raise SessionExpired("s-1 has ended")
        return SimpleNamespace(connection=self)

    def answer(self, message: ManagerMessage) -> None:
        self.answers += [
            (each.name, each.rates.messages_in) for each in message.loads_recorded.segments
        ]

    def home_of(self, _kind: int, name: str, _object_id: str = "") -> int:
        return int(name[-1]) % SHARDS

    async def record_loads(
        self, shard_id: int, request: RecordLoadsRequest, *, timeout_ms: int
    ) -> RecordLoadsResponse:
        await asyncio.sleep(self.pause_s)
        self.requests.append((shard_id, list(request.samples)))
        if self.error is not None:
            raise self.error
        # Of odd segments nothing is on record.
        return RecordLoadsResponse(
            recorded=[
                RecordedRates()
                if int(each.unit.unit[1:]) % 2
                else RecordedRates(rates=SegmentRates(messages_in=each.rates.messages_in + 1))
                for each in request.samples
            ]
        )

    def say(self, *loads: SegmentLoadReport) -> None:
        self.on_loads(RECORD, SegmentLoadReports(segments=loads))


def load(topic: int = 0, segment: int = 0, *, name: str = "") -> SegmentLoadReport:
    return SegmentLoadReport(
        topic_id=f"t-{topic}",
        unit=f"s{segment}",
        name=name or f"segment://acme/orders/topic{topic}/0000-ffff-{segment}",
        epoch=4,
        rates=SegmentRates(messages_in=segment),
    )


def test_a_report_is_one_request_for_each_shard_and_the_answer_reaches_its_broker():
    async def main() -> None:
        shards = Shards()
        shards.say(load(0, 0), load(1, 1), load(3, 2))
        await asyncio.sleep(1)

        assert sorted((shard, len(samples)) for shard, samples in shards.requests) == [
            (0, 2),
            (1, 1),
        ]
        unit = shards.requests[0][1][0].unit
        assert (unit.broker_id, unit.session_id, unit.epoch) == ("b-1", "s-1", 4)
        assert sorted(shards.answers) == [(load(0, 0).name, 1), (load(3, 2).name, 3)]

    run_virtual(main)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_shard_that_does_not_answer_and_a_broker_that_is_gone_are_passed_over(is_live):
    async def main() -> None:
        shards = Shards()
        shards.is_live = is_live
        shards.error = Unavailable("no leader") if is_live else None
        shards.say(load())
        await asyncio.sleep(1)

        assert (len(shards.requests), shards.answers) == (1, [])

    run_virtual(main)


def test_segment_loads_per_report_max_are_forwarded_and_one_more_is_refused():
    async def main() -> None:
        shards = Shards()
        shards.say(*[load(0, number) for number in range(SEGMENT_LOADS_PER_REPORT_MAX)])
        await asyncio.sleep(1)
        assert len(shards.requests[0][1]) == SEGMENT_LOADS_PER_REPORT_MAX

        with pytest.raises(InvalidRequest, match="segments in one message"):
            shards.say(*[load()] * (SEGMENT_LOADS_PER_REPORT_MAX + 1))
        with pytest.raises(InvalidRequest, match="names a segment"):
            shards.say(load(name="no://name"))

    run_virtual(main)


def test_segment_loads_forwarding_max_are_under_way_and_one_more_is_dropped():
    async def main() -> None:
        shards = Shards()
        for _ in range(SEGMENT_LOADS_FORWARDING_MAX + 1):
            shards.say(load())
        await asyncio.sleep(1)

        assert len(shards.requests) == SEGMENT_LOADS_FORWARDING_MAX
        shards.say(load())
        await asyncio.sleep(1)
        assert len(shards.requests) == SEGMENT_LOADS_FORWARDING_MAX + 1

    run_virtual(main)
