"""Units leave lost and draining brokers in the background, at a pace, the busiest first."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Refused
from nextgen.kernel.governance.policies import PlacementRules, Policies
from nextgen.kernel.limits.placement import (
    DRAIN_UNITS_PER_SECOND,
    DRAIN_UNITS_PER_SECOND_MAX,
    LOST_UNITS_IN_FLIGHT_MAX,
    QUARANTINE_MS,
    REASSIGN_UNITS_PER_SECOND,
    SESSIONS_STARTED_MAX,
)
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import LoadReport, TopicLoad
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.moves.evacuation_pace import UNITS_WHILE_LATE_MAX, EvacuationTurns
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard

SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader moves nothing before."""

NO_END_S = 600.0


async def spread(shard: Harness, units: int, *, on: str = "broker-1") -> list[str]:
    """Start a broker and let it have so many topics, alone."""
    await shard.start_broker(on, capacity_units=100_000)
    topics: list[str] = []
    for start in range(0, units, 1_000):
        numbers = range(start, min(start + 1_000, units))
        page = await shard.create_topics(*(f"t-{number:05}" for number in numbers))
        answers = await shard.lookup(*page)
        assert {answer.broker_id for answer in answers} == {on}
        topics += page
    return topics


async def drain(shard: Harness, broker_id: str, rate: int = 0, *, undo: bool = False) -> None:
    wanted = pb.DrainRequest(broker_id=broker_id, units_per_second=rate, undo=undo)
    await shard.ask(drain=wanted)


async def set_capacity(shard: Harness, broker_id: str, units: int) -> None:
    await shard.ask(set_capacity=pb.SetCapacityRequest(broker_id=broker_id, capacity_units=units))


async def emptied(shard: Harness, broker: FakeBroker, units: int) -> float:
    """Return after how many seconds the broker's session has no more than ``units`` left."""
    began = shard.clock.monotonic()
    while shard.leader.state.reads.used_units(broker.session_id) > units:
        assert shard.clock.monotonic() - began < NO_END_S, "it never ends"
        await asyncio.sleep(0.05)
    return shard.clock.monotonic() - began


@pytest.mark.parametrize("units", [1, 100, 1_500])
@run_by(in_shard, units=100_000)
async def test_the_units_of_a_dead_broker_are_assigned_anew_at_the_promised_pace(
    shard: Harness, *, units: int
) -> None:
    """Nobody looks them up. The last is at its next broker after units ÷ rate, ± 20 %."""
    topics = await spread(shard, units)
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    first = shard.brokers["broker-1"]

    first.vanish()
    await asyncio.sleep(0.151)
    seconds = await emptied(shard, first, 0)

    assert seconds == pytest.approx(units / REASSIGN_UNITS_PER_SECOND, rel=0.2, abs=0.5)
    await asyncio.sleep(1.0)
    assert {name for name, _ in second.assigned} == set(topics)
    reasons = [event.topic_assigned.reason for event in await shard.events("topic_assigned")]
    assert reasons == ["first_lookup"] * units + ["broker_lost"] * units


@run_by(in_shard, units=100_000)
async def test_lost_brokers_with_few_units_each_take_no_more_time_than_their_units(
    shard: Harness,
) -> None:
    """All lost sessions share a pace: what one of them takes of it and has no units for is for
    the others. 20 brokers with some 10 units each are gone at once."""
    lost = [await shard.start_broker(f"lost-{number}") for number in range(20)]
    topics = await shard.create_topics(*(f"t-{number:03}" for number in range(200)))
    await shard.lookup(*topics)
    last = await shard.start_broker("last", capacity_units=100_000)

    for broker in lost:
        broker.vanish()
    await asyncio.sleep(0.151)
    began = shard.clock.monotonic()
    for broker in lost:
        await emptied(shard, broker, 0)

    seconds = shard.clock.monotonic() - began
    assert seconds == pytest.approx(200 / REASSIGN_UNITS_PER_SECOND, rel=0.2, abs=0.5)
    await asyncio.sleep(1.0)
    assert {name for name, _ in last.assigned} == set(topics)


