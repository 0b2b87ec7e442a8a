"""Home shards of metadata without their processes: versions, positions and streams that may lag.

homes = FakeHomes(shards=2)
homes.create(KIND_TOPIC, name)
homes.set_properties(name, {"a": "b"})     # the truth changes at once,
homes.deliver()                            # and who watches is told
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nextgen.client.changes.shard_watch import WatchListener
from nextgen.client.log.event_keys import event_keys
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
)
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.domain.topic import Topic
from shards.ports import ShardWatching
from shards.sessions.metadata_state import MetadataState, id_of, state_after
from shards.wire.inventory import item_message

CONTROLLERS = "node-1/topic-controller-all/1"
"""The subscriber id of the topic controllers of a node."""


class SilentHomes:
    """Home shards of which nothing is ever heard."""

    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        return 1

    def manager_shard(self, broker_id: str) -> int:
        return 1

    def note_leader(self, shard_id: int, term: int, node_id: str) -> None:
        pass

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        return _SilentStream()


class _SilentStream:
    heard_at = float("-inf")

    def is_caught_up(self, watch_id: int) -> bool:
        return False

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def add(
        self,
        listener: WatchListener,
        *,
        kinds: Sequence[Kind],
        names: Sequence[str] = (),
        from_position: int = 0,
        acknowledged: bool = False,
    ) -> int:
        return next(self._ids)

    def acknowledge_with(self, in_effect: Callable[[int], int]) -> None:
        pass

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None:
        pass

    def complete_with(self, complete_term: Callable[[], int]) -> None:
        pass

    def acknowledge(self) -> None:
        pass

    def remove(self, watch_id: int) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass(slots=True)
class _Watched:
    listener: WatchListener
    names: frozenset[str]
    position: int
    needs_snapshot: bool


@dataclass(slots=True)
class FakeStream:
    """One stream; tells nothing before ``FakeHomes.deliver``."""

    home: _Home
    subscriber_id: str
    watches: dict[int, _Watched] = field(default_factory=dict)
    adds: list[int] = field(default_factory=list)
    """How many names each watch had, in the order they were added."""
    removes: int = 0
    in_effect: Callable[[int], int] = lambda position: position
    withheld: Callable[[], Collection[int]] = tuple
    """Of which watches nothing is acknowledged."""
    complete_term: Callable[[], int] = lambda: 0
    acknowledged: int = 0
    """How often a higher effective position was reported."""
    runs: int = 0
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to have ``run`` raise."""
    heard_at: float = float("-inf")
    is_behind: bool = False
    """Set for a stream that was just connected again: its watches have to catch up."""
    _next_id: int = 1

    def add(
        self,
        listener: WatchListener,
        *,
        kinds: Sequence[Kind],
        names: Sequence[str] = (),
        from_position: int = 0,
        acknowledged: bool = False,
    ) -> int:
        watch_id, self._next_id = self._next_id, self._next_id + 1
        self.watches[watch_id] = _Watched(
            listener, frozenset(names), from_position, needs_snapshot=not from_position
        )
        self.adds.append(len(names))
        return watch_id

    def acknowledge_with(self, in_effect: Callable[[int], int]) -> None:
        self.in_effect = in_effect

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None:
        self.withheld = withheld

    def complete_with(self, complete_term: Callable[[], int]) -> None:
        self.complete_term = complete_term

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def remove(self, watch_id: int) -> None:
        self.removes += self.watches.pop(watch_id, None) is not None

    def is_caught_up(self, watch_id: int) -> bool:
        watched = self.watches.get(watch_id)
        return watched is not None and not watched.needs_snapshot and not self.is_behind

    async def run(self) -> None:
        self.runs += 1
        try:
            await self.failed.wait()
            self.failed.clear()
            raise RuntimeError("the stream broke in a way that nobody thought of")
        except asyncio.CancelledError:
            self.home.streams.remove(self)
            raise

    def deliver(self, upto: int, *, every: int = 1) -> None:
        """Tell every watch, or one out of ``every``, what happened up to a position."""
        self.heard_at = asyncio.get_running_loop().time()
        self.is_behind = False
        for watch_id in tuple(self.watches):
            watched = self.watches.get(watch_id)
            if watched is None or watch_id % every:
                continue
            if watched.needs_snapshot or watched.position < upto:
                self._deliver(watched, upto)

    def reset(self) -> None:
        """Have every watch begin again, as behind the cut of a log."""
        for watched in self.watches.values():
            watched.needs_snapshot = True
            watched.listener.on_reset()

    def _deliver(self, watched: _Watched, upto: int) -> None:
        listener = watched.listener
        if watched.needs_snapshot:
            items = list(self.home.states_at(watched.names, upto))
            for start in range(0, len(items), 2):
                listener.on_items(items[start : start + 2])
            watched.needs_snapshot = False
            listener.on_snapshot_complete(upto)
        else:
            events = [
                event
                for event in self.home.events[watched.position : upto]
                if not watched.names.isdisjoint(event_keys(event))
            ]
            if events:
                listener.on_events(events)
            listener.on_position(upto)
        watched.position = upto


