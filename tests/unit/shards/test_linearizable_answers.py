"""No answer of a leader rests on what was true before it was asked.

A leader that slept may have been replaced without knowing it. When it wakes, acknowledgements from
before its sleep are waiting for it, and so are questions that were put after its successor decided
something else.
"""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import NotLeader, ProposalLost
from nextgen.kernel.limits.cluster import ELECTION_WAIT_MS, FOLLOWER_READ_WAIT_MS
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, FakeBroker, Harness, in_shard
from tests.support.shards.leased_subscriber import LeasedSubscriber, to_its_end
from tests.unit.shards.sessions.test_broker_manager import assign_request, release_request

ID_1 = bytes(15) + b"1"


def change(name: str, command_id: bytes = b"") -> pb.Command:
    body = pb.SetTopicProperties(name=name, properties={"a": "b"})
    return pb.Command(command_id=command_id, set_topic_properties=body)


def get(name: str, min_position: int = 0) -> pb.ShardRequest:
    names = [pb.ObjectName(kind=KIND_TOPIC, name=name)]
    return pb.ShardRequest(shard_id=1, get=pb.GetRequest(names=names, min_position=min_position))


def elapsed_ms(began: float) -> float:
    return (asyncio.get_running_loop().time() - began) * 1000


@run_by(in_shard)
async def test_a_commit_that_was_under_way_before_a_question_confirms_nothing(
    shard: Harness,
) -> None:
    """1. A record is proposed. 2. The leader sleeps and is replaced. 3. It wakes and is asked.
    4. The acknowledgements from before its sleep arrive, and commit the record."""
    (topic,) = await shard.create_topics("orders")
    shard.log.hold_commits()
    writing = asyncio.ensure_future(shard.create_topics("other"))
    await asyncio.sleep(0.01)
    shard.log.lose_quorum()

    confirming = asyncio.ensure_future(shard.leader.state.proposer.confirm())
    await asyncio.sleep(0.01)
    shard.log.release_commits()

    await writing
    with pytest.raises(NotLeader):
        await confirming
    assert topic


@run_by(in_shard)
async def test_a_rejection_among_commands_that_were_proposed_is_never_said_to_be_definite(
    shard: Harness,
) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_quorum()
    absent = change(f"persistent://{NAMESPACE}/absent")
    request = pb.ExecuteRequest(commands=[change(topic, ID_1), absent])

    with pytest.raises(ProposalLost):
        await shard.leader.inventory.execute(request)


