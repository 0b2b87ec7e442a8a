"""When a write counts as effective: who is waited for, how long, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import MetadataError, NotLeader, ProposalLost
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from nextgen.kernel.limits.placement import EFFECTIVE_MANAGER_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES, mint_id
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
)
from shards.watches import effective_writes
from shards.watches.changed_objects import changed_by, slots_changed_by
from shards.watches.effective_writes import EffectiveWrites, Subscription
from shards.watches.subscriber_ids import broker_manager_id, managed_shard, topic_controllers_id
from tests.support.scenarios import run_by
from tests.support.shards.harness import VirtualClock
from tests.support.simulated.virtual_time import run_virtual

TTL_S = ASSIGNMENT_TTL_MS / 1000
MANAGER_S = EFFECTIVE_MANAGER_MS / 1000
TENANT: Change = (KIND_TENANT, "acme")
NAMESPACE: Change = (KIND_NAMESPACE, "acme/orders")
MANAGER = broker_manager_id("node-1", 3, 7)
CONTROLLER = topic_controllers_id("node-1", "7")


def new_id(slot: int) -> str:
    return mint_id(slot, bytes(ID_ENTROPY_BYTES))


class Leadership:
    """Counts confirmations of leadership, or refuses them with ``error``."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.error: MetadataError | None = None

    async def read_index(self) -> int:
        self.confirmed += 1
        if self.error is not None:
            raise self.error
        return 0


class Stream:
    """A stream whose watches are of ``wanted``; ``acked`` is what its subscriber said last."""

    def __init__(self, subscriber_id: str, *wanted: Change) -> None:
        self.subscriber_id = subscriber_id
        self.wanted = set(wanted)
        self.acked = 0
        self.prompts = 0
        self.error: MetadataError | None = None

    def has_taken_in(self, changes: Collection[Change], position: int) -> bool:
        return not self.wanted & set(changes) or self.acked >= position

    def prompt(self, position: int = 0) -> None:
        self.prompts += 1

    def fail(self, error: MetadataError) -> None:
        self.error = error


class World:
    """The writes of a leader that has led for long enough."""

    def __init__(self, *, led_s: float = TTL_S) -> None:
        self.leadership = Leadership()
        self.clock = VirtualClock()
        self.writes = EffectiveWrites(1, self.leadership, self.clock)
        self.writes.expect_managers((), term=1)
        self.led_s = led_s

    async def lead(self) -> None:
        await asyncio.sleep(self.led_s)

    def join(self, stream: Stream) -> Subscription:
        return self.writes.join(stream)

    def write(self, *changes: Change, position: int = 10) -> asyncio.Task[None]:
        slots = {slot_of(name) for _, name in changes}
        return asyncio.create_task(self.writes.wait(position, set(changes), slots))

    @staticmethod
    async def pass_time(seconds: float = 0.0) -> None:
        await asyncio.sleep(seconds)
        for _ in range(5):
            await asyncio.sleep(0)

    async def wait_done(self, write: asyncio.Task[None], *, after_s: float) -> None:
        """Assert that a write becomes effective when ``after_s`` have passed, and not before."""
        await self.pass_time(after_s - 0.01)
        assert not write.done()
        await self.pass_time(0.02)
        assert write.done()


def in_world(scenario: Any, **arguments: float) -> None:
    async def main() -> None:
        world = World(**arguments)
        await world.lead()
        await scenario(world)

    run_virtual(main)


@run_by(in_world)
async def test_without_subscribers_a_write_is_effective_once_leadership_is_confirmed(
    world: World,
) -> None:
    await world.writes.wait(10, {TENANT}, ())

    assert world.leadership.confirmed == 1


@run_by(in_world, led_s=0.0)
async def test_a_new_leader_answers_nothing_as_effective_for_one_time_to_live(world: World) -> None:
    """It does not know who subscribed at the leader before it."""
    write = world.write(TENANT)
    await world.wait_done(write, after_s=TTL_S)


