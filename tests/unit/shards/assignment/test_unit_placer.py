"""Placements of a whole shard: rules of tenants, namespaces and topics, full and closed brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.client.wire.policies import pack_policies, policies_to_proto
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.governance.policies import AntiAffinity, PlacementRules, Policies
from nextgen.kernel.limits.placement import REFUSAL_REMEMBERED_MS, REFUSALS_REMEMBERED_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import PlacementDecision
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
    LookupAnswer,
)
from shards.assignment.unit_placer import UnitPlacer
from shards.ports import ShardWatching
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard
from tests.support.shards.home_shards import FakeHomes, SilentHomes

BROKERS = ("broker-0", "broker-1", "broker-2")


async def started(shard: Harness, *, capacity_units: int = 100) -> None:
    for name in BROKERS:
        await shard.start_broker(name, capacity_units)


async def say(shard: Harness, kind: Kind, name: str, rules: PlacementRules) -> None:
    said = pb.SetPolicies(
        kind=kind, name=name, policies=policies_to_proto(Policies(placement=rules))
    )
    result = await shard.execute(set_policies=said)
    assert not result.rejection_code, result.message


async def decisions(shard: Harness) -> list[PlacementDecision]:
    return [event.topic_assigned.decision for event in await shard.events("topic_assigned")]


def owners(answers: Sequence[LookupAnswer]) -> list[str]:
    return [answer.broker_id or answer.rejection_code for answer in answers]


def partitions(topic: str, count: int) -> list[str]:
    return [f"{topic}-partition-{number}" for number in range(count)]


@pytest.mark.parametrize("kind", [KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC])
@run_by(in_shard)
async def test_a_rule_of_each_level_binds_its_topics(shard: Harness, *, kind: Kind) -> None:
    await started(shard)
    topics = await shard.create_topics("a", "b", "c", "d")
    names = {KIND_TENANT: ["acme"], KIND_NAMESPACE: [NAMESPACE], KIND_TOPIC: topics}
    for name in names[kind]:
        await say(shard, kind, name, PlacementRules(pinned_brokers=("broker-1",)))

    assert owners(await shard.lookup(*topics)) == ["broker-1"] * 4
    assert {each.rule for each in await decisions(shard)} == {"pinned"}
    assert {each.excluded for each in await decisions(shard)} == {2}


@run_by(in_shard)
async def test_the_nearest_level_wins_and_the_rules_of_others_stay(shard: Harness) -> None:
    await started(shard)
    plain, special = await shard.create_topics("plain", "special")
    await say(shard, KIND_TENANT, "acme", PlacementRules(excluded_brokers=("broker-0",)))
    await say(shard, KIND_NAMESPACE, NAMESPACE, PlacementRules(pinned_brokers=("broker-2",)))
    await say(shard, KIND_TOPIC, special, PlacementRules(pinned_brokers=("broker-0",)))

    answers = await shard.lookup(plain, special)

    assert owners(answers) == ["broker-2", "NO_BROKER"]
    assert "placement.excluded_brokers (not broker-0)" in answers[1].message
    assert answers[1].retryable
    assert len(await shard.events("topic_assigned")) == 1


@run_by(in_shard)
async def test_a_rule_that_allows_no_broker_is_reported_at_once(shard: Harness) -> None:
    await started(shard)
    (topic,) = await shard.create_topics("a")
    await say(shard, KIND_TOPIC, topic, PlacementRules(zones=("moon",)))
    began = shard.clock.monotonic()

    (answer,) = await shard.lookup(topic)

    assert "placement.zones (only moon)" in answer.message
    assert shard.clock.monotonic() - began < 0.1
    await say(shard, KIND_TOPIC, topic, PlacementRules())
    (answer,) = await shard.lookup(topic)
    assert answer.broker_id


@run_by(in_shard)
async def test_n_partitions_are_one_on_each_of_n_brokers(shard: Harness) -> None:
    await started(shard)
    (parts, *others) = await shard.create_topics("parts", *"abcdefg", partitions=3)
    await shard.lookup(*(name for other in others for name in partitions(other, 3)))

    answers = [answer for name in partitions(parts, 3) for answer in await shard.lookup(name)]

    assert sorted(owners(answers)) == list(BROKERS)


@run_by(in_shard)
async def test_partitions_that_must_not_meet_are_refused_when_there_is_no_other_broker(
    shard: Harness,
) -> None:
    await started(shard)
    (parts,) = await shard.create_topics("parts", partitions=4)
    await say(shard, KIND_NAMESPACE, NAMESPACE, PlacementRules(anti_affinity=AntiAffinity.BROKER))

    answers = await shard.lookup(*partitions(parts, 4))

    assert sorted(owners(answers)) == ["NO_BROKER", *BROKERS]
    (refused,) = [answer for answer in answers if answer.rejection_code]
    assert "placement.anti_affinity" in refused.message
    shard.brokers[answers[0].broker_id].vanish()
    await asyncio.sleep(1.0)
    assert owners(await shard.lookup(refused.topic)) == ["NO_BROKER"]


@run_by(in_shard)
async def test_a_partition_whose_broker_died_is_nobodys_peer_there(shard: Harness) -> None:
    await started(shard)
    (parts,) = await shard.create_topics("parts", partitions=2)
    await say(shard, KIND_NAMESPACE, NAMESPACE, PlacementRules(anti_affinity=AntiAffinity.BROKER))
    first, second = await shard.lookup(*partitions(parts, 2))
    shard.brokers[first.broker_id].vanish()
    await asyncio.sleep(1.0)

    again = await shard.lookup(*partitions(parts, 2))

    assert again[1].broker_id == second.broker_id
    assert again[0].broker_id not in {first.broker_id, second.broker_id, ""}


@run_by(in_shard, units=9)  # Too few for a reserve.
async def test_a_group_goes_to_one_broker_and_overflows_to_one_other(shard: Harness) -> None:
    await started(shard)
    topics = await shard.create_topics(*(f"t{number}" for number in range(12)))
    await say(shard, KIND_NAMESPACE, NAMESPACE, PlacementRules(affinity_group="g"))

    counts = Counter(owners(await shard.lookup(*topics)))

    assert sorted(counts.values()) == [3, 9]


@run_by(in_shard)
async def test_a_broker_that_refuses_for_lack_of_room_is_replaced_and_spared_for_a_while(
    shard: Harness,
) -> None:
    await started(shard)
    topics = await shard.create_topics(*(f"t{number}" for number in range(6)))
    await say(shard, KIND_NAMESPACE, NAMESPACE, PlacementRules(excluded_brokers=("broker-2",)))
    assign = shard.others.assign

    async def refuse(request: pb.AssignRequest, *, timeout_ms: int) -> pb.AssignResponse:
        if request.broker_id == "broker-0":
            raise Refused("NO_CAPACITY", "broker broker-0 holds as much as it can")
        return await assign(request, timeout_ms=timeout_ms)

    shard.others.assign = refuse  # type: ignore[method-assign]

    assert set(owners(await shard.lookup(*topics[:5]))) == {"broker-1"}
    events = [event.topic_assigned for event in await shard.events("topic_assigned")]
    moved = [event for event in events if event.epoch == 2]
    assert moved
    assert {event.reason for event in moved} == {"broker_full"}
    before = len(events)
    (answer,) = await shard.lookup(topics[5])
    assert answer.broker_id == "broker-1"
    assert len(await shard.events("topic_assigned")) == before + 1, "it was offered again"

    shard.others.assign = assign  # type: ignore[method-assign]
    await asyncio.sleep(REFUSAL_REMEMBERED_MS / 1000)
    later = await shard.create_topics(*(f"l{number}" for number in range(10)))
    assert "broker-0" in owners(await shard.lookup(*later))


@run_by(in_shard, units=50)
async def test_a_batch_that_does_not_fit_as_a_whole_is_split_once_where_the_room_is_known(
    shard: Harness,
) -> None:
    tries = await tries_of_a_batch(shard, room=13)

    assert tries == [40, 13], "what the refusal had room for is sent, and no more"


@run_by(in_shard, units=50)
async def test_a_broker_that_is_full_is_tried_once(shard: Harness) -> None:
    assert await tries_of_a_batch(shard, room=0) == [40]


@run_by(in_shard, units=50)
async def test_a_batch_that_does_not_fit_as_a_whole_is_halved_where_the_room_is_not_known(
    shard: Harness,
) -> None:
    """As a manager of an earlier release refuses, or one that has no room for metadata."""
    tries = await tries_of_a_batch(shard, room=13, is_told=False)

    assert tries[:3] == [40, 20, 10]
    assert len(tries) <= 2 * (40).bit_length()


async def tries_of_a_batch(shard: Harness, *, room: int, is_told: bool = True) -> list[int]:
    """Look 40 units up while one broker lives, then start another one; return how many units each
    try of a batch had at the first, which has room for so many."""
    assign, tries, held = shard.others.assign, [], 0

    async def within_room(request: pb.AssignRequest, *, timeout_ms: int) -> pb.AssignResponse:
        nonlocal held
        count = len(request.assignments)
        if request.broker_id == "broker-0":
            tries.append(count)
            if held + count > room:
                left = room - held
                raise Refused("NO_CAPACITY", "it is full", room=left if is_told else None)
            held += count
        return await assign(request, timeout_ms=timeout_ms)

    shard.others.assign = within_room  # type: ignore[method-assign]
    await shard.start_broker("broker-0", capacity_units=100)
    topics = await shard.create_topics(*(f"t{number:02}" for number in range(40)))
    looking = asyncio.create_task(shard.lookup(*topics))
    await asyncio.sleep(0.5)
    await shard.start_broker("broker-1", capacity_units=100)

    owned = Counter(owners(await looking))

    assert owned == Counter({"broker-0": room, "broker-1": 40 - room})
    return tries


@run_by(in_shard)
async def test_when_every_broker_refuses_the_answer_says_so_and_what_was_decided_stays(
    shard: Harness,
) -> None:
    await started(shard)
    (topic,) = await shard.create_topics("a")
    shard.others.assign_error = Refused("NO_CAPACITY", "it holds as much as it can")

    (answer,) = await shard.lookup(topic)

    assert answer.rejection_code == "NO_CAPACITY"
    assert answer.retryable
    shard.others.assign_error = None
    (answer,) = await shard.lookup(topic)
    epochs = [event.topic_assigned.epoch for event in await shard.events("topic_assigned")]
    assert (answer.broker_id, answer.epoch) == (answer.broker_id, epochs[-1])


@run_by(in_shard)
async def test_brokers_that_drain_or_are_in_quarantine_get_nothing(shard: Harness) -> None:
    await started(shard)
    topics = await shard.create_topics(*(f"t{number}" for number in range(9)))
    draining, flapping = (shard.cluster.broker(name) for name in BROKERS[:2])
    assert draining is not None
    assert flapping is not None
    draining.draining = True
    flapping.quarantined_until_ms = shard.clock.wall_ms() + 60_000

    assert set(owners(await shard.lookup(*topics))) == {"broker-2"}

    flapping.quarantined_until_ms = shard.clock.wall_ms()
    more = await shard.create_topics(*(f"m{number}" for number in range(9)))
    assert set(owners(await shard.lookup(*more))) == {"broker-1"}, "the emptier one"


@pytest.mark.parametrize("is_one_draining", [True, False])
@run_by(in_shard)
async def test_without_an_open_broker_those_in_quarantine_are_used(
    shard: Harness, *, is_one_draining: bool
) -> None:
    await started(shard)
    topics = await shard.create_topics(*(f"t{number}" for number in range(9)))
    records = [shard.cluster.broker(name) for name in BROKERS]
    for record in records:
        assert record is not None
        record.quarantined_until_ms = shard.clock.wall_ms() + 60_000
    draining, _, opening = records
    assert draining is not None
    assert opening is not None
    if is_one_draining:
        draining.draining, draining.quarantined_until_ms = True, 0

    spread = set(owners(await shard.lookup(*topics)))
    assert spread == {*BROKERS[is_one_draining:]}

    opening.quarantined_until_ms = 0
    more = await shard.create_topics(*(f"m{number}" for number in range(9)))
    assert set(owners(await shard.lookup(*more))) == {BROKERS[2]}, "it is open again"


@run_by(in_shard)
async def test_every_decision_says_what_was_compared(shard: Harness) -> None:
    await started(shard)
    topics = await shard.create_topics("a", "b")
    await shard.lookup(*topics)

    first, second = await decisions(shard)

    assert first.rule == second.rule == "two_choices"
    assert first.candidates == 3
    assert [seen.units_used for seen in first.compared] == [0, 0]
    assert [seen.units_leased for seen in first.compared] == [50, 50]
    assigned = await shard.events("topic_assigned")
    assert first.compared[0].broker_id == assigned[0].topic_assigned.broker_id


@run_by(in_shard, units=1)
async def test_a_starved_unit_waits_for_the_one_broker_it_may_go_to(shard: Harness) -> None:
    await started(shard)
    full, topic = await shard.create_topics("full", "waiting")
    pinned = PlacementRules(pinned_brokers=("broker-1",))
    await say(shard, KIND_NAMESPACE, NAMESPACE, pinned)
    assert owners(await shard.lookup(full)) == ["broker-1"]

    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.7)
    assert not looking.done()
    shard.cluster.units = 2
    assert owners(await looking) == ["broker-1"]

    (last,) = await shard.create_topics("last")
    (refused,) = await shard.lookup(last)
    assert refused.rejection_code == "NO_CAPACITY"
    assert "broker-1, the only one allowed" in refused.message


@run_by(in_shard)
async def test_a_move_obeys_the_rules_and_says_who_asked(shard: Harness) -> None:
    await started(shard)
    (topic,) = await shard.create_topics("a")
    await say(shard, KIND_TENANT, "acme", PlacementRules(excluded_brokers=("broker-2",)))
    (answer,) = await shard.lookup(topic)
    other = ({"broker-0", "broker-1"} - {answer.broker_id}).pop()

    (refused,) = await shard.move((topic, "broker-2"))
    assert refused.rejection_code == "NOT_ALLOWED"
    assert "placement.excluded_brokers" in refused.message
    moved = await shard.leader.mover.move([pb.TopicMove(topic=topic, asked_by="drain")])
    assert owners(moved) == [other]

    _, event = await shard.events("topic_assigned")
    assert event.topic_assigned.reason == "drained"
    decision = event.topic_assigned.decision
    assert (decision.rule, decision.asked_by, decision.excluded) == ("only_one", "drain", 1)
    (stays,) = await shard.move((topic, ""))
    assert owners([stays]) == [answer.broker_id]
    (asked,) = await shard.move((topic, other))
    assert owners([asked]) == [other]
    assert (await decisions(shard))[-1].rule == "asked_for"


@run_by(in_shard)
async def test_a_moved_partition_goes_where_no_other_of_its_topic_is(shard: Harness) -> None:
    await started(shard)
    (parts,) = await shard.create_topics("parts", partitions=2)
    await say(shard, KIND_NAMESPACE, NAMESPACE, PlacementRules(anti_affinity=AntiAffinity.BROKER))
    first, second = await shard.lookup(*partitions(parts, 2))
    free = (set(BROKERS) - {first.broker_id, second.broker_id}).pop()

    (refused,) = await shard.move((first.topic, second.broker_id))
    (moved,) = await shard.move((first.topic, ""))

    assert refused.rejection_code == "NOT_ALLOWED"
    assert moved.broker_id == free


class _Homes(FakeHomes):
    """Home shards whose only subscriber is the topic controller."""

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        if "/topic-controller-" in subscriber_id:
            return super().watch(shard_id, subscriber_id)
        return SilentHomes().watch(shard_id, subscriber_id)


def test_once_the_rules_of_a_namespace_are_known_a_cold_lookup_reads_nothing(
    tmp_path: Path,
) -> None:
    homes = _Homes()

    async def scenario(shard: Harness) -> None:
        await started(shard)
        topics = await shard.create_topics(*(f"t{number}" for number in range(40)))
        await shard.lookup(*topics[:20])
        homes.deliver()
        shard.others.reads.clear()

        await shard.lookup(*topics[20:])

        assert shard.others.reads == [], "the brokers have the metadata, the shard the rules"

    in_shard(tmp_path, scenario, homes=homes)


def test_a_later_rule_binds_from_its_publication_on(tmp_path: Path) -> None:
    homes = _Homes()
    homes.create(KIND_TENANT, "acme")
    homes.create(KIND_NAMESPACE, NAMESPACE)

    async def scenario(shard: Harness) -> None:
        await started(shard)
        topics = await shard.create_topics(*(f"t{number}" for number in range(9)))
        await shard.lookup(topics[0])
        homes.deliver()
        rule = Policies(placement=PlacementRules(pinned_brokers=("broker-2",)))
        homes.set_policies(NAMESPACE, pack_policies(rule))
        homes.deliver()

        assert set(owners(await shard.lookup(*topics[1:]))) == {"broker-2"}

    in_shard(tmp_path, scenario, homes=homes)


@run_by(in_shard)
async def test_without_the_home_of_its_namespace_a_cold_unit_is_refused_and_a_warm_one_served(
    shard: Harness,
) -> None:
    await started(shard)
    warm, cold = await shard.create_topics("warm", "cold")
    await shard.lookup(warm)
    read = shard.others.read

    async def refuse(*_names: object, **_how: object) -> list[Item]:
        raise Unavailable("no home shard answers")

    shard.others.read = refuse  # type: ignore[method-assign]
    answers = await shard.lookup(warm, cold)
    assert answers[0].broker_id
    assert answers[1].rejection_code == "NO_BROKER"
    assert answers[1].retryable
    assert "rules of its namespace cannot be read: no home shard answers" in answers[1].message

    shard.others.read = read  # type: ignore[method-assign]
    assert owners(await shard.lookup(cold))[0] in BROKERS


@run_by(in_shard)
async def test_a_preferred_broker_gets_each_new_unit_and_no_assigned_one(shard: Harness) -> None:
    await started(shard)
    created = await shard.create_topics(*(f"t-{number}" for number in range(12)))
    (assigned,) = await shard.create_topics("assigned")
    (before,) = await shard.lookup(assigned)
    other = next(name for name in BROKERS if name != before.broker_id)

    assert owners(await shard.lookup(*created, preferred="broker-1")) == ["broker-1"] * 12
    assert owners(await shard.lookup(assigned, preferred=other)) == [before.broker_id]
    (_, *of_created) = await decisions(shard)
    assert {each.rule for each in of_created} == {"created_there"}


@run_by(in_shard, units=4)
async def test_a_preferred_broker_without_room_leaves_units_to_the_others(shard: Harness) -> None:
    await started(shard, capacity_units=4)
    topics = await shard.create_topics(*(f"t-{number}" for number in range(7)))

    found = owners(await shard.lookup(*topics, preferred="broker-1"))

    assert found.count("broker-1") == 4
    assert sorted(set(found)) == list(BROKERS)


@pytest.mark.parametrize("more", [0, 1])
def test_refusals_remembered_max_are_kept_and_one_more_pushes_out_the_oldest(more: int) -> None:
    any_: Any = SimpleNamespace(monotonic=lambda: 0.0)
    placer = UnitPlacer(any_, any_, any_, any_, any_, lambda: (0, 0))

    for number in range(REFUSALS_REMEMBERED_MAX + more):
        placer.note_full(f"session-{number}")

    assert repr(placer) == f"<UnitPlacer refused_by={REFUSALS_REMEMBERED_MAX}>"
    placer.note_full("session-0")
    assert repr(placer) == f"<UnitPlacer refused_by={REFUSALS_REMEMBERED_MAX}>"
