"""The placement policies of the tenants and namespaces of one shard's units.

    first unit of a namespace ──▶ watched at its home shards, and read there meanwhile
                                     │ the watch has its snapshot
                                     ▼
                              known here: units need no read any more

A read begins after its request, so its result is valid for that request only. Policies that are
kept are kept valid by the watch: its snapshot has the changes before it, and an effective write
waits until this shard has acknowledged the changes after it. The home shard stops waiting for a
silent subscriber, so the policies of a silent stream are not used either.

A decision takes time: the read, and the commit. A change in between is acknowledged once every
decision by the earlier policies is certain, so after an effective write nothing is assigned by
them. The home shard expects a watch for every name that was read and is not watched yet.
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
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
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
from shards.assignment.parent_policies import (
    Parents,
    merged,
    on_demand,
    parents_of,
    policies_of,
    served_by,
    tenant_of,
    together,
)
from shards.inventory.topic_bounds import OnDemand, ServedBy
from shards.ports import Clock, HomeShards, MetadataReader, ShardWatching
from shards.sessions.metadata_state import MetadataState, state_after, state_of

_ATTEMPT_LATE_MS = 0.9 * RULES_ATTEMPT_MS
"""An attempt that failed so late ran out of time and is repeated; one that failed early is not."""

_SETTLE_PAUSE_SECONDS = 0.1
"""The pause before it is checked again whether decisions are certain."""

_logger = structlog.get_logger(__name__)


class PlacementPolicies:
    """The policies of the parents of one shard's topics, for one term. Owned by one event loop."""

    def __init__(
        self,
        subscriber_id: str,
        homes: HomeShards,
        metadata: MetadataReader,
        clock: Clock,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """``settled`` returns once every decision so far is certain."""
        self._subscriber_id = subscriber_id
        self._homes = homes
        self._metadata = metadata
        self._clock = clock
        self._settled = settled
        self._namespaces: OrderedDict[str, tuple[_Followed, _Followed]] = OrderedDict()
        """The tenant and namespace watched for each namespace, least recently used first."""
        self._followed: dict[str, _Followed] = {}
        self._held: Counter[_Held] = Counter()
        """Policies that decisions under way use: no later change of them is acknowledged."""
        self._settling: list[_Held] = []
        """Namespaces with decisions that are not certain yet. One task waits for all of them."""
        self._settler: asyncio.Task[None] | None = None
        self._streams: dict[int, ShardWatching] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.on_changed: Callable[[str], None] = lambda _name: None
        """Called with the name of a watched tenant or namespace whose policies have changed."""

    def __repr__(self) -> str:
        return f"<PlacementPolicies {self._subscriber_id} namespaces={len(self._namespaces)}>"

    @property
    def namespace_count(self) -> int:
        """Namespaces that are watched."""
        return len(self._namespaces)

    def close(self) -> None:
        """End all watches."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        self._namespaces.clear()
        self._followed.clear()
        self._held.clear()
        self._settling.clear()

    def known(self, namespace: str) -> Policies | None:
        """Return the merged policies of a namespace and its tenant, None if they must be read."""
        pair = self._current(namespace)
        return None if pair is None else together(pair[0].policies, pair[1].policies)

    def on_demand(self, namespace: str) -> OnDemand | None:
        """Return the rule for topics on demand of a namespace, None if it must be read."""
        pair = self._current(namespace)
        if pair is None:
            return None
        return on_demand(pair[1].state, together(pair[0].policies, pair[1].policies))

    def served_by(self, namespace: str) -> ServedBy | None:
        """Return the brokers of a namespace's topics, None if it must be read."""
        pair = self._current(namespace)
        return None if pair is None else served_by(pair[1].state)

    def _current(self, namespace: str) -> tuple[_Followed, _Followed] | None:
        """Return a tenant and a namespace that are followed, None if they must be read."""
        pair = self._namespaces.get(namespace)
        if pair is None:
            return None
        fresh_from = self._clock.monotonic() - RULES_FRESH_MS / 1000
        for followed in pair:
            stream = followed.stream
            is_caught_up = followed.is_known and stream.is_caught_up(followed.watch_id)
            if not is_caught_up or stream.heard_at < fresh_from:
                return None
        self._namespaces.move_to_end(namespace)
        return pair

    @contextlib.asynccontextmanager
    async def deciding(self, namespaces: Iterable[str]) -> AsyncIterator[Rules]:
        """Return the policies of namespaces and their tenants, to decide and propose by inside.

        Policies that are not known here are read. A change that arrives inside becomes effective
        once everything that was proposed inside is certain. A change from before does not wait for
        it, so a change is never delayed for ever by one decision after another.
        """
        names = list(dict.fromkeys(namespaces))
        held = [one for name in names for one in self._hold(name)]
        try:
            yield await self._rules(names)
        finally:
            self._release_when_certain(held)

    async def read(self, namespaces: Sequence[str]) -> dict[str, Policies | MetadataError]:
        """Return the policies of each namespace, read after this call began, or why they are not.

        A namespace that does not exist has no policies. The caller decides by the result at once:
        later it may be outdated, see ``deciding``. Reading a namespace also begins to watch it.
        """
        found = await self._read(namespaces, RULES_READ_MS)
        return {name: merged(states) for name, states in found.items()}

    async def find(self, namespaces: Iterable[str]) -> dict[str, Policies | MetadataError]:
        """Return the policies known here, and read those of the other namespaces."""
        found: dict[str, Policies | MetadataError] = {}
        unknown = []
        for namespace in dict.fromkeys(namespaces):
            known = self.known(namespace)
            if known is None:
                unknown.append(namespace)
            else:
                found[namespace] = known
        if unknown:
            found.update(await self.read(unknown))
        return found

    async def _rules(self, names: Sequence[str]) -> Rules:
        """Read policies that are not known, again after a slow attempt, for ``RULES_READ_MS``."""
        found: dict[str, Parents | MetadataError] = {}
        began_at = asked_at = now = self._clock.monotonic()
        while unknown := [name for name in names if self.known(name) is None]:
            asked_at = now
            found = await self._read(unknown, RULES_ATTEMPT_MS)
            now = self._clock.monotonic()
            has_failed = any(isinstance(each, MetadataError) for each in found.values())
            took_ms = 1000 * (now - asked_at)
            is_late = took_ms > (_ATTEMPT_LATE_MS if has_failed else METADATA_USED_MS)
            if not is_late or 1000 * (now - began_at) + RULES_ATTEMPT_MS > RULES_READ_MS:
                break
        return Rules(self, self._clock, found, asked_at)

    async def _read(
        self, namespaces: Iterable[str], timeout_ms: int
    ) -> dict[str, Parents | MetadataError]:
        names = list(dict.fromkeys(namespaces))
        wanted: dict[int, dict[str, ObjectName]] = {}
        try:
            for namespace in names:
                tenant = tenant_of(namespace)
                homes = self._homes_of(namespace)
                objects = (
                    ObjectName(kind=KIND_TENANT, name=tenant),
                    ObjectName(kind=KIND_NAMESPACE, name=namespace),
                )
                for home, each in zip(homes, objects, strict=True):
                    wanted.setdefault(home, {})[each.name] = each
                # Where its home shard has no room for another watch it is read each time.
                with contextlib.suppress(Overloaded):
                    self._follow(namespace)
        except Unavailable as error:
            return dict.fromkeys(names, error)
        # By home shard, so that one that cannot be reached fails only the namespaces that need it.
        pages = await asyncio.gather(
            *(self._read_at_home(list(objects.values()), timeout_ms) for objects in wanted.values())
        )
        states = {name: state for page in pages for name, state in page.items()}
        return {name: parents_of(states[tenant_of(name)], states[name]) for name in names}

    async def _read_at_home(
        self, names: Sequence[ObjectName], timeout_ms: int
    ) -> dict[str, MetadataState | MetadataError | None]:
        try:
            items = await self._metadata.read(
                names, timeout_ms=timeout_ms, subscriber_id=self._subscriber_id
            )
        except MetadataError as error:
            return dict.fromkeys([each.name for each in names], error)
        return {item.name: state_of(item) for item in items}

    def _homes_of(self, namespace: str) -> tuple[int, int]:
        return (
            self._homes.home_of(KIND_TENANT, tenant_of(namespace)),
            self._homes.home_of(KIND_NAMESPACE, namespace),
        )

    def _follow(self, namespace: str) -> None:
        if self._is_closed or namespace in self._namespaces:
            return
        if len(self._namespaces) >= NAMESPACES_WATCHED_MAX:
            self._forget(next(iter(self._namespaces)))
        tenant = self._join(KIND_TENANT, tenant_of(namespace))
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
        """Note a change: decisions by the earlier policies may not be certain yet."""
        held = self._keep((followed,))
        followed.changes += 1
        self._release_when_certain(held)
        self.on_changed(followed.name)

    def _hold(self, namespace: str) -> Sequence[_Held]:
        """Watch a namespace and its tenant until they are released; none if that fails."""
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

    def _release_when_certain(self, held: Sequence[_Held]) -> None:
        self._settling += held
        is_idle = self._settler is None or self._settler.done()
        if self._settling and is_idle and not self._is_closed:
            self._settler = self._run(self._settle())

    async def _settle(self) -> None:
        """Release held policies, all at a time, once the decisions by them are certain."""
        while self._settling:
            held, self._settling = self._settling, []
            await self._wait_settled()
            self._release(held)

    async def _wait_settled(self) -> None:
        while True:
            try:
                return await self._settled()
            except MetadataError as error:
                # Nearly always the term is over, which also ends this task.
                _logger.debug("decisions are not certain yet", why=str(error))
                await asyncio.sleep(_SETTLE_PAUSE_SECONDS)

    def _release(self, held: Sequence[_Held]) -> None:
        waited = {id(each.stream): each.stream for each, changes in held if each.changes > changes}
        for one in held:
            self._held[one] -= 1
            if not self._held[one]:
                del self._held[one]
            self._leave(one[0])
        for stream in waited.values():
            stream.acknowledge()

    def _withheld(self, stream: ShardWatching) -> set[int]:
        """Return the watches with a change that decisions under way do not know."""
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
        """Forget the policies of a broken stream; the next read opens another one."""
        if self._is_closed:
            return
        stream = self._streams.pop(shard_id)
        self._drop(lambda followed: followed.stream is stream)

    def ended(self, ended: _Followed, error: MetadataError) -> None:
        """Handle a watch that its home shard ended: the next read of the name watches it again."""
        _logger.warning("rules watch ended", name=ended.name, why=str(error))
        self._drop(lambda followed: followed is ended)

    def rehome(self) -> None:
        """Forget what is followed at a shard that has given its slot away: the next read follows it
        where it is."""
        self._drop(self._is_elsewhere)

    def _is_elsewhere(self, followed: _Followed) -> bool:
        try:
            home = self._homes.home_of(followed.kind, followed.name)
        except MetadataError:
            return False
        return self._streams.get(home) is not followed.stream

    def _drop(self, is_useless: Callable[[_Followed], bool]) -> None:
        """Forget names whose watch is over; the next read watches them again."""
        for namespace, pair in tuple(self._namespaces.items()):
            if any(map(is_useless, pair)):
                self._forget(namespace)
        for name, followed in tuple(self._followed.items()):
            if is_useless(followed):
                del self._followed[name]

    def _forget(self, namespace: str) -> None:
        """Stop watching a namespace once every decision by its policies is certain."""
        pair = self._namespaces.pop(namespace)
        self._release_when_certain(self._keep(pair))
        for followed in pair:
            self._leave(followed)


class Rules:
    """The policies of some namespaces during a decision; see ``deciding``."""

    def __init__(
        self,
        owner: PlacementPolicies,
        clock: Clock,
        found: dict[str, Parents | MetadataError],
        asked_at: float,
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._found = found
        self._asked_at = asked_at

    def of(self, namespace: str) -> Policies | MetadataError:
        """Return the present policies of a namespace and its tenant, or why they are not known.

        Call it where the decision is made: no await may be in between.
        """
        known = self._owner.known(namespace)
        return merged(self._read(namespace)) if known is None else known

    def on_demand(self, namespace: str) -> OnDemand | MetadataError:
        """Return the present rule for topics on demand, or why it is not known. As ``of``."""
        known = self._owner.on_demand(namespace)
        if known is not None:
            return known
        found = self._read(namespace)
        if isinstance(found, MetadataError):
            return found
        tenant, state = found
        return on_demand(state, together(policies_of(tenant), policies_of(state)))

    def served_by(self, namespace: str) -> ServedBy | MetadataError:
        """Return the brokers of a namespace's topics, or why they are not known. As ``of``."""
        known = self._owner.served_by(namespace)
        if known is not None:
            return known
        found = self._read(namespace)
        return found if isinstance(found, MetadataError) else served_by(found[1])

    def _read(self, namespace: str) -> Parents | MetadataError:
        if self._clock.monotonic() - self._asked_at > METADATA_USED_MS / 1000:
            return Unavailable(f"what was read of {namespace} is too old to decide by")
        found = self._found.get(namespace)
        return Unavailable(f"{namespace} is not followed any more") if found is None else found


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
        """How many changes the watch has brought, snapshots included."""
        self.state: MetadataState | None = None
        self._owner = owner
        self._position = 0

    def on_reset(self) -> None:
        self.is_known = False
        self.state = None

    def on_items(self, items: Sequence[Item]) -> None:
        for item in items:
            if item.name == self.name:
                self.state = state_of(item)

    def on_snapshot_complete(self, position: int) -> None:
        self._position = position
        self.is_known = True
        self.policies = policies_of(self.state)
        # Also if the policies are the same: a read in between may have returned older ones.
        self._owner.changed(self)

    def on_events(self, events: Sequence[Event]) -> None:
        before = self.policies, on_demand(self.state, self.policies)
        for event in events:
            if event.position > self._position and event_key(event) == self.name:
                self._position = event.position
                self.state = state_after(self.state, event)
        self.policies = policies_of(self.state)
        if (self.policies, on_demand(self.state, self.policies)) != before:
            self._owner.changed(self)

    def on_position(self, position: int) -> None:
        """Ignore a position without a change."""

    def on_ended(self, error: MetadataError) -> None:
        self._owner.ended(self, error)


_Held = tuple[_Followed, int]
"""Policies that a decision uses, and their ``changes`` when it began."""