@run_by(run_virtual)
async def test_a_new_leader_that_knows_no_map_waits_as_long_as_a_manager_counts() -> None:
    writes = EffectiveWrites(1, Leadership(), VirtualClock())
    write = asyncio.create_task(writes.wait(10, {TENANT}, ()))
    await asyncio.sleep(MANAGER_S - 0.01)
    assert not write.done()
    await asyncio.sleep(0.02)
    assert write.done()


@run_by(in_world)
async def test_a_new_leader_waits_for_the_manager_of_each_shard_until_it_watches_all(
    world: World,
) -> None:
    """A manager that has not come back holds what its brokers act on, unknown to this leader."""
    world.writes.expect_managers((3, 4), term=7)
    stream = Stream(MANAGER, TENANT)
    stream.acked = 20
    subscriber = world.join(stream)
    write = world.write(TENANT)
    subscriber.heard(complete_term=6)
    world.writes.manager_is_back(4)
    await world.pass_time(MANAGER_S - TTL_S - 0.2)
    assert not write.done(), "it said so of an earlier term"

    subscriber.heard(complete_term=7)
    await world.pass_time()
    assert write.done()


@run_by(in_world)
async def test_a_manager_that_is_back_is_waited_for_as_any_subscriber(world: World) -> None:
    world.writes.expect_managers((3,), term=7)
    stream = Stream(MANAGER, TENANT)
    subscriber = world.join(stream)
    subscriber.heard(complete_term=7)
    write = world.write(TENANT)
    await world.pass_time(1.0)
    assert not write.done()

    stream.acked = 10
    subscriber.heard(complete_term=7)
    await write


@run_by(in_world)
async def test_only_subscribers_that_match_the_name_delay_a_write(
    world: World,
) -> None:
    concerned, other = Stream("a", TENANT), Stream("b", NAMESPACE)
    subscriber = world.join(concerned)
    world.join(other)
    write = world.write(TENANT)
    await world.pass_time()
    assert not write.done()
    assert (concerned.prompts, other.prompts) == (1, 0)

    concerned.acked = 9
    subscriber.heard()
    await world.pass_time()
    assert not write.done()

    concerned.acked = 10
    subscriber.heard()
    await world.pass_time()
    assert write.done()


@run_by(in_world)
async def test_leased_subscribers_are_waited_for(world: World) -> None:
    stream = Stream("discovery-1", TENANT)
    leased = world.writes.join(stream, is_leased=True)
    write = world.write(TENANT)
    await world.pass_time(1)
    assert not write.done()

    stream.acked = 10
    leased.heard()

    await write


@run_by(in_world)
async def test_a_subscriber_that_renews_without_acknowledging_delays_a_write_without_end(
    world: World,
) -> None:
    """As long as a session lives that has not synced, its manager says so twice a second."""
    stream = Stream(MANAGER, TENANT)
    subscriber = world.join(stream)
    write = world.write(TENANT)
    for _ in range(40):
        await world.pass_time(TTL_S / 4)
        subscriber.heard()
    assert not write.done()

    stream.acked = 10
    subscriber.heard()

    await write


@run_by(in_world)
async def test_a_silent_subscriber_delays_a_write_by_one_time_to_live(world: World) -> None:
    world.join(Stream("a", TENANT))
    write = world.write(TENANT)
    await world.wait_done(write, after_s=TTL_S)


@pytest.mark.parametrize("is_gone", [True, False])
@run_by(in_world)
async def test_a_broker_manager_counts_until_its_successor_can_know_what_brokers_hold(
    world: World, *, is_gone
) -> None:
    """1. A manager dies, or hangs. 2. Its brokers go on. 3. The next one hears what they hold."""
    subscriber = world.join(Stream(MANAGER, TENANT))
    if is_gone:
        subscriber.leave()
    write = world.write(TENANT)
    await world.wait_done(write, after_s=EFFECTIVE_MANAGER_MS / 1000)


@run_by(in_world)
async def test_a_subscriber_whose_stream_broke_delays_every_write(world: World) -> None:
    """Nobody knows any more what it wanted."""
    world.join(Stream("a", TENANT)).leave()
    write = world.write(NAMESPACE)
    await world.wait_done(write, after_s=TTL_S)


