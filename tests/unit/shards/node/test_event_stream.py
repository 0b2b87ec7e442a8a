"""Events by position: whole, filtered, bounded, followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest

from nextgen.kernel.errors import (
    InvalidRequest,
    NotLeader,
    PositionAhead,
    PositionCompacted,
    Unavailable,
)
from nextgen.kernel.limits.cluster import FOLLOWER_READ_WAIT_MS
from nextgen.kernel.limits.stream import EVENTS_PER_PAGE_MAX, EVENTS_SILENT_SLICES_MAX
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.node import event_stream
from shards.node.event_stream import refusal, stream_events
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard


async def read(shard: Harness, **request: object) -> list[pb.EventBatch]:
    return [batch async for batch in batches(shard, **request)]


async def batches(shard: Harness, **request: object) -> AsyncGenerator[pb.EventBatch, None]:
    """Yield what a reader receives: the messages, read as the contract has them."""
    wanted = pb.ReadEventsRequest(**request)  # type: ignore[arg-type]
    async with aclosing(stream_events(shard.replica, wanted)) as sent:
        async for batch in sent:
            yield pb.EventBatch.FromString(batch.SerializeToString())


def positions(received: list[pb.EventBatch]) -> list[int]:
    return [event.position for batch in received for event in batch.events]


@run_by(in_shard)
async def test_events_are_dense_from_any_position_on(shard: Harness) -> None:
    await shard.create_topics("a", "b", "c")
    last = shard.log.status.commit_position

    assert positions(await read(shard)) == list(range(1, last + 1))
    assert positions(await read(shard, from_position=1)) == list(range(1, last + 1))
    assert positions(await read(shard, from_position=last)) == [last]
    assert positions(await read(shard, from_position=last + 1)) == []


@run_by(in_shard)
async def test_every_event_says_where_when_and_why(shard: Harness) -> None:
    command_id = b"0123456789abcdef"
    await shard.execute(command_id=command_id, create_tenant=pb.CreateTenant(name="acme"))

    (batch,) = await read(shard, types=["tenant_created"])

    (event,) = batch.events
    assert event.tenant_created.name == "acme"
    assert (event.shard_id, event.term, event.causation_id) == (1, 1, command_id)
    assert event.time_ms > 0
    assert event.schema_version == 1


@run_by(in_shard)
async def test_only_the_types_asked_for_come_and_the_position_goes_on(shard: Harness) -> None:
    await shard.create_topics("a", "b")

    received = await read(shard, types=["topic_created"])

    names = [event.topic_created.name for batch in received for event in batch.events]
    assert names == ["persistent://acme/orders/a", "persistent://acme/orders/b"]
    assert received[-1].next_position == shard.log.status.commit_position + 1


@run_by(in_shard)
async def test_a_bound_on_events_is_kept_and_the_rest_can_be_read_from_there(
    shard: Harness,
) -> None:
    await shard.create_topics(*(f"t-{number}" for number in range(10)))
    everything = positions(await read(shard))

    first = await read(shard, events_max=4)
    rest = await read(shard, from_position=positions(first)[-1] + 1)

    assert positions(first) == everything[:4]
    assert positions(first) + positions(rest) == everything


def test_a_large_record_comes_in_several_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_PAGE_BYTES_MAX", 500)

    async def scenario(shard: Harness) -> None:
        await shard.create_topics(*(f"t-{number}" for number in range(50)))

        received = await read(shard)

        assert len(received) > 10
        assert all(batch.ByteSize() < 1_000 for batch in received)
        assert positions(received) == list(range(1, shard.log.status.commit_position + 1))
        for batch, following in pairwise(received):
            assert following.events[0].position == batch.next_position

    in_shard(tmp_path, scenario)


@pytest.mark.parametrize("types", [(), ("topic_created",)])
@pytest.mark.parametrize("room", ["for all", "for one byte less", "for all but the last"])
def test_events_page_bytes_max_are_one_message_and_one_byte_more_is_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: tuple[str, ...], room: str
) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics(*(f"t-{number}" for number in range(5)))
        (whole,) = await read(shard, types=types)
        size_bytes = sum(event.ByteSize() for event in whole.events)
        missing_bytes = {
            "for all": 0,
            "for one byte less": 1,
            "for all but the last": whole.events[-1].ByteSize(),
        }[room]
        monkeypatch.setattr(event_stream, "EVENTS_PAGE_BYTES_MAX", size_bytes - missing_bytes)

        received = await read(shard, types=types)

        assert [len(batch.events) for batch in received if batch.events] == (
            [len(whole.events) - 1, 1] if missing_bytes else [len(whole.events)]
        )
        assert [event for batch in received for event in batch.events] == list(whole.events)

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_following_goes_on_as_events_commit(shard: Harness) -> None:
    await shard.create_topics("a")
    seen: list[str] = []

    async def follow() -> None:
        async for batch in batches(shard, follow=True, types=["topic_created"], events_max=2):
            seen.extend(event.topic_created.name for event in batch.events)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.1)
    assert len(seen) == 1
    await shard.create_topics("b")
    await following

    assert seen == ["persistent://acme/orders/a", "persistent://acme/orders/b"]


@run_by(in_shard)
async def test_a_follower_of_the_shard_serves_the_same_events(shard: Harness) -> None:
    await shard.create_topics("a")
    before = await read(shard)

    shard.log.lose_leadership()

    assert await read(shard) == before


@run_by(in_shard)
async def test_what_is_compacted_is_an_error_that_says_where_to_start(shard: Harness) -> None:
    await shard.create_topics("a")
    await shard.log.compact()

    with pytest.raises(PositionCompacted) as refused:
        await read(shard, from_position=1)

    assert refused.value.oldest == shard.log.status.commit_position + 1


@run_by(in_shard)
async def test_an_unknown_type_is_refused(shard: Harness) -> None:
    with pytest.raises(InvalidRequest, match="no event type 'nonsense'"):
        await read(shard, types=["nonsense"])


def test_a_slow_reader_is_not_cut_off_by_a_snapshot_and_lets_go_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_PAGE_BYTES_MAX", 500)

    async def scenario(shard: Harness) -> None:
        for number in range(20):
            await shard.create_topics(f"t-{number}")
        last = shard.log.status.commit_position
        slow = batches(shard)
        received = [await anext(slow)]
        assert shard.log.status.log_pins == 1

        await shard.log.compact()
        received += [batch async for batch in slow]

        assert positions(received) == list(range(1, last + 1))
        assert shard.log.status.log_pins == 0

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_a_reader_that_goes_away_lets_go(shard: Harness) -> None:
    await shard.create_topics("a")
    stream = batches(shard, follow=True)
    await anext(stream)

    await stream.aclose()

    assert shard.log.status.log_pins == 0


# The future --------------------------------------------------------------------------------------


@run_by(in_shard)
async def test_a_leader_that_is_confirmed_has_the_last_word_about_the_future(
    shard: Harness,
) -> None:
    await shard.create_topics("a")
    last = shard.log.commit_position

    with pytest.raises(PositionAhead) as refused:
        await read(shard, from_position=last + 2)

    assert (refused.value.asked, refused.value.last) == (last + 2, last)
    assert refused.value.is_final


@run_by(in_shard)
async def test_a_leader_that_no_majority_confirms_says_nothing_about_the_future(
    shard: Harness,
) -> None:
    shard.log.lose_quorum()

    with pytest.raises(NotLeader):
        await read(shard, from_position=shard.log.commit_position + 2)


@run_by(in_shard)
async def test_a_follower_waits_for_what_it_may_only_lack(shard: Harness) -> None:
    await shard.create_topics("a")
    last = shard.log.commit_position
    shard.log.lose_leadership(NodeId("node-2"))
    reading = asyncio.create_task(read(shard, from_position=last + 2))
    await asyncio.sleep(FOLLOWER_READ_WAIT_MS / 2000)
    assert not reading.done()

    shard.log.become_leader()
    await shard.create_topics("b", "c")

    assert positions(await reading) == list(range(last + 2, shard.log.commit_position + 1))


@run_by(in_shard)
async def test_a_follower_that_waited_in_vain_does_not_say_its_last_word(shard: Harness) -> None:
    last = shard.log.commit_position
    shard.log.lose_leadership(NodeId("node-2"))
    loop = asyncio.get_running_loop()
    began = loop.time()

    with pytest.raises(PositionAhead) as refused:
        await read(shard, from_position=last + 2)

    assert not refused.value.is_final
    assert loop.time() - began == pytest.approx(FOLLOWER_READ_WAIT_MS / 1000)


@run_by(in_shard)
async def test_the_next_position_is_no_future_and_following_goes_on_from_it(shard: Harness) -> None:
    last = shard.log.commit_position
    stream = batches(shard, from_position=last + 1, follow=True)

    first = await anext(stream)
    assert (list(first.events), first.next_position) == ([], last + 1)
    assert first.commit_position == last
    await shard.create_topics("a")

    assert positions([await anext(stream)])[0] == last + 1
    await stream.aclose()


# Filters -----------------------------------------------------------------------------------------


@run_by(in_shard)
async def test_a_prefix_narrows_what_is_sent_and_not_what_is_counted(shard: Harness) -> None:
    await shard.create_topics("a-1", "b-1", "a-2")

    received = await read(shard, key_prefix="persistent://acme/orders/a-")

    names = [event.topic_created.name for batch in received for event in batch.events]
    assert names == ["persistent://acme/orders/a-1", "persistent://acme/orders/a-2"]
    assert received[-1].next_position == shard.log.commit_position + 1


@run_by(in_shard)
async def test_a_filter_that_matches_nothing_says_how_far_it_looked(shard: Harness) -> None:
    await shard.create_topics("a")

    (batch,) = await read(shard, key_prefix="nobody/")

    last = shard.log.commit_position
    assert list(batch.events) == []
    assert (batch.next_position, batch.commit_position) == (last + 1, last)


def test_progress_is_reported_during_a_long_stretch_without_a_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_PER_SLICE", 1)

    async def scenario(shard: Harness) -> None:
        for number in range(2 * EVENTS_SILENT_SLICES_MAX):
            await shard.create_topics(f"t-{number}")

        received = await read(shard, key_prefix="nobody/")

        pages = shard.log.commit_position
        assert 2 <= len(received) <= 1 + pages // EVENTS_SILENT_SLICES_MAX
        assert received[-1].next_position == pages + 1

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_where_a_bound_on_events_ends_the_next_reading_begins(shard: Harness) -> None:
    await shard.create_topics("a", "b", "c", "d")

    received = await read(shard, types=["topic_created"], events_max=2)

    (batch,) = received
    assert len(batch.events) == 2
    assert batch.next_position == batch.events[-1].position + 1


@run_by(in_shard)
async def test_a_page_has_so_many_events_and_not_one_more(shard: Harness) -> None:
    await shard.create_topics(*(f"t-{number}" for number in range(EVENTS_PER_PAGE_MAX + 1)))

    received = await read(shard, types=["topic_created"])

    assert [len(batch.events) for batch in received if batch.events] == [EVENTS_PER_PAGE_MAX, 1]


def test_others_have_a_turn_within_a_large_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_PER_SLICE", 3)

    async def scenario(shard: Harness) -> None:
        await asyncio.gather(*(shard.create_topics(f"t-{number}") for number in range(20)))
        turns, rests = 0, event_stream._Turns.let_others_work

        async def counted(self: event_stream._Turns) -> None:
            nonlocal turns
            turns += 1
            await rests(self)

        monkeypatch.setattr(event_stream._Turns, "let_others_work", counted)
        last = shard.log.commit_position
        entries = len(shard.log.read(1, events_max=10_000, bytes_max=10**9))
        assert entries < last / 3

        assert positions(await read(shard)) == list(range(1, last + 1))

        assert turns >= last // 3

    in_shard(tmp_path, scenario)


# A replica that is of no use any more -------------------------------------------------------------


@run_by(in_shard)
async def test_a_reader_of_a_replica_that_stops_is_redirected(shard: Harness) -> None:
    following = asyncio.create_task(read(shard, follow=True))
    await shard.create_topics("a")
    assert not following.done()

    await shard.log.stop()

    with pytest.raises(Unavailable, match="stopped"):
        await following


@run_by(in_shard)
async def test_a_reader_of_a_replica_without_a_leader_is_redirected(shard: Harness) -> None:
    stream = batches(shard, follow=True)
    await anext(stream)

    shard.log.lose_leadership(None)

    with pytest.raises(Unavailable, match="hears no leader"):
        async for _ in stream:
            pass


@run_by(in_shard)
async def test_commits_are_expedited_exactly_while_a_reader_follows(shard: Harness) -> None:
    await read(shard)
    assert shard.log.expedited == 0
    stream = batches(shard, follow=True)
    await anext(stream)
    assert shard.log.expedited == 1

    await stream.aclose()

    assert shard.log.expedited == 0


@run_by(in_shard)
async def test_a_refusal_carries_its_positions_in_the_message_too(shard: Harness) -> None:
    await shard.create_topics("a")
    await shard.log.compact()
    with pytest.raises(PositionCompacted) as refused:
        await read(shard, from_position=1)

    message = refusal(refused.value)

    last = shard.log.commit_position
    assert message.error.reason == "POSITION_COMPACTED"
    assert (message.oldest_position, message.snapshot_position) == (last + 1, last)
    assert refusal(PositionAhead(9, 7)).commit_position == 7
