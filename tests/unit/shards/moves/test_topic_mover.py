"""Moves: the new owner first, then every cache, then the old owner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.errors import InvalidRequest, NotLeader, Overloaded, ProposalLost, Unavailable
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX
from nextgen.kernel.limits.placement import HANDOVERS_IN_FLIGHT_MAX, PREPARES_PER_REQUEST_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.leased_subscriber import LeasedSubscriber

SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader moves nothing before."""


@run_by(in_shard)
async def test_a_move_takes_the_unit_to_the_target_and_tells_the_old_owner(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    second = await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)

    (answer,) = await shard.move((topic, "broker-2"))

    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)
    assert second.assigned == [(topic, 2)]
    assert first.released == [(topic, 1, "broker-2")]
    (event,) = (await shard.events("topic_assigned"))[1:]
    assert event.topic_assigned.reason == "moved"
    assert (await shard.lookup(topic))[0].broker_id == "broker-2"


@run_by(in_shard)
async def test_a_move_that_was_done_already_is_answered_and_not_done_again(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)

    (first,) = await shard.move((topic, ""), expected_epoch=1)
    (again,) = await shard.move((topic, ""), expected_epoch=1)

    assert (first.broker_id, first.epoch) == ("broker-2", 2)
    assert (again.broker_id, again.epoch) == ("broker-2", 2)
    assert len(await shard.events("topic_assigned")) == 2


@pytest.mark.parametrize("moved", [0, 1])
@run_by(in_shard)
async def test_what_stops_moves_half_way_is_said_of_those_alone_that_stay(
    shard: Harness, *, moved: int
) -> None:
    """A client whose move did not happen repeats it, and "any other" would be one move too many."""
    await shard.start_broker("broker-1")
    topics = await shard.create_topics("t-0", "t-1")
    await shard.lookup(*topics)
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    propose, left = shard.leader.state.proposer.propose, [moved]

    def propose_some(*arguments: Any, **options: Any) -> Any:
        if not left[0]:
            raise Overloaded("the view is too far behind")
        left[0] -= 1
        return propose(*arguments, **options)

    shard.leader.state.proposer.propose = propose_some  # type: ignore[method-assign]
    moves = asyncio.create_task(shard.move(*((topic, "") for topic in topics)))

    if not moved:
        with pytest.raises(Overloaded):
            await moves
        return
    gone, stays = await moves
    assert (gone.broker_id, gone.epoch) == ("broker-2", 2)
    assert (stays.rejection_code, stays.retryable) == ("NO_BROKER", True)
    assert "too far behind" in stays.message


@run_by(in_shard)
async def test_a_unit_that_is_moved_already_does_not_keep_others_from_being_moved(
    shard: Harness,
) -> None:
    await shard.start_broker("broker-1")
    busy, other = await shard.create_topics("t-0", "t-1")
    await shard.lookup(busy, other)
    slow = await shard.start_broker("broker-2")
    await shard.start_broker("broker-3")
    await asyncio.sleep(SETTLED_S)
    slow.is_hanging = True
    first = asyncio.create_task(shard.move((busy, "broker-2")))
    await asyncio.sleep(0.1)

    moves = [
        pb.TopicMove(topic=busy, target_broker_id="broker-3"),
        pb.TopicMove(topic=other, target_broker_id="broker-3"),
    ]
    response = await shard.ask(500, move=pb.MoveRequest(moves=moves))

    assert [each.retryable for each in response.move.answers] == [True, True]
    assert [each.under_way for each in response.move.answers] == [True, True]
    assert [each.message for each in response.move.answers] == [
        "another move of it is under way, this move was not begun",
        "the move is under way",
    ]
    assert not first.done()
    await first
    assert (await shard.lookup(other))[0].broker_id == "broker-3"


