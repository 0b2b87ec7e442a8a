"""Layouts shared by their watchers: loading, absence, creation, changes, owners and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nextgen.client.scalable_topics import shared_layouts as module
from nextgen.client.scalable_topics.shared_layouts import SharedLayouts
from nextgen.kernel.errors import MetadataError, Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.scalable import LAYOUT_LOADS_MAX, LAYOUT_WAKES_AT_ONCE_MAX
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.pulsar.scalable_topics.dag import dag_of
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import (
    BrokerEndpoints,
    BrokerRecorded,
    Event,
    LayoutChanged,
    ScalableSubscriptionCreated,
    ScalableTopicCreated,
    ScalableTopicDeleted,
    TopicAssigned,
    TopicUnassigned,
)
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_SCALABLE_TOPIC,
    Item,
    UnitAssignment,
)
from protos.nextgen.v1.layouts_pb2 import ScalableTopic, TopicSegment
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from tests.support.discovery.fake_cluster import StaticLink, full_update, shard_map
from tests.support.simulated.virtual_time import run_virtual

NAME = parse_topic("topic://acme/orders/paid")
SEGMENT = "segment://acme/orders/paid/0000-ffff-0"
TOPIC = ScalableTopic(
    name=NAME.text, topic_id="t", version=1, segments=[TopicSegment(hash_end=0xFFFF)]
)


class FakeStream:
    """A shard's stream, whose updates a test makes by hand."""

    def __init__(self, shard_id: int = 1) -> None:
        self.shard_id = shard_id
        self.listeners: dict[int, Any] = {}
        self.wanted: dict[int, dict[str, Any]] = {}
        self.removed: list[int] = []
        self.watches_max = 100

    def add(self, listener: Any, **wanted: Any) -> int:
        if len(self.listeners) >= self.watches_max:
            raise Overloaded("this stream has its watches")
        watch_id = len(self.wanted) + 1
        self.listeners[watch_id], self.wanted[watch_id] = listener, wanted
        return watch_id

    def remove(self, watch_id: int) -> None:
        self.removed.append(watch_id)
        self.listeners.pop(watch_id, None)

    def of(self, kind: int) -> list[Any]:
        return [
            listener
            for watch_id, listener in self.listeners.items()
            if self.wanted[watch_id]["kinds"] == [kind]
        ]

    def snapshot(self, kind: int, *items: Item) -> None:
        for listener in self.of(kind):
            listener.on_reset()
            listener.on_items(items)
            listener.on_snapshot_complete(7)

    def events(self, kind: int, *events: Event) -> None:
        for listener in self.of(kind):
            listener.on_events(events)


