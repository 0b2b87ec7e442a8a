"""The placement rules of tenants and namespaces, as far as this shard's units need them.

    first unit of a namespace ──▶ watched at its home shards, and read there for who waits
                                     │ the watch has its snapshot
                                     ▼
                              known here: no unit waits for its rules any more

A read comes after the question, so what it says is right for who asked. What is kept beyond the
question is kept true by the watch alone: a change that happened before the watch began is in its
snapshot, and one after it waits, if it is to be effective, until it was taken in here. The home
shard stops waiting for who is silent, so what a silent stream told is not relied on either.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import structlog

from nextgen.client.event_keys import event_key
from nextgen.client.policies_wire import unpack_policies
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.placement_limits import (
    NAMESPACES_WATCHED_MAX,
    RULES_FRESH_MS,
    RULES_READ_MS,
)
from nextgen.kernel.policies import NO_POLICIES, PlacementRules, Policies, merge
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Item, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.domain.namespace import Namespace
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.metadata_state import MetadataState, state_after, state_of
from shards.ports import Clock, HomeShards, MetadataReader, ShardWatching

_logger = structlog.get_logger(__name__)


class PlacementPolicies:
    """What is said of the parents of one shard's topics, for one term. Owned by one event loop."""

    def __init__(
        self, subscriber_id: str, homes: HomeShards, metadata: MetadataReader, clock: Clock
    ) -> None:
        self._subscriber_id = subscriber_id
        self._homes = homes
        self._metadata = metadata
        self._clock = clock
        self._namespaces: OrderedDict[str, tuple[_Followed, _Followed]] = OrderedDict()
        """Tenant and namespace of each namespace, the one used longest ago first."""
        self._followed: dict[str, _Followed] = {}
        self._streams: dict[int, ShardWatching] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<PlacementPolicies {self._subscriber_id} namespaces={len(self._namespaces)}>"

    @property
    def namespace_count(self) -> int:
        """Namespaces that are followed."""
        return len(self._namespaces)

    def close(self) -> None:
        """Follow nothing any more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        self._namespaces.clear()
        self._followed.clear()

    def known(self, namespace: str) -> Policies | None:
        """Return what a namespace and its tenant say together, None if that has to be read."""
        pair = self._namespaces.get(namespace)
        if pair is None:
            return None
        fresh_from = self._clock.monotonic() - RULES_FRESH_MS / 1000
        for followed in pair:
            stream = followed.stream
            is_level = followed.is_known and stream.is_level(followed.watch_id)
            if not is_level or stream.heard_at < fresh_from:
                return None
        self._namespaces.move_to_end(namespace)
        return _together(pair[0].policies, pair[1].policies)

    async def read(self, namespaces: Sequence[str]) -> dict[str, Policies | MetadataError]:
        """Return what each namespace and its tenant say, read after this call began, or why not.

        They are known here a little later. One that does not exist says nothing.
        """
        groups: dict[tuple[int, int], list[str]] = {}
        try:
            for namespace in dict.fromkeys(namespaces):
                groups.setdefault(self._homes_of(namespace), []).append(namespace)
                self._follow(namespace)
        except Unavailable as error:
            return dict.fromkeys(namespaces, error)
        # By home, so that one that cannot be asked concerns nobody else.
        pages = await asyncio.gather(*map(self._read_group, groups.values()))
        return {namespace: said for page in pages for namespace, said in page.items()}

    async def find(self, namespaces: Iterable[str]) -> dict[str, Policies | MetadataError]:
        """Return what is known here of each namespace, and of the others what ``read`` says."""
        found: dict[str, Policies | MetadataError] = {}
        unknown = []
        for namespace in dict.fromkeys(namespaces):
            said = self.known(namespace)
            if said is None:
                unknown.append(namespace)
            else:
                found[namespace] = said
        if unknown:
            found.update(await self.read(unknown))
        return found

    async def _read_group(self, namespaces: list[str]) -> dict[str, Policies | MetadataError]:
        tenants = list(dict.fromkeys(map(_tenant_of, namespaces)))
        names = [
            *(ObjectName(kind=KIND_TENANT, name=tenant) for tenant in tenants),
            *(ObjectName(kind=KIND_NAMESPACE, name=namespace) for namespace in namespaces),
        ]
        try:
            items = await self._metadata.read(
                names, timeout_ms=RULES_READ_MS, subscriber_id=self._subscriber_id
            )
        except MetadataError as error:
            return dict.fromkeys(namespaces, error)
        said = {item.name: _policies_of(state_of(item)) for item in items}
        return {
            namespace: _together(said[_tenant_of(namespace)], said[namespace])
            for namespace in namespaces
        }

    def _homes_of(self, namespace: str) -> tuple[int, int]:
        return (
            self._homes.home_of(KIND_TENANT, _tenant_of(namespace)),
            self._homes.home_of(KIND_NAMESPACE, namespace),
        )

    def _follow(self, namespace: str) -> None:
        if self._is_closed or namespace in self._namespaces:
            return
        if len(self._namespaces) >= NAMESPACES_WATCHED_MAX:
            _, oldest = self._namespaces.popitem(last=False)
            for followed in oldest:
                self._leave(followed)
        tenant = _tenant_of(namespace)
        self._namespaces[namespace] = (
            self._join(KIND_TENANT, tenant),
            self._join(KIND_NAMESPACE, namespace),
        )

    def _join(self, kind: Kind, name: str) -> _Followed:
        followed = self._followed.get(name)
        if followed is None:
            followed = self._followed[name] = _Followed(self, kind, name)
            self._watch(followed)
        followed.users += 1
        return followed

    def _leave(self, followed: _Followed) -> None:
        followed.users -= 1
        if not followed.users:
            del self._followed[followed.name]
            followed.stream.remove(followed.watch_id)

    def _watch(self, followed: _Followed) -> None:
        followed.stream = self._stream(self._homes.home_of(followed.kind, followed.name))
        followed.watch_id = followed.stream.add(
            followed, kinds=(followed.kind,), names=(followed.name,), acknowledged=True
        )

    def _stream(self, shard_id: int) -> ShardWatching:
        stream = self._streams.get(shard_id)
        if stream is None:
            stream = self._streams[shard_id] = self._homes.watch(shard_id, self._subscriber_id)
            task = asyncio.get_running_loop().create_task(stream.run())
            self._tasks.add(task)
            task.add_done_callback(lambda task: self._stopped(shard_id, task))
        return stream

    def _stopped(self, shard_id: int, task: asyncio.Task[None]) -> None:
        """A stream runs for ever: if it does not, that is a mistake. What it told is forgotten."""
        self._tasks.discard(task)
        if task.cancelled() or self._is_closed:
            return
        _logger.error("rules stream failed", shard=shard_id, exc_info=task.exception())
        stream = self._streams.pop(shard_id)
        for namespace, pair in tuple(self._namespaces.items()):
            if any(followed.stream is stream for followed in pair):
                self._forget(namespace)

    def ended(self, name: str, error: MetadataError) -> None:
        """A watch was ended by the other side: its name is read, and watched, when it is needed."""
        _logger.warning("rules watch ended", name=name, why=str(error))
        for namespace, pair in tuple(self._namespaces.items()):
            if any(followed.name == name for followed in pair):
                self._forget(namespace)

    def _forget(self, namespace: str) -> None:
        for followed in self._namespaces.pop(namespace):
            self._leave(followed)


class _Followed:
    """One tenant or namespace; see ``WatchListener`` for the order of the calls."""

    def __init__(self, owner: PlacementPolicies, kind: Kind, name: str) -> None:
        self.kind = kind
        self.name = name
        self.users = 0
        self.stream: ShardWatching
        self.watch_id = 0
        self.is_known = False
        self.policies = NO_POLICIES
        self._owner = owner
        self._state: MetadataState | None = None
        self._position = 0

    def on_reset(self) -> None:
        self.is_known = False
        self._state = None

    def on_items(self, items: Sequence[Item]) -> None:
        for item in items:
            if item.name == self.name:
                self._state = state_of(item)

    def on_snapshot_complete(self, position: int) -> None:
        self._position = position
        self.is_known = True
        self.policies = _policies_of(self._state)

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.position > self._position and event_key(event) == self.name:
                self._position = event.position
                self._state = state_after(self._state, event)
        self.policies = _policies_of(self._state)

    def on_position(self, position: int) -> None:
        """Nothing but a place: what is known is as it was."""

    def on_ended(self, error: MetadataError) -> None:
        self._owner.ended(self.name, error)


def rules_for(parents: Policies, topic: Topic) -> PlacementRules:
    """Return the rules that count for the units of ``topic``."""
    if not topic.policies:
        return parents.placement
    return merge(namespace=parents, topic=unpack_policies(topic.policies)).placement


def _together(tenant: Policies, namespace: Policies) -> Policies:
    if tenant is NO_POLICIES and namespace is NO_POLICIES:
        return NO_POLICIES
    return merge(tenant, namespace)


def _tenant_of(namespace: str) -> str:
    return namespace.partition("/")[0]


def _policies_of(state: MetadataState | None) -> Policies:
    return unpack_policies(state.policies) if isinstance(state, Tenant | Namespace) else NO_POLICIES
