"""Broker sessions and their deliveries: order, resumption, ends, grants."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from nextgen.kernel.errors import (
    InvalidRequest,
    NotLeader,
    Overloaded,
    ProposalLost,
    Refused,
    SessionExpired,
    Unavailable,
)
from nextgen.kernel.limits.cluster import SESSION_RESUME_MS
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT, KIND_TOPIC, Topic
from shards.domain.broker_session import SetDrain
from shards.sessions import session_hello, session_soft_state
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, FakeBroker, Harness, in_shard


def assignment(name: str, epoch: int = 1) -> pb.TopicAssignment:
    topic = Topic(topic_id=f"id of {name}", name=name, version=1)
    return pb.TopicAssignment(topic=topic, name=name, epoch=epoch, shard_id=1)


def assign_request(broker: FakeBroker, *names: str) -> pb.AssignRequest:
    return pb.AssignRequest(
        broker_id=broker.broker_id,
        session_id=broker.session_id,
        assignments=[assignment(name) for name in names],
    )


def release_request(broker: FakeBroker, name: str) -> pb.ReleaseRequest:
    return pb.ReleaseRequest(
        broker_id=broker.broker_id,
        session_id=broker.session_id,
        releases=[pb.TopicRelease(topic_id=f"id of {name}", name=name, epoch=1)],
    )


@run_by(in_shard)
async def test_a_session_is_established_by_an_event_and_reported(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", capacity_units=7)

    (event,) = await shard.events("broker_session_established")
    established = event.broker_session_established
    assert (established.broker_id, established.epoch) == ("broker-1", 1)
    assert established.session_id == broker.session_id
    assert established.capacity_units == 7
    assert [report.session_id for report in shard.cluster.reports] == [broker.session_id]
    assert not broker.resumed


@run_by(in_shard)
async def test_goodbye_ends_the_session_at_once(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    assert broker.connection is not None

    goodbye = broker_pb.BrokerMessage(goodbye=broker_pb.BrokerGoodbye())
    shard.leader.brokers.sessions.receive(broker.connection, goodbye)
    await asyncio.sleep(0.05)

    (event,) = await shard.events("broker_session_ended")
    assert event.broker_session_ended.reason == "closed"
    assert isinstance(broker.error, SessionExpired)


@run_by(in_shard)
async def test_a_broker_that_registers_anew_replaces_its_session(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    old = await shard.start_broker("broker-1")
    old.is_hanging = True
    waiting = asyncio.create_task(shard.ask(assign=assign_request(old, topic)))
    await asyncio.sleep(0.1)

    new = await shard.start_broker("broker-1")

    with pytest.raises(SessionExpired):
        await waiting
    assert new.session_id != old.session_id
    (event,) = await shard.events("broker_session_ended")
    assert event.broker_session_ended.reason == "replaced"
    live = [(report.epoch, report.is_live) for report in shard.cluster.reports]
    assert live[-2:] == [(1, False), (2, True)]


@run_by(in_shard)
async def test_metadata_is_sent_once_per_session_and_before_what_needs_it(shard: Harness) -> None:
    topics = await shard.create_topics("a", "b")
    broker = await shard.start_broker("broker-1")

    await shard.ask(assign=assign_request(broker, topics[0]))
    await shard.ask(assign=assign_request(broker, topics[1]))

    kinds = [delivery.WhichOneof("body") for delivery in broker.deliveries]
    assert kinds == ["tenant", "namespace", "assign", "assign"]
    assert broker.deliveries[0].tenant.name == "acme"
    assert broker.deliveries[1].namespace.name == "acme/orders"


@run_by(in_shard)
async def test_concurrent_assignments_share_one_read_of_their_namespace(shard: Harness) -> None:
    topics = await shard.create_topics(*(f"t-{number}" for number in range(20)))
    broker = await shard.start_broker("broker-1")
    shard.others.reads.clear()

    await asyncio.gather(*(shard.ask(assign=assign_request(broker, topic)) for topic in topics))

    assert shard.others.reads == ["acme", "acme/orders"]
    kinds = [delivery.WhichOneof("body") for delivery in broker.deliveries]
    assert kinds == ["tenant", "namespace", *["assign"] * 20]


@run_by(in_shard)
async def test_metadata_that_is_not_there_fails_the_assignment_and_sends_nothing(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")

    with pytest.raises(Unavailable, match="not in its inventory"):
        await shard.ask(assign=assign_request(broker, "persistent://no/where/t"))

    assert broker.deliveries == []


@run_by(in_shard)
async def test_assign_is_answered_with_its_position_once_the_broker_has_synced_it(
    shard: Harness,
) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    request = pb.ShardRequest(
        request_id=5, shard_id=1, timeout_ms=1_000, assign=assign_request(broker, topic)
    )

    answer = await shard.dispatcher.answer(request)

    assert answer.request_id == 5
    assert (answer.assign.sequence, answer.assign.synced) == (3, True)


@run_by(in_shard)
async def test_a_connection_that_breaks_loses_no_delivery(shard: Harness) -> None:
    topics = await shard.create_topics("a", "b")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topics[0]))
    broker.vanish()
    waiting = asyncio.create_task(shard.ask(assign=assign_request(broker, topics[1])))
    await asyncio.sleep(SESSION_RESUME_MS / 2_000)

    await broker.connect()
    response = await waiting

    assert broker.resumed
    assert response.assign.synced
    assert [name for name, _ in broker.assigned] == topics


@run_by(in_shard)
async def test_what_was_sent_and_not_applied_is_sent_again_on_resumption(shard: Harness) -> None:
    """1. Deliveries reach the broker, 2. it loses the connection before it applied the last."""
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    broker.is_hanging = True
    waiting = asyncio.create_task(shard.ask(assign=assign_request(broker, topic)))
    await asyncio.sleep(0.1)
    broker.vanish()
    broker.applied = 2
    del broker.deliveries[2:]

    broker.is_hanging = False
    await broker.connect()
    await waiting

    assert broker.resumed
    assert broker.assigned == [(topic, 1)]


@run_by(in_shard)
async def test_a_broker_that_forgot_what_it_had_synced_gets_a_new_session(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topic))
    before = broker.session_id
    broker.vanish()
    broker.applied = 0

    await broker.connect()

    assert not broker.resumed
    assert broker.session_id != before


@run_by(in_shard)
async def test_a_second_connection_of_a_session_takes_the_place_of_the_first(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    first = broker.connection
    assert first is not None

    await broker.connect()

    assert isinstance(first.error, SessionExpired)
    assert broker.resumed


@run_by(in_shard)
async def test_at_a_new_leader_the_sequence_goes_on_where_the_broker_stopped(
    shard: Harness,
) -> None:
    topics = await shard.create_topics("a", "b")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topics[0]))
    session_id = broker.session_id

    shard.next_term()
    waiting = asyncio.create_task(shard.ask(assign=assign_request(broker, topics[1])))
    await asyncio.sleep(0.2)
    assert not waiting.done(), "the sequence is not known before the broker comes"
    await broker.connect()
    response = await waiting

    assert broker.resumed
    assert broker.session_id == session_id
    # Metadata again: a new leader does not know what the session was sent.
    assert response.assign.sequence == 6


@run_by(in_shard)
async def test_a_new_leader_gives_every_session_its_full_time(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    await asyncio.sleep(5.0)
    shard.next_term()

    await asyncio.sleep(2.9)
    assert shard.leader.brokers.sessions.count == 1
    await asyncio.sleep(0.3)

    assert shard.leader.brokers.sessions.count == 0
    assert len(await shard.events("broker_session_ended")) == 1


@run_by(in_shard)
async def test_a_new_leader_reports_the_sessions_that_ended_as_well(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    gone = await shard.start_broker("broker-2")
    gone.vanish()
    await asyncio.sleep(4.0)
    shard.cluster.reports.clear()

    for listener in tuple(shard.cluster._reconnected):
        listener()

    reported = {report.broker_id: report.is_live for report in shard.cluster.reports}
    assert reported == {"broker-1": True, "broker-2": False}


@run_by(in_shard)
async def test_requests_for_an_ended_session_are_refused_as_expired(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    broker.session_id = "0" * 24

    with pytest.raises(SessionExpired):
        await shard.ask(assign=assign_request(broker, topic))
    with pytest.raises(SessionExpired):
        await shard.ask(release=release_request(broker, topic))
    grant = pb.GrantCapacityRequest(broker_id="broker-1", session_id=broker.session_id)
    with pytest.raises(SessionExpired):
        await shard.ask(grant=grant)


@pytest.mark.parametrize("asked", ["grant", "drain"])
@run_by(in_shard)
async def test_the_end_of_a_session_is_answered_once_it_is_committed(
    shard: Harness, *, asked: str
) -> None:
    """The cluster manager never accepts a session again after it was reported ended."""
    broker = await shard.start_broker("broker-1")
    assert broker.connection is not None
    shard.log.hold_commits()
    goodbye = broker_pb.BrokerMessage(goodbye=broker_pb.BrokerGoodbye())
    shard.leader.brokers.sessions.receive(broker.connection, goodbye)
    await asyncio.sleep(0.01)
    grant = pb.GrantCapacityRequest(broker_id="broker-1", session_id=broker.session_id, units=10)
    command = SetDrain("broker-1", broker.session_id, draining=True)

    if asked == "grant":
        asking = asyncio.create_task(shard.ask(grant=grant))
    else:
        asking = asyncio.create_task(shard.leader.brokers.sessions.carry_out(command))
    await asyncio.sleep(0.01)
    assert not asking.done()
    shard.log.lose_leadership()

    with pytest.raises((ProposalLost, NotLeader)):
        await asking


@run_by(in_shard)
async def test_a_grant_is_recorded_once_and_never_exceeds_the_capacity(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", capacity_units=100)

    async def grant(units: int) -> int:
        request = pb.GrantCapacityRequest(
            broker_id="broker-1", session_id=broker.session_id, units=units
        )
        return (await shard.ask(grant=request)).grant.units

    assert [await grant(60), await grant(60), await grant(40)] == [60, 60, 60]
    assert await grant(1_000) == 100
    events = await shard.events("capacity_granted")
    assert [event.capacity_granted.units for event in events] == [60, 100]


def test_a_broker_that_syncs_nothing_is_overload_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_soft_state, "DELIVERIES_UNACKED_MAX", 4)

    async def scenario(shard: Harness) -> None:
        topics = await shard.create_topics("a", "b", "c")
        broker = await shard.start_broker("broker-1")
        broker.is_hanging = True
        at_limit = [
            asyncio.create_task(shard.ask(assign=assign_request(broker, topic)))
            for topic in topics[:2]
        ]
        await asyncio.sleep(0.1)

        with pytest.raises(Overloaded, match="broker-1 has not synced 4 deliveries"):
            await shard.ask(assign=assign_request(broker, topics[2]))

        broker.wake()
        await asyncio.gather(*at_limit)

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_a_bad_hello_is_refused_before_anything_is_decided(shard: Harness) -> None:
    sessions = shard.leader.brokers.sessions
    nameless = broker_pb.BrokerHello()
    nowhere = broker_pb.BrokerHello(broker_id="broker-1")
    huge = FakeBroker(shard, "broker-1", capacity_units=2**31).hello()

    with pytest.raises(InvalidRequest):
        await sessions.connect(nameless)
    with pytest.raises(InvalidRequest):
        await sessions.connect(nowhere)
    with pytest.raises(Refused):
        await sessions.connect(huge)

    assert await shard.events("broker_session_established") == []


@run_by(in_shard)
async def test_a_second_hello_on_one_stream_is_refused(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    assert broker.connection is not None

    with pytest.raises(InvalidRequest):
        shard.leader.brokers.sessions.receive(
            broker.connection, broker_pb.BrokerMessage(hello=broker.hello())
        )


@run_by(in_shard)
async def test_lost_leadership_sends_brokers_and_waiting_controllers_on(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    broker.is_hanging = True
    waiting = asyncio.create_task(shard.ask(assign=assign_request(broker, topic)))
    await asyncio.sleep(0.1)

    shard.log.lose_leadership("node-2")  # type: ignore[arg-type]
    with pytest.raises(NotLeader) as failed:
        await waiting
    await asyncio.sleep(0.1)

    assert failed.value.leader_hint == "node-2:1"
    assert isinstance(broker.error, NotLeader)


@run_by(in_shard)
async def test_a_status_line_says_how_far_a_broker_is(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topic))

    (status,) = shard.leader.brokers.sessions.statuses()

    assert (status.broker_id, status.epoch) == ("broker-1", 1)
    assert (status.sent_sequence, status.synced_sequence) == (3, 3)


# What changes later -----------------------------------------------------------------------------


async def recreate_namespace(shard: Harness, topic: str) -> None:
    """Delete a topic with its namespace, and create both again."""
    await shard.execute(delete_topic=pb.DeleteTopic(name=topic))
    deleted = await shard.execute(delete_namespace=pb.DeleteNamespace(name=NAMESPACE))
    assert not deleted.rejection_code
    await shard.create_topics(topic.rpartition("/")[2])


async def assigned_as_it_is(shard: Harness, topic: str) -> pb.TopicAssignment:
    wanted = pb.ObjectName(kind=KIND_TOPIC, name=topic)
    found = (await shard.ask(get=pb.GetRequest(names=[wanted]))).get.items[0].topic
    return pb.TopicAssignment(topic=found, name=topic, epoch=1, shard_id=1)


@run_by(in_shard)
async def test_a_namespace_that_was_created_again_is_sent_again(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    request = assign_request(broker)
    request.assignments.append(await assigned_as_it_is(shard, topic))
    await shard.ask(assign=request)
    before = broker.deliveries[1].namespace.namespace_id

    await recreate_namespace(shard, topic)
    request.assignments[0].CopyFrom(await assigned_as_it_is(shard, topic))
    await shard.ask(assign=request)

    kinds = [delivery.WhichOneof("body") for delivery in broker.deliveries]
    assert kinds == ["tenant", "namespace", "assign", "namespace", "assign"]
    assert broker.deliveries[3].namespace.namespace_id != before


@run_by(in_shard)
async def test_a_topic_of_a_namespace_that_was_deleted_is_not_assigned(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    request = assign_request(broker)
    request.assignments.append(await assigned_as_it_is(shard, topic))
    await recreate_namespace(shard, topic)

    with pytest.raises(Unavailable, match="belongs to another namespace"):
        await shard.ask(assign=request)

    assert broker.assigned == []


@run_by(in_shard)
async def test_only_a_leader_that_did_not_begin_the_session_asks_what_is_held(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    assert not broker.is_asked_what_it_holds
    broker.vanish()
    await broker.connect()
    assert (broker.resumed, broker.is_asked_what_it_holds) == (True, False)

    shard.next_term()
    await broker.connect()
    assert (broker.resumed, broker.is_asked_what_it_holds) == (True, True)
    assert broker.connection is not None
    last = broker_pb.BrokerMessage(held=broker_pb.HeldMetadata(complete=True))
    shard.leader.brokers.sessions.receive(broker.connection, last)
    broker.vanish()
    await broker.connect()
    assert (broker.resumed, broker.is_asked_what_it_holds) == (True, False)


def test_what_a_broker_says_it_holds_has_so_many_objects_in_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_hello, "HELD_OBJECTS_PER_MESSAGE_MAX", 2)

    def held(count: int) -> broker_pb.BrokerMessage:
        objects = [
            broker_pb.HeldObject(kind=KIND_TENANT, name=f"t-{number}", id="a", version=1)
            for number in range(count)
        ]
        return broker_pb.BrokerMessage(held=broker_pb.HeldMetadata(objects=objects))

    async def scenario(shard: Harness) -> None:
        broker = await shard.start_broker("broker-1")
        shard.next_term()
        await broker.connect()
        assert broker.connection is not None
        sessions = shard.leader.brokers.sessions

        sessions.receive(broker.connection, held(2))
        assert shard.leader.brokers.metadata.name_count == 2
        with pytest.raises(InvalidRequest, match="reports 3 objects"):
            sessions.receive(broker.connection, held(3))

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_the_names_of_a_session_are_followed_until_it_ends(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topic))
    assert shard.leader.brokers.metadata.name_count == 3

    await shard.ask(release=release_request(broker, topic))
    assert shard.leader.brokers.metadata.name_count == 2
    broker.vanish()
    await asyncio.sleep(SESSION_RESUME_MS / 500)

    assert shard.leader.brokers.sessions.count == 0
    assert shard.leader.brokers.metadata.name_count == 0


@run_by(in_shard)
async def test_waiters_for_a_sync_are_notified_of_it(shard: Harness) -> None:
    topics = await shard.create_topics("a", "b")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topics[0]))
    metadata = shard.leader.brokers.sessions.live("broker-1", broker.session_id).metadata
    gone = next(sent for sent in metadata if sent.name == topics[0])
    gone.is_gone = True
    metadata.behind[gone] = None

    await shard.ask(assign=assign_request(broker, topics[1]))
    await asyncio.sleep(0.1)

    assert broker.deliveries[-1].removed.name == topics[0]
    assert gone not in metadata.behind


@run_by(in_shard)
async def test_what_was_told_since_replaces_what_was_under_way(shard: Harness) -> None:
    """1. Topic, namespace and tenant are followed. 2. They change. 3. An assignment that left its
    controller before comes for another broker: it is not to get what is known to be old."""
    (topic,) = await shard.create_topics("a")
    first = await shard.start_broker("broker-1")
    response = (await shard.ask(assign=assign_request(first, topic))).assign
    assert not response.watched, "nobody followed it before"
    followed = shard.leader.brokers.metadata._names
    states = {
        topic: replace(shard.leader.state.reads.load_topic(topic), version=9),
        "acme/orders": replace(shard.leader.state.reads.load_namespace("acme/orders"), version=7),
        "acme": replace(shard.leader.state.reads.load_tenant("acme"), version=5),
    }
    for name, state in states.items():
        followed[name].state, followed[name].known_at = state, 1
    second = await shard.start_broker("broker-2")
    shard.others.reads.clear()

    request = assign_request(second, topic)
    request.assignments[0].topic.topic_id = states[topic].topic_id
    response = (await shard.ask(assign=request)).assign

    assert response.watched
    tenant, namespace, assigned = second.deliveries
    assert tenant.tenant.version == 5
    assert namespace.namespace.version == 7
    assert assigned.assign.topic.version == 9
    assert shard.others.reads == [], "what is told is not read"


def follow_request(term: int) -> pb.FollowRequest:
    return pb.FollowRequest(home_shard_id=1, term=term, node_id="node-1")


@run_by(in_shard)
async def test_a_manager_without_objects_of_a_home_shard_follows_nothing(shard: Harness) -> None:
    await shard.start_broker("broker-1")

    assert not (await shard.ask(follow=follow_request(5))).follow.follows


@run_by(in_shard)
async def test_a_manager_is_idle_for_a_home_shard_that_it_watches_nothing_of(
    shard: Harness,
) -> None:
    manager = shard.leader.brokers
    broker = await shard.start_broker("broker-1")
    assert manager.follow_idly(follow_request(5))
    (topic,) = await shard.create_topics("t")
    request = assign_request(broker, topic)
    request.term = 4
    with pytest.raises(Unavailable, match="it is led in term 5"):
        await shard.ask(assign=request)

    request.term = 5
    await shard.ask(assign=request)

    assert not manager.follow_idly(follow_request(6)), "it watches the topic's parents there"


@run_by(in_shard)
async def test_a_manager_is_not_idle_before_every_broker_has_reported(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    shard.next_term()
    assert not shard.leader.brokers.follow_idly(follow_request(5))
    await broker.connect()
    assert broker.connection is not None
    held = broker_pb.HeldMetadata(complete=True)
    sessions = shard.leader.brokers.sessions
    sessions.receive(broker.connection, broker_pb.BrokerMessage(held=held))

    assert shard.leader.brokers.follow_idly(follow_request(5))


@run_by(in_shard)
async def test_a_new_home_leader_is_answered_once_every_broker_has_reported(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    await shard.ask(assign=assign_request(broker, topic))
    shard.next_term()
    asked = asyncio.create_task(shard.ask(follow=follow_request(5)))
    await asyncio.sleep(0.1)
    await broker.connect()
    await asyncio.sleep(0.1)
    assert not asked.done(), "nobody knows yet what the broker holds"
    assert not shard.leader.brokers.metadata.are_reported()

    held = broker_pb.HeldMetadata(
        objects=[broker_pb.HeldObject(kind=KIND_TENANT, name="acme", id="t-1", version=1)],
        complete=True,
    )
    assert broker.connection is not None
    sessions = shard.leader.brokers.sessions
    sessions.receive(broker.connection, broker_pb.BrokerMessage(held=held))

    assert (await asked).follow.follows
    assert shard.leader.brokers.metadata.are_reported()


@pytest.mark.parametrize(("term", "is_taken"), [(4, False), (5, True), (6, True), (0, True)])
@run_by(in_shard)
async def test_assignments_of_a_leader_that_was_followed_by_another_are_refused(
    shard: Harness, *, term: int, is_taken: bool
) -> None:
    """The next one waits for nothing that it does not know to be under way. A sender of an older
    release says no term."""
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    await shard.ask(follow=follow_request(5))
    request = assign_request(broker, topic)
    request.term = term

    if is_taken:
        await shard.ask(assign=request)
    else:
        with pytest.raises(Unavailable, match="it is led in term 5"):
            await shard.ask(assign=request)

    assert len(broker.assigned) == int(is_taken)


@run_by(in_shard)
async def test_an_assignment_is_refused_whose_sender_is_followed_while_metadata_is_read(
    shard: Harness,
) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    goes_on = asyncio.Event()

    async def wait(_reader: str) -> None:
        await goes_on.wait()

    shard.others.on_read = wait
    request = assign_request(broker, topic)
    request.term = 4
    asked = asyncio.create_task(shard.ask(assign=request))
    await asyncio.sleep(0.1)
    await shard.ask(follow=follow_request(5))
    goes_on.set()

    with pytest.raises(Unavailable, match="it is led in term 5"):
        await asked
    assert broker.deliveries == []


@run_by(in_shard)
async def test_metadata_that_was_read_from_an_earlier_home_leader_is_read_again(
    shard: Harness,
) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    goes_on = asyncio.Event()

    async def wait(_reader: str) -> None:
        await goes_on.wait()

    shard.others.reads.clear()
    shard.others.on_read = wait
    asked = asyncio.create_task(shard.ask(assign=assign_request(broker, topic)))
    await asyncio.sleep(0.1)
    await shard.ask(follow=follow_request(5))
    goes_on.set()
    await asked

    assert shard.others.reads == ["acme", "acme/orders"] * 2
    assert [each.WhichOneof("body") for each in broker.deliveries] == [
        *("tenant", "namespace", "assign"),
    ]


@run_by(in_shard)
async def test_an_assignment_says_in_which_term_its_sender_leads(shard: Harness) -> None:
    (topic,) = await shard.create_topics("t")
    broker = await shard.start_broker("broker-1")
    shard.next_term()
    await broker.connect()

    await shard.lookup(topic)

    assert [request.term for request in shard.others.assigned] == [shard.leader.term]