class _Home:
    def __init__(self, shard_id: int) -> None:
        self.shard_id = shard_id
        self.events: list[pb.Event] = []
        self.streams: list[FakeStream] = []
        self._states: dict[str, list[tuple[int, Kind, MetadataState | None]]] = {}

    @property
    def position(self) -> int:
        return len(self.events)

    def states_at(self, names: Iterable[str], position: int) -> Iterator[Item]:
        """Yield what exists of ``names`` as of a position."""
        for name in names:
            for at, kind, state in reversed(self._states.get(name, ())):
                if at <= position:
                    if state is not None:
                        yield item_message(kind, name, state)
                    break

    def latest(self, name: str) -> tuple[Kind, MetadataState | None]:
        _, kind, state = self._states.get(name, [(0, KIND_TENANT, None)])[-1]
        return kind, state

    def adopt(self, name: str, kind: Kind, state: MetadataState | None) -> None:
        self._states[name] = [(self.position, kind, state)]

    def append(self, kind: Kind, name: str, event: pb.Event) -> None:
        event.position, event.shard_id = self.position + 1, self.shard_id
        self.events.append(event)
        self._note(kind, name, state_after(self.latest(name)[1], event))

    def rename(self, event: pb.Event, *, in_grace: bool) -> None:
        """A topic has another name; within its grace the former one stands for it."""
        renamed = event.topic_renamed
        self.append(KIND_TOPIC, renamed.name, event)
        state = self.latest(renamed.name)[1]
        self._note(KIND_TOPIC, renamed.new_name, state)
        if not in_grace:
            self.forget(renamed.name)

    def forget(self, name: str) -> None:
        """The grace of a former name is over."""
        self._states[name].pop()
        self._note(KIND_TOPIC, name, None)

    def _note(self, kind: Kind, name: str, state: MetadataState | None) -> None:
        self._states.setdefault(name, []).append((self.position, kind, state))


