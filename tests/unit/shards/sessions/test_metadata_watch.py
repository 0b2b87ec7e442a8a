"""Changes of metadata on their way to the brokers that have it, and to no other."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Overloaded
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.sessions import metadata_watch
from tests.support.processes.kept_tasks import break_kept
from tests.support.scenarios import run_by
from tests.support.shards.metadata_world import (
    GATHER_S,
    RETRY_S,
    MetadataWorld,
    gathered,
    in_world,
    told,
)

TOPIC = "persistent://acme/orders/paid"
OTHER = "persistent://acme/orders/open"


FIRST = [("tenant", "acme", 1), ("namespace", "acme/orders", 1)]
"""What comes before the first assignment of a session."""


@run_by(in_world)
async def test_a_change_of_what_a_session_has_is_one_delivery(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.set_properties("acme", size="xl")
    world.homes.set_properties("acme/orders", retention="1h")
    world.homes.set_properties(TOPIC, ttl="5")
    await world.settle()

    broker = world.brokers["a"]
    assert told(broker.changes) == [
        *FIRST,
        ("tenant", "acme", 2),
        ("namespace", "acme/orders", 2),
        ("topic", TOPIC, 2),
    ]
    assert world.deliveries == {"tenant": 1, "namespace": 1, "topic": 1}
    assert broker.holding.tenants["acme"].properties == {"size": "xl"}
    world.check_converged()


@pytest.mark.parametrize("brokers", [5, 50])
def test_a_change_costs_as_many_deliveries_as_brokers_have_the_object(brokers: int) -> None:
    ids = [f"broker-{number}" for number in range(brokers)]

    async def scenario(world: MetadataWorld) -> None:
        topics = {each: f"persistent://acme/{each}/t" for each in ids}
        world.create_topics(*topics.values(), TOPIC)
        for broker_id, topic in topics.items():
            world.assign(broker_id, topic)
        await world.settle()

        world.homes.set_properties(topics[ids[2]], a="b")
        world.homes.set_properties(f"acme/{ids[2]}", a="b")
        world.homes.set_properties(TOPIC, nobody="has it")
        await world.settle()

        assert world.deliveries == {"topic": 1, "namespace": 1}
        world.homes.set_properties("acme", a="b")
        await world.settle()
        assert world.deliveries["tenant"] == brokers
        world.check_converged()

    in_world(scenario, *ids)


@run_by(in_world)
async def test_partitions_of_one_topic_share_its_metadata(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    units = [world.prepare(f"{TOPIC}-partition-{number}") for number in range(3)]
    world.assign("a", *units)
    await world.settle()

    world.homes.set_properties(TOPIC, a="b")
    await world.settle()
    assert world.deliveries == {"topic": 1}

    world.release("a", units[0])
    world.release("a", units[1])
    world.homes.set_properties(TOPIC, a="c")
    await world.settle()
    assert world.deliveries == {"topic": 2}, "one unit is left"

    world.release("a", units[2])
    world.homes.set_properties(TOPIC, a="d")
    await world.settle()
    assert world.deliveries == {"topic": 2}


@run_by(in_world, "a", "b")
async def test_no_change_is_in_effect_before_a_broker_has_given_the_topic_up(
    world: MetadataWorld,
) -> None:
    """One that is cut off acts on what it has, although its unit has another owner."""
    world.create_topics(TOPIC)
    moved = world.prepare(TOPIC)
    world.assign("a", moved)
    await world.settle()
    (stream,) = world.homes.streams

    world.release("a", moved)
    world.assign("b", TOPIC)
    world.sync("b")
    world.homes.set_properties(TOPIC, a="b")
    await asyncio.sleep(GATHER_S + RETRY_S)
    world.homes.deliver()
    world.sync("b")
    changed = stream.home.position

    assert stream.in_effect(changed) < changed
    assert world.deliveries == {"topic": 1}, "it is not sent to a broker that is to give it up"
    world.sync("a")
    world.watch.synced()
    assert stream.in_effect(changed) == changed
    assert world.brokers["a"].holding.topics == {}


@run_by(in_world, "a", "b")
async def test_a_topic_that_comes_back_before_it_was_given_up_is_watched(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    moved = world.prepare(TOPIC)
    world.assign("a", moved)
    await world.settle()

    world.release("a", moved)
    world.assign("a", TOPIC)
    await world.settle()
    world.homes.set_properties(TOPIC, a="b")
    await world.settle()

    assert world.deliveries == {"topic": 1}
    world.check_converged()
    world.release("a", world.prepare(TOPIC))
    world.watch.drop_all(world.brokers["a"].session)
    assert world.watch.name_count == 0


@run_by(in_world)
async def test_changes_between_assignment_and_watch_are_sent(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    prepared = world.prepare(TOPIC)
    world.homes.set_properties(TOPIC, a="b")
    world.assign("a", prepared)
    world.homes.set_properties("acme/orders", a="b")
    await world.settle()

    assert world.deliveries == {"topic": 1, "namespace": 1}
    world.check_converged()


@run_by(in_world, "a", "b")
async def test_known_changes_are_sent_at_once_behind_an_older_assignment(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    late = world.prepare(TOPIC)
    world.assign("a", TOPIC)
    world.homes.set_properties(TOPIC, a="b")
    await world.settle()

    world.assign("b", late)
    world.sync("b")

    assert [each.version for each in world.brokers["b"].holding.topics.values()] == [2]


@run_by(in_world)
async def test_a_stream_that_is_behind_what_was_sent_tells_nothing_old(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    for value in "123":
        world.homes.set_properties(TOPIC, a=value)
    world.assign("a", TOPIC)
    await gathered()

    world.homes.deliver(behind=2)
    world.homes.deliver(behind=1)
    world.homes.deliver()
    assert world.deliveries == {}

    world.homes.set_properties(TOPIC, a="4")
    world.homes.deliver()
    assert world.deliveries == {"topic": 1}
    world.sync("a")
    world.check_converged()


@run_by(in_world)
async def test_the_version_of_an_event_follows_from_the_snapshot(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    for value in "123":
        world.homes.set_properties(TOPIC, a=value)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.set_properties(TOPIC, a="4")
    world.homes.set_properties(TOPIC, a="5")
    await world.settle()

    assert told(world.brokers["a"].changes)[2:] == [("topic", TOPIC, 5), ("topic", TOPIC, 6)]


@pytest.mark.parametrize("name", [TOPIC, "acme/orders", "acme"])
@run_by(in_world)
async def test_a_deletion_is_published_once_and_a_recreated_name_is_a_new_object(
    world: MetadataWorld, *, name: str
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.delete(name)
    await world.settle()
    world.create_topics(TOPIC)
    world.homes.set_properties(name, a="b")
    await world.settle()

    assert world.deliveries == {"removed": 1}
    assert told(world.brokers["a"].changes)[2:] == [("removed", name, 0)]
    world.check_converged()


@run_by(in_world)
async def test_a_deletion_before_the_watch_began_is_published(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    prepared = world.prepare(TOPIC)
    world.homes.delete(TOPIC)
    world.assign("a", prepared)
    await world.settle()

    assert world.deliveries == {"removed": 1}


@run_by(in_world)
async def test_a_snapshot_without_what_was_read_elsewhere_removes_nothing(
    world: MetadataWorld,
) -> None:
    """1. An object is created, and sent. 2. The stream begins at a replica that is behind."""
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await gathered()

    world.homes.deliver(behind=3)
    await world.settle()
    assert world.deliveries == {}
    assert sorted(set(world.homes.reads)) == ["acme", "acme/orders", TOPIC]

    world.homes.set_properties(TOPIC, a="b")
    await world.settle()
    assert world.deliveries == {"topic": 1}
    world.check_converged()


@run_by(in_world)
async def test_an_existence_check_waits_for_the_home_shard_to_answer(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    prepared = world.prepare(TOPIC)
    world.homes.delete(TOPIC)
    world.homes.is_reachable = False
    world.assign("a", prepared)
    await world.settle()
    assert world.deliveries == {}

    world.homes.is_reachable = True
    await world.settle()
    assert world.deliveries == {"removed": 1}


@pytest.mark.parametrize(("more", "sizes"), [(0, [2]), (1, [2, 1])])
def test_metadata_existence_checks_per_read_max_are_made_together_and_one_more_by_itself(
    monkeypatch: pytest.MonkeyPatch, more: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(metadata_watch, "METADATA_EXISTENCE_CHECKS_PER_READ_MAX", 2)

    async def scenario(world: MetadataWorld) -> None:
        topics = [f"{TOPIC}-{number}" for number in range(2 + more)]
        world.create_topics(*topics)
        prepared = [world.prepare(topic) for topic in topics]
        for topic in topics:
            world.homes.delete(topic)
        world.homes.read_sizes.clear()
        world.assign("a", *prepared)
        await world.settle()

        assert world.homes.read_sizes == sizes
        assert world.deliveries == {"removed": len(topics)}

    in_world(scenario)


@run_by(in_world)
async def test_an_existence_check_outlives_the_task_that_makes_it(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    prepared = world.prepare(TOPIC)
    world.homes.delete(TOPIC)
    world.homes.is_reachable = False
    world.assign("a", prepared)
    await world.settle()

    break_kept("metadata_existence_checks")
    world.homes.is_reachable = True
    await world.settle()

    assert world.deliveries == {"removed": 1}


@run_by(in_world)
async def test_a_reset_of_the_stream_loses_no_change(world: MetadataWorld) -> None:
    world.create_topics(TOPIC, OTHER)
    world.assign("a", TOPIC, OTHER)
    await world.settle()

    for stream in world.homes.streams:
        stream.reset()
    world.homes.set_properties(TOPIC, a="b")
    world.homes.delete(OTHER)
    await world.settle()

    assert world.deliveries == {"topic": 1, "removed": 1}
    world.check_converged()


@run_by(in_world)
async def test_names_whose_watch_was_ended_are_watched_again(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()

    world.homes.end_watches(Overloaded("too many watches"))
    world.homes.set_properties(TOPIC, a="b")
    assert world.watch.watch_count == 0
    await world.settle()

    assert world.deliveries == {"topic": 1}
    assert world.watch.watch_count == 2


@run_by(in_world)
async def test_a_stream_that_failed_is_run_again(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    (stream,) = world.homes.streams

    stream.failed.set()
    await world.settle()

    assert stream.runs == 2


@run_by(in_world, "a", "b")
async def test_an_ended_session_gets_no_changes_and_its_names_are_not_watched(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC, OTHER)
    world.assign("a", TOPIC)
    world.assign("b", TOPIC, OTHER)
    await world.settle()

    world.watch.drop_all(world.brokers["b"].session)
    assert world.watch.name_count == 3
    world.homes.set_properties(TOPIC, a="b")
    world.homes.set_properties(OTHER, a="b")
    await world.settle()
    assert world.deliveries == {"topic": 1}

    world.watch.drop_all(world.brokers["a"].session)
    assert (world.watch.name_count, world.watch.watch_count) == (0, 0)


# A new leader -----------------------------------------------------------------------------------


@run_by(in_world)
async def test_a_new_leader_brings_a_broker_what_changed_while_nobody_led(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC, OTHER)
    world.assign("a", TOPIC, OTHER)
    await world.settle()

    world.watch.close()
    world.homes.set_properties(TOPIC, a="b")
    world.homes.set_properties("acme/orders", a="b")
    world.homes.delete(OTHER)
    world.next_leader()
    world.report("a")
    await world.settle()

    assert world.deliveries == {"topic": 1, "namespace": 1, "removed": 1}
    world.check_converged()


@run_by(in_world)
async def test_what_a_new_leader_sent_or_released_counts_for_more_than_an_older_report(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC, OTHER)
    kept, gone = world.prepare(TOPIC), world.prepare(OTHER)
    world.assign("a", kept, gone)
    await world.settle()

    world.next_leader()
    world.release("a", gone)
    world.homes.set_properties(TOPIC, a="b")
    world.assign("a", TOPIC)
    world.report("a")
    await world.settle()
    world.deliveries.clear()
    world.homes.set_properties(TOPIC, a="c")
    world.homes.set_properties(OTHER, a="c")
    await world.settle()

    assert world.deliveries == {"topic": 1}
    world.check_converged()


@run_by(in_world, "a", "b")
async def test_a_report_that_nobody_asked_for_changes_nothing(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    world.brokers["b"].side = world.brokers["a"].side

    world.report("b")
    world.homes.set_properties(TOPIC, a="b")
    await world.settle()

    assert world.deliveries == {"topic": 1}


@run_by(in_world)
async def test_a_report_that_comes_after_the_end_of_its_session_changes_nothing(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    world.next_leader()

    world.watch.drop_all(world.brokers["a"].session)
    world.report("a")

    assert world.watch.name_count == 0


@run_by(in_world)
async def test_a_unit_of_a_deleted_topic_takes_up_room_at_the_next_leader_as_well(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    world.homes.delete(TOPIC)
    await world.settle()
    broker = world.brokers["a"]
    assert broker.holding.topic(TOPIC) is None
    assert broker.session.metadata.units == 1

    world.next_leader()
    world.report("a")
    assert broker.session.metadata.units == 1
    await world.settle()

    assert broker.session.metadata.units == 1
    assert len(broker.holding.assignments) == 1


def complete_term(world: MetadataWorld) -> int:
    """Return what the manager would say to its only home shard."""
    (stream,) = world.homes.streams
    return stream.complete_term()


@run_by(in_world)
async def test_a_manager_says_that_it_watches_all_once_it_does_in_the_term_it_knows(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC, OTHER)
    assert not world.watch.follows(1)
    assert world.watch.note_leader(1, 3, "node-2")
    world.assign("a", TOPIC)
    assert world.watch.follows(1)
    assert complete_term(world) == 0, "its names are gathered and no watch has them"

    await gathered()
    assert complete_term(world) == 3
    assert not world.watch.note_leader(1, 2, "node-1"), "an earlier leader"
    assert complete_term(world) == 3
    assert world.watch.note_leader(1, 5, "node-3")
    assert complete_term(world) == 5
    assert world.homes.noted == [(1, 3, "node-2"), (1, 2, "node-1"), (1, 5, "node-3")]


@run_by(in_world)
async def test_a_manager_does_not_watch_all_while_a_watch_is_to_be_added_again(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.watch.note_leader(1, 3, "node-2")
    world.assign("a", TOPIC)
    await world.settle()
    assert complete_term(world) == 3

    world.homes.end_watches(Overloaded("too many watches"))
    assert world.watch.follows(1)
    assert complete_term(world) == 0
    await world.settle()

    assert complete_term(world) == 3


@run_by(in_world)
async def test_a_manager_does_not_watch_all_while_a_broker_has_to_report(
    world: MetadataWorld,
) -> None:
    world.create_topics(TOPIC)
    world.watch.note_leader(1, 3, "node-2")
    world.assign("a", TOPIC)
    await world.settle()
    world.watch.are_reported = lambda: False
    assert complete_term(world) == 0

    world.watch.are_reported = lambda: True
    assert complete_term(world) == 3


@run_by(in_world)
async def test_a_manager_that_follows_is_asked_to_say_so_at_once(world: MetadataWorld) -> None:
    world.create_topics(TOPIC)
    world.assign("a", TOPIC)
    await world.settle()
    (stream,) = world.homes.streams
    before = stream.acknowledged

    assert world.watch.follows(1)

    assert stream.acknowledged == before + 1


def test_a_name_is_followed_where_its_slot_has_moved() -> None:
    """A change there before the manager knows of the move is delivered behind its snapshot."""

    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(TOPIC)
        world.assign("a", TOPIC)
        await world.settle()
        assert world.deliveries == {}
        former = world.homes.home_of(KIND_TOPIC, TOPIC)
        other = 3 - former

        world.homes.move(TOPIC, other)
        world.homes.set_properties(TOPIC, a="b")
        await world.settle()
        assert world.deliveries == {}, "nobody has said that it moved"
        world.watch.rehome()
        await world.settle()
        assert world.deliveries == {"topic": 1}

        world.homes.set_properties(TOPIC, a="c")
        await world.settle()
        assert world.deliveries == {"topic": 2}
        world.check_converged()
        names = [
            name
            for stream in world.homes.homes[former - 1].streams
            for watch in stream.watches.values()
            for name in watch.names
        ]
        assert TOPIC not in names

    in_world(scenario, shards=2)