@run_by(in_shard, units=100_000)
async def test_the_busiest_units_of_a_lost_broker_go_first(shard: Harness) -> None:
    topics = await spread(shard, 300)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    busy = [topics[250], topics[7], topics[120]]
    shard.cluster.loads[first.session_id] = LoadReport(
        topics=300,
        measured_at_ms=1,
        busiest=[
            TopicLoad(name=topics[7], bytes_in_per_second=2_000),
            TopicLoad(name=topics[250], bytes_in_per_second=9_000),
            TopicLoad(name="persistent://acme/orders/of-nobody", bytes_in_per_second=5_000),
            TopicLoad(name=topics[120], messages_out_per_second=5),
        ],
    )
    await asyncio.sleep(6.0)

    del shard.cluster.loads[first.session_id]
    first.vanish()
    await asyncio.sleep(0.151)
    await emptied(shard, first, 0)

    lost = [
        event.topic_assigned.name
        for event in await shard.events("topic_assigned")
        if event.topic_assigned.reason == "broker_lost"
    ]
    assert lost[:3] == busy
    assert sorted(lost) == topics, "each once"


@run_by(in_shard, units=100_000)
async def test_a_lost_unit_that_is_looked_up_does_not_wait_for_the_pace(shard: Harness) -> None:
    topics = await spread(shard, 1_500)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    first.vanish()
    await asyncio.sleep(0.151)
    asked_at = shard.clock.monotonic()

    (answer,) = await shard.lookup(topics[-1])

    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)
    assert shard.clock.monotonic() - asked_at < 0.1


@run_by(in_shard, units=100_000)
async def test_without_another_broker_lost_units_wait_for_one(shard: Harness) -> None:
    topics = await spread(shard, 20)
    first = shard.brokers["broker-1"]
    first.vanish()
    await asyncio.sleep(30.0)
    assert shard.leader.state.reads.used_units(first.session_id) == 20

    second = await shard.start_broker("broker-2", capacity_units=100_000)
    await emptied(shard, first, 0)
    await asyncio.sleep(1.0)

    assert {name for name, _ in second.assigned} == set(topics)


@run_by(in_shard, units=100_000)
async def test_a_new_leader_goes_on_with_what_is_left(shard: Harness) -> None:
    await spread(shard, 2_000)
    first = shard.brokers["broker-1"]
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    first.vanish()
    await asyncio.sleep(0.151)
    await emptied(shard, first, 1_500)

    shard.next_term()
    await second.connect()
    left = shard.leader.state.reads.used_units(first.session_id)
    seconds = await emptied(shard, first, 0)

    assert left > 1_000
    assert seconds == pytest.approx(left / REASSIGN_UNITS_PER_SECOND, rel=0.2, abs=1.0)
    events = await shard.events("topic_assigned")
    assert len(events) == 4_000, "no unit went twice"


@run_by(in_shard, units=100_000)
async def test_units_of_a_session_that_nobody_remembers_are_found_lost(shard: Harness) -> None:
    """A directory that learned of brokers after that session ended does not know of it."""
    await spread(shard, 10)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    shard.cluster.report = lambda _session: None  # type: ignore[method-assign]
    first.vanish()
    await asyncio.sleep(0.5)
    live = shard.cluster._brokers.pop("broker-1")
    assert live.is_live, "the directory was not told of its end"

    await emptied(shard, first, 0)


@run_by(in_shard, units=100_000)
async def test_shards_of_a_node_wait_for_each_others_lost_units(shard: Harness) -> None:
    """Another shard of the node has as many units in flight as a node may have."""
    await spread(shard, 200)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    turns = shard._dependencies.evacuations.lost
    taken = await turns.take(LOST_UNITS_IN_FLIGHT_MAX)

    first.vanish()
    await asyncio.sleep(10.0)
    assert shard.leader.state.reads.used_units(first.session_id) == 200

    turns.give_back(taken)
    await emptied(shard, first, 0)
    await asyncio.sleep(1.0)
    assert turns.units_in_flight == 0


