"""Handovers: their steps in order, reasons for a refusal, and what is left when a process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.limits.placement import (
    ANNOUNCE_MS_MAX,
    HANDOVERS_IN_FLIGHT_MAX,
    PREPARE_MS_MAX,
    PREPARES_PER_REQUEST_MAX,
    TAKE_OVER_MS_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.assignment import MOVE_REASONS
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard

UNITS = 1_000
SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader moves nothing before."""

FINISHED_S = 20.0
"""Attempts to finish a move are some seconds apart; a silent session ends in that time, too."""

STEPS = {
    "ready": ("prepare", "broker-2"),
    "announced": ("announce", "broker-1"),
    "committed": ("assign", "broker-2"),
    "known": ("release", "broker-1"),
    "released": ("take over", "broker-2"),
}
"""State → the request whose sending is its end."""


async def two_brokers(shard: Harness, *names: str) -> tuple[FakeBroker, FakeBroker, list[str]]:
    """Return two brokers, of which the first has all topics."""
    first = await shard.start_broker("broker-1", UNITS)
    topics = await shard.create_topics(*(names or ("orders",)))
    await shard.lookup(*topics)
    second = await shard.start_broker("broker-2", UNITS)
    await asyncio.sleep(SETTLED_S)
    return first, second, topics


def holds(broker: FakeBroker, topic: str) -> int:
    """Return the epoch in which a broker has a unit by all it was sent, 0 if it has not."""
    epoch = 0
    for delivery in broker.deliveries:
        if delivery.HasField("assign") and delivery.assign.name == topic:
            epoch = max(epoch, delivery.assign.epoch)
        if delivery.release.name == topic and delivery.release.epoch >= epoch:
            epoch = 0
    return epoch


async def log_of(shard: Harness, topic: str) -> list[tuple[int, str, str]]:
    return [
        (each.topic_assigned.epoch, each.topic_assigned.broker_id, each.topic_assigned.reason)
        for each in await shard.events("topic_assigned")
        if each.topic_assigned.name == topic
    ]


@run_by(in_shard)
async def test_each_step_comes_after_the_one_before_is_done(shard: Harness) -> None:
    first, second, (topic,) = await two_brokers(shard)
    steps: list[tuple[str, str, int]] = []

    def note(step: str, broker_id: str) -> None:
        steps.append((step, broker_id, shard.log.status.commit_position))

    shard.others.before_step = note
    before = shard.log.status.commit_position
    await shard.move((topic, "broker-2"))

    assert steps == [
        ("prepare", "broker-2", before),
        ("announce", "broker-1", before),
        ("assign", "broker-2", before + 1),
        ("release", "broker-1", before + 1),
        ("assign", "broker-2", before + 1),
    ]
    assert second.prepared == second.assigned == second.taken_over == [(topic, 2)]
    assert first.announced == first.released == [(topic, 1, "broker-2")]


@run_by(in_shard)
async def test_an_owner_gets_the_url_with_the_announcement_and_with_the_release(
    shard: Harness,
) -> None:
    first, _, (topic,) = await two_brokers(shard)

    await shard.move((topic, "broker-2"))

    told = [each.moving for each in first.deliveries if each.HasField("moving")]
    told += [each.release for each in first.deliveries if each.HasField("release")]
    assert [each.new_broker_url for each in told] == ["pulsar://it:2"] * 2
    assert [each.new_epoch for each in told] == [2, 2]


# Refused, nothing changed --------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["hangs", "cannot be reached", "is gone"])
@run_by(in_shard)
async def test_a_target_that_is_not_ready_gets_nothing(shard: Harness, *, trouble: str) -> None:
    first, second, (topic,) = await two_brokers(shard)
    before = shard.log.status.commit_position
    if trouble == "hangs":
        second.is_hanging = True
    elif trouble == "cannot be reached":
        shard.others.prepare_error = Unavailable("its manager has no leader")
    else:
        second.vanish()
    began = asyncio.get_running_loop().time()

    (answer,) = await shard.move((topic, "broker-2"))

    took_s = asyncio.get_running_loop().time() - began
    assert (answer.rejection_code, answer.retryable) == ("NO_BROKER", True)
    assert "broker-2" in answer.message
    assert took_s <= PREPARE_MS_MAX / 1000 + 0.1
    assert await log_of(shard, topic) == [(1, "broker-1", "first_lookup")]
    assert shard.log.status.commit_position <= before + 1, "a session's end at most"
    assert first.announced == first.released == []
    (looked_up,) = await shard.lookup(topic)
    assert (looked_up.broker_id, looked_up.epoch) == ("broker-1", 1)