@run_by(in_shard)
async def test_a_lookup_that_joins_one_under_way_needs_a_confirmed_leader(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    broker.is_hanging = True
    first = asyncio.ensure_future(shard.lookup(topic))
    await asyncio.sleep(0.1)
    assert not first.done(), "the scenario needs an assignment on its way"
    shard.log.lose_quorum()

    with pytest.raises(NotLeader):
        await shard.lookup(topic)

    broker.wake()
    (answer,) = await first
    assert answer.broker_id == "broker-1"


@run_by(in_shard)
async def test_an_assignment_sent_again_needs_a_confirmed_leader(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    shard.next_term()
    shard.log.lose_quorum()

    with pytest.raises(NotLeader):
        await shard.lookup(topic)


@run_by(in_shard)
async def test_a_move_that_moves_nothing_needs_a_confirmed_leader(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_quorum()

    with pytest.raises(NotLeader):
        await shard.leader.mover.move([pb.TopicMove(topic=topic)])


@run_by(in_shard)
async def test_a_deposed_broker_manager_does_not_say_that_a_session_is_over(shard: Harness) -> None:
    stranger = FakeBroker(shard, "broker-9")
    stranger.session_id = "0000000000000000deadbeef"
    shard.log.lose_quorum()

    for asked in (
        shard.leader.brokers.assign(assign_request(stranger, f"persistent://{NAMESPACE}/t")),
        shard.leader.brokers.release(release_request(stranger, f"persistent://{NAMESPACE}/t")),
        shard.leader.brokers.grant(
            pb.GrantCapacityRequest(
                broker_id=stranger.broker_id, session_id=stranger.session_id, units=1
            )
        ),
    ):
        with pytest.raises(NotLeader):
            await asked


@pytest.mark.parametrize("kind", ["get", "list"])
@run_by(in_shard)
async def test_a_read_without_a_position_needs_a_confirmed_leader(
    shard: Harness, *, kind: str
) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_quorum()
    request = get(topic)
    if kind == "list":
        body = pb.ListRequest(kind=KIND_TOPIC, parent=NAMESPACE)
        request = pb.ShardRequest(shard_id=1, list=body)

    answer = await shard.dispatcher.answer(request)

    assert answer.error.reason == "NOT_LEADER"


@run_by(in_shard)
async def test_an_update_of_a_deposed_leader_prolongs_nothing(shard: Harness) -> None:
    subscriber = LeasedSubscriber(shard.replica.changes)
    subscriber.acknowledge(0, asked_at_ms=1_000)
    while not (await subscriber.take()).confirmed_at_ms:
        pass
    subscriber.acknowledge(0, asked_at_ms=2_000)
    shard.log.lose_quorum()

    updates, error = await to_its_end(subscriber)

    assert isinstance(error, NotLeader)
    assert {update.confirmed_at_ms for update in updates} <= {1_000}


# Between leaders ---------------------------------------------------------------------------------


@run_by(in_shard)
async def test_a_request_waits_for_the_election_that_is_under_way(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_leadership()
    asking = asyncio.ensure_future(shard.dispatcher.answer(get(topic)))
    await asyncio.sleep(ELECTION_WAIT_MS / 2_000)
    assert not asking.done()

    shard.log.become_leader()

    answer = await asking
    assert answer.get.items[0].topic.name == topic


@run_by(in_shard)
async def test_a_request_is_sent_to_the_next_leader_as_soon_as_it_is_known(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_leadership()
    asking = asyncio.ensure_future(shard.dispatcher.answer(get(topic)))
    await asyncio.sleep(0.01)
    began = asyncio.get_running_loop().time()

    shard.log.lose_leadership(NodeId("node-2"))

    answer = await asking
    assert answer.error.reason == "NOT_LEADER"
    assert answer.error.leader_hint == "node-2:1"
    assert elapsed_ms(began) < 5


@run_by(in_shard)
async def test_a_stopped_replica_names_the_leader_it_last_heard(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_leadership(NodeId("node-2"))
    await shard.replica.stop()
    began = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(get(topic))

    assert answer.error.reason == "NOT_LEADER"
    assert answer.error.leader_hint == "node-2:1"
    assert elapsed_ms(began) < 5


@run_by(in_shard)
async def test_an_election_that_does_not_end_is_not_waited_for_any_longer(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_leadership()
    began = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(get(topic))

    assert answer.error.reason == "NOT_LEADER"
    assert ELECTION_WAIT_MS <= elapsed_ms(began) + 1 <= ELECTION_WAIT_MS + 50


@run_by(in_shard)
async def test_a_read_by_position_does_not_wait_for_any_leader(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    shard.log.lose_leadership()
    began = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(get(topic, min_position=2))

    assert answer.get.items[0].topic.name == topic
    assert elapsed_ms(began) < 5


# By position -------------------------------------------------------------------------------------


@run_by(in_shard)
async def test_a_read_waits_for_its_position_and_says_which_one_it_has(shard: Harness) -> None:
    await shard.create_topics("orders")
    shard.log.hold_applies()
    writing = asyncio.ensure_future(shard.create_topics("late"))
    await writing
    position = shard.log.status.commit_position
    name = f"persistent://{NAMESPACE}/late"
    asking = asyncio.ensure_future(shard.dispatcher.answer(get(name, min_position=position)))
    await asyncio.sleep(0.1)
    assert not asking.done()

    shard.log.release_applies()

    answer = await asking
    assert answer.get.items[0].topic.name == name
    assert answer.position >= position


@run_by(in_shard)
async def test_a_position_that_does_not_come_is_given_up_with_both_positions_named(
    shard: Harness,
) -> None:
    (topic,) = await shard.create_topics("orders")
    began = asyncio.get_running_loop().time()

    answer = await shard.dispatcher.answer(get(topic, min_position=1_000_000))

    assert answer.error.reason == "UNAVAILABLE"
    assert not answer.error.indefinite
    assert "1000000 was requested" in answer.error.message
    assert f"at position {shard.log.status.applied.position}," in answer.error.message
    assert FOLLOWER_READ_WAIT_MS <= elapsed_ms(began) + 1 <= FOLLOWER_READ_WAIT_MS + 100


def listing(min_position: int) -> pb.ShardRequest:
    request = pb.ListRequest(kind=KIND_TOPIC, parent=NAMESPACE, min_position=min_position)
    return pb.ShardRequest(shard_id=1, list=request)


@run_by(in_shard)
async def test_a_page_at_a_position_of_no_event_is_refused_by_a_confirmed_leader_at_once(
    shard: Harness,
) -> None:
    await shard.create_topics("orders")
    last = shard.log.status.commit_position
    began = asyncio.get_running_loop().time()

    reached = await shard.dispatcher.answer(listing(last))
    ahead = await shard.dispatcher.answer(listing(last + 1))

    assert len(reached.list.items) == 1
    assert (ahead.error.reason, ahead.error.last_position) == ("POSITION_AHEAD", last)
    assert elapsed_ms(began) < FOLLOWER_READ_WAIT_MS


@run_by(in_shard)
async def test_a_page_at_a_position_of_no_event_is_not_refused_without_a_majority(
    shard: Harness,
) -> None:
    """The leader may have been replaced, and its successor may have that position."""
    await shard.create_topics("orders")
    shard.log.lose_quorum()

    answer = await shard.dispatcher.answer(listing(shard.log.status.commit_position + 1))

    assert answer.error.reason == "NOT_LEADER"
