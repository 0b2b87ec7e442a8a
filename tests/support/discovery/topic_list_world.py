"""Shards with logs, and change streams that break: what shared topic lists stand on, in memory."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from nextgen.client.changes.shard_watch import WatchListener
from nextgen.client.log.event_keys import event_keys
from nextgen.client.topic_lists.place import Place
from nextgen.client.topic_lists.shared_lists import SharedTopicLists
from nextgen.kernel.errors import MetadataError, NotLeader, Unavailable
from nextgen.kernel.routing.names import NamespaceName, parse_topic
from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.kernel.routing.system_topics import is_system_topic
from nextgen.kernel.routing.unit_names import unit_names
from nextgen.pulsar.admission.command_access import NOTHING_KEPT, Kept
from nextgen.pulsar.topic_lists.hash import sort_key, topics_hash
from nextgen.pulsar.topic_lists.pattern import TopicPattern, compile_pattern
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicList
from nextgen.pulsar.topic_lists.session import TopicListSession, TopicWatches
from protos.nextgen.v1.events_pb2 import (
    Event,
    TopicCreated,
    TopicDeleted,
    TopicPartitionsGrown,
    TopicPropertiesSet,
    TopicRenamed,
)
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ShardRequest, ShardResponse
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandWatchTopicList, ServerError
from tests.support.discovery.fake_cluster import StaticLink, full_update

NAMESPACE = NamespaceName("t", "n")
PREFIX = f"persistent://{NAMESPACE.text}/"
SCALABLE_PREFIX = f"topic://{NAMESPACE.text}/"


class LoggedShard:
    """One shard: its events, and its topics at every position."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.topics: list[dict[str, int]] = [{}]
        self.properties: list[dict[str, dict[str, str]]] = [{}]
        self.filters = True
        """False: its node is of a release that answers with all objects."""
        # A shard's log begins with its slots.
        self.touch("persistent://another/one/topic")

    @property
    def position(self) -> int:
        return len(self.events)

    def create(self, name: str, partitions: int = 0, **properties: str) -> None:
        event = TopicCreated(name=name, topic_id="x", partitions=partitions, properties=properties)
        self._append(Event(topic_created=event), self.topics[-1] | {name: partitions})
        self.properties[-1] = self.properties[-1] | {name: properties}

    def set_properties(self, name: str, **properties: str) -> None:
        event = TopicPropertiesSet(name=name, properties=properties)
        self._append(Event(topic_properties_set=event), self.topics[-1])
        self.properties[-1] = self.properties[-1] | {name: properties}

    def grow(self, name: str, partitions: int) -> None:
        event = TopicPartitionsGrown(name=name, topic_id="x", partitions=partitions)
        self._append(Event(topic_partitions_grown=event), self.topics[-1] | {name: partitions})

    def delete(self, name: str) -> None:
        topics = dict(self.topics[-1])
        event = TopicDeleted(name=name, topic_id="x", partitions=topics.pop(name))
        self._append(Event(topic_deleted=event), topics)

    def rename(self, name: str, new_name: str) -> None:
        topics = dict(self.topics[-1])
        topics[new_name] = topics.pop(name)
        event = TopicRenamed(
            name=name, topic_id="x", new_name=new_name, partitions=topics[new_name]
        )
        self._append(Event(topic_renamed=event), topics)

    def touch(self, name: str) -> None:
        """Append an event that changes no list."""
        self._append(Event(topic_properties_set=TopicPropertiesSet(name=name)), self.topics[-1])

    def _append(self, event: Event, topics: dict[str, int]) -> None:
        event.position = self.position + 1
        self.events.append(event)
        self.topics.append(topics)
        self.properties.append(self.properties[-1])

    def page(self, request: ListRequest, position: int) -> ShardResponse:
        beginning = f"{request.domain}://{request.parent}/{request.prefix}"
        topics = self.topics[position]
        names = sorted(name for name in topics if name.startswith(beginning))
        behind = names[bisect_right(names, request.after) :]
        response = ShardResponse(position=position)
        for name in behind[: request.limit]:
            if self.filters and request.properties:
                has = self.properties[position].get(name, {}).items()
                if request.properties.items() <= has:
                    response.list.names.append(name)
                    response.list.partitions.append(topics[name])
                response.list.next_after = name
                continue
            if request.names_only:
                response.list.names.append(name)
                response.list.partitions.append(topics[name])
                continue
            item = response.list.items.add(name=name)
            item.topic.partitions = topics[name]
            item.topic.properties.update(self.properties[position].get(name, {}))
        response.list.more_items = len(behind) > request.limit
        if not response.list.more_items:
            response.list.ClearField("next_after")
        return response


