"""The placement rules of tenants and namespaces, as far as this shard's units need them.

    first unit of a namespace ──▶ watched at its home shards, and read there for who waits
                                     │ the watch has its snapshot
                                     ▼
                              known here: no unit waits for its rules any more

A read comes after the question, so what it says is right for who asked. What is kept beyond the
question is kept true by the watch alone: a change that happened before the watch began is in its
snapshot, and one after it waits, if it is to be effective, until it was taken in here. The home
shard stops waiting for who is silent, so what a silent stream told is not relied on either.

A decision takes time: the read, and its commit. A change that comes in between is acknowledged once
what was decided by the earlier rules is certain, so that behind an effective write nothing is
assigned by them any more. What was read, and is not watched yet, the home shard expects to be.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import structlog

from nextgen.client.log.event_keys import event_key
from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.governance.policies import NO_POLICIES, PlacementRules, Policies, merge
from nextgen.kernel.limits.placement import (
    METADATA_USED_MS,
    NAMESPACES_WATCHED_MAX,
    RULES_ATTEMPT_MS,
    RULES_FRESH_MS,
    RULES_READ_MS,
)
from nextgen.tasks.background import start
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Item, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.domain.namespace import Namespace
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.ports import Clock, HomeShards, MetadataReader, ShardWatching
from shards.sessions.metadata_state import MetadataState, state_after, state_of

_ATTEMPT_LATE_MS = 0.9 * RULES_ATTEMPT_MS
"""An attempt that failed so late had no time left. One that failed at once will do so again."""

_SETTLE_PAUSE_SECONDS = 0.1
"""Before it is asked again whether decisions are certain."""

_logger = structlog.get_logger(__name__)


class PlacementPolicies:
    """What is said of the parents of one shard's topics, for one term. Owned by one event loop."""

    def __init__(
        self,
        subscriber_id: str,
        homes: HomeShards,
        metadata: MetadataReader,
        clock: Clock,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """``settled`` returns once everything that was decided so far is certain."""
        self._subscriber_id = subscriber_id
        self._homes = homes
        self._metadata = metadata
        self._clock = clock
        self._settled = settled
        self._namespaces: OrderedDict[str, tuple[_Followed, _Followed]] = OrderedDict()
        """Tenant and namespace of each namespace, the one used longest ago first."""
        self._followed: dict[str, _Followed] = {}
        self._held: Counter[_Held] = Counter()
        """What is being decided by: no later change of it is acknowledged."""
        self._settling: list[_Held] = []
        """Of these, what was decided by; it waits for being certain. One task waits for all."""
        self._settler: asyncio.Task[None] | None = None
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
        self._held.clear()
        self._settling.clear()

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

    @contextlib.asynccontextmanager
    async def deciding(self, namespaces: Iterable[str]) -> AsyncIterator[Rules]:
        """Give what namespaces and their tenants say, to decide and propose by inside.

        What is not known here is read. A change that comes meanwhile is effective once everything
        that was proposed inside is certain. One that came before does not wait: however much is
        decided without a pause, there is an end to what was begun by the earlier rules.
        """
        names = list(dict.fromkeys(namespaces))
        held = [one for name in names for one in self._hold(name)]
        try:
            yield await self._rules(names)
        finally:
            self._let_go_settled(held)

    async def read(self, namespaces: Sequence[str]) -> dict[str, Policies | MetadataError]:
        """Return what each namespace and its tenant say, read after this call began, or why not.

        They are known here a little later. One that does not exist says nothing. What is decided
        by it later than at once may be behind a change: see ``deciding``.
        """
        return await self._read(namespaces, RULES_READ_MS)

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

    async def _rules(self, names: Sequence[str]) -> Rules:
        """Read what is not known, again if an attempt took too long, for ``RULES_READ_MS``."""
        said: dict[str, Policies | MetadataError] = {}
        began_at = asked_at = now = self._clock.monotonic()
        while unknown := [name for name in names if self.known(name) is None]:
            asked_at = now
            said = await self._read(unknown, RULES_ATTEMPT_MS)
            now = self._clock.monotonic()
            has_failed = any(isinstance(each, MetadataError) for each in said.values())
            took_ms = 1000 * (now - asked_at)
            is_late = took_ms > (_ATTEMPT_LATE_MS if has_failed else METADATA_USED_MS)
            if not is_late or 1000 * (now - began_at) + RULES_ATTEMPT_MS > RULES_READ_MS:
                break
        return Rules(self, self._clock, said, asked_at)

    async def _read(
        self, namespaces: Iterable[str], timeout_ms: int
    ) -> dict[str, Policies | MetadataError]:
        groups: dict[tuple[int, int], list[str]] = {}
        try:
            for namespace in dict.fromkeys(namespaces):
                groups.setdefault(self._homes_of(namespace), []).append(namespace)
                self._follow(namespace)
        except Unavailable as error:
            return dict.fromkeys(namespaces, error)
        # By home, so that one that cannot be asked concerns nobody else.
        pages = await asyncio.gather(
            *(self._read_group(group, timeout_ms) for group in groups.values())
        )
        return {namespace: said for page in pages for namespace, said in page.items()}

    async def _read_group(
        self, namespaces: list[str], timeout_ms: int
    ) -> dict[str, Policies | MetadataError]:
        tenants = list(dict.fromkeys(map(_tenant_of, namespaces)))
        names = [
            *(ObjectName(kind=KIND_TENANT, name=tenant) for tenant in tenants),
            *(ObjectName(kind=KIND_NAMESPACE, name=namespace) for namespace in namespaces),
        ]
        try:
            items = await self._metadata.read(
                names, timeout_ms=timeout_ms, subscriber_id=self._subscriber_id
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
            self._forget(next(iter(self._namespaces)))
        tenant = self._join(KIND_TENANT, _tenant_of(namespace))
        try:
            followed = self._join(KIND_NAMESPACE, namespace)
        except MetadataError:
            self._leave(tenant)
            raise
        self._namespaces[namespace] = (tenant, followed)

    def _join(self, kind: Kind, name: str) -> _Followed:
        followed = self._followed.get(name)
        if followed is None:
            followed = _Followed(self, kind, name)
            followed.stream = self._stream(self._homes.home_of(kind, name))
            followed.watch_id = followed.stream.add(
                followed, kinds=(kind,), names=(name,), acknowledged=True
            )
            self._followed[name] = followed
        followed.users += 1
        return followed

    def _leave(self, followed: _Followed) -> None:
        followed.users -= 1
        if followed.users:
            return
        followed.stream.remove(followed.watch_id)
        if self._followed.get(followed.name) is followed:
            del self._followed[followed.name]

    # Decisions under way ----------------------------------------------------------------------

    def changed(self, followed: _Followed) -> None:
        """It may say something else: what was decided before may not be certain yet."""
        held = self._keep((followed,))
        followed.changes += 1
        self._let_go_settled(held)

    def _hold(self, namespace: str) -> Sequence[_Held]:
        """Follow a namespace and its tenant until they are let go of; none that cannot be."""
        try:
            self._follow(namespace)
        except MetadataError:
            return ()
        return self._keep(self._namespaces.get(namespace, ()))

    def _keep(self, pair: Sequence[_Followed]) -> Sequence[_Held]:
        held = [(followed, followed.changes) for followed in pair]
        for followed in pair:
            followed.users += 1
        self._held.update(held)
        return held

    def _let_go_settled(self, held: Sequence[_Held]) -> None:
        self._settling += held
        is_idle = self._settler is None or self._settler.done()
        if self._settling and is_idle and not self._is_closed:
            self._settler = self._run(self._settle())

    async def _settle(self) -> None:
        """Let go of what was decided by, all that there is at a time, once that is certain."""
        while self._settling:
            held, self._settling = self._settling, []
            await self._wait_settled()
            self._let_go(held)

    async def _wait_settled(self) -> None:
        while True:
            try:
                return await self._settled()
            except MetadataError as error:
                # Nearly always the term is over, which ends this as well.
                _logger.debug("decisions are not certain yet", why=str(error))
                await asyncio.sleep(_SETTLE_PAUSE_SECONDS)

    def _let_go(self, held: Sequence[_Held]) -> None:
        waited = {id(each.stream): each.stream for each, changes in held if each.changes > changes}
        for one in held:
            self._held[one] -= 1
            if not self._held[one]:
                del self._held[one]
            self._leave(one[0])
        for stream in waited.values():
            stream.acknowledge()

    def _withheld(self, stream: ShardWatching) -> set[int]:
        """Return the watches that told of a change behind what something is being decided by."""
        return {
            followed.watch_id
            for followed, changes in self._held
            if followed.stream is stream and followed.changes > changes
        }

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return start("placement_rules", work, self._tasks)

    # Streams ----------------------------------------------------------------------------------

    def _stream(self, shard_id: int) -> ShardWatching:
        stream = self._streams.get(shard_id)
        if stream is None:
            stream = self._streams[shard_id] = self._homes.watch(shard_id, self._subscriber_id)
            stream.withhold_with(partial(self._withheld, stream))
            start(
                "rules_stream",
                stream.run(),
                self._tasks,
                on_failure=lambda _: self._stopped(shard_id),
            )
        return stream

    def _stopped(self, shard_id: int) -> None:
        """Forget what a broken stream brought; the next question opens another one."""
        if self._is_closed:
            return
        stream = self._streams.pop(shard_id)
        self._drop(lambda followed: followed.stream is stream)

    def ended(self, ended: _Followed, error: MetadataError) -> None:
        """A watch was ended by the other side: its name is read, and watched, when it is needed."""
        _logger.warning("rules watch ended", name=ended.name, why=str(error))
        self._drop(lambda followed: followed is ended)

    def _drop(self, is_useless: Callable[[_Followed], bool]) -> None:
        """Follow anew, when they are needed, those whose watch tells nothing any more."""
        for namespace, pair in tuple(self._namespaces.items()):
            if any(map(is_useless, pair)):
                self._forget(namespace)
        for name, followed in tuple(self._followed.items()):
            if is_useless(followed):
                del self._followed[name]

    def _forget(self, namespace: str) -> None:
        """Follow it no longer, once what was decided by it is certain."""
        pair = self._namespaces.pop(namespace)
        self._let_go_settled(self._keep(pair))
        for followed in pair:
            self._leave(followed)


class Rules:
    """What counts for some namespaces while something is decided; see ``deciding``."""

    def __init__(
        self,
        owner: PlacementPolicies,
        clock: Clock,
        said: dict[str, Policies | MetadataError],
        asked_at: float,
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._said = said
        self._asked_at = asked_at

    def of(self, namespace: str) -> Policies | MetadataError:
        """Return what a namespace and its tenant say as of now, or why that is not known.

        To be asked where it is decided: no await may be between.
        """
        known = self._owner.known(namespace)
        if known is not None:
            return known
        if self._clock.monotonic() - self._asked_at > METADATA_USED_MS / 1000:
            return Unavailable(f"what was read of {namespace} is too old to decide by")
        said = self._said.get(namespace)
        return Unavailable(f"{namespace} is not followed any more") if said is None else said


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
        self.changes = 0
        """How often it was told something that it may not have said before."""
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
        # Also if it says what was said before: what was read meanwhile may be older.
        self._owner.changed(self)

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.position > self._position and event_key(event) == self.name:
                self._position = event.position
                self._state = state_after(self._state, event)
        policies = _policies_of(self._state)
        if policies != self.policies:
            self.policies = policies
            self._owner.changed(self)

    def on_position(self, position: int) -> None:
        """Nothing but a place: what is known is as it was."""

    def on_ended(self, error: MetadataError) -> None:
        self._owner.ended(self, error)


_Held = tuple[_Followed, int]
"""What is being decided by, and its ``changes`` when that began."""


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
