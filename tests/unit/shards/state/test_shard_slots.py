"""A leader decides about the slots of its shard, and sees no rows of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nextgen.kernel.errors import StaleShardMap
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.assignment import Assignment, TopicAssigned
from shards.domain.broker_session import BrokerSession, Endpoints
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.parent_gate import ParentKind
from shards.domain.scalable.state import ScalableTopic, evolve
from shards.domain.shard import SlotsAdopted
from shards.domain.slots.events import (
    SCAN_DONE,
    CountedUnits,
    SlotKey,
    SlotRow,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReclaimed,
    SlotsRefused,
    SlotsReleased,
    united,
)
from shards.domain.states import StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic, TopicCreated, TopicPropertiesSet
from shards.projections.evolution import ROUTES
from shards.projections.slot_refusal import SlotsComing
from tests.support.shards.events import HISTORY
from tests.support.shards.world import ShardReplica, World

A, B = 1, 2
SOURCE = "persistent://acme/orders/source"


def slot_of_topic(name: str) -> int:
    return slot_of(name.partition("://")[2])


def of_shard(world: World, shard_id: int, number: int) -> str:
    """Return the ``number``-th name of a topic whose slot the shard has at first."""
    names = (f"persistent://acme/orders/t-{n}" for n in range(1_000))
    return [name for name in names if world.table.shard_of(slot_of_topic(name)) == shard_id][number]


def topic_id(name: str, number: int = 1) -> str:
    return mint_id(slot_of_topic(name), number.to_bytes(10, "big"))


@pytest.fixture
async def world():
    world = World(shards=2)
    for shard in world.shards.values():
        await shard.state.proposer.confirm()
    yield world
    world.close()


def released(name: str, move_id: int = 1, units: int = 0) -> SlotsReleased:
    slot = slot_of_topic(name)
    counted = (CountedUnits("s-1", units),) if units else ()
    of_tenant = (CountedUnits("acme", units),) if units else ()
    return SlotsReleased(move_id, ((slot, slot),), B, counted, of_tenant, 7)


def created(name: str) -> TopicCreated:
    return TopicCreated(topic_id(name), name, 0, "ns-id", 5)


async def settled(shard: ShardReplica, *, is_applied: bool) -> None:
    """Let what was proposed stay pending, or reach the view and leave memory."""
    if is_applied:
        await shard.state.proposer.confirm()
        shard.next_term()


async def test_released_slots_are_refused_at_once_with_the_place_they_went_to(world):
    """The release need not be committed: the next decision builds on it."""
    shard, name = world.shards[A], of_shard(world, A, 0)
    other = of_shard(world, A, 1)
    slot = slot_of_topic(name)
    shard.log.hold_commits()

    shard.state.proposer.propose([released(name)])

    with pytest.raises(StaleShardMap, match="it went to shard 2") as refusal:
        shard.state.slots.check(slot)
    assert (refusal.value.moved_to, refusal.value.moved_slots) == (B, ((slot, slot),))
    shard.state.slots.check(slot_of_topic(other))
    shard.log.release_commits()
    await shard.state.proposer.confirm()


async def test_events_about_a_slot_that_has_left_are_not_proposed(world):
    """1. A request checks its slot. 2. It waits. 3. The slot is released. 4. It decides."""
    shard, name = world.shards[A], of_shard(world, A, 0)
    await shard.state.proposer.propose([created(name)])
    shard.state.slots.check_key(name.partition("://")[2])
    await shard.state.proposer.propose([released(name)])
    position = shard.state.position
    unit = TopicAssigned(topic_id(name), "", name, 1, "b-1", "s-1", "first_lookup")

    for event in (TopicPropertiesSet(name, (("k", "v"),)), unit):
        with pytest.raises(StaleShardMap):
            shard.state.proposer.propose([event], command_id=b"command-00000001")

    assert shard.state.proposer.refused_for_slots == 2
    assert shard.state.reads.load_topic(name).properties == ()
    assert shard.state.reads.used_units("s-1") == 0
    assert shard.state.outcomes.pending(b"command-00000001") is None
    await shard.state.proposer.confirm()
    assert shard.state.position == position


async def test_a_shard_that_was_never_in_a_move_looks_at_no_slot(world):
    shard, name = world.shards[B], of_shard(world, A, 0)

    await shard.state.proposer.propose([created(name)])

    assert shard.state.proposer.refused_for_slots == 0


async def test_a_slot_stays_refused_when_its_rows_are_gone_and_in_later_terms(world):
    shard, name = world.shards[A], of_shard(world, A, 0)
    await shard.state.proposer.propose([created(name)])
    await shard.state.proposer.propose([released(name)])
    key = SlotKey(StateKind.TOPIC, name)
    await shard.state.proposer.propose([SlotRowsRemoved(1, (key,), True)])
    await shard.state.proposer.confirm()

    shard.next_term()

    with pytest.raises(StaleShardMap) as refusal:
        shard.state.proposer.propose([created(name)])
    assert refusal.value.moved_to == 0, "by now the shard map says it"
    assert shard.state.reads.load_topic(name) is None


async def test_reclaimed_slots_are_decided_about_as_before(world):
    shard, name = world.shards[A], of_shard(world, A, 0)
    await shard.state.proposer.propose([created(name)])
    await shard.state.proposer.propose([released(name)])

    shard.state.proposer.propose([SlotsReclaimed(1)])

    await shard.state.proposer.propose([TopicPropertiesSet(name, (("k", "v"),))])
    assert shard.state.reads.load_topic(name).properties == (("k", "v"),)


async def test_coming_slots_are_refused_until_they_are_adopted(world):
    shard, name = world.shards[B], of_shard(world, A, 0)
    slot = slot_of_topic(name)
    ranges = ((slot, slot),)
    shard.state.proposer.propose([SlotsIncoming(1, ranges, A, 0)])

    with pytest.raises(SlotsComing):
        shard.state.slots.check(slot)
    with pytest.raises(StaleShardMap):
        shard.state.proposer.propose([created(name)])

    changed = shard.state.slots.changed
    row = SlotRow(StateKind.TOPIC, name, Topic(topic_id(name), name, 0, 1, "ns-id", 5, ()))
    owned = united(shard.state.reads.load_shard().ranges, ranges)
    shard.state.proposer.propose(
        [
            SlotRowsCopied(1, (row,), SCAN_DONE, "", 9),
            SlotsAdopted(owned, 2, 1, ranges, A, 9),
        ]
    )
    assert changed.is_set()
    shard.state.slots.check(slot)
    await shard.state.proposer.propose([TopicPropertiesSet(name, (("k", "v"),))])
    assert shard.state.reads.load_topic(name).version == 2


async def test_refused_slots_are_not_said_to_come(world):
    shard, name = world.shards[B], of_shard(world, A, 0)
    slot = slot_of_topic(name)
    shard.state.proposer.propose([SlotsIncoming(1, ((slot, slot),), A, 0)])
    await shard.state.proposer.propose([SlotsRefused(1, "stopped")])

    with pytest.raises(StaleShardMap) as refusal:
        shard.state.slots.check(slot)
    assert not isinstance(refusal.value, SlotsComing)


async def test_a_request_that_waits_while_its_slots_leave_changes_nothing(world):
    """1. The delete of a topic waits for a turn. 2. Its slot is released, and its row is removed.
    3. The delete goes on: here it would be refused, for there is no such topic."""
    shard, name = world.shards[A], of_shard(world, A, 0)
    command = pb.Command(command_id=b"command-00000001", delete_topic=pb.DeleteTopic(name=name))
    await shard.state.proposer.propose([created(name)])

    async def release_first(_commands: object) -> int:
        await shard.state.proposer.propose([released(name)])
        key = SlotKey(StateKind.TOPIC, name)
        await shard.state.proposer.propose([SlotRowsRemoved(1, (key,), False)])
        return 0

    shard.service._admit = release_first

    with pytest.raises(StaleShardMap) as refusal:
        await shard.service.execute(pb.ExecuteRequest(commands=[command]))
    assert refusal.value.moved_to == B
    assert shard.state.outcomes.find([b"command-00000001"]) == {}


def rows_in(slot: int, name: str) -> tuple[SlotRow, ...]:
    """Return a row of each kind in ``slot``, as far as its name tells."""
    tenant = next(f"x-{n}" for n in range(10**6) if slot_of(f"x-{n}") == slot)
    namespace = next(f"acme/{n}" for n in range(10**6) if slot_of(f"acme/{n}") == slot)
    broker = next(f"b-{n}" for n in range(10**6) if slot_of(f"b-{n}") == slot)
    fresh = [mint_id(slot, number.to_bytes(10, "big")) for number in range(3)]
    endpoints = Endpoints("pulsar://b:1", "b:2", "b:3")
    shadow = (("PULSAR.SHADOW_SOURCE", SOURCE),)
    states: Sequence[tuple[StateKind, str, Any]] = (
        (StateKind.TENANT, tenant, Tenant(fresh[0], tenant, (), 1, Life.ACTIVE)),
        (
            StateKind.NAMESPACE,
            namespace,
            Namespace(fresh[1], namespace, "tenant-id", (), 1, Life.ACTIVE),
        ),
        (StateKind.TOPIC, name, Topic(fresh[2], name, 0, 1, "ns-id", 5, shadow)),
        (StateKind.ASSIGNMENT, f"{fresh[2]}/", Assignment(fresh[2], "", name, 3, "b-1", "s-1")),
        (
            StateKind.BROKER_SESSION,
            broker,
            BrokerSession(broker, "s-9", 1, True, endpoints, 9, "z", 0),
        ),
        (StateKind.SCALABLE_TOPIC, name, changing_layout()),
    )
    return tuple(SlotRow(*state) for state in states)


def changing_layout() -> ScalableTopic:
    """Return a layout with registered consumers and an operation under way."""
    state: ScalableTopic | None = None
    for event in HISTORY:
        if state is not None and state.has_work and state.has_consumers:
            return state
        if ROUTES[type(event)].kind is StateKind.SCALABLE_TOPIC:
            state = evolve(state, event)
    raise AssertionError("the history has such a layout")


def seen(shard: ShardReplica) -> list[bool]:
    scans = shard.state.scans
    return [
        bool(scans.sessions()),
        bool(scans.units_of_session("s-1", "", 1)),
        bool(scans.scalable_with_work("", 1)),
        bool(scans.scalable_with_consumers("", 1)),
        scans.has_children(ParentKind.TENANT, "acme"),
        scans.has_children(ParentKind.NAMESPACE, "acme/orders"),
        bool(scans.shadows_of(SOURCE)),
        bool(scans.count_topics("acme/orders")),
    ]


@pytest.mark.parametrize("is_applied", [False, True], ids=["pending", "in the view"])
async def test_scans_see_rows_of_slots_only_while_the_shard_has_these(world, is_applied):
    shard, name = world.shards[B], of_shard(world, A, 0)
    slot = slot_of_topic(name)
    ranges = ((slot, slot),)
    rows = rows_in(slot, name)
    shard.state.proposer.propose([SlotsIncoming(1, ranges, A, 0)])
    shard.state.proposer.propose([SlotRowsCopied(1, rows, SCAN_DONE, "", 9)])
    await settled(shard, is_applied=is_applied)

    assert seen(shard) == [False] * 8

    owned = united(shard.state.reads.load_shard().ranges, ranges)
    units = (CountedUnits("s-1", 1),), (CountedUnits("acme", 1),)
    shard.state.proposer.propose([SlotsAdopted(owned, 2, 1, ranges, A, 9, *units)])
    await settled(shard, is_applied=is_applied)

    assert seen(shard) == [True] * 8
    assert shard.state.reads.used_units("s-1") == 1

    shard.state.proposer.propose([SlotsReleased(2, ranges, A, *units, 7)])
    await settled(shard, is_applied=is_applied)

    assert seen(shard) == [False] * 8
    assert (shard.state.reads.used_units("s-1"), shard.state.reads.tenant_units("acme")) == (0, 0)
    await shard.state.proposer.confirm()