@run_by(in_world)
async def test_a_subscriber_that_returns_is_known_once_it_has_added_its_watches(
    world: World,
) -> None:
    world.join(Stream("a", TENANT)).leave()
    back = Stream("a", NAMESPACE)
    subscriber = world.join(back)
    write = world.write(TENANT)
    await world.pass_time()
    assert not write.done(), "the watch of the tenant may be on its way"

    subscriber.heard()
    await world.pass_time()

    assert write.done()


@run_by(in_world)
async def test_acknowledgements_of_an_older_stream_are_ignored(world: World) -> None:
    old = world.join(Stream("a", TENANT))
    stream = Stream("a", TENANT)
    subscriber = world.join(stream)
    write = world.write(TENANT)
    old.heard()
    old.leave()
    await world.pass_time()
    assert not write.done()

    stream.acked = 10
    subscriber.heard()

    await write


@run_by(in_world)
async def test_the_end_of_an_older_stream_delays_no_write_that_the_newer_has_taken_in(
    world: World,
) -> None:
    old = world.join(Stream("a", TENANT))
    stream = Stream("a", TENANT)
    subscriber = world.join(stream)
    write = world.write(TENANT)
    await world.pass_time()
    old.leave()

    stream.acked = 10
    subscriber.heard()
    await world.pass_time()

    assert write.done()


@run_by(in_world)
async def test_an_older_stream_of_a_manager_does_not_say_that_it_is_back(world: World) -> None:
    world.writes.expect_managers((3,), term=1)
    old = world.join(Stream(MANAGER, TENANT))
    stream = Stream(MANAGER, TENANT)
    subscriber = world.join(stream)
    write = world.write(TENANT)
    stream.acked = 10

    old.heard(complete_term=1)
    subscriber.heard()
    await world.pass_time()
    assert not write.done()

    subscriber.heard(complete_term=1)
    await world.pass_time()
    assert write.done()


@run_by(in_world)
async def test_a_watch_that_was_ended_here_counts_for_one_time_to_live(world: World) -> None:
    world.join(Stream("a", NAMESPACE)).lose_watch()
    write = world.write(TENANT)
    await world.wait_done(write, after_s=TTL_S)


@run_by(in_world)
async def test_what_is_on_its_way_to_a_broker_manager_is_waited_for_until_it_is_watched(
    world: World,
) -> None:
    """1. A topic leaves with an assignment. 2. It changes. 3. The manager watches it."""
    topic: Change = (KIND_TOPIC, "persistent://acme/orders/paid")
    world.writes.expect([topic], 3)
    write = world.write(topic)
    await world.pass_time(3 * TTL_S)
    assert not write.done(), "the assignment was not answered yet"

    world.writes.stop_expecting([topic], 3, are_watched=False)
    await world.pass_time()
    assert not write.done(), "and nobody watches it"

    stream = Stream(MANAGER, topic)
    subscriber = world.join(stream)
    subscriber.watches([topic])
    await world.pass_time()
    assert not write.done(), "nor has anybody taken it in"

    stream.acked = 10
    subscriber.heard()
    await write


@pytest.mark.parametrize("are_watched", [False, True])
@run_by(in_world)
async def test_what_is_given_twice_at_a_time_is_waited_for_until_both_are_answered(
    world: World, *, are_watched
) -> None:
    """Two partitions of a topic are given to brokers of one manager, and the first one fails."""
    topic: Change = (KIND_TOPIC, "persistent://acme/orders/paid")
    world.writes.expect([topic], 3)
    world.writes.expect([topic], 3)
    write = world.write(topic)

    world.writes.stop_expecting([topic], 3, are_watched=are_watched)
    await world.pass_time(3 * MANAGER_S)
    assert not write.done(), "the second assignment was not answered yet"

    world.writes.stop_expecting([topic], 3, are_watched=are_watched)
    await world.pass_time(MANAGER_S)
    assert write.done()


@run_by(in_world)
async def test_what_was_watched_before_it_came_is_not_waited_for_any_longer(world: World) -> None:
    world.writes.expect([TENANT], 3)
    world.writes.stop_expecting([TENANT], 3, are_watched=True)

    async with timeout(0.1):
        await world.writes.wait(10, {TENANT}, ())