@run_by(in_shard)
async def test_a_target_that_its_manager_finds_full_gets_nothing(shard: Harness) -> None:
    """Its lease has room: what other shards gave it this one does not know."""
    first, _, (one, other) = await two_brokers(shard, "one", "other")
    third = await shard.start_broker("broker-3", 1)
    await asyncio.sleep(0.2)
    (moved,) = await shard.move((one, "broker-3"))

    (answer,) = await shard.move((other, "broker-3"))

    assert moved.epoch == 2
    assert (answer.rejection_code, answer.retryable) == ("NO_CAPACITY", True)
    assert "1 of 1 units" in answer.message
    assert await log_of(shard, other) == [(1, "broker-1", "first_lookup")]
    assert [name for name, _ in third.prepared] == [one]
    assert [name for name, _, _ in first.announced] == [one]


@run_by(in_shard)
async def test_a_draining_target_gets_nothing(shard: Harness) -> None:
    first, _, (topic,) = await two_brokers(shard)
    (record,) = [each for each in shard.cluster.live() if each.broker_id == "broker-2"]
    record.draining = True
    shard.cluster.report(record)

    (answer,) = await shard.move((topic, "broker-2"))
    (anywhere,) = await shard.move((topic, ""))

    assert answer.rejection_code == "NO_BROKER"
    assert "draining" in answer.message
    assert anywhere.rejection_code
    assert first.announced == []
    assert await log_of(shard, topic) == [(1, "broker-1", "first_lookup")]


@pytest.mark.parametrize("epoch", [2, 7])
@run_by(in_shard)
async def test_a_stale_idea_of_the_epoch_is_refused(shard: Harness, *, epoch: int) -> None:
    _, second, (topic,) = await two_brokers(shard)

    (answer,) = await shard.move((topic, "broker-2"), expected_epoch=epoch)

    assert (answer.rejection_code, answer.retryable) == ("STALE_EPOCH", False)
    assert f"at epoch 1, not {epoch}" in answer.message
    assert second.deliveries == []


@run_by(in_shard)
async def test_what_changes_while_it_is_prepared_is_left_alone(shard: Harness) -> None:
    first, second, (topic,) = await two_brokers(shard)
    second.is_hanging = True
    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await asyncio.sleep(0.5)
    await shard.execute(delete_topic=pb.DeleteTopic(name=topic))
    second.wake()

    (answer,) = await moving

    assert answer.rejection_code == "STALE_EPOCH"
    assert second.assigned == []
    assert [epoch for epoch, _, _ in await log_of(shard, topic)] == [1]
    assert [name for name, _, _ in first.released] == [topic]


@run_by(in_shard)
async def test_a_target_that_fills_up_while_it_is_prepared_gets_nothing(shard: Harness) -> None:
    _, second, (topic,) = await two_brokers(shard)
    second.is_hanging = True
    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await asyncio.sleep(0.5)
    shard.cluster.units = 0
    await shard.start_broker("broker-3")
    await asyncio.sleep(0.2)
    second.wake()

    (answer,) = await moving

    assert answer.rejection_code in ("NO_CAPACITY", "NO_BROKER")
    assert second.assigned == []


@run_by(in_shard)
async def test_two_moves_of_one_unit_follow_each_other(shard: Harness) -> None:
    _, _, (topic,) = await two_brokers(shard)
    await shard.start_broker("broker-3")
    await asyncio.sleep(0.2)

    both = await asyncio.gather(shard.move((topic, "broker-2")), shard.move((topic, "broker-3")))

    assert [answer.epoch for (answer,) in both] == [2, 3]
    assert [broker for _, broker, _ in await log_of(shard, topic)] == [
        "broker-1",
        "broker-2",
        "broker-3",
    ]