class LoggedShards:
    """The shards and the way to them: replicas lag, requests fail, answers take their time."""

    def __init__(self, count: int, chance: random.Random, *, page_items: int = 3) -> None:
        self.by_id = {shard_id: LoggedShard() for shard_id in range(1, count + 1)}
        self.link = StaticLink(full_update(dict.fromkeys(self.by_id, "a:1")))
        self.failures = 0.0
        self.requests: list[ListRequest] = []
        self._chance = chance
        self._page_items = page_items

    def shard_of_key(self, routing_key: str) -> int:
        shard_id = self.link.view.shard_for_key(routing_key)
        assert shard_id is not None
        return shard_id

    def of_topic(self, name: str) -> LoggedShard:
        return self.by_id[self.shard_of_key(parse_topic(name).routing_key)]

    def home_of(self, name: str) -> LoggedShard:
        """Return the shard that has a topic of this name, else the one with the name's slot."""
        homes = [shard for shard in self.by_id.values() if name in shard.topics[-1]]
        assert len(homes) <= 1, f"{name} is the name of {len(homes)} topics"
        return homes[0] if homes else self.of_topic(name)

    async def call(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
        shard = self.by_id[shard_id]
        await self._travel(shard_id, request.list)
        response = shard.page(request.list, shard.position)
        await self._travel(shard_id)
        return response

    async def call_any(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
        shard = self.by_id[shard_id]
        await self._travel(shard_id, request.list)
        position = self._chance.randint(request.list.min_position, shard.position)
        response = shard.page(request.list, position)
        await self._travel(shard_id)
        return response

    async def _travel(self, shard_id: int, request: ListRequest | None = None) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        if self._chance.random() < self.failures:
            raise self._chance.choice([NotLeader(shard_id, None), Unavailable("no quorum")])
        if request is not None:
            self.requests.append(request)
            request.limit = self._page_items

    def scalable_names(self, properties: PropertyFilter) -> set[str]:
        """Return what a watcher of the namespace has to have."""
        return {
            name
            for shard in self.by_id.values()
            for name in shard.topics[-1]
            if name.startswith(SCALABLE_PREFIX)
            and not is_system_topic(name)
            and properties.matches(shard.properties[-1].get(name, {}))
        }

    def names(self, pattern: TopicPattern) -> set[str]:
        """Return what a list has to have."""
        return {
            unit
            for shard in self.by_id.values()
            for name, partitions in shard.topics[-1].items()
            if name.startswith(PREFIX) and not is_system_topic(name) and pattern.matches(name)
            for unit in unit_names(name, partitions)
        }


class _Stream:
    """A watch on a stream. ``position`` None: it has not begun."""

    def __init__(self, shard: LoggedShard, listener: WatchListener, prefix: str) -> None:
        self.shard = shard
        self.listener = listener
        self.prefix = prefix
        self.position: int | None = None

    def begin(self) -> None:
        self.listener.on_reset()
        self.position = self.shard.position
        self.listener.on_position(self.position)

    def cut(self) -> None:
        """The log behind its position was cut: it begins again some time later."""
        self.listener.on_reset()
        self.position = None

    def advance(self, events_max: int) -> None:
        """Deliver what comes next, as a ``ShardWatch`` does."""
        if self.position is None:
            self.begin()
            return
        behind = self.shard.events[self.position : self.position + events_max]
        if not behind:
            return
        matching = [
            event
            for event in behind
            if any(name.startswith(self.prefix) for name in event_keys(event))
        ]
        if matching:
            self.listener.on_events(matching)
        self.position = behind[-1].position
        self.listener.on_position(self.position)


class BreakingStreams:
    """The change streams of one node."""

    def __init__(self, shards: LoggedShards) -> None:
        self.is_connected = True
        self.watches: dict[int, tuple[int, _Stream]] = {}
        self._shards = shards
        self._last_id = 0

    def is_current(self, shard_id: int) -> bool:
        return self.is_connected

    def add(
        self,
        shard_id: int,
        listener: WatchListener,
        *,
        kind: int,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> int:
        assert not names
        assert not from_position
        self._last_id += 1
        stream = _Stream(self._shards.by_id[shard_id], listener, prefix)
        self.watches[self._last_id] = shard_id, stream
        return self._last_id

    def remove(self, shard_id: int, watch_id: int) -> None:
        del self.watches[watch_id]

    def streams(self) -> Iterator[_Stream]:
        for _, stream in tuple(self.watches.values()):
            yield stream

    def advance(self, events_max: int = 1_000_000) -> None:
        """Deliver up to as many events to every watch, unless the node is disconnected."""
        if self.is_connected:
            for stream in self.streams():
                stream.advance(events_max)

    def fail(self, error: MetadataError) -> None:
        """End a watch, and with it the lists that stand on it."""
        for stream in self.streams():
            stream.listener.on_ended(error)
            return

    @property
    def is_caught_up(self) -> bool:
        return all(stream.position == stream.shard.position for stream in self.streams())


class Node:
    """A process with shared lists."""

    def __init__(self, shards: LoggedShards, **limits: int) -> None:
        self.streams = BreakingStreams(shards)
        self.listed: list[ListQuestion] = []
        self._shards = shards
        self.lists = SharedTopicLists(self.streams, shards, shards.link, self._listed, **limits)

    async def _listed(self, question: ListQuestion) -> TopicList:
        self.listed.append(question)
        names = self._shards.names(question.pattern or compile_pattern(".*"))
        return TopicList(topics_hash(names), sorted(names, key=sort_key))

    async def watch(self, pattern: str, after: Place | None = None) -> Place:
        """Return a place at a list; the streams go on meanwhile."""
        watching = asyncio.ensure_future(
            self.lists.watch(NAMESPACE, compile_pattern(pattern), after)
        )
        while not watching.done():
            self.streams.advance()
            await asyncio.sleep(0)
        place = watching.result()
        assert isinstance(place, Place)
        return place


class Watcher:
    """Applies the changes of its place, and checks each: nothing comes twice, every hash is that
    of the whole list. If the list ends, it goes on at another place after the one that ended."""

    def __init__(self, pattern: str) -> None:
        self.pattern = compile_pattern(pattern)
        self.names: set[str] = set()
        self.place: Place | None = None
        self.changes = 0
        self.is_paused = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def hash(self) -> str:
        return "" if self.place is None else self.place.hash

    def truth(self, shards: LoggedShards) -> set[str]:
        return shards.names(self.pattern)

    async def begin(self, node: Node) -> None:
        self.place = await self._place(node, None)
        self.names = set(self.place.names())
        assert self.place.hash == topics_hash(self.names)
        self._reading = asyncio.ensure_future(self._read(node))

    async def leave(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self.place is not None:
            self.place.close()

    @property
    def failure(self) -> BaseException | None:
        reading = self._reading
        if reading is None or not reading.done() or reading.cancelled():
            return None
        return reading.exception()

    async def _read(self, node: Node) -> None:
        while True:
            while self.is_paused:
                await asyncio.sleep(0)
            assert self.place is not None
            try:
                change = await self.place.next_change()
            except MetadataError:
                ended = self.place
                self.place = await self._place(node, ended)
                ended.close()
                continue
            self.changes += 1
            apply(self.names, change.created, change.deleted)
            assert change.hash == self.place.hash
            assert self.place.hash == topics_hash(self.names), "the hash is not that of the list"

    async def _place(self, node: Node, after: Place | None) -> Place:
        while True:
            try:
                place = await node.lists.watch(NAMESPACE, self.pattern, after)
            except MetadataError:
                await asyncio.sleep(0)
                continue
            assert isinstance(place, Place)
            return place


class ClientWatcher:
    """A stock client with one watcher: it has what its connection brought, and applies each update
    to that. It watches again with the hash that it has, and after an error."""

    def __init__(self, pattern: str) -> None:
        self.pattern = compile_pattern(pattern)
        self.names: set[str] = set()
        self.hash = ""
        self.changes = 0
        self.failure: BaseException | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._session: TopicListSession | None = None
        self._answered = asyncio.Event()

    @property
    def is_paused(self) -> bool:
        return not self._has_room.is_set()

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        if is_paused:
            self._has_room.clear()
        else:
            self._has_room.set()

    def truth(self, shards: LoggedShards) -> set[str]:
        return shards.names(self.pattern)

    async def begin(self, node: Node) -> None:
        self._session = TopicListSession(self, TopicWatches(node.lists))
        self.reconcile()
        await self._answered.wait()

    def reconcile(self) -> None:
        """Send the request with the same id, and the hash that the client has."""
        assert self._session is not None
        self._answered.clear()
        request = CommandWatchTopicList(
            request_id=1,
            watcher_id=1,
            namespace=NAMESPACE.text,
            topics_pattern=self.pattern.text,
            topics_hash=self.hash,
        )
        self._session.handle(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request))

    async def leave(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
            # Its tasks end.
            for _ in range(5):
                await asyncio.sleep(0)

    # As the session calls it --------------------------------------------------------------------

    def keep(self, command: BaseCommand) -> Kept:
        return NOTHING_KEPT

    async def until_writable(self) -> None:
        await self._has_room.wait()

    def send_command(self, command: BaseCommand) -> None:
        try:
            self._take(command)
        except AssertionError as error:
            self.failure = self.failure or error

    def send_error(self, request_id: int, error: ServerError, message: str) -> None:
        asyncio.get_running_loop().call_soon(self._reconcile_at, self._session)

    def _reconcile_at(self, session: TopicListSession | None) -> None:
        if session is self._session is not None:
            self.reconcile()

    def _take(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS:
            success = command.watchTopicListSuccess
            if success.topics_hash != self.hash:
                self.names = set(success.topic)
            self.hash = success.topics_hash
            self._answered.set()
        else:
            update = command.watchTopicUpdate
            self.changes += 1
            apply(self.names, update.new_topics, update.deleted_topics)
            self.hash = update.topics_hash or self.hash
            if not update.topics_hash:
                return
        assert self.hash == topics_hash(self.names), "the hash is not that of the list"


def apply(names: set[str], created: Sequence[str], deleted: Sequence[str]) -> None:
    """Change ``names``, and check that nothing comes twice."""
    assert created or deleted, "an empty change"
    assert names.isdisjoint(created), "created twice"
    assert names.issuperset(deleted), "deleted what was not there"
    assert len({*created, *deleted}) == len(created) + len(deleted)
    names.update(created)
    names.difference_update(deleted)