@pytest.mark.parametrize("subscriber_id", [MANAGER, broker_manager_id("node-9", 3, 99)])
@run_by(in_world)
async def test_a_manager_that_never_watches_what_it_read_is_waited_for_as_long_as_it_counts(
    world: World, *, subscriber_id
) -> None:
    """As long as its successor may take to be elected and to watch what its brokers hold."""
    world.writes.expect_reader([TENANT], subscriber_id)
    write, other = world.write(TENANT), world.write(NAMESPACE)
    await world.pass_time(MANAGER_S - 0.01)
    assert other.done()
    assert not write.done()

    await world.pass_time(0.02)

    assert write.done()


@pytest.mark.parametrize("excess", [0, 1])
def test_effective_readers_max_are_known_and_what_one_more_drops_is_waited_for(monkeypatch, excess):
    monkeypatch.setattr(effective_writes, "EFFECTIVE_READERS_MAX", 3)

    async def scenario(world: World) -> None:
        for number in range(3 + excess):
            world.writes.expect_reader([(KIND_TOPIC, str(number))], MANAGER)
        write = world.write(NAMESPACE)
        await world.pass_time()

        assert write.done() is not bool(excess)
        await world.pass_time(MANAGER_S)
        assert write.done()

    in_world(scenario)


def test_what_is_on_its_way_is_never_forgotten(monkeypatch):
    """However many others are expected: an assignment takes as long as its broker."""
    monkeypatch.setattr(effective_writes, "EFFECTIVE_READERS_MAX", 3)

    async def scenario(world: World) -> None:
        topic: Change = (KIND_TOPIC, "persistent://acme/orders/paid")
        world.writes.expect([topic], 3)
        for number in range(5):
            world.writes.expect_reader([(KIND_TOPIC, str(number))], MANAGER)
        write = world.write(topic)
        await world.pass_time(3 * MANAGER_S)
        assert not write.done()

        world.writes.stop_expecting([topic], 3, are_watched=False)
        await world.pass_time(MANAGER_S - 0.01)
        assert not write.done(), "it is going to be watched"
        await world.pass_time(0.02)
        assert write.done()

    in_world(scenario)


def test_while_more_are_forgotten_no_write_is_effective_and_behind_that_all_are(monkeypatch):
    """Beyond the bound nothing is effective too early, but every write late."""
    monkeypatch.setattr(effective_writes, "EFFECTIVE_READERS_MAX", 3)

    async def scenario(world: World) -> None:
        write = None
        for number in range(100):
            world.writes.expect_reader([(KIND_TOPIC, str(number))], MANAGER)
            write = write or (world.write(NAMESPACE) if number == 10 else None)
            await world.pass_time(0.1)
        assert write is not None
        assert not write.done(), "one of those that were forgotten may still read what it changed"

        await world.pass_time(MANAGER_S)

        assert write.done()

    in_world(scenario)


@run_by(in_world)
async def test_a_controller_that_reads_is_waited_for_until_it_watches_and_has_taken_it_in(
    world: World,
) -> None:
    world.writes.expect_reader([NAMESPACE], CONTROLLER)
    write = world.write(NAMESPACE)
    await world.pass_time(TTL_S / 2)
    assert not write.done()

    stream = Stream(CONTROLLER, NAMESPACE)
    subscriber = world.join(stream)
    subscriber.watches([NAMESPACE])
    await world.pass_time(TTL_S - 0.01)
    assert not write.done(), "it decides by what it read until it says otherwise"
    stream.acked = 10
    subscriber.heard()
    await write


@run_by(in_world)
async def test_a_controller_that_falls_silent_counts_as_long_behind_its_watch_as_behind_its_read(
    world: World,
) -> None:
    """It was heard long before, on a stream that it had already."""
    stream = Stream(CONTROLLER, TENANT)
    subscriber = world.join(stream)
    await world.pass_time(TTL_S - 0.1)
    world.writes.expect_reader([NAMESPACE], CONTROLLER)
    stream.wanted.add(NAMESPACE)
    subscriber.watches([NAMESPACE])
    write = world.write(NAMESPACE)

    await world.wait_done(write, after_s=TTL_S)