# Who asked -----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked_by", MOVE_REASONS)
@run_by(in_shard)
async def test_the_event_says_why(shard: Harness, *, asked_by: str) -> None:
    _, _, (topic,) = await two_brokers(shard)
    moves = [pb.TopicMove(topic=topic, target_broker_id="broker-2")]

    await shard.leader.mover.move(moves, asked_by=asked_by)

    assert (await log_of(shard, topic))[-1] == (2, "broker-2", MOVE_REASONS[asked_by])


@run_by(in_shard)
async def test_nobody_else_may_ask(shard: Harness) -> None:
    _, second, (topic,) = await two_brokers(shard)
    move = pb.TopicMove(topic=topic, asked_by="somebody")

    with pytest.raises(InvalidRequest, match="'somebody' is no origin of moves"):
        await shard.ask(move=pb.MoveRequest(moves=[move]))

    assert second.prepared == []


# Many ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
@run_by(in_shard, units=100)
async def test_only_so_many_are_handed_over_at_a_time(shard: Harness, *, more: int) -> None:
    count = HANDOVERS_IN_FLIGHT_MAX + more

    first, second, topics = await two_brokers(shard, *(f"t-{n}" for n in range(count)))
    first.hangs_at = "release"

    moving = asyncio.create_task(shard.move(*((topic, "broker-2") for topic in topics)))
    await asyncio.sleep(0.2)

    assert len(second.prepared) == count
    assert len(second.assigned) == HANDOVERS_IN_FLIGHT_MAX
    first.wake()
    assert {answer.epoch for answer in await moving} == {2}
    assert len(second.assigned) == len(first.released) == count


@pytest.mark.parametrize("more", [0, 1])
def test_only_so_many_are_prepared_together(tmp_path: Path, more: int) -> None:
    count = PREPARES_PER_REQUEST_MAX + more

    async def scenario(shard: Harness) -> None:
        _, _, topics = await two_brokers(shard, *(f"t-{n}" for n in range(count)))

        await shard.move(*((topic, "broker-2") for topic in topics))

        prepares = [each for each in shard.others.assigned if each.prepared]
        announces = [each for each in shard.others.released if each.announced]
        assert len(prepares) == len(announces) == 1 + more

    async def with_room(shard: Harness) -> None:
        shard.cluster.units = 2 * count
        await scenario(shard)

    in_shard(tmp_path, with_room, units=2 * count)


@run_by(in_shard)
async def test_a_short_deadline_returns_finished_moves_and_the_rest_continues(
    shard: Harness,
) -> None:
    first, second, (topic,) = await two_brokers(shard)
    second.hangs_at = "assign"
    moves = [pb.TopicMove(topic=topic, target_broker_id="broker-2")]

    (answer,) = await shard.leader.mover.move(moves, timeout_ms=500)
    second.wake()
    await asyncio.sleep(1.0)

    assert (answer.rejection_code, answer.retryable) == ("NO_BROKER", True)
    assert answer.under_way
    assert "under way" in answer.message
    assert shard.leader.mover.units_under_way == 0
    assert first.released == [(topic, 1, "broker-2")]


# Somebody hangs ------------------------------------------------------------------------------


@run_by(in_shard)
async def test_an_owner_that_hangs_is_moved_away_from(shard: Harness) -> None:
    first, second, (topic,) = await two_brokers(shard)
    first.is_hanging = True
    began = asyncio.get_running_loop().time()

    (answer,) = await shard.move((topic, "broker-2"))

    took_s = asyncio.get_running_loop().time() - began
    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)
    # It is not waited for any longer than for both of its answers.
    assert took_s <= (ANNOUNCE_MS_MAX + TAKE_OVER_MS_MAX) / 1000 + 0.1
    assert second.taken_over == [(topic, 2)]
    first.wake()
    await asyncio.sleep(SETTLED_S)
    assert {each for each in first.released} == {(topic, 1, "broker-2")}


# Somebody dies, in every state ---------------------------------------------------------------