@run_by(in_shard, units=100_000)
async def test_a_broker_that_hangs_is_given_no_more_than_a_node_may_have_in_flight(
    shard: Harness,
) -> None:
    await spread(shard, 1_500)
    first = shard.brokers["broker-1"]
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    second.hangs_at = "assign"

    first.vanish()
    await asyncio.sleep(4.0)

    gone = 1_500 - shard.leader.state.reads.used_units(first.session_id)
    assert LOST_UNITS_IN_FLIGHT_MAX / 2 < gone <= LOST_UNITS_IN_FLIGHT_MAX
    second.wake()
    await emptied(shard, first, 0)


@run_by(in_shard, units=100_000)
async def test_lost_units_go_in_one_batch_at_a_time_while_the_loop_is_late(shard: Harness) -> None:
    await spread(shard, 1_000)
    first = shard.brokers["broker-1"]
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    turns = shard._dependencies.evacuations.lost
    turns.note_late = lambda _late_s: EvacuationTurns.note_late(turns, 0.2)  # type: ignore[method-assign]
    second.hangs_at = "assign"

    first.vanish()
    await asyncio.sleep(4.0)

    assert turns.units_in_flight == UNITS_WHILE_LATE_MAX


# Drains -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("units", "rate"), [(5, 0), (900, 300)])
@run_by(in_shard, units=100_000)
async def test_a_draining_broker_is_emptied_at_the_rate_that_was_asked_for(
    shard: Harness, *, units: int, rate: int
) -> None:
    topics = await spread(shard, units)
    first = shard.brokers["broker-1"]
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    await asyncio.sleep(SETTLED_S)

    await drain(shard, "broker-1", rate)
    seconds = await emptied(shard, first, 0)

    assert seconds == pytest.approx(units / (rate or 100), rel=0.2, abs=0.6)
    await asyncio.sleep(1.0)
    assert {name for name, _, _ in first.released} == set(topics)
    assert {name for name, _ in (*second.assigned, *second.taken_over)} == set(topics)
    last = (await shard.events("topic_assigned"))[-1].topic_assigned
    assert (last.reason, last.epoch) == ("drained", 2)


@run_by(in_shard, units=100_000)
async def test_a_draining_broker_gets_nothing_and_serves_what_it_still_has(shard: Harness) -> None:
    topics = await spread(shard, 200)
    await shard.start_broker("broker-2", capacity_units=100_000)
    await asyncio.sleep(SETTLED_S)
    await drain(shard, "broker-1", 10)
    await asyncio.sleep(1.0)
    more = await shard.create_topics(*(f"more-{number}" for number in range(20)))

    answers = await shard.lookup(*more)
    served = await shard.lookup(topics[-1])

    assert {answer.broker_id for answer in answers} == {"broker-2"}
    assert served[0].rejection_code == ""


@run_by(in_shard, units=100_000)
async def test_a_drain_that_is_undone_leaves_what_is_left_and_lets_more_come(
    shard: Harness,
) -> None:
    await spread(shard, 200)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    await asyncio.sleep(SETTLED_S)
    await drain(shard, "broker-1", 10)
    await emptied(shard, first, 180)

    await drain(shard, "broker-1", undo=True)
    await asyncio.sleep(2.0)
    left = shard.leader.state.reads.used_units(first.session_id)
    await asyncio.sleep(60.0)

    assert 150 < left <= 180
    assert shard.leader.state.reads.used_units(first.session_id) == left
    more = await shard.create_topics(*(f"more-{number}" for number in range(300)))
    assert "broker-1" in {answer.broker_id for answer in await shard.lookup(*more)}


@run_by(in_shard, units=100_000)
async def test_a_drain_can_be_made_faster_while_it_is_under_way(shard: Harness) -> None:
    await spread(shard, 200)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    await asyncio.sleep(SETTLED_S)
    await drain(shard, "broker-1", 2)
    await asyncio.sleep(2.0)

    await drain(shard, "broker-1", 200)

    assert await emptied(shard, first, 0) < 4.0


