"""A reader of the log: every position once and in order, whatever its replicas do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from nextgen.client.log import reader as event_log
from nextgen.client.log.reader import (
    LogNotDense,
    ShardLogReader,
    log_readers,
    pin_log,
    read_events,
)
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    PositionAhead,
    PositionCompacted,
    Refused,
    Unavailable,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.logs.fake_log_replicas import SHARD, FakeLogReplica, served


class World:
    """A leader and two followers, all with ten events."""

    def __init__(self) -> None:
        self.replicas = [FakeLogReplica(f"node-{number}", 10) for number in (1, 2, 3)]
        self.leader, self.second, self.third = self.replicas
        self.leader.leads = True
        self.endpoint = ""

    async def read(self, position: int = 1, **options: bool | int) -> list[int]:
        reader = ShardLogReader(
            [self.endpoint], SHARD, prefer_follower=bool(options.pop("prefer_follower", False))
        )
        found: list[int] = []
        async for page in reader.pages(position, **options):  # type: ignore[arg-type]
            found += [event.position for event in page.events]
        return found


@pytest_asyncio.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(event_log, "PAUSE_MS", 1)
    made = World()
    async with served(made.replicas) as made.endpoint:
        yield made


async def test_everything_committed_is_read_once_and_the_reading_ends(world: World) -> None:
    assert await world.read() == list(range(1, 11))
    assert await world.read(7) == [7, 8, 9, 10]
    assert await world.read(11) == []
    assert await world.read(limit=4) == [1, 2, 3, 4]


async def test_the_leader_is_read_unless_a_follower_is_preferred(world: World) -> None:
    await world.read()
    assert [len(replica.asked) for replica in world.replicas] == [1, 0, 0]

    await world.read(prefer_follower=True)

    assert [len(replica.asked) for replica in world.replicas] == [1, 1, 0]


async def test_a_replica_that_goes_away_is_replaced_where_it_ended(world: World) -> None:
    world.leader.breaks_at = 4
    world.second.breaks_at = 7

    assert await world.read() == list(range(1, 11))

    assert (world.leader.asked[0], world.second.asked[0]) == (1, 4)


async def test_a_follower_that_goes_away_is_replaced_by_another_one(world: World) -> None:
    world.second.breaks_at = 4
    world.second.refuses = None

    assert await world.read(prefer_follower=True) == list(range(1, 11))

    assert (world.second.asked[0], world.third.asked) == (1, [4])


async def test_a_reading_does_not_end_where_a_replica_that_is_behind_ends(world: World) -> None:
    """
    1. The leader tells that ten events are committed, and goes away after six.
    2. The next replica has only eight: its end is not the end.
    """
    world.leader.breaks_at = 7
    world.second.committed = 8

    assert await world.read() == list(range(1, 11))


async def test_only_the_leader_says_that_a_position_lies_in_the_future(world: World) -> None:
    with pytest.raises(PositionAhead) as refused:
        await world.read(12, prefer_follower=True)

    assert (refused.value.asked, refused.value.last) == (12, 10)
    assert len(world.leader.asked) == 1


async def test_a_reader_that_is_ahead_of_a_follower_goes_on_at_the_leader(world: World) -> None:
    for replica in (world.second, world.third):
        replica.committed = 2

    assert await world.read(8, prefer_follower=True) == [8, 9, 10]


async def test_without_a_leader_nobody_says_that_a_position_lies_in_the_future(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "FAILURES_MAX", 4)
    world.leader.leads = False

    with pytest.raises(Unavailable, match="no leader confirms"):
        await world.read(12)

    assert sum(len(replica.asked) for replica in world.replicas) == 4


async def test_a_replica_that_was_cut_is_replaced_by_one_that_has_more(world: World) -> None:
    world.leader.oldest = 6
    world.third.oldest = 9

    assert await world.read(3) == list(range(3, 11))


async def test_behind_the_cut_of_all_the_one_that_has_most_is_named(world: World) -> None:
    for replica, oldest in zip(world.replicas, (8, 5, 9), strict=True):
        replica.oldest = oldest

    with pytest.raises(PositionCompacted) as refused:
        await world.read(2)

    assert (refused.value.asked, refused.value.oldest) == (2, 5)
    assert refused.value.snapshot_position == 10


async def test_following_goes_on_at_another_replica_as_events_commit(world: World) -> None:
    found: list[int] = []
    reader = ShardLogReader([world.endpoint], SHARD, prefer_follower=True)
    async with aclosing(reader.pages(follow=True)) as pages:
        async for page in pages:
            found += [event.position for event in page.events]
            if found[-1] == 10:
                # The one that is read breaks; the others have got further meanwhile.
                world.second.breaks_at = 11
                world.third.commit(14)
                world.leader.commit(14)
                world.second.commit(12)
            if found[-1] == 14:
                break

    assert found == list(range(1, 15))
    assert world.third.asked == [11]


def drop_one(batch: pb.EventBatch) -> None:
    del batch.events[1]


def repeat_one(batch: pb.EventBatch) -> None:
    batch.events[1].position = batch.events[0].position


def skip_at_the_end(batch: pb.EventBatch) -> None:
    batch.next_position += 1


def of_another_shard(batch: pb.EventBatch) -> None:
    batch.events[0].shard_id = SHARD + 1


@pytest.mark.parametrize(
    ("damage", "expected", "found"),
    [(drop_one, 2, 3), (repeat_one, 2, 1), (skip_at_the_end, 4, 5), (of_another_shard, 1, 1)],
)
async def test_a_position_that_is_not_the_expected_one_ends_the_reading(
    world: World, damage: object, expected: int, found: int
) -> None:
    world.leader.damage = damage  # type: ignore[assignment]

    with pytest.raises(LogNotDense) as broken:
        await world.read()

    assert (broken.value.shard_id, broken.value.expected, broken.value.found) == (
        SHARD,
        expected,
        found,
    )
    assert str(expected) in str(broken.value)


async def test_with_a_filter_positions_still_never_go_back(world: World) -> None:
    world.leader.damage = repeat_one
    reader = ShardLogReader([world.endpoint], SHARD, types=["topic_created"])

    with pytest.raises(LogNotDense):
        async for _ in reader.pages():
            pass


async def test_a_filter_narrows_events_and_counts_positions(world: World) -> None:
    reader = ShardLogReader([world.endpoint], SHARD, key_prefix="acme/orders/t-1")

    pages = [page async for page in reader.pages()]

    assert [event.position for page in pages for event in page.events] == [1, 10]
    assert (pages[-1].next_position, pages[-1].commit_position) == (11, 10)


async def test_events_come_one_by_one_if_they_are_wanted_so(world: World) -> None:
    found = [event.position async for event in read_events([world.endpoint], SHARD, 9)]

    assert found == [9, 10]


async def test_what_asking_again_does_not_mend_is_raised_at_once(world: World) -> None:
    world.leader.refuses = InvalidRequest("there is no event type 'nonsense'")

    with pytest.raises(InvalidRequest):
        await world.read()

    assert [len(replica.asked) for replica in world.replicas] == [1, 0, 0]


async def test_a_shard_that_does_not_exist_is_refused_by_name(world: World) -> None:
    with pytest.raises(Refused, match="no shard 9"):
        async for _ in ShardLogReader([world.endpoint], 9).pages():
            pass


async def test_when_no_replica_answers_the_last_word_is_raised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "FAILURES_MAX", 5)
    for replica in world.replicas:
        replica.refuses = Unavailable("not at the moment")

    with pytest.raises(Unavailable, match="not at the moment"):
        await world.read()

    assert sum(len(replica.asked) for replica in world.replicas) == 5


# Named readers -----------------------------------------------------------------------------------


async def test_a_pin_is_taken_at_every_replica_that_answers(world: World) -> None:
    world.third.refuses = Unavailable("not at the moment")

    await pin_log([world.endpoint], SHARD, "exporter", 4, ttl_ms=60_000)

    assert world.leader.pins == world.second.pins == {"exporter": (4, 60_000)}


async def test_a_pin_that_no_replica_takes_is_an_error_that_names_the_oldest(world: World) -> None:
    for replica in world.replicas:
        replica.oldest = 6

    with pytest.raises(PositionCompacted) as refused:
        await pin_log([world.endpoint], SHARD, "exporter", 4, ttl_ms=60_000)

    assert refused.value.oldest == 6


async def test_a_pin_in_the_future_is_refused_by_the_leaders_word(world: World) -> None:
    world.leader.refuses = PositionAhead(40, 10, is_final=True)

    with pytest.raises(PositionAhead):
        await pin_log([world.endpoint], SHARD, "exporter", 40, ttl_ms=60_000)


async def test_readers_of_each_replica_and_unreachable_replicas_are_listed(world: World) -> None:
    await pin_log([world.endpoint], SHARD, "exporter", 4, ttl_ms=60_000)
    world.second.refuses = Unavailable("not at the moment")

    found = await log_readers([world.endpoint], SHARD)

    assert sorted(found) == ["node-1", "node-2", "node-3"]
    answer = found["node-1"]
    assert not isinstance(answer, MetadataError)
    assert [reader.reader_id for reader in answer.readers] == ["exporter"]
    assert isinstance(found["node-2"], Unavailable)


async def test_a_reader_that_is_closed_lets_go_of_its_stream(world: World) -> None:
    pages = ShardLogReader([world.endpoint], SHARD).pages(follow=True)
    await anext(pages)

    async with timeout(30):
        await pages.aclose()