def strike_at(shard: Harness, state: str, strike: Callable[[], None]) -> None:
    """Have ``strike`` called once, just before the request that ends ``state`` is sent."""
    wanted = list(STEPS[state])
    was_assigned: list[str] = []

    def before_step(step: str, broker_id: str) -> None:
        if step == "assign" and was_assigned:
            step = "take over"
        elif step == "assign":
            was_assigned.append(step)
        if [step, broker_id] == wanted:
            shard.others.before_step = None
            strike()

    shard.others.before_step = before_step


async def one_owner(shard: Harness, topic: str) -> str:
    """Return the one broker that is looked up, and that holds the unit in the highest epoch."""
    (answer,) = await shard.lookup(topic)
    assert not answer.rejection_code, answer.message
    alive = [each for each in shard.brokers.values() if each.connection is not None]
    epochs = {broker.broker_id: holds(broker, topic) for broker in alive}
    holders = {broker_id: epoch for broker_id, epoch in epochs.items() if epoch}
    assert holders == {answer.broker_id: answer.epoch}
    (*_, (epoch, broker_id, _)) = await log_of(shard, topic)
    assert (epoch, broker_id) == (answer.epoch, answer.broker_id)
    return answer.broker_id


@pytest.mark.parametrize("state", STEPS)
@run_by(in_shard)
async def test_the_source_dies(shard: Harness, *, state: str) -> None:
    first, _, (topic,) = await two_brokers(shard)
    strike_at(shard, state, first.vanish)

    await shard.move((topic, "broker-2"))
    await asyncio.sleep(FINISHED_S)

    assert await one_owner(shard, topic) == "broker-2"


@pytest.mark.parametrize("state", STEPS)
@run_by(in_shard)
async def test_the_target_dies(shard: Harness, *, state: str) -> None:
    first, second, (topic,) = await two_brokers(shard)
    strike_at(shard, state, second.vanish)

    await shard.move((topic, "broker-2"))
    await asyncio.sleep(FINISHED_S)

    assert await one_owner(shard, topic) == "broker-1"
    epochs = [epoch for epoch, _, _ in await log_of(shard, topic)]
    assert epochs == ([1] if state == "ready" else [1, 2, 3])
    assert first.connection is not None


@pytest.mark.parametrize("state", STEPS)
@run_by(in_shard)
async def test_the_controllers_leader_dies(shard: Harness, *, state: str) -> None:
    """It leads the brokers' managers as well here, so that their sessions move with it."""
    first, second, (topic,) = await two_brokers(shard)
    strike_at(shard, state, lambda: asyncio.get_running_loop().call_soon(shard.next_term))

    moved = await asyncio.gather(shard.move((topic, "broker-2")), return_exceptions=True)
    await asyncio.sleep(0.01)
    await first.connect()
    await second.connect()
    await asyncio.sleep(FINISHED_S)

    is_committed = state not in ("ready", "announced")
    assert isinstance(moved[0], Exception) or not is_committed or moved[0][0].epoch == 2
    assert await one_owner(shard, topic) == ("broker-2" if is_committed else "broker-1")


@pytest.mark.parametrize("state", STEPS)
@run_by(in_shard)
async def test_a_broker_managers_leader_dies(shard: Harness, *, state: str) -> None:
    """For some seconds neither broker has a manager; then both are as they were."""
    first, second, (topic,) = await two_brokers(shard)
    away = Unavailable("the broker manager's shard has no leader")

    def strike() -> None:
        others = shard.others
        others.prepare_error = others.assign_error = others.release_error = away
        asyncio.get_running_loop().call_later(2.0, back)
        raise away

    def back() -> None:
        others = shard.others
        others.prepare_error = others.assign_error = others.release_error = None

    strike_at(shard, state, strike)
    (answer,) = await shard.move((topic, "broker-2"))
    await asyncio.sleep(FINISHED_S)

    is_begun = state != "ready"
    assert bool(answer.rejection_code) == (state in ("ready", "announced", "committed"))
    assert await one_owner(shard, topic) == ("broker-2" if is_begun else "broker-1")
    assert (first.released != []) == is_begun
    assert second.connection is not None
