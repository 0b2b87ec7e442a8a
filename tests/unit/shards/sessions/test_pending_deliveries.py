"""Up to where a broker manager acknowledges changes: those that its brokers have synced."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import MetadataError, NotLeader, SessionExpired
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.sessions import metadata_watch, pending_deliveries
from shards.sessions.pending_deliveries import PendingDeliveries
from tests.support.scenarios import run_by
from tests.support.shards.home_shards import FakeStream
from tests.support.shards.metadata_world import GATHER_S, MetadataWorld, in_world

TOPIC = "persistent://acme/orders/paid"
OTHER = "persistent://acme/orders/open"


class Session:
    """The part of a session that a pending delivery reads."""

    def __init__(self) -> None:
        self.acked = 0
        self.sequence = 0
        self.ended: MetadataError | None = None


def test_changes_are_in_effect_up_to_the_first_pending_delivery() -> None:
    pending, session = PendingDeliveries(), Session()
    pending.add(7, session, 1)
    pending.add(5, session, 2)
    assert pending.in_effect(9) == 4

    session.acked = 1
    assert pending.in_effect(9) == 4
    session.acked = 2
    assert pending.in_effect(9) == 9
    assert len(pending) == 0


def test_an_ended_session_has_no_pending_delivery() -> None:
    pending, session = PendingDeliveries(), Session()
    pending.add(7, session, 1)
    pending.add(8, session, None)

    session.ended = SessionExpired("over")

    assert pending.in_effect(9) == 9


def test_a_delivery_without_a_place_is_pending_until_it_has_one_and_is_synced() -> None:
    pending, session = PendingDeliveries(), Session()
    delivery = pending.add(7, session, None)
    session.acked = 100
    assert pending.in_effect(9) == 6

    delivery.sequence = 101
    assert pending.in_effect(9) == 6
    session.acked = 101
    assert pending.in_effect(9) == 9


@pytest.mark.parametrize("done", [True, False])
def test_done_deliveries_are_pruned_without_a_read(monkeypatch, done: bool) -> None:
    monkeypatch.setattr(pending_deliveries, "_PRUNED_AT_MIN", 8)
    pending, session = PendingDeliveries(), Session()
    for number in range(1, 101):
        pending.add(number, session, number)
        session.acked = number if done else 0

    assert (len(pending) <= 16) is done


def test_pending_deliveries_are_pruned_only_when_they_have_doubled(
    monkeypatch,
) -> None:
    monkeypatch.setattr(pending_deliveries, "_PRUNED_AT_MIN", 8)
    looks = 0

    class Counting(Session):
        @property
        def ended(self) -> None:
            nonlocal looks
            looks += 1

        @ended.setter
        def ended(self, _error: MetadataError | None) -> None:
            pass

    pending, session = PendingDeliveries(), Counting()
    for number in range(1, 129):
        pending.add(number, session, number)

    assert looks <= 2 * 128


def stream_of(world: MetadataWorld) -> FakeStream:
    (stream,) = world.homes.streams
    return stream


def in_effect(world: MetadataWorld) -> int:
    return stream_of(world).in_effect(world.homes.homes[0].position)


def last(world: MetadataWorld) -> int:
    return world.homes.homes[0].position


@pytest.mark.parametrize("name", [TOPIC, "acme/orders", "acme"])
@run_by(in_world, "a", "b")
async def test_a_change_has_taken_effect_once_every_broker_that_has_the_object_synced_it(
    world: MetadataWorld, *, name: str
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    world.assign("b", TOPIC)
    await world.settle()
    assert in_effect(world) == last(world)

    world.homes.set_policies(name, b"\x10\x05")
    world.homes.deliver()
    assert in_effect(world) == last(world) - 1

    world.sync("a")
    assert in_effect(world) == last(world) - 1, "b has not synced it"
    said = stream_of(world).acknowledged
    world.sync("b")
    world.watch.synced()
    assert in_effect(world) == last(world)
    assert stream_of(world).acknowledged == said + 1


@run_by(in_world)
async def test_a_change_that_concerns_no_broker_is_effective_once_published(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC, OTHER)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.set_policies(OTHER, b"\x10\x05")
    world.homes.deliver()

    assert in_effect(world) == last(world)


@run_by(in_world)
async def test_a_broker_whose_session_ends_delays_nothing_any_longer(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    world.homes.set_policies(TOPIC, b"\x10\x05")
    world.homes.deliver()
    assert in_effect(world) < last(world)
    said = stream_of(world).acknowledged

    session = world.brokers["a"].session
    session.end(SessionExpired("over"))
    world.watch.drop_all(session)

    assert in_effect(world) == last(world)
    assert stream_of(world).acknowledged > said


@run_by(in_world)
async def test_a_deposed_manager_takes_nothing_for_delivered_that_its_brokers_did_not_sync(
    world: MetadataWorld,
) -> None:
    """Its sessions end with its term. The brokers go on, at the next leader."""
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    stream, position = stream_of(world), last(world)
    world.watch.note_leader(world.homes.home_of(KIND_TOPIC, TOPIC), 7, "shard-node-1")
    assert stream.complete_term() == 7
    world.homes.set_policies(TOPIC, b"\x10\x05")
    world.homes.deliver()
    assert stream.in_effect(last(world)) == position

    world.watch.close()
    world.brokers["a"].session.end(NotLeader("another leads"))

    assert stream.in_effect(last(world)) <= position
    assert stream.complete_term() == 0


@run_by(in_world)
async def test_a_deletion_is_effective_once_the_broker_was_sent_it(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.delete(TOPIC)
    world.homes.deliver()
    assert in_effect(world) < last(world)

    world.sync("a")
    assert in_effect(world) == last(world)


def test_what_waits_for_room_in_the_sequence_is_owed_until_it_was_synced(monkeypatch) -> None:
    monkeypatch.setattr(metadata_watch, "METADATA_DELTAS_UNSYNCED_MAX", 1)

    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(TOPIC, OTHER)
        world.assign("a", TOPIC, OTHER)
        await world.settle()
        world.homes.set_policies(TOPIC, b"\x10\x05")
        world.homes.set_policies(OTHER, b"\x10\x06")
        world.homes.deliver()
        assert in_effect(world) == last(world) - 2

        world.sync("a")
        assert in_effect(world) == last(world) - 1, "the other is delivered only now"
        world.sync("a")
        assert in_effect(world) == last(world)

    in_world(scenario)


@run_by(in_world)
async def test_a_change_that_came_by_a_snapshot_is_owed_from_before_it(
    world: MetadataWorld,
) -> None:
    """1. A topic is assigned. 2. It changes before it is watched, and then something else does. 3.
    The watch begins with a snapshot behind both, of which the broker has nothing yet."""
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    world.homes.set_policies(TOPIC, b"\x10\x05")
    changed_at = last(world)
    world.create_topics(OTHER)
    await asyncio.sleep(2 * GATHER_S)
    world.homes.deliver()

    assert in_effect(world) < changed_at < last(world)
    world.sync("a")
    assert in_effect(world) == last(world)

    # A change that is sent as an event of its own delays no change with an earlier position.
    world.homes.set_policies(TOPIC, b"\x10\x06")
    world.homes.deliver()
    assert in_effect(world) == last(world) - 1


@run_by(in_world)
async def test_a_deletion_is_a_pending_delivery_until_it_is_confirmed(world: MetadataWorld) -> None:
    """1. A broker has a topic. 2. The watch is told of it only behind a cut, in a snapshot, and
    there it is gone. 3. Its home is asked."""
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    world.homes.is_reachable = False
    world.homes.delete(TOPIC)
    stream_of(world).reset()
    world.homes.deliver()
    assert in_effect(world) < last(world)

    world.homes.is_reachable = True
    await world.settle()

    assert in_effect(world) == last(world)
    assert world.brokers["a"].holding.topic(TOPIC) is None