@run_by(in_world)
async def test_a_controller_that_reads_what_it_watches_is_waited_for_until_it_is_heard(
    world: World,
) -> None:
    """Behind a broken stream it reads what it has not been told yet. No time-to-live has to pass,
    and it is asked to speak."""
    stream = Stream(CONTROLLER, NAMESPACE)
    subscriber = world.join(stream)
    subscriber.heard()
    stream.acked = 20
    world.writes.expect_reader([NAMESPACE], CONTROLLER)
    assert stream.prompts == 1
    write, other = world.write(NAMESPACE), world.write(TENANT)
    await world.pass_time(0.1)
    assert other.done()
    assert not write.done()

    subscriber.heard()
    await world.pass_time()
    assert write.done()
    assert subscriber.read == set(), "nothing is kept of it"


@run_by(in_world)
async def test_a_controller_that_is_heard_before_it_watches_is_still_expected(world: World) -> None:
    stream = Stream(CONTROLLER, TENANT)
    subscriber = world.join(stream)
    stream.acked = 20
    world.writes.expect_reader([NAMESPACE], CONTROLLER)
    write = world.write(NAMESPACE)

    subscriber.heard()
    await world.wait_done(write, after_s=TTL_S)


@run_by(in_world)
async def test_the_next_controller_is_another_reader(world: World) -> None:
    """What the last one decides by what it read is not undone by who comes."""
    world.writes.expect_reader([NAMESPACE], CONTROLLER)
    stream = Stream(topic_controllers_id("node-2", "8"), NAMESPACE)
    stream.acked = 20
    world.join(stream).watches([NAMESPACE])
    write = world.write(NAMESPACE)

    await world.wait_done(write, after_s=TTL_S)


@pytest.mark.parametrize("excess", [0, 1])
def test_the_writes_that_wait_are_bounded(monkeypatch, excess):
    monkeypatch.setattr(effective_writes, "EFFECTIVE_WAITS_MAX", 2)

    async def scenario(world: World) -> None:
        world.join(Stream("a", TENANT))
        writes = [world.write(TENANT) for _ in range(2 + excess)]
        await world.pass_time()

        done = [write for write in writes if write.done()]
        assert len(done) == excess
        for write in done:
            with pytest.raises(ProposalLost, match="committed"):
                await write
        await asyncio.gather(*writes, return_exceptions=True)

    in_world(scenario)


@run_by(in_world)
async def test_a_write_that_waits_when_leadership_moves_is_answered_as_committed_only(
    world: World,
) -> None:
    stream = Stream("a", TENANT)
    world.join(stream)
    write = world.write(TENANT)
    await world.pass_time()

    world.writes.close(NotLeader(1))

    with pytest.raises(ProposalLost, match="it is committed"):
        await write
    assert isinstance(stream.error, NotLeader), "its subscriber goes to the next leader"
    with pytest.raises(ProposalLost):
        await world.writes.wait(10, {TENANT}, ())


@run_by(in_world)
async def test_a_replaced_leader_that_has_not_noticed_answers_nothing(world: World) -> None:
    world.leadership.error = NotLeader(1)

    with pytest.raises(ProposalLost):
        await world.writes.wait(10, {TENANT}, ())


