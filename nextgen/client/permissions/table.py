"""The permissions that one process decides by: an ``Authorizer`` over watches (ADR 0149).

    may_now ──▶ usable facts ──▶ yes or no
       └ None ─▶ check: tenant and namespace are watched, and the topic only if these do not allow
                          │ snapshot, caught up
                          ▼
                     a thousand askers of one namespace wait for one watch

    a change ──▶ facts ──▶ names that may be looked up are dropped
                      └──▶ what connections keep is judged anew ──▶ on_revoked ──▶ acknowledged

An effective write waits for the acknowledgement, so behind its answer nothing is decided, and
nothing is kept, by what it took. Facts of a stream that is silent are not used for decisions: the
shard waits for a silent subscriber for a limited time only.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

import structlog

from nextgen.client.changes.shard_streams import ShardStreams
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.permissions.known_object import (
    FRESH_SECONDS,
    Kept,
    KnownObject,
    ShardStream,
)
from nextgen.client.permissions.name_chain import Key, topic_chain
from nextgen.client.permissions.session import WatchedAccess
from nextgen.client.permissions.stream_use import StreamUse
from nextgen.client.permissions.target import Target, refusal, target_of
from nextgen.kernel.errors import Forbidden, MetadataError, Overloaded, Unavailable
from nextgen.kernel.governance.access import Action, Principal, Resource, ResourceKind
from nextgen.kernel.governance.access_rules import (
    NO_FACTS,
    AccessFacts,
    AccessRules,
    Need,
    may,
    needs,
)
from nextgen.kernel.limits.inbound import (
    PERMISSION_IDLE_MS,
    PERMISSION_OBJECTS_MAX,
    PERMISSION_READ_MS,
    PERMISSION_RETRY_MS,
    PERMISSION_SWEEP_MS,
    RECHECKED_PER_TURN_MAX,
)
from nextgen.kernel.limits.placement import RULES_FRESH_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id, slot_of_id
from nextgen.kernel.routing.names import InvalidName
from nextgen.runtime.security.authorization.authorizer import OnRevoked
from nextgen.tasks.background import cancel_and_wait, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC

_FOR_EVER = float("inf")

_logger = structlog.get_logger(__name__)


class Streams(Protocol):
    """A ``ShardStreams`` of its own: leased and acknowledged watches do not share a stream. It
    begins streams anew that were silent for ``RULES_FRESH_MS``."""

    def stream(self, shard_id: int) -> ShardStream: ...


class Shards(Protocol):
    """A ``ShardRouter``, as far as permissions need it."""

    def shard_of_slot(self, slot: int) -> int: ...


class PermissionTable:
    """See the module. Owned by one event loop; ``stop`` it before its streams."""

    def __init__(self, rules: AccessRules, streams: Streams, shards: Shards) -> None:
        self._rules = rules
        self._streams = streams
        self._shards = shards
        self.clock = asyncio.get_running_loop().time
        self.lookable_until = _FOR_EVER
        """Until when names may be looked up without a question; then ``expire`` is to be called."""
        self.refused = 0
        self.revoked = 0
        self.sessions = 0
        self._objects: OrderedDict[Key, KnownObject] = OrderedDict()
        """Least recently used first."""
        self._uses: dict[int, StreamUse] = {}
        """By shard."""
        self._rechecking: Counter[KnownObject] = Counter()
        """Objects whose last changes have not reached every connection yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._map_version = 0

    def __repr__(self) -> str:
        return f"<PermissionTable objects={len(self._objects)} sessions={self.sessions}>"

    def counts(self) -> dict[str, int]:
        return {"permissions_refused": self.refused, "permissions_revoked": self.revoked}

    def gauges(self) -> dict[str, int]:
        return {"permission_objects": len(self._objects), "permission_sessions": self.sessions}

    # As ports call it -----------------------------------------------------------------------------

    def may_now(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> bool | None:
        allowed = self.is_known(principal, action, resource, subscription)
        self.refused += allowed is False
        return allowed

    async def check(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> None:
        allowed = self.is_known(principal, action, resource, subscription)
        if allowed is None:
            target = target_of(resource)
            try:
                async with timeout(PERMISSION_READ_MS / 1_000):
                    while allowed is None:
                        await self._learn(action, target)
                        allowed = self._may_now(principal, action, target, subscription)
            except TimeoutError:
                raise Unavailable(
                    f"the permissions of {resource.name} cannot be read at the moment"
                ) from None
        if not allowed:
            self.refused += 1
            raise Forbidden(refusal(principal, action, resource, subscription))

    def session(self, principal: Principal, on_revoked: OnRevoked) -> WatchedAccess:
        self.sessions += 1
        return WatchedAccess(self, principal, on_revoked)

    def cluster_changed(self, shard_map_version: int) -> None:
        """Follow objects at the shards that have them by the present map."""
        if shard_map_version == self._map_version:
            # Brokers and leaders change all the time, and all objects are looked at below.
            return
        self._map_version = shard_map_version
        for known in tuple(self._objects.values()):
            stream = known.stream
            if stream is None:
                continue
            try:
                is_home = self._home_of(known) == stream.shard_id
            except MetadataError:
                return
            if not is_home:
                known.drop_lookers()
                known.unfollow()
                self._follow_again(known)

    async def stop(self) -> None:
        """Follow nothing any more. Checks that wait fail when their time is over."""
        self._is_stopped = True
        if self._sweep is not None:
            self._sweep.cancel()
        await cancel_and_wait(*self._tasks)
        for known in tuple(self._objects.values()):
            self._forget(known)

    # As sessions call it --------------------------------------------------------------------------

    def is_known(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> bool | None:
        """As ``may_now``, for a question that no client asked."""
        try:
            target = target_of(resource)
        except InvalidName:
            return self._decide(principal, action, Target(resource.kind), NO_FACTS, "") or False
        return self._may_now(principal, action, target, subscription)

    def may_keep(self, principal: Principal, kept: Kept) -> bool:
        """Return whether a use that was allowed is still allowed by the last known facts."""
        action, resource, subscription = kept
        target = target_of(resource)
        # What is not known was not needed before. Who has it comes back and is asked again.
        return self._by_names(principal, action, target, self._last_known, subscription) is True

    def objects_of(self, target: Target) -> list[KnownObject]:
        """Return the objects that are followed and decide about ``target``."""
        parents = _parents(target)
        found = [known for key in parents if (known := self._objects.get(key)) is not None]
        present = self._present(target)
        by_present = () if present is None else self.objects_of(present)
        return [*found, *self._chain(target)[0], *by_present]

    def needs_facts(self, principal: Principal) -> bool:
        """Return whether anything but its roles decides what ``principal`` may do."""
        return not all(role in self._rules.superusers for role in _roles(principal))

    def note_looker(self, known: KnownObject, access: WatchedAccess, name: bytes) -> None:
        """Note that ``access`` may look ``name`` up, as long as the facts of ``known`` hold."""
        assert known.stream is not None, "a decision was made by it just now"
        use = self._uses[known.stream.shard_id]
        if use.breaks != use.stream.breaks:
            use.drop_lookers()
        use.lookers[known] = None
        known.lookers.setdefault(access, set()).add(name)
        self.lookable_until = min(self.lookable_until, use.stream.heard_at + FRESH_SECONDS)

    def expire(self) -> None:
        """Drop the names that rest on streams that broke, or are silent."""
        now = self.clock()
        until = _FOR_EVER
        for use in self._uses.values():
            if not use.lookers:
                continue
            fresh_until = use.stream.heard_at + FRESH_SECONDS
            if use.breaks != use.stream.breaks or fresh_until <= now:
                use.drop_lookers()
            else:
                until = min(until, fresh_until)
        self.lookable_until = until

    # As objects call it ---------------------------------------------------------------------------

    def changed(self, known: KnownObject) -> None:
        """Judge anew what rests on the facts of ``known``, before the change is acknowledged."""
        known.drop_lookers()
        if not known.kept:
            return
        rechecks = self._rechecks(known)
        if _is_through(rechecks):
            return
        self._rechecking[known] += 1
        start("permission_rechecks", self._finish(known, rechecks), self._tasks)

    def ended(self, known: KnownObject, error: MetadataError) -> None:
        """Follow again what a connection keeps something by; others are followed when asked for."""
        known.drop_lookers()
        _logger.warning("permissions lost", name=known.name, why=str(error))
        if known.kept:
            self._follow_again_later(known)
        else:
            self._objects.pop(known.key, None)

    # Deciding -------------------------------------------------------------------------------------

    def _may_now(
        self, principal: Principal, action: Action, target: Target, subscription: str
    ) -> bool | None:
        return self._by_names(principal, action, target, self._usable, subscription)

    def _by_names(
        self,
        principal: Principal,
        action: Action,
        target: Target,
        facts_of: Callable[[Target], AccessFacts],
        subscription: str,
    ) -> bool | None:
        """Decide by the name that is used and, if it is a former one, by the topic's present name:
        who may use the topic may do so by either."""
        allowed = self._decide(principal, action, target, facts_of(target), subscription)
        present = None if allowed else self._present(target)
        if present is None:
            return allowed
        too = self._decide(principal, action, present, facts_of(present), subscription)
        return too if too or allowed is False else None

    def _decide(
        self,
        principal: Principal,
        action: Action,
        target: Target,
        facts: AccessFacts,
        subscription: str,
    ) -> bool | None:
        return may(self._rules, _roles(principal), action, target.kind, facts, subscription)

    def _usable(self, target: Target) -> AccessFacts:
        """Return the facts that a new decision may use."""
        if target.kind is ResourceKind.CLUSTER:
            return NO_FACTS
        now = self.clock()
        tenant, namespace = (self._used(key, now) for key in _parents(target))
        chain, missing = self._chain(target)
        # All of them, so that none counts as idle.
        used = [self._used(known.key, now) for known in chain]
        is_whole = bool(used) and missing is None and None not in used
        return AccessFacts(
            None if tenant is None else tenant.admins,
            None if namespace is None else namespace.policies,
            chain[-1].policies_at(_wall_ms()) if is_whole else None,
        )

    def _chain(self, target: Target) -> tuple[list[KnownObject], Key | None]:
        """Return what ``topic_chain`` does; nothing for what is no topic."""
        if not target.topic:
            return [], None
        return topic_chain(self._objects, target.topic, _wall_ms())

    def _present(self, target: Target) -> Target | None:
        """Return what decides by the topic's present name in another namespace, if there is one."""
        chain, missing = self._chain(target)
        if not chain or missing is not None or chain[-1].name == target.topic:
            return None
        present = target_of(Resource.topic(chain[-1].name))
        return None if present.namespace == target.namespace else present

    def _used(self, key: Key, now: float) -> KnownObject | None:
        known = self._objects.get(key)
        if known is None:
            return None
        known.used_at = now
        self._objects.move_to_end(key)
        return known if known.is_usable(now) else None

    def _last_known(self, target: Target) -> AccessFacts:
        """Return the facts as they were known last."""
        tenant, namespace = (
            known if (known := self._objects.get(key)) is not None and known.is_known else None
            for key in _parents(target)
        )
        chain = [known for known in self._chain(target)[0] if known.is_known]
        return AccessFacts(
            None if tenant is None else tenant.admins,
            None if namespace is None else namespace.policies,
            chain[-1].policies_at(_wall_ms()) if chain else None,
        )

    # Following ------------------------------------------------------------------------------------

    async def _learn(self, action: Action, target: Target) -> None:
        """Return when more is known of what decides about ``action`` than before.

        Raises:
            Unavailable: A shard does not tell it.
            Overloaded: There is no room for it.
        """
        tenant, namespace = _parents(target)
        is_permitted = not isinstance(needs(target.kind, action), Need)
        missing = self._missing([tenant, namespace] if is_permitted else [tenant])
        if not missing and target.topic:
            chain, behind = self._chain(target)
            missing = self._missing([known.key for known in chain])
            if not missing and behind is not None:
                missing = [behind]
            if not missing and (present := self._present(target)) is not None:
                await self._learn(action, present)
                return
        # All of them begin before one is waited for.
        for known in [self._followed(key, target) for key in missing]:
            while not known.is_usable(self.clock()):
                if known.error is not None:
                    raise Unavailable(f"the permissions of {known.name} are lost: {known.error}")
                await known.wait_change()

    def _missing(self, wanted: Sequence[Key]) -> list[Key]:
        """Return those of the objects that are not usable yet."""
        now = self.clock()
        return [key for key in wanted if self._used(key, now) is None]

    def _followed(self, key: Key, target: Target) -> KnownObject:
        known = self._objects.get(key)
        if known is None or known.stream is None:
            kind, name, topic_id = key
            routing_key = target.routing_key if kind == KIND_TOPIC else name
            if known is None:
                self._make_room()
                known = KnownObject(self, kind, name, routing_key, topic_id)
            self._follow(known)
            self._objects[key] = known
            if self._sweep is None and not self._is_stopped:
                self._plan_sweep()
        return known

    def _follow(self, known: KnownObject) -> None:
        if self._is_stopped:
            raise Unavailable("this process stops")
        shard_id = self._home_of(known)
        use = self._uses.get(shard_id)
        if use is None:
            stream = self._streams.stream(shard_id)
            stream.withhold_with(partial(self._withheld, stream))
            use = self._uses[shard_id] = StreamUse(stream)
        known.used_at = self.clock()
        known.follow(use.stream)

    def _home_of(self, known: KnownObject) -> int:
        by_id = is_id(known.topic_id)
        slot = slot_of_id(known.topic_id) if by_id else slot_of(known.routing_key)
        return self._shards.shard_of_slot(slot)

    def _follow_again_later(self, known: KnownObject) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(PERMISSION_RETRY_MS / 1_000, self._follow_again, known)

    def _follow_again(self, known: KnownObject) -> None:
        is_followed = self._objects.get(known.key) is known
        if self._is_stopped or not is_followed or known.stream is not None:
            return
        try:
            self._follow(known)
        except MetadataError:
            self._follow_again_later(known)

    def _make_room(self) -> None:
        if len(self._objects) < PERMISSION_OBJECTS_MAX:
            return
        unneeded = (known for known in self._objects.values() if not known.is_needed)
        oldest = next(unneeded, None)
        if oldest is None:
            raise Overloaded(f"permissions of {PERMISSION_OBJECTS_MAX} objects are in use here")
        self._forget(oldest)

    def _forget(self, known: KnownObject) -> None:
        known.drop_lookers()
        self._objects.pop(known.key, None)
        use = None if known.stream is None else self._uses.get(known.stream.shard_id)
        if use is not None:
            use.lookers.pop(known, None)
        known.unfollow()

    def _plan_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(PERMISSION_SWEEP_MS / 1_000, self._forget_idle)

    def _forget_idle(self) -> None:
        """Forget what nobody asked for in a while; what is needed counts as asked for."""
        now = self.clock()
        idle_from = now - PERMISSION_IDLE_MS / 1_000
        for key, known in tuple(self._objects.items()):
            if known.used_at > idle_from:
                break
            if known.is_needed:
                known.used_at = now
                self._objects.move_to_end(key)
            else:
                self._forget(known)
        self._sweep = None
        if self._objects:
            self._plan_sweep()

    # Changes --------------------------------------------------------------------------------------

    def _rechecks(self, known: KnownObject) -> Iterator[None]:
        """Judge anew what is kept by the facts of ``known``, one at each step."""
        for access, kept in tuple(known.kept):
            yield
            if (access, kept) in known.kept and not self.may_keep(access.principal, kept):
                access.revoke(kept)

    async def _finish(self, known: KnownObject, rechecks: Iterator[None]) -> None:
        """Go on in later turns; the change is acknowledged behind the last."""
        try:
            while True:
                await asyncio.sleep(0)
                if _is_through(rechecks):
                    return
        finally:
            self._rechecking -= Counter({known: 1})
            if known.stream is not None:
                known.stream.acknowledge()

    def _withheld(self, stream: ShardStream) -> set[int]:
        """Return the watches with a change that has not reached every connection yet."""
        return {known.watch_id for known in self._rechecking if known.stream is stream}


def permission_streams(node_id: str, link: ClusterLink) -> ShardStreams:
    """Return streams for the table of one process; ``node_id`` is of that process alone."""
    return ShardStreams(f"{node_id}.permissions", link, silence_ms=RULES_FRESH_MS)


def _is_through(rechecks: Iterator[None]) -> bool:
    """Take one turn of checks; return whether it was the last."""
    return sum(1 for _ in islice(rechecks, RECHECKED_PER_TURN_MAX)) < RECHECKED_PER_TURN_MAX


def _roles(principal: Principal) -> tuple[str, ...]:
    return (principal.name, principal.proxy) if principal.proxy else (principal.name,)


def _parents(target: Target) -> tuple[Key, Key]:
    """Return the keys of its tenant and its namespace; of no object for those that it has not."""
    return (KIND_TENANT, target.tenant, ""), (KIND_NAMESPACE, target.namespace, "")


def _wall_ms() -> int:
    return int(time.time() * 1_000)