class FakeHomes:
    """``HomeShards`` and ``MetadataReader`` at once; names are spread over the shards."""

    def __init__(self, shards: int = 1) -> None:
        self.homes = [_Home(shard_id) for shard_id in range(1, shards + 1)]
        self.reads: list[str] = []
        self.read_sizes: list[int] = []
        self.is_reachable = True
        self.noted: list[tuple[int, int, str]] = []
        """Leaders that announced themselves: shard, term, node."""
        self._ids = itertools.count(1)
        self._moved: dict[str, int] = {}
        """By name: the shard that its slot has moved to."""
        self._born: dict[str, int] = {}
        """By id: the shard that a topic was created in."""
        self._renamed: dict[str, str] = {}
        """The ids of renamed topics, by the names that they got."""
        for home in self.homes:
            home.append(KIND_TENANT, "", pb.Event(slots_adopted=pb.SlotsAdopted()))

    @property
    def streams(self) -> list[FakeStream]:
        return [stream for home in self.homes for stream in home.streams]

    # HomeShards, MetadataReader ---------------------------------------------------------------

    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        if name in self._moved:
            return self._moved[name]
        if object_id in self._born:
            return self._born[object_id]
        return 1 + sum(name.encode()) % len(self.homes)

    def manager_shard(self, broker_id: str) -> int:
        return 1

    def note_leader(self, shard_id: int, term: int, node_id: str) -> None:
        self.noted.append((shard_id, term, node_id))

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        home = self.homes[shard_id - 1]
        stream = FakeStream(home, subscriber_id)
        home.streams.append(stream)
        return stream

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        await asyncio.sleep(0)
        if not self.is_reachable:
            raise Unavailable("no home shard answers")
        self.reads += [name.name for name in names]
        self.read_sizes.append(len(names))
        return [item_message(name.kind, name.name, self.state(name.name)) for name in names]

    # The truth --------------------------------------------------------------------------------

    def state(self, name: str) -> MetadataState | None:
        return self._home(name).latest(name)[1]

    def create(self, kind: Kind, name: str) -> MetadataState:
        object_id = f"id-{next(self._ids)}"
        if kind == KIND_TENANT:
            event = pb.Event(tenant_created=pb.TenantCreated(tenant_id=object_id, name=name))
        elif kind == KIND_NAMESPACE:
            tenant_id = self._id_of(name.partition("/")[0])
            created = pb.NamespaceCreated(namespace_id=object_id, name=name, tenant_id=tenant_id)
            event = pb.Event(namespace_created=created)
        else:
            namespace_id = self._id_of(parse_topic(name).namespace_text)
            event = pb.Event(
                topic_created=pb.TopicCreated(
                    topic_id=object_id, name=name, namespace_id=namespace_id
                )
            )
        self._renamed.pop(name, None)
        self._home(name).append(kind, name, event)
        if kind == KIND_TOPIC:
            self._born[object_id] = self._home(name).shard_id
        state = self.state(name)
        assert state is not None
        return state

    def rename(self, name: str, new_name: str, *, in_grace: bool = True) -> None:
        """Rename a topic: it stays where it was created."""
        state = self.state(name)
        assert isinstance(state, Topic), f"{name} is no topic"
        event = pb.Event(
            topic_renamed=pb.TopicRenamed(
                name=name,
                topic_id=state.topic_id,
                new_name=new_name,
                namespace_id=self._id_of(parse_topic(new_name).namespace_text),
                former_names=[pb.OldName(name=name, until_ms=1)],
                partitions=state.partitions,
                properties=dict(state.properties),
                version=state.version + 1,
                created_time_ms=state.created_time_ms,
                policies=state.policies,
                policies_version=state.policies_version,
            )
        )
        self._home(name).rename(event, in_grace=in_grace)
        self._renamed[new_name] = state.topic_id
        if in_grace:
            self._renamed[name] = state.topic_id

    def move(self, name: str, shard_id: int) -> None:
        """Have another shard adopt the slot of ``name``."""
        kind, state = self._home(name).latest(name)
        self._moved[name] = shard_id
        home = self._home(name)
        home.append(KIND_TENANT, "", pb.Event(slots_adopted=pb.SlotsAdopted(move_id=1)))
        home.adopt(name, kind, state)

    def set_properties(self, name: str, **properties: str) -> None:
        kind, state = self._home(name).latest(name)
        assert state is not None, f"{name} does not exist"
        if kind == KIND_TENANT:
            event = pb.Event(
                tenant_properties_set=pb.TenantPropertiesSet(name=name, properties=properties)
            )
        elif kind == KIND_NAMESPACE:
            event = pb.Event(
                namespace_properties_set=pb.NamespacePropertiesSet(name=name, properties=properties)
            )
        else:
            event = pb.Event(
                topic_properties_set=pb.TopicPropertiesSet(name=name, properties=properties)
            )
        self._home(name).append(kind, name, event)

    def set_policies(self, name: str, packed: bytes) -> None:
        kind, state = self._home(name).latest(name)
        assert state is not None, f"{name} does not exist"
        scope = {KIND_TENANT: "tenant", KIND_NAMESPACE: "namespace", KIND_TOPIC: "topic"}[kind]
        said = pb.PolicySet(
            scope=scope,
            name=name,
            policy=packed,
            version=state.policies_version + 1,
            object_id=id_of(state),
        )
        self._home(name).append(kind, name, pb.Event(policy_set=said))

    def delete(self, name: str) -> None:
        kind, state = self._home(name).latest(name)
        assert state is not None, f"{name} does not exist"
        object_id = id_of(state)
        if kind == KIND_TENANT:
            event = pb.Event(tenant_deleted=pb.TenantDeleted(name=name, tenant_id=object_id))
        elif kind == KIND_NAMESPACE:
            deleted = pb.NamespaceDeleted(name=name, namespace_id=object_id)
            event = pb.Event(namespace_deleted=deleted)
        else:
            event = pb.Event(topic_deleted=pb.TopicDeleted(name=name, topic_id=object_id))
        self._home(name).append(kind, name, event)

    # What is told -----------------------------------------------------------------------------

    def deliver(self, *, behind: int = 0, every: int = 1) -> None:
        """Tell all streams everything, or all but the last ``behind`` events of each home.

        With ``every`` only one out of so many watches is told.
        """
        for home in self.homes:
            upto = max(1, home.position - behind)
            for stream in tuple(home.streams):
                stream.deliver(upto, every=every)

    def end_watches(self, error: MetadataError) -> None:
        """End every watch by the other side."""
        for stream in self.streams:
            ended, stream.watches = stream.watches, {}
            for watched in ended.values():
                watched.listener.on_ended(error)

    def _id_of(self, name: str) -> str:
        state = self.state(name)
        return "" if state is None else id_of(state)

    def _home(self, name: str) -> _Home:
        return self.homes[self.home_of(KIND_TOPIC, name, self._renamed.get(name, "")) - 1]