@run_by(in_world)
async def test_a_refused_write_is_not_waited_for(world: World) -> None:
    world.join(Stream("a", TENANT))
    command = pb.Command(delete_tenant=pb.DeleteTenant(name="acme"))
    request = pb.ExecuteRequest(commands=[command, command])
    refused = pb.CommandResult(rejection_code="NOT_FOUND", position=10)

    await world.writes.wait_all(request, pb.ExecuteResponse(results=[refused, refused]))

    accepted = pb.CommandResult(position=10)
    waiting = asyncio.create_task(
        world.writes.wait_all(request, pb.ExecuteResponse(results=[refused, accepted]))
    )
    await world.pass_time()
    assert not waiting.done()
    await waiting


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (pb.Command(create_tenant=pb.CreateTenant(name="acme")), [TENANT]),
        (
            pb.Command(set_policies=pb.SetPolicies(kind=KIND_NAMESPACE, name="acme/orders")),
            [NAMESPACE],
        ),
        (
            pb.Command(delete_topic=pb.DeleteTopic(name="paid")),
            [(KIND_TOPIC, "persistent://public/default/paid")],
        ),
        (
            pb.Command(
                create_topics=pb.CreateTopics(
                    topics=[pb.TopicSpec(name="a/b/c"), pb.TopicSpec(name="a//")]
                )
            ),
            [(KIND_TOPIC, "persistent://a/b/c")],
        ),
        (
            pb.Command(
                close_parent_gate=pb.CloseParentGate(
                    parent_kind="tenant", parent_name="acme", parent_id="i", attempt=1
                )
            ),
            [],
        ),
    ],
)
def test_a_command_changes_the_objects_that_it_names(command, changes):
    assert list(changed_by(command)) == changes


PAID = slot_of("public/default/paid")
HOME = PAID ^ 1
RENAME = pb.RenameTopic(name="paid", new_name="public/default/sold")


@pytest.mark.parametrize(
    ("command", "result_id", "slots"),
    [
        (pb.Command(create_tenant=pb.CreateTenant(name="acme")), "", [slot_of("acme")]),
        (pb.Command(delete_topic=pb.DeleteTopic(name="paid")), "", [PAID]),
        (pb.Command(delete_topic=pb.DeleteTopic(name="paid")), new_id(HOME), [HOME]),
        (
            pb.Command(set_policies=pb.SetPolicies(kind=KIND_TOPIC, name="paid")),
            new_id(HOME),
            [HOME],
        ),
        (
            pb.Command(rename_topic=RENAME),
            new_id(HOME),
            [HOME, slot_of("public/default/sold")],
        ),
        (
            pb.Command(
                create_topics=pb.CreateTopics(
                    topics=[pb.TopicSpec(name="paid"), pb.TopicSpec(name="a//")]
                )
            ),
            "",
            [PAID],
        ),
        (
            pb.Command(
                point_name=pb.PointName(
                    name="persistent://public/default/paid", topic_id=new_id(HOME)
                )
            ),
            new_id(HOME),
            [PAID],
        ),
    ],
)
def test_a_topic_is_of_the_slot_in_its_id_and_a_pointer_of_its_names(command, result_id, slots):
    result = pb.CommandResult(id=result_id)

    assert list(slots_changed_by(command, result)) == slots


@pytest.mark.parametrize(
    ("subscriber_id", "shard_id"),
    [
        (MANAGER, 3),
        (broker_manager_id("a/b-1", 12, 1), 12),
        ("node/topic-controller-3/1", None),
        ("discovery-1", None),
        ("node/broker-manager-x/1", None),
        ("", None),
    ],
)
def test_broker_managers_are_recognised_by_their_ids(subscriber_id, shard_id):
    assert managed_shard(subscriber_id) == shard_id


@run_by(in_world)
async def test_a_write_to_slots_that_came_waits_as_long_as_a_manager_elsewhere_counts(
    world: World,
) -> None:
    """Managers and nodes that heard of the slots' objects from another shard may not know yet."""
    slot = slot_of("acme")
    world.writes.slots_came([(slot, slot)])

    write, other = world.write(TENANT), world.write(NAMESPACE)
    await world.pass_time()
    assert other.done(), "its slot was here before"
    await world.wait_done(write, after_s=MANAGER_S)


@run_by(in_world)
async def test_a_move_in_slots_that_came_waits_for_leases_elsewhere(world: World) -> None:
    topic = "persistent://acme/orders/paid"
    slot = slot_of("acme/orders/paid")
    world.writes.slots_came([(slot - 1, slot + 1)])

    ended = [(KIND_ASSIGNMENT, topic)]
    move = asyncio.create_task(world.writes.wait_assigned(10, ended, {slot}))

    await world.wait_done(move, after_s=TTL_S + 0.1)