class World:
    """Layouts over one stream, a leader that knows what exists, and a creator of topics."""

    def __init__(self) -> None:
        self.stream_ = FakeStream()
        self.other = FakeStream(2)
        self.existing: set[str] = set()
        self.asked = 0
        self.failures: list[MetadataError] = []
        self.may_create = True
        self.created: list[str] = []
        update = full_update({1: "a:1"})
        update.shard_map.shards.add(shard_id=2)
        update.brokers.append(
            BrokerRecorded(
                broker_id="b-1",
                session_id="s-1",
                epoch=1,
                is_live=True,
                endpoints=BrokerEndpoints(pulsar_url="pulsar://b-1:6650"),
            )
        )
        self.link = StaticLink(update)
        self.layouts = SharedLayouts(self, self, self.link, self)  # type: ignore[arg-type]

    def stream(self, shard_id: int) -> FakeStream:
        return {1: self.stream_, 2: self.other}[shard_id]

    def shard_of_key(self, routing_key: str) -> int:
        return self.link.view.shard_for_key(routing_key) or 0

    def move_to(self, shard_id: int, version: int) -> None:
        """Have the map say that all slots are at a shard."""
        self.link.push(ClusterUpdate(shard_map=shard_map({shard_id: ["a"]}, version=version)))
        self.layouts.cluster_changed()

    async def call(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        response = ShardResponse()
        for wanted in request.get.names:
            item = response.get.items.add(kind=wanted.kind, name=wanted.name)
            if wanted.name in self.existing:
                item.scalable_topic.name = wanted.name
        return response

    async def create_scalable(self, name: TopicName) -> None:
        if not self.may_create:
            raise Refused(RejectionCode.NOT_FOUND, "its policy forbids it")
        self.created.append(name.text)

    def begin(self, **wanted: bool) -> asyncio.Task[Any]:
        filled = {"create": False, "may_be_absent": False, **wanted}
        return asyncio.ensure_future(self.layouts.watch(NAME, **filled))

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def loaded(self, *items: Item, **wanted: bool) -> Any:
        watching = self.begin(**wanted)
        await self.settle()
        self.stream_.snapshot(KIND_SCALABLE_TOPIC, *items)
        return await watching


@pytest.fixture
async def world():
    return World()


def item(topic: ScalableTopic = TOPIC) -> Item:
    return Item(kind=KIND_SCALABLE_TOPIC, name=topic.name, scalable_topic=topic)


def created() -> Event:
    return Event(
        scalable_topic_created=ScalableTopicCreated(
            name=NAME.text, topic_id="t", segments=TOPIC.segments
        )
    )


def changed(epoch: int, segments: Sequence[TopicSegment] = ()) -> Event:
    return Event(layout_changed=LayoutChanged(name=NAME.text, epoch=epoch, changed=segments))


async def test_a_place_has_the_layout_of_the_snapshot_and_then_every_change(world):
    place = await world.loaded(item())
    assert world.stream_.wanted == {
        1: {"kinds": [KIND_SCALABLE_TOPIC], "names": [NAME.text]},
        2: {"kinds": [KIND_ASSIGNMENT], "prefix": "segment://acme/orders/paid/"},
    }
    assert place.layout().topic == TOPIC

    waiting = asyncio.ensure_future(place.next_change())
    await world.settle()
    assert not waiting.done()
    world.stream_.events(KIND_SCALABLE_TOPIC, changed(1), changed(2))
    await waiting

    assert place.layout().topic.epoch == 2
    assert place.layout().topic.version == 3
    assert world.asked == 0


async def test_places_share_the_watches_and_the_last_one_ends_them(world):
    first = await world.loaded(item())
    second = await world.layouts.watch(NAME, create=False, may_be_absent=False)
    assert len(world.stream_.wanted) == 2
    assert len(world.layouts) == 1

    first.close()
    first.close()
    assert world.stream_.removed == []
    second.close()

    assert world.stream_.removed == [1, 2]
    assert len(world.layouts) == 0


async def test_a_change_between_two_looks_is_not_missed(world):
    place = await world.loaded(item())
    place.layout()
    world.stream_.events(KIND_SCALABLE_TOPIC, changed(1))

    async with timeout(1):
        await place.next_change()
        await place.next_graph_change()

    assert place.layout().topic.epoch == 1


async def test_a_snapshot_after_a_gap_that_changes_nothing_wakes_nobody(world):
    place = await world.loaded(item())
    place.layout()
    waiting = asyncio.ensure_future(place.next_change())

    world.stream_.snapshot(KIND_SCALABLE_TOPIC, item())
    await world.settle()
    assert not waiting.done()
    world.stream_.snapshot(KIND_SCALABLE_TOPIC)
    await waiting

    assert place.layout() is None


async def test_what_becomes_of_a_subscription_is_no_change_of_the_graph(world):
    """Ten thousand watchers of segments are not woken because a consumer came."""
    place = await world.loaded(item())
    place.layout()
    any_change = asyncio.ensure_future(place.next_change())
    of_graph = asyncio.ensure_future(place.next_graph_change())
    await world.settle()
    made = ScalableSubscriptionCreated(name=NAME.text, subscription="s", type="stream")

    world.stream_.events(KIND_SCALABLE_TOPIC, Event(scalable_subscription_created=made))
    await any_change
    await world.settle()

    assert not of_graph.done()
    assert [each.name for each in place.layout().topic.subscriptions] == ["s"]
    world.stream_.events(KIND_SCALABLE_TOPIC, changed(1))
    await of_graph


async def test_watchers_share_what_is_made_of_a_layout_until_it_changes(world):
    first = await world.loaded(item())
    second = await world.layouts.watch(NAME, create=False, may_be_absent=False)
    message = dag_of(first.layout(), "pulsar://d:6650")
    assert dag_of(second.layout(), "pulsar://d:6650") is message
    assert dag_of(second.layout(), "pulsar://other:6650").controller_broker_url.endswith(
        "other:6650"
    )

    world.stream_.events(KIND_SCALABLE_TOPIC, changed(1))

    assert dag_of(first.layout(), "pulsar://d:6650").epoch == 1
    assert message.epoch == 0


async def test_layout_wakes_at_once_max_are_woken_in_a_turn_and_one_more_in_the_next(world):
    """A node that sends a large layout to many watchers serves others between them."""
    places = [await world.loaded(item())]
    for _ in range(LAYOUT_WAKES_AT_ONCE_MAX):
        places.append(await world.layouts.watch(NAME, create=False, may_be_absent=False))
    waiting = [asyncio.ensure_future(place.next_graph_change()) for place in places]
    for place in places:
        place.layout()
    await world.settle()

    world.stream_.events(KIND_SCALABLE_TOPIC, changed(1))

    counts = []
    for _ in range(2):
        await asyncio.sleep(0)
        counts.append(sum(each.done() for each in waiting))
    assert counts == [LAYOUT_WAKES_AT_ONCE_MAX, LAYOUT_WAKES_AT_ONCE_MAX + 1]


@pytest.mark.parametrize("how", ["owner", "deletion", "end"])
async def test_owners_a_deletion_and_the_end_are_changes_of_the_graph(world, how):
    place = await world.loaded(item())
    place.layout()
    of_graph = asyncio.ensure_future(place.next_graph_change())
    await world.settle()

    if how == "owner":
        world.stream_.events(KIND_ASSIGNMENT, assigned("b-1", "s-1"))
    elif how == "deletion":
        gone = Event(scalable_topic_deleted=ScalableTopicDeleted(name=NAME.text))
        world.stream_.events(KIND_SCALABLE_TOPIC, gone)
    else:
        await world.layouts.stop()

    if how == "end":
        with pytest.raises(Unavailable):
            await of_graph
    else:
        await of_graph


async def test_a_deleted_topic_has_no_layout(world):
    place = await world.loaded(item())

    gone = Event(scalable_topic_deleted=ScalableTopicDeleted(name=NAME.text))
    world.stream_.events(KIND_SCALABLE_TOPIC, gone)

    assert place.layout() is None


# Absence -----------------------------------------------------------------------------------------


async def test_what_the_leader_does_not_know_either_is_refused(world):
    with pytest.raises(Refused) as refused:
        await world.loaded()

    assert refused.value.code == RejectionCode.NOT_FOUND
    assert world.asked == 1
    assert world.stream_.removed == [1, 2]


async def test_a_watch_that_is_behind_the_leader_is_waited_for(world):
    """The client may have been told elsewhere that the topic is there."""
    world.existing.add(NAME.text)
    watching = world.begin()
    await world.settle()
    world.stream_.snapshot(KIND_SCALABLE_TOPIC)
    await world.settle()
    assert not watching.done()

    world.stream_.events(KIND_SCALABLE_TOPIC, created())

    assert (await watching).layout().topic.segments == TOPIC.segments


async def test_an_absent_topic_is_created_on_demand(world):
    watching = world.begin(create=True)
    await world.settle()
    world.stream_.snapshot(KIND_SCALABLE_TOPIC)
    await world.settle()
    assert world.created == [NAME.text]
    world.stream_.events(KIND_SCALABLE_TOPIC, created())

    assert (await watching).layout().topic.topic_id == "t"


async def test_a_namespace_that_creates_nothing_on_demand_gives_its_reason(world):
    world.may_create = False

    with pytest.raises(Refused, match="its policy forbids it"):
        await world.loaded(create=True)


async def test_a_topic_that_may_be_absent_has_a_layout_once_it_comes(world):
    place = await world.loaded(may_be_absent=True)
    assert place.layout() is None

    world.stream_.events(KIND_SCALABLE_TOPIC, created())

    await place.next_change()
    assert place.layout().topic.name == NAME.text


async def test_layout_read_ms_max_pass_before_a_silent_shard_is_given_up(world, monkeypatch):
    monkeypatch.setattr(module, "LAYOUT_READ_MS_MAX", 20)

    with pytest.raises(Unavailable, match="did not come within 20 ms"):
        await world.begin()

    assert len(world.layouts) == 0


# Owners ------------------------------------------------------------------------------------------


def unit(broker_id: str, session_id: str, segment: str = SEGMENT, unit: str = "s0") -> Item:
    assignment = UnitAssignment(
        name=segment, unit=unit, epoch=1, broker_id=broker_id, session_id=session_id
    )
    return Item(kind=KIND_ASSIGNMENT, name=segment, assignment=assignment)


def assigned(broker_id: str, session_id: str) -> Event:
    return Event(
        topic_assigned=TopicAssigned(
            name=SEGMENT, unit="s0", epoch=2, broker_id=broker_id, session_id=session_id
        )
    )


async def test_owners_are_those_whose_session_lives(world):
    place = await world.loaded(item())
    world.stream_.snapshot(KIND_ASSIGNMENT, unit("b-1", "s-1"), unit("b-2", "s-9", "x", "s7"))
    assert place.layout().owners == {0: "pulsar://b-1:6650"}

    waiting = asyncio.ensure_future(place.next_change())
    await world.settle()
    world.stream_.events(KIND_ASSIGNMENT, assigned("b-1", "an earlier session"))
    await waiting

    assert place.layout().owners == {}
    world.stream_.events(KIND_ASSIGNMENT, assigned("b-1", "s-1"))
    assert place.layout().owners == {0: "pulsar://b-1:6650"}
    ended = Event(topic_unassigned=TopicUnassigned(name=SEGMENT, unit="s0", epoch=2))
    world.stream_.events(KIND_ASSIGNMENT, ended)
    assert place.layout().owners == {}


@pytest.mark.parametrize("watchers", [1, 2])
async def test_a_broker_that_went_is_no_owner_any_more(world, watchers):
    place = await world.loaded(item())
    if watchers == 2:  # Else nothing is kept of what a watcher was given.
        await world.layouts.watch(NAME, create=False, may_be_absent=False)
    world.stream_.snapshot(KIND_ASSIGNMENT, unit("b-1", "s-1"))
    assert place.layout().owners == {0: "pulsar://b-1:6650"}
    gone = BrokerRecorded(broker_id="b-1", session_id="s-1", epoch=1, is_live=False)

    world.link.view.apply(ClusterUpdate(brokers=[gone]))

    assert place.layout().owners == {}


# Ends --------------------------------------------------------------------------------------------


async def test_a_watch_that_ends_ends_its_places_and_the_next_one_begins_anew(world):
    place = await world.loaded(item())
    place.layout()
    waiting = asyncio.ensure_future(place.next_change())
    await world.settle()
    world.stream_.of(KIND_SCALABLE_TOPIC)[0].on_ended(Unavailable("the shard map changed"))

    with pytest.raises(Unavailable, match="the shard map changed"):
        await waiting
    again = await world.loaded(item())
    assert again.layout().topic == TOPIC
    place.close()
    assert len(world.layouts) == 1


async def test_a_layout_is_followed_where_the_map_has_its_slot(world):
    """A shard that released the slot said where it is to be. The shard there has nothing yet."""
    place = await world.loaded(item())
    place.layout()
    waiting = asyncio.ensure_future(place.next_change())

    assert world.link.view.learn_move([(0, 16_383)], 2, 1)
    world.layouts.cluster_changed()
    assert world.other.listeners == {}
    world.move_to(2, version=2)
    world.other.snapshot(KIND_SCALABLE_TOPIC, item())
    await world.settle()

    assert world.stream_.listeners == {}
    assert not waiting.done()
    world.other.events(KIND_SCALABLE_TOPIC, changed(1))
    await waiting
    assert place.layout().topic.epoch == 1
    place.close()


def test_a_topic_that_a_snapshot_does_not_have_is_looked_for():
    """A stream began anew at a shard that has given the slot away, before the map said so."""

    async def run() -> None:
        world = World()
        world.existing = {NAME.text}
        place = await world.loaded(item())
        place.layout()
        waiting = asyncio.ensure_future(place.next_change())
        world.failures = [Unavailable("nobody leads")]

        world.stream_.snapshot(KIND_SCALABLE_TOPIC)
        world.stream_.snapshot(KIND_SCALABLE_TOPIC)
        await asyncio.sleep(2)

        assert not waiting.done()
        assert place.layout().topic == TOPIC
        world.stream_.snapshot(KIND_SCALABLE_TOPIC, item())
        world.stream_.events(KIND_SCALABLE_TOPIC, changed(1))
        await waiting
        assert place.layout().topic.epoch == 1
        assert len(world.stream_.listeners) == 2
        place.close()

    run_virtual(run)


async def test_a_topic_that_a_snapshot_does_not_have_and_nobody_else_is_gone(world):
    place = await world.loaded(item())
    place.layout()
    waiting = asyncio.ensure_future(place.next_change())

    world.stream_.snapshot(KIND_SCALABLE_TOPIC)

    await waiting
    assert place.layout() is None
    place.close()


async def test_a_stream_with_all_its_watches_refuses_and_keeps_none(world):
    world.stream_.watches_max = 1

    with pytest.raises(Overloaded):
        await world.begin()

    assert world.stream_.listeners == {}
    assert len(world.layouts) == 0


async def test_a_node_that_stops_ends_all_watches(world):
    place = await world.loaded(item())
    place.layout()

    await world.layouts.stop()

    with pytest.raises(Unavailable, match="this node stops"):
        await place.next_change()
    place.close()


async def test_layout_loads_max_are_read_at_a_time_and_one_more_waits(world, monkeypatch):
    """A client that comes back with all of its topics does not make a shard time out."""
    names = [parse_topic(f"topic://acme/orders/t{number}") for number in range(3)]
    monkeypatch.setattr(module, "LAYOUT_LOADS_MAX", 2)
    world.layouts = SharedLayouts(world, world, world.link, world)
    watching = [
        asyncio.ensure_future(world.layouts.watch(each, create=False, may_be_absent=True))
        for each in names
    ]
    await world.settle()
    assert len(world.layouts) == 2 < LAYOUT_LOADS_MAX

    world.stream_.snapshot(KIND_SCALABLE_TOPIC, item())
    await world.settle()
    assert len(world.layouts) == 3
    again = await world.layouts.watch(names[0], create=False, may_be_absent=True)
    world.stream_.snapshot(KIND_SCALABLE_TOPIC, item())

    for place in [again, *await asyncio.gather(*watching)]:
        place.close()
    assert len(world.layouts) == 0