@run_by(in_shard)
async def test_a_batch_of_moves_shares_records_and_requests(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    topics = await shard.create_topics(*(f"t-{number}" for number in range(30)))
    await shard.lookup(*topics)
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    index, requests = shard.log.status.last_index, len(shard.others.assigned)

    answers = await shard.move(*((topic, "") for topic in topics))

    assert {(answer.broker_id, answer.epoch) for answer in answers} == {("broker-2", 2)}
    # Many are prepared and announced together; a few at a time are handed over then.
    prepares = -(-30 // PREPARES_PER_REQUEST_MAX)
    times = -(-30 // HANDOVERS_IN_FLIGHT_MAX)
    assert shard.log.status.last_index == index + times
    assert len(shard.others.assigned) == requests + prepares + 2 * times
    assert len(shard.others.released) == prepares + times
    assert len(first.released) == 30


@run_by(in_shard)
async def test_the_old_owner_serves_until_every_subscriber_knows(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    subscriber = LeasedSubscriber(shard.replica.changes)
    await subscriber.drain()

    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await asyncio.sleep(1.0)
    assert first.released == []
    update = await subscriber.take()
    subscriber.acknowledge(update.position)
    await moving

    assert [event.topic_assigned.broker_id for event in update.events] == ["broker-2"]
    assert first.released == [(topic, 1, "broker-2")]


@run_by(in_shard)
async def test_lookups_during_a_move_wait_for_the_new_owner(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    second = await shard.start_broker("broker-2")
    second.hangs_at = "assign"
    await asyncio.sleep(SETTLED_S)

    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await asyncio.sleep(0.1)
    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.5)
    assert not looking.done()
    second.wake()
    (answer,) = await looking
    await moving

    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)


@run_by(in_shard)
async def test_what_cannot_move_stays_and_says_why(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    idle, here = await shard.create_topics("idle", "here")
    await shard.lookup(here)

    answers = await shard.move(
        (idle, "broker-1"), (here, "broker-9"), ("persistent://acme/orders/absent", "")
    )
    (stayed,) = await shard.move((here, "broker-1"))
    (nowhere,) = await shard.move((here, ""))

    codes = [answer.rejection_code for answer in answers]
    assert codes == ["NOT_FOUND", "NO_BROKER", "NOT_FOUND"]
    assert (stayed.broker_id, stayed.epoch) == ("broker-1", 1)
    assert nowhere.rejection_code == "NO_CAPACITY"
    assert len(await shard.events("topic_assigned")) == 1


@run_by(in_shard)
async def test_a_full_target_refuses(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    a, b = await shard.create_topics("a", "b")
    await shard.lookup(a, b)
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    shard.cluster.units = 1
    await shard.start_broker("broker-3")
    await asyncio.sleep(0.1)

    answers = await shard.move((a, "broker-2"), (b, "broker-2"))

    assert [answer.rejection_code for answer in answers] == ["", "NO_CAPACITY"]


@run_by(in_shard)
async def test_while_the_target_cannot_be_reached_the_old_owner_serves_on(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    second = await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    shard.others.assign_error = Unavailable("its manager cannot be reached")

    (answer,) = await shard.move((topic, "broker-2"))
    assert (answer.rejection_code, answer.retryable) == ("NO_BROKER", True)
    assert answer.under_way, "it is decided, and finished later"
    assert not (await shard.lookup(topic))[0].under_way, "a lookup knows no moves"
    await asyncio.sleep(2.0)
    assert first.released == []
    shard.others.assign_error = None
    await asyncio.sleep(5.0)

    assert second.assigned == [(topic, 2)]
    assert first.released == [(topic, 1, "broker-2")]
    (looked_up,) = await shard.lookup(topic)
    assert (looked_up.broker_id, looked_up.epoch) == ("broker-2", 2)


@run_by(in_shard)
async def test_an_old_owner_that_cannot_be_told_is_told_later(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    shard.others.release_error = Unavailable("its manager cannot be reached")

    (answer,) = await shard.move((topic, "broker-2"))
    assert answer.broker_id == "broker-2"
    shard.others.release_error = None
    await asyncio.sleep(5.0)

    assert first.released == [(topic, 1, "broker-2")]


@run_by(in_shard)
async def test_a_new_leader_finishes_the_moves_of_the_old_one(shard: Harness) -> None:
    """1. The move is committed, 2. the leader dies before the target has the unit."""
    first = await shard.start_broker("broker-1")
    moved, settled = await shard.create_topics("moved", "settled")
    await shard.lookup(moved, settled)
    second = await shard.start_broker("broker-2")
    second.hangs_at = "assign"
    moving = asyncio.create_task(shard.move((moved, "broker-2")))
    await asyncio.sleep(0.1)
    shard.next_term()
    await asyncio.gather(moving, return_exceptions=True)
    second.hangs_at = ""

    await first.connect()
    await second.connect()
    await asyncio.sleep(SETTLED_S)

    assert second.assigned[-1] == (moved, 2)
    assert first.released == [(moved, 1, "broker-2")]
    assert second.released == []


@run_by(in_shard)
async def test_moves_of_long_ago_are_not_looked_at_again(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    second = await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    await shard.move((topic, "broker-2"))
    await asyncio.sleep(60.0)
    await shard.create_topics("later")
    shard.next_term()
    await first.connect()
    await second.connect()
    requests = len(shard.others.assigned)

    await asyncio.sleep(SETTLED_S)

    assert len(shard.others.assigned) == requests


@run_by(in_shard)
async def test_a_unit_that_is_being_assigned_moves_after_that(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    first.is_hanging = True
    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)
    await shard.start_broker("broker-2")
    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await asyncio.sleep(0.1)

    first.wake()
    (answer,) = await moving

    assert (await looking)[0].epoch == 1
    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)


@run_by(in_shard)
async def test_lost_leadership_fails_a_move_that_is_under_way(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    second = await shard.start_broker("broker-2")
    second.is_hanging = True
    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await asyncio.sleep(0.1)

    shard.log.lose_leadership()

    with pytest.raises((ProposalLost, NotLeader)):
        await moving


@run_by(in_shard)
async def test_too_many_moves_are_refused(shard: Harness) -> None:
    moves = [(f"persistent://a/b/t-{number}", "") for number in range(ASSIGNMENTS_PER_REQUEST_MAX)]

    assert len(await shard.move(*moves)) == ASSIGNMENTS_PER_REQUEST_MAX
    with pytest.raises(InvalidRequest, match="1001 moves"):
        await shard.move(*moves, ("persistent://a/b/more", ""))
