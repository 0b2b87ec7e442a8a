"""Subscriptions of scalable topics: their cursors in all segments, before they are live."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.scalable import SEGMENTS_AT_ONCE_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from tests.support.scalable.shard import NAME, ScalableShard, endpoint_of, in_scalable_shard
from tests.support.scenarios import run_by


def cursors(shard: ScalableShard, *units: str) -> list[dict[str, int]]:
    return [shard.segments.ledger(unit).cursors for unit in units]


@run_by(in_scalable_shard, segments=2)
async def test_a_new_subscription_is_answered_with_a_cursor_in_every_active_segment(
    shard: ScalableShard,
) -> None:
    result = await shard.subscribe("s")

    assert not result.rejection_code
    assert cursors(shard, "s0", "s1") == [{"s": 0}, {"s": 0}]
    assert shard.topic.subscriptions["s"].phase == "live"


@run_by(in_scalable_shard)
async def test_a_sealed_segment_gets_no_cursor_of_a_new_subscription(shard: ScalableShard) -> None:
    await shard.change("split", 0)

    await shard.subscribe("s")

    assert cursors(shard, "s0", "s1", "s2") == [{}, {"s": 0}, {"s": 0}]


@run_by(in_scalable_shard)
async def test_a_registration_is_answered_with_the_cursors_of_its_subscription(
    shard: ScalableShard,
) -> None:
    body = pb.RegisterScalableConsumer(
        name=NAME, subscription="s", consumer_name="c", type="stream", takes_buckets=True
    )

    result = await shard.run(register_scalable_consumer=body)

    assert not result.rejection_code
    assert cursors(shard, "s0") == [{"s": 0}]


@run_by(in_scalable_shard)
async def test_readers_have_no_cursors(shard: ScalableShard) -> None:
    await shard.subscribe("r", "checkpoint")

    await shard.unsubscribe("r")

    assert shard.segments.calls == []
    assert dict(shard.topic.subscriptions) == {}


@run_by(in_scalable_shard, segments=2)
async def test_a_subscription_is_gone_when_no_segment_has_its_cursor(shard: ScalableShard) -> None:
    await shard.subscribe("s")
    await shard.change("split", 0)

    result = await shard.unsubscribe("s")

    assert not result.rejection_code
    assert cursors(shard, "s0", "s1", "s2", "s3") == [{}] * 4
    assert dict(shard.topic.subscriptions) == {}


@run_by(in_scalable_shard)
async def test_a_subscription_that_goes_while_children_are_made_is_in_none_of_them(
    shard: ScalableShard,
) -> None:
    await shard.subscribe("s")
    gone: list[asyncio.Task[pb.CommandResult]] = []

    def drop(step: str, *_: object) -> None:
        if step == "cursor s1 is done" and not gone:
            gone.append(asyncio.create_task(shard.unsubscribe("s")))

    shard.segments.on_step = drop
    await shard.change("split", 0)
    await gone[0]

    assert cursors(shard, "s0", "s1", "s2") == [{}] * 3


@pytest.mark.parametrize(
    ("to_ms", "skips_all", "wanted"),
    [
        (1, False, [0, 0, 0]),  # Everything was published later.
        (10**15, False, [2, 10**15, 10**15]),  # The sealed one ended before.
        (0, True, [2, 0, 0]),  # The others have no messages.
    ],
)
@run_by(in_scalable_shard)
async def test_a_seek_reaches_every_segment(
    shard: ScalableShard, *, to_ms: int, skips_all: bool, wanted: list[int]
) -> None:
    await shard.subscribe("s")
    shard.segments.ledger("s0").entries += ["one", "two"]
    await shard.change("split", 0)
    body = pb.SeekScalableSubscription(
        name=NAME, subscription="s", seek_to_ms=to_ms, skips_all=skips_all
    )

    result = await shard.run(seek_scalable_subscription=body)

    assert not result.rejection_code
    assert [each["s"] for each in cursors(shard, "s0", "s1", "s2")] == wanted
    sought = shard.topic.subscriptions["s"]
    is_at_end = wanted[0] == 2
    assert (sought.phase, sought.drained) == ("live", {0} if is_at_end else set())
    # A report of before the seek is of an assignment that has ended.
    assert bool(shard.owner("s0")) is is_at_end
    assert shard.owner("s1")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_report_of_before_does_not_count_for_a_parent_that_ended_and_is_not_sealed_yet(
    tmp_path: Path, *, is_deleted: bool
) -> None:
    """1. One parent of a merge has ended, and its owner reports it drained. 2. The shard keeps the
    report back, as the layout has the parent as active. 3. A seek sets the cursor back, or the
    subscription is deleted and created again. 4. The merge ends, and the report comes again."""

    async def story(shard: ScalableShard) -> None:
        is_silent = True

        def silent(step: str, *_: object) -> None:
            if is_silent and step == "seal s1 is sent":
                raise Unavailable("the broker of the other parent does not answer")

        await shard.subscribe("s")
        shard.segments.on_step = silent
        merging = asyncio.create_task(shard.change("merge", 0, 1))
        await asyncio.sleep(0.5)
        assert shard.segments.ledger("s0").is_terminated
        report = await report_of(shard, "s0")
        assert await shard.harness.leader.drained_marks.mark([report]) == [False]

        if is_deleted:
            await shard.unsubscribe("s")
            await shard.subscribe("s")
        else:
            seek = pb.SeekScalableSubscription(name=NAME, subscription="s", seek_to_ms=1)
            await shard.run(seek_scalable_subscription=seek)
        is_silent = False
        await merging

        assert await shard.harness.leader.drained_marks.mark([report]) == [True]
        assert shard.topic.subscriptions["s"].drained == frozenset()

    in_scalable_shard(tmp_path, story, segments=2)


@run_by(in_scalable_shard)
async def test_a_report_of_a_deleted_subscription_does_not_count_for_the_next_of_its_name(
    shard: ScalableShard,
) -> None:
    await shard.subscribe("s")
    await shard.change("split", 0)
    report = await report_of(shard, "s0")

    await shard.unsubscribe("s")
    await shard.subscribe("s")

    assert await shard.harness.leader.drained_marks.mark([report]) == [True]
    assert shard.topic.subscriptions["s"].drained == frozenset()
    # Only what has ended is given up: writers of the others notice nothing.
    epochs = [(await report_of(shard, each)).unit.epoch for each in ("s0", "s1", "s2")]
    assert epochs == [2, 1, 1]


async def report_of(shard: ScalableShard, unit: str) -> pb.DrainedMark:
    """Return what the present owner of a segment reports."""
    (name,) = [
        each.name_in(parse_topic(NAME))
        for each in shard.topic.segments.values()
        if each.unit.text == unit
    ]
    (answer,) = await shard.harness.lookup(name)
    assigned = UnitAssignment(
        topic_id=answer.topic_id,
        unit=unit,
        name=name,
        epoch=answer.epoch,
        session_id=answer.session_id,
    )
    return pb.DrainedMark(unit=assigned, subscription="s")


@pytest.mark.parametrize("kind", ["cursor", "drop"])
@run_by(in_scalable_shard)
async def test_a_new_leader_goes_on_with_the_cursors(shard: ScalableShard, *, kind: str) -> None:
    if kind == "drop":
        await shard.subscribe("s")

    def depose(step: str, *_: object) -> None:
        if step == f"{kind} s0 is sent":
            shard.segments.on_step = lambda *_: None
            shard.stop_leader()

    shard.segments.on_step = depose
    command = shard.subscribe("s") if kind == "cursor" else shard.unsubscribe("s")
    under_way = asyncio.create_task(command)
    await asyncio.sleep(0.1)
    under_way.cancel()
    await shard.start_leader()
    await asyncio.sleep(2)

    assert not shard.topic.has_work
    assert cursors(shard, "s0") == ([{"s": 0}] if kind == "cursor" else [{}])


@run_by(in_scalable_shard)
async def test_a_subscription_is_not_answered_while_a_segment_lacks_its_cursor(
    shard: ScalableShard,
) -> None:
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    subscribed = asyncio.create_task(shard.subscribe("s"))

    await asyncio.sleep(5)

    assert not subscribed.done()
    shard.segments.hanging.clear()
    await subscribed
    assert cursors(shard, "s0") == [{"s": 0}]


@pytest.mark.parametrize("segments", [SEGMENTS_AT_ONCE_MAX, SEGMENTS_AT_ONCE_MAX + 1])
def test_segments_at_once_max_get_a_cursor_at_one_time_and_one_more_waits(
    tmp_path: Path, segments: int
) -> None:
    async def story(shard: ScalableShard) -> None:
        under_way, most = 0, 0
        ready = shard.segments.ready

        async def count(*given: Any, **named: Any) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await ready(*given, **named)
            under_way -= 1

        shard.segments.ready = count  # type: ignore[method-assign]
        result = await shard.subscribe("s")

        assert not result.rejection_code
        assert most == SEGMENTS_AT_ONCE_MAX
        assert all(each.cursors == {"s": 0} for each in shard.segments.ledgers.values())
        assert len(shard.segments.ledgers) == segments

    in_scalable_shard(tmp_path, story, segments=segments)


@pytest.mark.parametrize("is_at_first", [True, False])
def test_a_seek_finds_a_subscription_that_clients_made_at_the_segments(
    tmp_path: Path, is_at_first: bool
) -> None:
    """A part of the segments may have it: its consumers are about to make the others."""

    async def scenario(shard: ScalableShard) -> None:
        unit = "s0" if is_at_first else "s1"
        shard.segments.ledger(unit).cursors["queue"] = 7

        result = await shard.run(
            seek_scalable_subscription=pb.SeekScalableSubscription(
                name=NAME, subscription="queue", skips_all=False, seek_to_ms=0
            )
        )

        assert not result.rejection_code
        assert cursors(shard, "s0", "s1") == [{"queue": 0}, {"queue": 0}]
        assert shard.topic.subscriptions["queue"].type == "queue"

    in_scalable_shard(tmp_path, scenario, segments=2)


@run_by(in_scalable_shard, segments=2)
async def test_a_subscription_that_clients_made_is_deleted_from_all_segments(
    shard: ScalableShard,
) -> None:
    shard.segments.ledger("s1").cursors["queue"] = 7

    result = await shard.unsubscribe("queue")

    assert not result.rejection_code
    assert cursors(shard, "s0", "s1") == [{}, {}]
    assert not shard.topic.subscriptions


@run_by(in_scalable_shard, segments=2)
async def test_a_deletion_that_comes_again_makes_no_subscription_of_what_clients_made_since(
    shard: ScalableShard,
) -> None:
    shard.segments.ledger("s1").cursors["queue"] = 7
    body = pb.DeleteScalableSubscription(name=NAME, subscription="queue")
    once = await shard.harness.execute(
        command_id=b"the same command", delete_scalable_subscription=body
    )
    assert not once.rejection_code
    shard.segments.ledger("s1").cursors["queue"] = 0

    again = await shard.harness.execute(
        command_id=b"the same command", delete_scalable_subscription=body
    )

    assert not again.rejection_code
    assert not shard.topic.subscriptions
    assert cursors(shard, "s0", "s1") == [{}, {"queue": 0}]


@run_by(in_scalable_shard, segments=2)
async def test_a_deletion_that_another_shard_carried_out_makes_no_subscription_of_what_clients_made(
    shard: ScalableShard,
) -> None:
    """The topic's slot was in another shard when the command was sent first."""
    shard.segments.ledger("s1").cursors["queue"] = 7
    body = pb.DeleteScalableSubscription(name=NAME, subscription="queue")
    first, second = (
        pb.Command(command_id=command_id, delete_scalable_subscription=body)
        for command_id in (b"carried out by A", b"an unknown order")
    )

    async def find_known(_request: pb.ExecuteRequest) -> list[bytes]:
        return [first.command_id]

    found: list[bool] = []
    for command in (first, second):
        request = pb.ExecuteRequest(commands=[command])
        await shard.harness.leader.scalable.adopt_unknown(request, find_known)
        found.append("queue" in shard.topic.subscriptions)

    assert found == [False, True]


@run_by(in_scalable_shard)
async def test_a_subscription_that_no_broker_has_is_not_found(shard: ScalableShard) -> None:
    result = await shard.unsubscribe("absent")

    assert result.rejection_code == "NOT_FOUND"
    assert not shard.topic.subscriptions
