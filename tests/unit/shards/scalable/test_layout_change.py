"""Operations on layouts: their steps, and what becomes of them when brokers or leaders are gone."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from typing import Any

import pytest

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.scalable import (
    LAYOUT_CHANGE_READY_MS,
    SEGMENT_UNREACHABLE_MS,
    SEGMENT_UNREACHABLE_MS_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable.commands import AbandonLayoutChange
from shards.ports import SegmentUnit
from shards.scalable import topic_decisions
from shards.scalable.layout_change import all_of
from tests.support.scalable.shard import NAME, ScalableShard, endpoint_of, in_scalable_shard
from tests.support.scenarios import run_by

LAYOUT_EVENTS = (
    "layout_change_planned",
    "segment_children_ready",
    "segment_sealed",
    "layout_changed",
    "layout_change_abandoned",
)


async def layout_events(shard: ScalableShard) -> list[str]:
    events = await shard.harness.events(*LAYOUT_EVENTS)
    return [str(each.WhichOneof("payload")) for each in events]


def split(shard: ScalableShard) -> asyncio.Task[pb.CommandResult]:
    return asyncio.create_task(shard.change("split", 0))


def now() -> float:
    return asyncio.get_running_loop().time()


@run_by(in_scalable_shard)
async def test_a_split_is_answered_when_its_layout_is_committed(shard: ScalableShard) -> None:
    await shard.subscribe("s")

    result = await shard.change("split", 0)

    assert not result.rejection_code
    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}
    assert result.version == shard.topic.version
    assert result.position == shard.harness.leader.state.position
    assert await layout_events(shard) == [
        "layout_change_planned",
        "segment_children_ready",
        "segment_sealed",
        "layout_changed",
    ]


@run_by(in_scalable_shard)
async def test_children_are_open_with_every_cursor_before_a_parent_ends(
    shard: ScalableShard,
) -> None:
    await shard.subscribe("s")
    await shard.subscribe("readers", "checkpoint")
    shard.segments.calls.clear()

    await shard.change("split", 0)

    kinds = [kind for kind, *_ in shard.segments.calls]
    assert kinds == ["ready"] * 2 + ["cursor"] * 2 + ["seal"]
    assert shard.segments.ledger("s1").cursors == shard.segments.ledger("s2").cursors == {"s": 0}


@run_by(in_scalable_shard, segments=2)
async def test_the_parents_of_a_merge_end_one_by_one(shard: ScalableShard) -> None:
    await shard.change("merge", 0, 1)

    assert shard.units == {"s0": "sealed", "s1": "sealed", "s2": "active"}
    assert await layout_events(shard) == [
        "layout_change_planned",
        "segment_children_ready",
        "segment_sealed",
        "segment_sealed",
        "layout_changed",
    ]


@run_by(in_scalable_shard)
async def test_other_buckets_are_another_segment_of_the_same_range(shard: ScalableShard) -> None:
    await shard.change("rebucket", 0, buckets=3)

    (active,) = shard.topic.active
    assert (active.segment_id, active.bucket_count, active.parents) == (1, 3, (0,))


@run_by(in_scalable_shard)
async def test_the_same_operation_again_is_the_first_one(shard: ScalableShard) -> None:
    first, second = await asyncio.gather(shard.change("split", 0), shard.change("split", 0))

    assert (first.operation_id, second.operation_id) == (1, 1)
    assert not second.rejection_code
    assert (await layout_events(shard)).count("layout_changed") == 1


@run_by(in_scalable_shard, segments=2)
async def test_another_operation_is_refused_while_one_is_under_way(shard: ScalableShard) -> None:
    shard.segments.hanging.add(endpoint_of("broker-1"))
    shard.segments.hanging.add(endpoint_of("broker-2"))
    under_way = split(shard)
    await asyncio.sleep(0.1)

    refused = await shard.change("merge", 0, 1)

    assert refused.rejection_code == "NOT_ALLOWED"
    assert "operation 1 of" in refused.message
    shard.segments.hanging.clear()
    assert not (await under_way).rejection_code


@run_by(in_scalable_shard)
async def test_a_subscription_that_comes_meanwhile_is_in_every_child(shard: ScalableShard) -> None:
    """It is decided while the children get the cursors of those that were there."""
    late: list[asyncio.Task[Any]] = []

    def subscribe(step: str, *_: object) -> None:
        if step == "ready s1 is sent" and not late:
            late.append(asyncio.create_task(shard.subscribe("late")))

    shard.segments.on_step = subscribe
    await shard.change("split", 0)
    assert not (await late[0]).rejection_code

    for unit in ("s0", "s1", "s2"):
        assert shard.segments.ledger(unit).cursors == {"late": 0}
    events = [each.WhichOneof("payload") for each in await shard.harness.events()]
    created = events.index("scalable_subscription_created")
    assert events.index("layout_change_planned") < created < events.index("segment_children_ready")


@run_by(in_scalable_shard, segments=2)
async def test_children_get_subscriptions_that_clients_made_at_the_parents(
    shard: ScalableShard,
) -> None:
    """Consumers of a queue make their cursors at the segments. Nobody may be connected now."""
    await shard.subscribe("known")
    shard.segments.ledger("s0").cursors["queue"] = 3
    shard.segments.ledger("s1").cursors["other"] = 0

    await shard.change("merge", 0, 1)

    assert shard.segments.ledger("s2").cursors == {"known": 0, "queue": 0, "other": 0}
    assert list(shard.topic.subscriptions) == ["known"]


@run_by(in_scalable_shard)
async def test_a_subscription_that_a_client_makes_before_the_parent_ends_is_in_every_child(
    shard: ScalableShard,
) -> None:
    def subscribe(step: str, *_: object) -> None:
        if step == "seal s0 is sent":
            shard.segments.ledger("s0").cursors["late"] = 0
        if step.startswith("cursor s1"):
            assert shard.units["s0"] == "active"

    shard.segments.on_step = subscribe
    await shard.change("split", 0)

    assert shard.segments.ledger("s1").cursors == {"late": 0}
    assert shard.segments.ledger("s2").cursors == {"late": 0}


@run_by(in_scalable_shard)
async def test_nothing_is_asked_of_brokers_before_the_plan_is_committed(
    shard: ScalableShard,
) -> None:
    """A plan may be lost with its leader, and the ids of its children are used for others then."""
    shard.harness.log.hold_commits()
    planned = split(shard)
    await asyncio.sleep(0.05)

    shard.harness.leader.scalable.resume(NAME)
    await asyncio.sleep(0.5)

    assert shard.harness.leader.state.reads.load_scalable(NAME).operation is not None  # type: ignore[union-attr]
    assert shard.segments.calls == []
    assert await shard.harness.events("topic_assigned") == []
    shard.harness.log.release_commits()
    assert not (await planned).rejection_code


@run_by(in_scalable_shard)
async def test_no_parent_ends_before_it_is_committed_that_the_children_are_ready(
    shard: ScalableShard,
) -> None:
    """The next leader would take back what it finds planned."""

    def hold(step: str, *_: object) -> None:
        if step.startswith("ready") and step.endswith("is done"):
            shard.harness.log.hold_commits()

    shard.segments.on_step = hold
    planned = split(shard)
    await asyncio.sleep(0.2)
    topic = shard.harness.leader.state.reads.load_scalable(NAME)
    assert topic is not None
    assert topic.operation is not None
    assert topic.operation.are_children_ready
    work = shard.harness.leader.scalable.resume(NAME)
    assert work is not None

    for task in work._tasks.values():
        task.cancel()
    await asyncio.sleep(0.5)

    assert not shard.segments.ledger("s0").is_terminated
    shard.segments.on_step = lambda *_: None
    shard.harness.log.release_commits()
    assert not (await planned).rejection_code


# Trouble -----------------------------------------------------------------------------------------


async def fail_until(shard: ScalableShard, after_s: float) -> pb.CommandResult:
    """Split while no broker answers; they do again after some time."""
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    began, planned = now(), split(shard)
    while now() < began + after_s:
        await asyncio.sleep(0.01)
        if planned.done():
            break
    shard.segments.hanging.clear()
    return await planned


@run_by(in_scalable_shard)
async def test_layout_change_ready_ms_without_brokers_take_an_operation_back(
    shard: ScalableShard,
) -> None:
    began = now()

    result = await fail_until(shard, LAYOUT_CHANGE_READY_MS / 1_000 + 40)

    assert result.rejection_code == "NOT_ALLOWED"
    assert "operation 1 of" in result.message
    assert now() - began >= LAYOUT_CHANGE_READY_MS / 1_000
    assert shard.units == {"s0": "active"}
    assert not shard.segments.ledger("s0").is_terminated
    (abandoned,) = await shard.harness.events("layout_change_abandoned")
    assert abandoned.layout_change_abandoned.reason
    again = await shard.change("split", 0)
    assert not again.rejection_code
    assert shard.units == {"s0": "sealed", "s3": "active", "s4": "active"}


@run_by(in_scalable_shard)
async def test_less_than_layout_change_ready_ms_without_brokers_only_delay_it(
    shard: ScalableShard,
) -> None:
    result = await fail_until(shard, LAYOUT_CHANGE_READY_MS / 1_000 - 2)

    assert not result.rejection_code
    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}


@run_by(in_scalable_shard)
async def test_an_operator_takes_an_operation_back(shard: ScalableShard) -> None:
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    planned = split(shard)
    await asyncio.sleep(0.1)

    body = pb.AbandonLayoutChange(name=NAME, operation_id=1)
    taken_back = await shard.run(abandon_layout_change=body)
    result = await planned

    assert not taken_back.rejection_code
    assert result.rejection_code == "NOT_ALLOWED"
    assert shard.units == {"s0": "active"}
    (abandoned,) = await shard.harness.events("layout_change_abandoned")
    assert abandoned.layout_change_abandoned.reason == "an operator asked for it"


@run_by(in_scalable_shard)
async def test_children_of_an_operation_that_was_taken_back_are_removed(
    shard: ScalableShard,
) -> None:
    await shard.subscribe("s")
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    await asyncio.gather(
        shard.change("split", 0), _answer_again(shard, LAYOUT_CHANGE_READY_MS / 1_000 + 5)
    )

    await asyncio.sleep(2)

    topic = shard.topic
    assert (topic.removals, topic.has_work) == ((), False)
    assert shard.segments.ledger("s1").is_removed
    assert shard.segments.ledger("s2").is_removed
    assert (shard.owner("s1"), shard.owner("s2")) == ("", "")


async def _answer_again(shard: ScalableShard, after_s: float) -> None:
    await asyncio.sleep(after_s)
    shard.segments.hanging.clear()


@run_by(in_scalable_shard)
async def test_an_order_to_end_that_comes_late_does_not_orphan_a_range(
    shard: ScalableShard,
) -> None:
    """Its sender was deposed, and the next leader is asked to take the operation back."""
    late: list[Any] = []

    def depose(step: str, _unit: SegmentUnit, effect: Any) -> None:
        if step == "seal s0 is sent" and not late:
            late.append(effect)
            shard.stop_leader()

    shard.segments.on_step = depose
    planned = split(shard)
    await asyncio.sleep(0.3)
    assert late
    await shard.start_leader()
    work = shard.harness.leader.scalable.resume(NAME)
    assert work is not None

    with pytest.raises(Refused, match="it can only go on"):
        await work.decisions.decide(shard.topic.topic_id, AbandonLayoutChange(1, "asked"))
    late[0]()
    await planned

    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}


def hang_at_seal(shard: ScalableShard, moves: list[SegmentUnit]) -> None:
    """Let the broker that is to end a parent hang from then on."""

    def hang(step: str, unit: SegmentUnit, _: object) -> None:
        if step == "seal s0 is sent":
            moves.append(unit)
            if len(moves) == 1:
                shard.segments.hanging.add(unit.endpoint)

    shard.segments.on_step = hang


@run_by(in_scalable_shard)
async def test_a_parent_whose_broker_is_silent_for_segment_unreachable_ms_ends_at_another(
    shard: ScalableShard,
) -> None:
    calls: list[SegmentUnit] = []
    hang_at_seal(shard, calls)
    began = now()

    result = await shard.change("split", 0)

    assert not result.rejection_code
    first, *_, last = calls
    assert first.endpoint != last.endpoint
    assert (first.epoch, last.epoch) == (1, 2)
    assert SEGMENT_UNREACHABLE_MS / 1_000 < now() - began < 2 + SEGMENT_UNREACHABLE_MS / 1_000


@run_by(in_scalable_shard)
async def test_a_broker_that_answers_within_segment_unreachable_ms_keeps_its_segment(
    shard: ScalableShard,
) -> None:
    calls: list[SegmentUnit] = []
    hang_at_seal(shard, calls)
    planned = split(shard)
    await asyncio.sleep(SEGMENT_UNREACHABLE_MS / 1_000 - 0.1)
    shard.segments.hanging.clear()

    assert not (await planned).rejection_code

    assert [each.epoch for each in calls] == [1]


@run_by(in_scalable_shard)
async def test_segment_unreachable_ms_max_is_the_longest_time_between_two_moves(
    shard: ScalableShard,
) -> None:
    """A broker that is slow to open a segment is given more time with each move in vain."""
    calls: list[tuple[float, int]] = []

    def hang(step: str, unit: SegmentUnit, _: object) -> None:
        if step == "seal s0 is sent":
            shard.segments.hanging.add(unit.endpoint)
            calls.append((now(), unit.epoch))

    shard.segments.on_step = hang
    planned = split(shard)
    await asyncio.sleep(200)
    shard.segments.on_step = lambda *_: None
    shard.segments.hanging.clear()
    await planned

    first_of = {epoch: at for at, epoch in reversed(calls)}
    times = [first_of[epoch] for epoch in sorted(first_of)]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    longest_s = SEGMENT_UNREACHABLE_MS_MAX / 1_000
    wanted = [min(longest_s, 2.0**number) for number in range(len(pauses))]
    over = [pause - least for pause, least in zip(pauses, wanted, strict=True)]
    assert len(pauses) > 7
    assert all(0 <= round(each, 3) < 3 for each in over), pauses


# Leaders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["ready s1 is sent", "seal s0 is sent", "seal s0 is done"])
@run_by(in_scalable_shard)
async def test_a_new_leader_goes_on_without_being_asked(shard: ScalableShard, *, step: str) -> None:
    """The client that wanted it is gone, too."""

    def depose(what: str, *_: object) -> None:
        if what == step:
            shard.segments.on_step = lambda *_: None
            shard.stop_leader()

    shard.segments.on_step = depose
    planned = split(shard)
    await asyncio.sleep(0.3)
    planned.cancel()
    await shard.start_leader()
    await asyncio.sleep(1)

    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}
    assert (await layout_events(shard)).count("layout_changed") == 1


@run_by(in_scalable_shard)
async def test_a_topic_that_is_deleted_meanwhile_ends_the_operation(shard: ScalableShard) -> None:
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    planned = split(shard)
    await asyncio.sleep(0.1)

    deleted = await shard.harness.execute(delete_topic=pb.DeleteTopic(name=NAME))
    result = await planned

    assert not deleted.rejection_code
    assert (result.rejection_code, "was deleted meanwhile" in result.message) == ("NOT_FOUND", True)
    await asyncio.sleep(3)
    assert shard.harness.leader.scalable.topics_at_work == 0


@run_by(in_scalable_shard)
async def test_a_task_that_fails_by_a_bug_begins_again(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``layout_change`` is a kept task, which no simulated cluster has all the time."""
    ready, failed = shard.segments.ready, []

    async def break_once(*given: Any, **named: Any) -> None:
        if not failed:
            failed.append(1)
            raise ZeroDivisionError
        await ready(*given, **named)

    monkeypatch.setattr(shard.segments, "ready", break_once)

    assert not (await shard.change("split", 0)).rejection_code
    assert failed


@run_by(in_scalable_shard)
async def test_a_step_that_is_refused_again_and_again_pauses(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pause it would be a loop without end."""
    tried = []

    def refuse(_topic: object, command: object) -> Rejected:
        tried.append(command)
        return Rejected(RejectionCode.NOT_ALLOWED, "never")

    monkeypatch.setattr(topic_decisions, "decide", refuse)
    planned = split(shard)
    await asyncio.sleep(5)

    assert 5 < len(tried) < 20
    planned.cancel()


async def test_works_that_are_cancelled_before_they_begin_leave_nothing_behind() -> None:
    async def work() -> None:
        await asyncio.sleep(1.0)

    works = [work() for _ in range(3)]
    carrying = asyncio.ensure_future(all_of(works, at_once=2))
    await asyncio.sleep(0)  # It has begun, and none of the works has.

    carrying.cancel()
    await asyncio.wait([carrying])

    assert [inspect.getcoroutinestate(each) for each in works] == [inspect.CORO_CLOSED] * 3
