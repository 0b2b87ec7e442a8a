"""Lookups: answered, assigned, waited for; and what each of them costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import (
    NotLeader,
    Overloaded,
    ProposalLost,
    SessionExpired,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.events.generations import last_epoch_of_generation
from nextgen.kernel.governance.policies import PlacementRules, Policies
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, LookupAnswer
from shards.assignment import topic_controller
from shards.domain.topic import TopicPartitionsGrown
from shards.state.event_levels import EVENT_LEVELS
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard


@run_by(in_shard)
async def test_a_thousand_concurrent_first_lookups_make_one_assignment(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    (topic,) = await shard.create_topics("hot")

    answers = await asyncio.gather(*(shard.lookup(topic) for _ in range(1_000)))

    events = await shard.events("topic_assigned")
    assert [event.topic_assigned.name for event in events] == [topic]
    assert events[0].topic_assigned.reason == "first_lookup"
    assert {(a.broker_id, a.epoch) for (a,) in answers} == {(events[0].topic_assigned.broker_id, 1)}


@run_by(in_shard)
async def test_an_answer_says_where_the_topic_is_served_and_what_it_rests_on(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")

    (answer,) = await shard.lookup(topic)

    (event,) = await shard.events("topic_assigned")
    assert answer.topic == topic
    assert answer.broker_id == "broker-1"
    assert answer.broker_grpc == "broker-1:1"
    assert answer.broker_url == "pulsar://it:2"
    assert answer.session_id == broker.session_id
    assert answer.topic_id == event.topic_assigned.topic_id
    assert answer.epoch == 1
    assert answer.shard_id == 1
    assert answer.position == event.position
    assert not answer.rejection_code


@run_by(in_shard)
async def test_the_answer_waits_until_the_broker_has_topic_namespace_and_tenant(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    broker.is_hanging = True
    (topic,) = await shard.create_topics("orders")

    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(1.0)
    assert not looking.done()
    broker.wake()
    (answer,) = await looking

    assert answer.broker_id == "broker-1"
    kinds = [delivery.WhichOneof("body") for delivery in broker.deliveries]
    assert kinds == ["tenant", "namespace", "assign"]


@run_by(in_shard)
async def test_a_warm_lookup_writes_nothing_and_asks_no_broker(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    first = await shard.lookup(topic)
    before = shard.log.status.last_index

    again = await shard.lookup(topic)

    assert again[0].broker_id == first[0].broker_id
    assert again[0].epoch == first[0].epoch
    assert shard.log.status.last_index == before
    assert len(shard.others.assigned) == 1


@run_by(in_shard)
async def test_a_warm_lookup_needs_a_confirmed_leader(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    shard.log.lose_quorum()

    with pytest.raises(NotLeader):
        await shard.lookup(topic)


@run_by(in_shard)
async def test_a_batch_of_cold_topics_is_one_record(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    topics = await shard.create_topics(*(f"t-{number}" for number in range(40)))
    before = shard.log.status.last_index

    answers = await shard.lookup(*topics)

    assert [answer.topic for answer in answers] == topics
    assert shard.log.status.last_index == before + 1
    assert len(shard.others.assigned) == 1


@run_by(in_shard)
async def test_partitions_are_served_as_soon_as_their_topic_has_grown(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (parts,) = await shard.create_topics("parts", partitions=2)
    new, beyond = f"{parts}-partition-3", f"{parts}-partition-4"
    (before,) = await shard.lookup(new)

    result = await shard.execute(grow_topic=pb.GrowTopic(name=parts, partitions=4))
    answers = await shard.lookup(new, beyond, parts)

    assert (result.rejection_code, result.version) == ("", 2)
    assert before.rejection_code == "NOT_FOUND"
    assert [answer.broker_id for answer in answers] == ["broker-1", "", ""]
    assert [answer.rejection_code for answer in answers] == ["", "NOT_FOUND", "PARTITIONED"]
    assert answers[2].partitions == 4


@run_by(in_shard)
async def test_a_topic_grows_once_all_replicas_can_read_that(shard: Harness) -> None:
    """Replicas of the release before do not know the event: the command is refused, not lost."""
    (parts,) = await shard.create_topics("parts", partitions=2)
    shard.log.event_levels[NodeId("node-1")] = EVENT_LEVELS[TopicPartitionsGrown] - 1

    early = await shard.execute(grow_topic=pb.GrowTopic(name=parts, partitions=4))
    shard.log.event_levels.clear()
    late = await shard.execute(grow_topic=pb.GrowTopic(name=parts, partitions=4))

    assert early.rejection_code == "NOT_ALLOWED"
    assert "node-1 is not known to know topic_partitions_grown" in early.message
    assert late.rejection_code == ""


@run_by(in_shard)
async def test_topics_are_spread_over_brokers_by_use(shard: Harness) -> None:
    for number in range(3):
        await shard.start_broker(f"broker-{number}")
    topics = await shard.create_topics(*(f"t-{number}" for number in range(60)))

    answers = await shard.lookup(*topics)

    owners = [answer.broker_id for answer in answers]
    assert {owners.count(f"broker-{number}") for number in range(3)} <= {19, 20, 21}


@run_by(in_shard)
async def test_names_that_no_broker_serves_get_the_reason(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (parts,) = await shard.create_topics("parts", partitions=4)
    absent = "persistent://acme/orders/absent"

    answers = await shard.lookup(absent, parts, f"{parts}-partition-9", "a/b", "orders")

    assert [answer.rejection_code for answer in answers] == [
        "NOT_FOUND",
        "PARTITIONED",
        "NOT_FOUND",
        "INVALID_NAME",
        "INVALID_NAME",
    ]
    assert answers[1].partitions == 4
    assert not any(answer.retryable for answer in answers)


@run_by(in_shard)
async def test_each_partition_is_assigned_by_itself(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (parts,) = await shard.create_topics("parts", partitions=2)

    answers = await shard.lookup(f"{parts}-partition-0", f"{parts}-partition-1")

    assert [answer.epoch for answer in answers] == [1, 1]
    assert [name for name, _ in broker.assigned] == [answer.topic for answer in answers]
    units = [event.topic_assigned.unit for event in await shard.events("topic_assigned")]
    assert units == ["p0", "p1"]


@run_by(in_shard)
async def test_without_a_broker_the_answer_is_to_try_again(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")

    (answer,) = await shard.lookup(topic)

    assert answer.rejection_code == "NO_BROKER"
    assert answer.retryable


@run_by(in_shard)
async def test_a_lookup_waits_a_little_for_the_first_broker(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")

    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.5)
    await shard.start_broker("broker-1")
    (answer,) = await looking

    assert answer.broker_id == "broker-1"


@run_by(in_shard, units=2)
async def test_full_leases_answer_no_capacity_and_ask_for_more(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    topics = await shard.create_topics("a", "b", "c")

    answers = await shard.lookup(*topics)

    assert [answer.rejection_code for answer in answers] == ["", "", "NO_CAPACITY"]
    assert answers[2].retryable
    assert any(request.units_wanted for request in shard.cluster.lease_requests)


@run_by(in_shard, units=100)
async def test_units_that_wait_are_planned_as_there_comes_room(shard: Harness) -> None:
    """1. 500 units are looked up, leases have 100, of which ten are other tenants' reserve. 2. They
    grow to 150. 3. As many of those that wait are planned again, and the others are refused when
    their time is over."""
    await shard.start_broker("broker-1", capacity_units=1_000)
    topics = await shard.create_topics(*(f"t-{number:03}" for number in range(500)))
    planner = shard.leader.topics._planner
    plan, planned = planner.plan, []
    planner.plan = lambda flights: planned.append(len(flights)) or plan(flights)
    looking = asyncio.create_task(shard.lookup(*topics))
    await asyncio.sleep(0.3)
    shard.cluster.units = 150

    answers = await looking

    codes = Counter(answer.rejection_code for answer in answers)
    assert codes == {"": 135, "SHARE_EXCEEDED": 365}
    assert all(answer.retryable for answer in answers if answer.rejection_code)
    # Once at first, once with the policies of their namespace.
    assert planned[:2] == [500, 500]
    assert sum(planned[2:]) <= 6 * 50


@run_by(in_shard, units=5)
async def test_units_behind_one_that_may_not_have_the_room_get_it(shard: Harness) -> None:
    """The first of those that wait are pinned to a broker without room."""
    shard.cluster.broker_units["broker-1"] = 1
    await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    pinned = await shard.create_topics(*(f"pinned-{number}" for number in range(3)))
    free = await shard.create_topics(*(f"free-{number:02}" for number in range(9)))
    rules = policies_to_proto(Policies(placement=PlacementRules(pinned_brokers=("broker-1",))))
    for topic in pinned:
        body = pb.SetPolicies(kind=KIND_TOPIC, name=topic, policies=rules)
        result = await shard.execute(set_policies=body)
        assert not result.rejection_code
    looking = asyncio.create_task(shard.lookup(*pinned, *free))
    await asyncio.sleep(0.5)
    shard.cluster.units = 20

    answers = await looking

    assert [answer.rejection_code for answer in answers[:3]] == ["", "NO_CAPACITY", "NO_CAPACITY"]
    assert [answer.broker_id for answer in answers[3:]] == ["broker-2"] * 9


async def report_used(
    shard: Harness, topic: str, *, epoch: int, used_epoch: int, topic_id: str = ""
) -> LookupAnswer:
    """Look a topic up as its owner does that was fenced in ``epoch``."""
    (present,) = await shard.lookup(topic)
    used = pb.UsedEpoch(
        topic=topic, topic_id=topic_id or present.topic_id, epoch=epoch, used_epoch=used_epoch
    )
    response = await shard.ask(lookup=pb.ShardLookupRequest(topics=[topic], used=[used]))
    (answer,) = response.lookup.answers
    return answer


@run_by(in_shard)
async def test_an_epoch_that_a_ledger_has_used_is_skipped_by_its_present_owner_only(
    shard: Harness,
) -> None:
    """1. A broker is fenced in epoch 1 by one that had epoch 9. 2. It gets epoch 10. 3. The same
    report, which comes late, and one of another topic of that name, change nothing."""
    broker = await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    (topic,) = await shard.create_topics("orders")
    (first,) = await shard.lookup(topic)
    owner = shard.brokers[first.broker_id]

    raised = await report_used(shard, topic, epoch=1, used_epoch=9)
    late = await report_used(shard, topic, epoch=1, used_epoch=9)
    stranger = await report_used(shard, topic, epoch=10, used_epoch=20, topic_id="another")

    assert [answer.epoch for answer in (first, raised, late, stranger)] == [1, 10, 10, 10]
    assert raised.broker_id == first.broker_id
    assert raised.session_id == first.session_id
    epochs = [each.assign.epoch for each in owner.deliveries if each.HasField("assign")]
    assert epochs == [1, 10]
    (_, event) = await shard.events("topic_assigned")
    assert event.topic_assigned.used_epoch == 9
    assert event.topic_assigned.reason == "epoch_used"
    assert shard.leader.state.reads.used_units(first.session_id) == 1
    assert broker.error is None


@run_by(in_shard)
async def test_a_used_epoch_beyond_reason_is_refused_with_a_sentence(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")

    refused = await report_used(shard, topic, epoch=1, used_epoch=2**63)

    assert refused.rejection_code == "LIMIT_EXCEEDED"
    assert not refused.retryable
    assert f"was claimed in epoch {2**63}, the shard is at 1" in refused.message
    assert len(await shard.events("topic_assigned")) == 1


@run_by(in_shard)
async def test_a_raised_epoch_survives_a_change_of_leaders_and_is_moved_on_from(
    shard: Harness,
) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await report_used(shard, topic, epoch=1, used_epoch=9)
    shard.next_term()
    await shard.start_broker("broker-2")
    await asyncio.sleep(10)

    (answer,) = await shard.lookup(topic)

    assert (answer.broker_id, answer.epoch) == ("broker-2", 11)


@run_by(in_shard)
async def test_a_dead_brokers_topics_go_elsewhere_with_the_next_epoch(shard: Harness) -> None:
    first = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await shard.start_broker("broker-2")
    first.vanish()
    await asyncio.sleep(4.0)

    (answer,) = await shard.lookup(topic)

    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)
    reasons = [event.topic_assigned.reason for event in await shard.events("topic_assigned")]
    assert reasons == ["first_lookup", "broker_lost"]


@run_by(in_shard)
async def test_a_broker_that_dies_before_its_sync_costs_its_session_and_no_error(
    shard: Harness,
) -> None:
    """1. A lookup picks the broker, 2. it dies before it syncs, 3. its session ends."""
    first = await shard.start_broker("broker-1")
    first.is_hanging = True
    (topic,) = await shard.create_topics("orders")
    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)

    first.vanish()
    await shard.start_broker("broker-2")
    (answer,) = await looking

    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)


@run_by(in_shard)
async def test_a_new_leader_asks_the_broker_once_and_keeps_the_epoch(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    topics = await shard.create_topics("a", "b")
    await shard.lookup(*topics)

    shard.next_term()
    await broker.connect()
    answers = await shard.lookup(*topics)
    again = await shard.lookup(*topics)

    assert broker.resumed
    assert [answer.epoch for answer in answers] == [1, 1]
    assert [answer.broker_id for answer in again] == ["broker-1", "broker-1"]
    assert len(shard.others.assigned) == 2
    assert len(await shard.events("topic_assigned")) == 2


@run_by(in_shard)
async def test_a_session_that_the_directory_does_not_know_is_asked_not_replaced(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    record = shard.cluster.broker("broker-1")
    assert record is not None
    shard.cluster.forget()

    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)
    shard.cluster.report(record)
    (answer,) = await looking

    assert (answer.broker_id, answer.epoch) == ("broker-1", 1)
    assert broker.assigned == [(topic, 1), (topic, 1)]


@run_by(in_shard)
async def test_a_session_that_its_manager_calls_over_is_not_used_again(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    shard.others.assign_error = SessionExpired("the session ended a moment ago")

    (answer,) = await shard.lookup(topic)

    assert answer.rejection_code in {"NO_BROKER", "NO_CAPACITY"}
    assert answer.retryable
    assert len(await shard.events("topic_assigned")) == 1


@run_by(in_shard)
async def test_a_batch_near_its_deadline_answers_what_it_has(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    served, late = await shard.create_topics("served", "late")
    await shard.lookup(served)
    broker.is_hanging = True

    answers = await shard.lookup(served, late, timeout_ms=500)

    assert answers[0].broker_id == "broker-1"
    assert (answers[1].rejection_code, answers[1].retryable) == ("NO_BROKER", True)


@run_by(in_shard)
async def test_a_caller_that_goes_away_takes_nobody_with_it(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    broker.is_hanging = True
    (topic,) = await shard.create_topics("orders")
    impatient = asyncio.create_task(shard.lookup(topic))
    patient = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)

    impatient.cancel()
    broker.wake()
    (answer,) = await patient

    assert answer.broker_id == "broker-1"
    assert len(await shard.events("topic_assigned")) == 1


@run_by(in_shard)
async def test_lost_leadership_fails_those_who_wait_and_loses_no_decision(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    shard.log.hold_commits()
    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)

    shard.log.lose_leadership()

    with pytest.raises((ProposalLost, NotLeader)):
        await looking


@run_by(in_shard)
async def test_a_lookup_while_the_record_is_lost_fails_all_who_share_it(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    shard.log.hold_commits()
    looking = [asyncio.create_task(shard.lookup(topic)) for _ in range(3)]
    await asyncio.sleep(0.1)

    shard.log.lose_leadership()
    results = await asyncio.gather(*looking, return_exceptions=True)

    assert all(isinstance(each, ProposalLost | NotLeader) for each in results)


@run_by(in_shard)
async def test_a_deleted_topics_broker_is_notified_once_it_is_reachable(shard: Harness) -> None:
    """A broker that missed the deletion would go on serving the topic beside its successor."""
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("t-1")
    await shard.lookup(topic)

    shard.others.release_error = Unavailable("its manager is being elected")
    await shard.execute(delete_topic=pb.DeleteTopic(name=topic))
    await asyncio.sleep(3.0)
    assert broker.released == []
    shard.others.release_error = None
    await asyncio.sleep(10.0)

    assert broker.released == [(topic, last_epoch_of_generation(1), "")]


@run_by(in_shard)
async def test_a_deleted_topics_broker_is_sent_a_release(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)

    await shard.execute(delete_topic=pb.DeleteTopic(name=topic))
    await asyncio.sleep(0.1)
    (answer,) = await shard.lookup(topic)

    assert broker.released == [(topic, last_epoch_of_generation(1), "")]
    assert answer.rejection_code == "NOT_FOUND"


@run_by(in_shard)
async def test_a_new_leader_tells_the_brokers_of_topics_that_the_old_one_deleted(
    shard: Harness,
) -> None:
    """The deletion is committed, the leader dies before the brokers were told. One name is
    created again, and looked up, before the next leader has come that far."""
    broker = await shard.start_broker("broker-1")
    gone, again = await shard.create_topics("gone", "again")
    (parted,) = await shard.create_topics("parted", partitions=2)
    parts = [f"{parted}-partition-{number}" for number in range(2)]
    first = [answer.epoch for answer in await shard.lookup(gone, again, *parts)]
    assert first == [1, 1, 1, 1]
    (old_id,) = {
        each.assign.topic.topic_id for each in broker.deliveries if each.assign.name == again
    }
    shard.others.release_error = Unavailable("its manager cannot be reached")
    for topic in (gone, again, parted):
        await shard.execute(delete_topic=pb.DeleteTopic(name=topic))

    shard.next_term()
    await broker.connect()
    await shard.create_topics("again")
    (answer,) = await shard.lookup(again)
    shard.others.release_error = None
    await asyncio.sleep(10.0)

    assert sorted(broker.released) == sorted(
        (name, last_epoch_of_generation(1), "") for name in (gone, again, *parts)
    )
    (released_id,) = {
        each.release.topic_id for each in broker.deliveries if each.release.name == again
    }
    assert released_id == old_id, "the topic of today is another"
    assert (answer.broker_id, answer.epoch) == ("broker-1", 1)


@run_by(in_shard)
async def test_too_many_names_are_refused_as_a_whole(shard: Harness) -> None:
    names = [f"persistent://a/b/t-{number}" for number in range(NAMES_PER_LOOKUP_MAX + 1)]

    at_limit = await shard.lookup(*names[:-1])
    with pytest.raises(Exception, match="1025 names"):
        await shard.lookup(*names)

    assert len(at_limit) == NAMES_PER_LOOKUP_MAX


@run_by(in_shard, shards=2)
async def test_a_name_whose_slot_is_in_another_shard_is_refused(shard: Harness) -> None:
    names = [f"persistent://a/b/t-{number}" for number in range(20)]
    table = shard.cluster_view.slot_table
    assert table is not None
    elsewhere = [name for name in names if table.shard_for_key(parse_topic(name).routing_key) != 1]

    with pytest.raises(StaleShardMap):
        await shard.lookup(elsewhere[0])


def test_units_that_are_planned_again_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_controller, "UNITS_IN_FLIGHT_MAX", 10)

    async def scenario(shard: Harness) -> None:
        await shard.start_broker("broker-1")
        topics = await shard.create_topics(*(f"t{number}" for number in range(11)))

        # Nothing is known of the namespace: all are planned, read for, and planned again.
        answers = await shard.lookup(*topics[:10])
        assert {answer.broker_id for answer in answers} == {"broker-1"}
        more = await shard.create_topics(*(f"m{number}" for number in range(11)))
        with pytest.raises(Overloaded):
            await shard.lookup(*more)

    in_shard(tmp_path, scenario)
