"""Sealed segments that a consumer does not acknowledge to the end: found, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.scalable import (
    SEGMENT_LOOK_MS,
    SEGMENT_LOOK_MS_MAX,
    SEGMENT_LOOKS_MAX,
    SEGMENT_STALL_MS,
    SEGMENT_STALL_MS_MAX,
)
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.pulsar.scalable_topics.stalled_segments import SegmentLooks, StalledSegments
from protos.nextgen.v1.broker_service_pb2 import ConsumerStats, SubscriptionStats, TopicStats
from protos.nextgen.v1.topic_admin_pb2 import GetStatsRequest
from tests.support.simulated.virtual_time import run_virtual

NAME = parse_topic("segment://acme/orders/paid/0000-7fff-0")
OTHER = parse_topic("segment://acme/orders/paid/8000-ffff-1")
SOON_S = (SEGMENT_LOOK_MS + SEGMENT_STALL_MS) / 1_000


def stalled() -> TopicStats:
    """One entry is delivered and not acknowledged, and the consumer could take more."""
    stats = TopicStats(is_terminated=True)
    group = stats.subscriptions.add(
        name="s", kind="EXCLUSIVE", backlog_entries=1, rows=[ConsumerStats(available_permits=999)]
    )
    group.mark_delete.entry_id = 8
    return stats


class Owners:
    """Answers with ``stats``, or raises ``error``."""

    def __init__(self, stats: TopicStats) -> None:
        self.stats = stats
        self.error: Unavailable | None = None
        self.looked_at: list[float] = []
        self.under_way = self.most_under_way = 0
        self.takes_s = 0.0

    @property
    def group(self) -> SubscriptionStats:
        return self.stats.subscriptions[0]

    async def call(self, name: TopicName, request: Any) -> TopicStats:
        assert isinstance(request, GetStatsRequest)
        self.looked_at.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1
        if self.error is not None:
            raise self.error
        return self.stats


class World:
    def __init__(self, stats: TopicStats) -> None:
        self.owners = Owners(stats)
        self.found: list[tuple[int, float]] = []
        self.segments = StalledSegments(SegmentLooks(self.owners), "s", self._note)

    async def _note(self, segment_id: int) -> None:
        self.found.append((segment_id, asyncio.get_running_loop().time()))

    async def found_within(self, seconds: float) -> list[int]:
        """Return the segments that were found from now on."""
        self.found.clear()
        await asyncio.sleep(seconds)
        return [segment_id for segment_id, _ in self.found]


def found(stats: TopicStats, seconds: float = 10 * SOON_S) -> list[int]:
    """Return what is found among two segments that both are as ``stats`` say."""

    async def main() -> list[int]:
        world = World(stats)
        world.segments.watch({0: NAME, 1: OTHER})
        result = await world.found_within(seconds)
        world.segments.close()
        return sorted(set(result))

    return run_virtual(main)


def changed(change: Callable[[TopicStats, SubscriptionStats], Any]) -> TopicStats:
    stats = stalled()
    change(stats, stats.subscriptions[0])
    return stats


def test_a_segment_that_is_read_and_not_acknowledged_to_the_end_is_found():
    assert found(stalled(), SOON_S + 0.1) == [0, 1]


def test_it_is_given_time_to_be_acknowledged():
    assert found(stalled(), SOON_S - 0.1) == []


@pytest.mark.parametrize(
    "stats",
    [
        pytest.param(changed(lambda stats, _: stats.ClearField("is_terminated")), id="active"),
        pytest.param(changed(lambda _, group: setattr(group, "name", "t")), id="other group"),
        pytest.param(changed(lambda _, group: setattr(group, "kind", "KEY_SHARED")), id="shared"),
        pytest.param(changed(lambda _, group: setattr(group, "backlog_entries", 0)), id="drained"),
        pytest.param(changed(lambda _, group: group.ClearField("rows")), id="no consumer"),
        pytest.param(
            changed(lambda _, group: setattr(group.rows[0], "available_permits", 0)),
            id="a full queue",
        ),
    ],
)
def test_others_are_left_alone(stats):
    assert found(stats) == []


@pytest.mark.parametrize(
    "progress",
    [
        lambda group: setattr(group.mark_delete, "entry_id", group.mark_delete.entry_id + 1),
        lambda group: setattr(group, "backlog_entries", group.backlog_entries + 1),
        lambda group: setattr(group.rows[0], "messages_out", group.rows[0].messages_out + 1),
        lambda group: setattr(group.rows[0], "consumer_id", group.rows[0].consumer_id + 1),
        lambda group: setattr(
            group.rows[0].client,
            "connected_since_ms",
            group.rows[0].client.connected_since_ms + 1,
        ),
    ],
    ids=["acknowledged", "sought", "delivered", "another consumer", "connected anew"],
)
def test_one_that_makes_progress_is_left_alone(progress):
    async def main() -> None:
        world = World(stalled())
        world.segments.watch({0: NAME})
        for _ in range(10):
            assert await world.found_within(SEGMENT_STALL_MS / 1_000 - 1) == []
            progress(world.owners.group)
        assert await world.found_within(SOON_S + 5) == [0]

    run_virtual(main)


def test_an_owner_that_is_not_reached_says_nothing_and_is_asked_again():
    async def main() -> None:
        world = World(stalled())
        world.owners.error = Unavailable("it is gone")
        world.segments.watch({0: NAME})
        assert await world.found_within(100) == []
        world.owners.error = None
        assert await world.found_within(SOON_S + 5) == [0]

    run_virtual(main)


def test_each_time_for_one_segment_waits_twice_as_long_up_to_a_bound():
    async def main() -> list[float]:
        world = World(stalled())
        world.segments.watch({0: NAME})
        await asyncio.sleep(8 * SEGMENT_STALL_MS_MAX / 1_000)
        times = [time for _, time in world.found]
        return [after - before for before, after in pairwise(times)]

    gaps = run_virtual(main)
    looks_s = 2 * SEGMENT_LOOK_MS / 1_000
    for gap, wanted in zip(gaps, (20, 40, 80, 160, 320, 640, 1_280, 2_560), strict=False):
        assert wanted <= gap <= wanted + looks_s
    assert len(gaps) > 10
    for gap in gaps[8:]:
        assert SEGMENT_STALL_MS_MAX <= gap * 1_000 <= SEGMENT_STALL_MS_MAX + 2 * SEGMENT_LOOK_MS


def test_one_with_more_to_deliver_is_looked_at_seldom():
    async def main() -> list[float]:
        world = World(stalled())
        world.owners.group.rows[0].available_permits = 0
        world.segments.watch({0: NAME})
        await asyncio.sleep(600)
        times = world.owners.looked_at
        return [after - before for before, after in pairwise(times)]

    gaps = run_virtual(main)
    assert gaps[:3] == [2 * SEGMENT_LOOK_MS / 1_000, 4 * SEGMENT_LOOK_MS / 1_000, 40]
    assert set(gaps[3:]) == {SEGMENT_LOOK_MS_MAX / 1_000}


def test_one_that_is_watched_no_longer_is_not_found():
    async def main() -> None:
        world = World(stalled())
        world.segments.watch({0: NAME, 1: OTHER})
        await asyncio.sleep(SOON_S - 0.1)
        world.segments.watch({1: OTHER})
        assert await world.found_within(0.2) == [1]
        world.segments.close()
        assert await world.found_within(1_000) == []

    run_virtual(main)


def test_segment_looks_max_are_under_way_and_one_more_waits():
    async def main() -> int:
        owners = Owners(stalled())
        owners.takes_s = 1.0
        looks = SegmentLooks(owners)
        many = [looks.look(NAME, "s") for _ in range(SEGMENT_LOOKS_MAX + 1)]
        await asyncio.gather(*many)
        assert asyncio.get_running_loop().time() == owners.looked_at[0] + 2
        return owners.most_under_way

    assert run_virtual(main) == SEGMENT_LOOKS_MAX
