"""Events by position: whole, filtered, bounded, followed."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.replication.ports import PositionCompacted
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards import event_stream
from shards.event_stream import stream_events
from tests.support.shard_harness import Harness, in_shard


async def read(shard: Harness, **request: object) -> list[pb.EventBatch]:
    wanted = pb.ReadEventsRequest(**request)  # type: ignore[arg-type]
    return [batch async for batch in stream_events(shard.replica, wanted)]


def positions(batches: list[pb.EventBatch]) -> list[int]:
    return [event.position for batch in batches for event in batch.events]


def test_events_are_dense_from_any_position_on(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics("a", "b", "c")
        last = shard.log.status.commit_position

        assert positions(await read(shard)) == list(range(1, last + 1))
        assert positions(await read(shard, from_position=1)) == list(range(1, last + 1))
        assert positions(await read(shard, from_position=last)) == [last]
        assert positions(await read(shard, from_position=last + 1)) == []

    in_shard(tmp_path, scenario)


def test_every_event_says_where_when_and_why(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        command_id = b"0123456789abcdef"
        await shard.execute(command_id=command_id, create_tenant=pb.CreateTenant(name="acme"))

        (batch,) = await read(shard, types=["tenant_created"])

        (event,) = batch.events
        assert event.tenant_created.name == "acme"
        assert (event.shard_id, event.term, event.causation_id) == (1, 1, command_id)
        assert event.time_ms > 0
        assert event.schema_version == 1

    in_shard(tmp_path, scenario)


def test_only_the_types_asked_for_come_and_the_position_goes_on(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics("a", "b")

        batches = await read(shard, types=["topic_created"])

        names = [event.topic_created.name for batch in batches for event in batch.events]
        assert names == ["persistent://acme/orders/a", "persistent://acme/orders/b"]
        assert batches[-1].next_position == shard.log.status.commit_position + 1

    in_shard(tmp_path, scenario)


def test_a_bound_on_events_is_kept_and_the_rest_can_be_read_from_there(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics(*(f"t-{number}" for number in range(10)))
        everything = positions(await read(shard))

        first = await read(shard, events_max=4)
        rest = await read(shard, from_position=positions(first)[-1] + 1)

        assert positions(first) == everything[:4]
        assert positions(first) + positions(rest) == everything

    in_shard(tmp_path, scenario)


def test_a_large_record_comes_in_several_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_BATCH_BYTES_MAX", 500)

    async def scenario(shard: Harness) -> None:
        await shard.create_topics(*(f"t-{number}" for number in range(50)))

        batches = await read(shard)

        assert all(batch.ByteSize() < 1_000 for batch in batches)
        assert positions(batches) == list(range(1, shard.log.status.commit_position + 1))
        for batch, following in pairwise(batches):
            assert following.events[0].position == batch.next_position

    in_shard(tmp_path, scenario)


def test_following_goes_on_as_events_commit(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics("a")
        request = pb.ReadEventsRequest(follow=True, types=["topic_created"], events_max=2)
        seen: list[str] = []

        async def follow() -> None:
            async for batch in stream_events(shard.replica, request):
                seen.extend(event.topic_created.name for event in batch.events)

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.1)
        assert len(seen) == 1
        await shard.create_topics("b")
        await following

        assert seen == ["persistent://acme/orders/a", "persistent://acme/orders/b"]

    in_shard(tmp_path, scenario)


def test_a_follower_of_the_shard_serves_the_same_events(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics("a")
        before = await read(shard)

        shard.log.lose_leadership()

        assert await read(shard) == before

    in_shard(tmp_path, scenario)


def test_what_is_compacted_is_an_error_that_says_where_to_start(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics("a")
        await shard.log.take_snapshot()

        with pytest.raises(PositionCompacted) as refused:
            await read(shard, from_position=1)

        assert refused.value.oldest == shard.log.status.commit_position + 1

    in_shard(tmp_path, scenario)


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        with pytest.raises(InvalidRequest, match="no event type 'nonsense'"):
            await read(shard, types=["nonsense"])

    in_shard(tmp_path, scenario)


def test_a_slow_reader_is_not_cut_off_by_a_snapshot_and_lets_go_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_BATCH_BYTES_MAX", 500)

    async def scenario(shard: Harness) -> None:
        for number in range(20):
            await shard.create_topics(f"t-{number}")
        last = shard.log.status.commit_position
        slow = stream_events(shard.replica, pb.ReadEventsRequest())
        batches = [await anext(slow)]
        assert shard.log.status.log_pins == 1

        await shard.log.take_snapshot()
        batches += [batch async for batch in slow]

        assert positions(batches) == list(range(1, last + 1))
        assert shard.log.status.log_pins == 0

    in_shard(tmp_path, scenario)


def test_a_reader_that_goes_away_lets_go(tmp_path: Path) -> None:
    async def scenario(shard: Harness) -> None:
        await shard.create_topics("a")
        stream = stream_events(shard.replica, pb.ReadEventsRequest(follow=True))
        await anext(stream)

        await stream.aclose()

        assert shard.log.status.log_pins == 0

    in_shard(tmp_path, scenario)