@run_by(in_shard, units=100_000)
async def test_a_broker_that_drains_and_dies_is_lost(shard: Harness) -> None:
    await spread(shard, 600)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    await asyncio.sleep(SETTLED_S)
    await drain(shard, "broker-1", 10)
    await emptied(shard, first, 590)

    first.vanish()
    seconds = await emptied(shard, first, 0)

    assert seconds < 600 / REASSIGN_UNITS_PER_SECOND * 1.2 + 2.0
    reasons = {event.topic_assigned.reason for event in await shard.events("topic_assigned")}
    assert reasons == {"first_lookup", "drained", "broker_lost"}


@run_by(in_shard)
async def test_the_last_broker_that_may_be_given_units_is_not_drained(shard: Harness) -> None:
    await spread(shard, 5)
    with pytest.raises(Refused, match="is the last that may be given units"):
        await drain(shard, "broker-1")

    await shard.start_broker("broker-2")
    await drain(shard, "broker-1")
    with pytest.raises(Refused, match="each is draining or in quarantine"):
        await drain(shard, "broker-2")

    await drain(shard, "broker-1", undo=True)
    await drain(shard, "broker-2")
    assert [event.broker_drain_set.draining for event in await shard.events("broker_drain_set")]


@run_by(in_shard)
async def test_a_broker_in_quarantine_is_no_other_that_may_be_given_units(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    flapping = await shard.start_broker("broker-2")
    for _ in range(SESSIONS_STARTED_MAX):
        flapping.capacity_units += 1
        await flapping.connect()
    known = shard.cluster.broker("broker-2")
    assert known is not None
    assert known.quarantined_until_ms

    with pytest.raises(Refused, match="each is draining or in quarantine"):
        await drain(shard, "broker-1")
    await asyncio.sleep(QUARANTINE_MS / 1000)
    await drain(shard, "broker-1")


@run_by(in_shard)
async def test_a_drain_that_makes_no_sense_is_refused_and_changes_nothing(shard: Harness) -> None:
    await spread(shard, 5)
    await shard.start_broker("broker-2")

    for wrong in (
        pb.DrainRequest(broker_id="broker-3"),
        pb.DrainRequest(broker_id="broker-1", units_per_second=DRAIN_UNITS_PER_SECOND_MAX + 1),
    ):
        with pytest.raises(MetadataError):
            await shard.ask(drain=wrong)

    assert await shard.events("broker_drain_set") == []
    await drain(shard, "broker-1", DRAIN_UNITS_PER_SECOND_MAX)
    await drain(shard, "broker-1", DRAIN_UNITS_PER_SECOND_MAX)
    assert len(await shard.events("broker_drain_set")) == 1, "the second changed nothing"


@run_by(in_shard)
async def test_a_drain_takes_hold_though_who_asked_did_not_wait_for_it(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    wanted = pb.DrainRequest(broker_id="broker-1", units_per_second=10)
    shard.log.hold_commits()
    with pytest.raises(DeadlineExceeded):
        await shard.ask(100, drain=wanted)
    asked_again = asyncio.create_task(shard.ask(drain=wanted))
    await asyncio.sleep(0.1)
    shard.log.release_commits()

    assert (await asked_again).drain.broker.draining
    known = shard.cluster.broker("broker-1")
    assert known is not None
    assert known.draining
    assert len(await shard.events("broker_drain_set")) == 1


@run_by(in_shard)
async def test_a_broker_that_asks_for_its_own_drain_is_emptied(shard: Harness) -> None:
    await spread(shard, 20)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    assert first.connection is not None

    wish = broker_pb.BrokerMessage(drain=broker_pb.DrainWish(units_per_second=1_000))
    shard.leader.brokers.sessions.receive(first.connection, wish)
    await emptied(shard, first, 0)

    assert len(await shard.events("broker_drain_set")) == 1


@run_by(in_shard, units=100_000)
async def test_units_under_way_are_those_that_are_still_to_leave(shard: Harness) -> None:
    await spread(shard, 100)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2")
    await asyncio.sleep(SETTLED_S)
    assert (await shard.ask(unit_count=pb.UnitCountRequest())).unit_count.under_way == 0

    await drain(shard, "broker-1", 20)
    await emptied(shard, first, 60)
    counted = (await shard.ask(unit_count=pb.UnitCountRequest())).unit_count

    units = {each.broker_id: each.units for each in counted.brokers}
    assert 50 < counted.under_way == units["broker-1"] <= 60
    assert units["broker-2"] == 100 - units["broker-1"]


@run_by(in_shard)
async def test_topics_that_nobody_looks_up_cost_no_assignment_and_no_message(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1", capacity_units=100_000)
    for start in range(0, NEVER_LOOKED_UP, 1_000):
        await shard.create_topics(*(f"t-{start + number}" for number in range(1_000)))
    await asyncio.sleep(60.0)

    counts = shard.node_metrics.counters()
    assert counts["assignments"] == counts["assign_requests"] == 0
    assert counts["evacuated_units"] == 0
    assert shard.others.assigned == []
    assert broker.deliveries == []
    assert await shard.events("topic_assigned") == []


NEVER_LOOKED_UP = 3_000
"""Topics of the test above; what it counts is the same for a million."""


@run_by(in_shard, units=100_000)
async def test_lost_units_that_rules_keep_from_everybody_are_not_asked_for_all_the_time(
    shard: Harness,
) -> None:
    """They are pinned to the broker that died. When it is back they are at once on their way."""
    topics = await spread(shard, 10)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    rules = Policies(placement=PlacementRules(pinned_brokers=("broker-1",)))
    for topic in topics:
        body = pb.SetPolicies(kind=KIND_TOPIC, name=topic, policies=policies_to_proto(rules))
        await shard.execute(set_policies=body)
    first.vanish()
    await asyncio.sleep(300.0)
    before = shard.node_metrics.counters()["lookups"]
    await asyncio.sleep(600.0)

    assert shard.leader.state.reads.used_units(first.session_id) == 10
    assert shard.node_metrics.counters()["lookups"] - before <= 10 * 11, "once a minute each"
    again = await shard.start_broker("broker-1", capacity_units=100_000)
    await asyncio.sleep(5.0)
    assert {name for name, _ in again.assigned} == set(topics)


# Less capacity ------------------------------------------------------------------------------------


@run_by(in_shard, units=100_000)
async def test_a_broker_with_less_capacity_ends_within_it_and_keeps_its_busiest_units(
    shard: Harness,
) -> None:
    topics = await spread(shard, 300)
    first = shard.brokers["broker-1"]
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    busy = [topics[0], topics[7], topics[120]]
    shard.cluster.loads[first.session_id] = LoadReport(
        topics=300,
        measured_at_ms=1,
        busiest=[TopicLoad(name=name, bytes_in_per_second=9_000) for name in busy],
    )
    await asyncio.sleep(6.0)

    await set_capacity(shard, "broker-1", 100)
    seconds = await emptied(shard, first, 100)
    await asyncio.sleep(60.0)

    # The lease is asked for within a second, and the units are checked every 5 s.
    assert seconds == pytest.approx(200 / DRAIN_UNITS_PER_SECOND, abs=6.5)
    assert shard.leader.state.reads.used_units(first.session_id) == 100, "no unit too many left"
    left = {name for name, _, _ in first.released}
    assert len(left) == 200
    assert left.isdisjoint(busy)
    assert left <= {name for name, _ in (*second.assigned, *second.taken_over)}
    last = (await shard.events("topic_assigned"))[-1].topic_assigned
    assert (last.reason, last.decision.asked_by, last.epoch) == ("capacity_lowered", "shrink", 2)
    assert shard.leader.evacuation.units_under_way == 0


@run_by(in_shard, units=100_000)
async def test_where_only_busy_units_are_left_the_least_busy_leave(shard: Harness) -> None:
    topics = await spread(shard, 4)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    shard.cluster.loads[first.session_id] = LoadReport(
        topics=4,
        measured_at_ms=1,
        busiest=[
            TopicLoad(name=name, bytes_in_per_second=rate)
            for name, rate in zip(topics, (9_000, 700, 50, 3), strict=True)
        ],
    )
    await asyncio.sleep(6.0)

    await set_capacity(shard, "broker-1", 2)
    await emptied(shard, first, 2)
    await asyncio.sleep(2.0)

    assert {name for name, _, _ in first.released} == {topics[2], topics[3]}


@run_by(in_shard, units=100_000)
async def test_a_broker_above_its_capacity_gets_nothing_and_a_larger_one_ends_the_shrinking(
    shard: Harness,
) -> None:
    await spread(shard, 400)
    first = shard.brokers["broker-1"]
    await shard.start_broker("broker-2", capacity_units=100_000)
    await asyncio.sleep(SETTLED_S)
    await set_capacity(shard, "broker-1", 10)
    await emptied(shard, first, 300)
    more = await shard.create_topics(*(f"more-{number}" for number in range(20)))
    assert {answer.broker_id for answer in await shard.lookup(*more)} == {"broker-2"}

    await set_capacity(shard, "broker-1", 100_000)
    await asyncio.sleep(2.0)
    left = shard.leader.state.reads.used_units(first.session_id)
    await asyncio.sleep(60.0)

    assert 200 < left <= 300
    assert shard.leader.state.reads.used_units(first.session_id) == left


@run_by(in_shard, units=100_000)
async def test_units_that_no_other_broker_may_have_stay_and_are_served(shard: Harness) -> None:
    topics = await spread(shard, 5)
    first = shard.brokers["broker-1"]
    await asyncio.sleep(SETTLED_S)

    await set_capacity(shard, "broker-1", 2)
    await asyncio.sleep(30.0)

    assert {answer.broker_id for answer in await shard.lookup(*topics)} == {"broker-1"}
    assert shard.leader.evacuation.units_under_way == 3
    await shard.start_broker("broker-2", capacity_units=100_000)
    await emptied(shard, first, 2)


@run_by(in_shard)
async def test_a_capacity_that_makes_no_sense_is_refused_and_changes_nothing(
    shard: Harness,
) -> None:
    await spread(shard, 5)
    for units in (0, 100_001):
        with pytest.raises(Refused, match=f"capacity_units is {units}, it may be 1 to 100000"):
            await set_capacity(shard, "broker-1", units)
    with pytest.raises(Refused, match="no broker 'broker-9' is alive"):
        await set_capacity(shard, "broker-9", 10)
    assert await shard.events("broker_capacity_set") == []

    await set_capacity(shard, "broker-1", 50)
    await set_capacity(shard, "broker-1", 50)
    assert len(await shard.events("broker_capacity_set")) == 1, "the second changed nothing"


@run_by(in_shard)
async def test_a_broker_with_a_lowered_capacity_resumes_its_session_and_begins_anew_with_its_own(
    shard: Harness,
) -> None:
    """Its hello goes on saying what it announced. What it announces in another session counts."""
    broker = await shard.start_broker("broker-1")
    before = broker.session_id
    await set_capacity(shard, "broker-1", 60)
    sessions = shard.leader.brokers.sessions
    load = LoadReport(topics=80, measured_at_ms=1)
    assert sessions.loads.take(sessions.live("broker-1", before), load) == ""

    broker.vanish()
    await broker.connect()
    assert (broker.resumed, broker.session_id) == (True, before)
    known = shard.cluster.broker("broker-1")
    assert known is not None
    assert (known.capacity_units, known.announced_units) == (60, 100)

    broker.vanish()
    await asyncio.sleep(1.0)
    broker.capacity_units = 70
    await broker.connect()
    assert broker.session_id != before
    known = shard.cluster.broker("broker-1")
    assert known is not None
    assert (known.capacity_units, known.announced_units) == (70, 0)


@run_by(in_shard, units=100_000)
async def test_units_of_lost_brokers_wait_where_no_broker_is_left(shard: Harness) -> None:
    """Work on them would cost a leader what it needs to greet the next broker."""
    await spread(shard, 2_000)
    second = await shard.start_broker("broker-2", capacity_units=100_000)
    shard.brokers["broker-1"].vanish()
    await asyncio.sleep(1.0)
    second.vanish()
    await asyncio.sleep(1.0)
    begun = shard.node_metrics.counters()["lookups"]

    await asyncio.sleep(5.0)

    assert shard.node_metrics.counters()["lookups"] == begun
