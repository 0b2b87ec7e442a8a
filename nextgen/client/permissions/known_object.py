"""The permissions of one tenant, namespace or topic, as a watch brings them.

    begun ── snapshot ──▶ known ── the watch has caught up ──▶ usable ◀─┐ caught up again
                                                                 │      │
                                        its stream breaks, or is silent ┘

Facts stay when the stream breaks: no new decision uses them until they are usable again, and what
connections keep is judged by the last ones that are known. A name may lead to a topic that has
another: see ``name_chain``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from nextgen.client.log.event_keys import event_keys
from nextgen.client.permissions.name_chain import Key
from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.access import Action, Principal, Resource
from nextgen.kernel.governance.permissions import admin_roles_in
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel
from nextgen.kernel.limits.placement import RULES_FRESH_MS
from protos.nextgen.v1.events_pb2 import Event, OldName, TopicRenamed
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Item, Kind

FRESH_SECONDS = RULES_FRESH_MS / 1_000
"""Facts are used for this long after their stream's last update: effective writes wait for a silent
subscriber for longer."""

NO_ADMINS: frozenset[str] = frozenset()

_SCOPES: Mapping[str, Kind] = {
    PolicyLevel.NAMESPACE.value: KIND_NAMESPACE,
    PolicyLevel.TOPIC.value: KIND_TOPIC,
}

_GONE = frozenset(
    {
        "namespace_created",
        "namespace_deleted",
        "topic_created",
        "topic_deleted",
    }
)
"""Events behind which an object has no policies: also the first of one that is created again."""


Kept = tuple[Action, Resource, str]
"""Something that a connection goes on using; the last is a subscription, or empty."""


class Access(Protocol):
    """A connection's session, as its objects and the table call it."""

    @property
    def principal(self) -> Principal: ...

    def drop(self, names: Iterable[bytes]) -> None:
        """Let these names be asked for again."""

    def revoke(self, kept: Kept) -> None:
        """End the session, because something that the connection keeps is no longer allowed."""


class ShardStream(Protocol):
    """A ``ShardWatch``, as far as permissions need it."""

    shard_id: int
    heard_at: float
    breaks: int

    def add(
        self,
        listener: KnownObject,
        *,
        kinds: Sequence[Kind],
        names: Sequence[str],
        acknowledged: bool,
        on_caught_up: Callable[[], None],
    ) -> int: ...

    def remove(self, watch_id: int) -> None: ...

    def is_caught_up(self, watch_id: int) -> bool: ...

    def acknowledge(self) -> None: ...

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None: ...


class Owner(Protocol):
    """The table, as its objects call it."""

    def changed(self, known: KnownObject) -> None:
        """Its facts changed, or are not certain any more."""

    def ended(self, known: KnownObject, error: MetadataError) -> None:
        """Its watch ended for good."""


class KnownObject:
    """See the module. A ``WatchListener``; made, followed and forgotten by the table."""

    __slots__ = (
        "_is_snapshot",
        "_owner",
        "_position",
        "_waiters",
        "admins",
        "error",
        "is_known",
        "kept",
        "kind",
        "lookers",
        "name",
        "pointer",
        "policies",
        "routing_key",
        "stream",
        "topic",
        "topic_id",
        "until_ms",
        "used_at",
        "watch_id",
    )

    def __init__(
        self, owner: Owner, kind: Kind, name: str, routing_key: str, topic_id: str = ""
    ) -> None:
        """``topic_id``: of the topic at whose home it is followed; "": where ``routing_key`` is."""
        self.kind = kind
        self.name = name
        self.routing_key = routing_key
        self.topic_id = topic_id
        self.stream: ShardStream | None = None
        """None while no watch follows it."""
        self.watch_id = 0
        self.used_at = 0.0
        self.is_known = False
        """Whether there was ever a whole snapshot."""
        self.kept: dict[tuple[Access, Kept], None] = {}
        """What connections keep, and may keep only as long as the facts allow it."""
        self.lookers: dict[Access, set[bytes]] = {}
        """Names that connections may look up without a question, by these facts."""
        self.admins = NO_ADMINS
        """Of a tenant."""
        self.policies = NO_POLICIES
        """Of a namespace or a topic: its own. Of a former name: the topic's when it was renamed."""
        self.pointer = ""
        """The topic whose home knows the name, if this shard only knows that."""
        self.topic = ""
        """The present name of the topic that this name leads to until ``until_ms``, if it is a
        former one."""
        self.until_ms = 0
        self.error: MetadataError | None = None
        """Why its last watch ended."""
        self._owner = owner
        self._position = 0
        self._is_snapshot = False
        """Whether the items of a snapshot are being received."""
        self._waiters: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        condition = "known" if self.is_known else "waiting"
        return f"<KnownObject {self.name} {condition} position={self._position}>"

    @property
    def key(self) -> Key:
        return self.kind, self.name, self.topic_id

    def leads_to(self, now_ms: int) -> Key | None:
        """Return the object that decides instead of this one, by this one's last facts; None: this
        one decides. ``now_ms`` is the wall clock."""
        if self.topic:
            return (self.kind, self.topic, self._home) if now_ms < self.until_ms else None
        return (self.kind, self.name, self.pointer) if self.pointer and not self.topic_id else None

    def policies_at(self, now_ms: int) -> Policies:
        """Return its own policies: none of a former name that leads nowhere any more."""
        return NO_POLICIES if self.topic and now_ms >= self.until_ms else self.policies

    @property
    def is_needed(self) -> bool:
        """Whether somebody waits for it, or keeps something by it."""
        return bool(self.kept or self._waiters)

    def is_usable(self, now: float) -> bool:
        """Return whether a new decision may use the facts; ``now`` is the event loop's time."""
        stream = self.stream
        return (
            stream is not None
            and self.is_known
            and now - stream.heard_at < FRESH_SECONDS
            and stream.is_caught_up(self.watch_id)
        )

    def follow(self, stream: ShardStream) -> None:
        """Begin to watch the object.

        Raises:
            Overloaded: The stream has too many watches.
        """
        self.watch_id = stream.add(
            self,
            kinds=(self.kind,),
            names=(self.name,),
            acknowledged=True,
            on_caught_up=self._wake,
        )
        self.stream = stream
        self.error = None

    def unfollow(self) -> None:
        """End the watch. What is kept by it is known as it was."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.remove(self.watch_id)
        self._wake()

    def drop_lookers(self) -> None:
        """Let every name that may be looked up by these facts be asked for again."""
        lookers, self.lookers = self.lookers, {}
        for access, names in lookers.items():
            access.drop(names)

    async def wait_change(self) -> None:
        """Return when it has become usable, or its watch has ended."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    # As the stream calls it -----------------------------------------------------------------------

    def on_reset(self) -> None:
        # The former facts still decide about open connections, until the snapshot is complete.
        self._is_snapshot = True
        self._position = 0

    def on_items(self, items: Sequence[Item]) -> None:
        for item in items:
            if item.name == self.name and self._is_snapshot:
                self._take_item(item)
                self._is_snapshot = False

    def on_snapshot_complete(self, position: int) -> None:
        if self._is_snapshot:
            # No item named it: it is absent.
            self._clear()
            self._is_snapshot = False
        self._position = position
        self.is_known = True
        self._owner.changed(self)

    def on_events(self, events: Sequence[Event]) -> None:
        before = self._facts
        for event in events:
            if event.position > self._position and self.name in event_keys(event):
                self._position = event.position
                self._take_event(event)
        if self._facts != before:
            self._owner.changed(self)

    def on_position(self, position: int) -> None:
        """Ignore a position without a change."""

    def on_ended(self, error: MetadataError) -> None:
        self.stream = None
        self.error = error
        self._owner.ended(self, error)
        self._wake()

    # ----------------------------------------------------------------------------------------------

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.admins, self.policies, self.pointer, self.topic, self.until_ms

    @property
    def _home(self) -> str:
        """The topic at whose home the topic of a former name is followed."""
        return self.topic_id or self.pointer

    def _clear(self) -> None:
        self.admins, self.policies = NO_ADMINS, NO_POLICIES
        self.pointer, self.topic, self.until_ms = "", "", 0

    def _take_item(self, item: Item) -> None:
        self._clear()
        match item.WhichOneof("value"):
            case "tenant":
                self.admins = frozenset(admin_roles_in(item.tenant.properties))
            case "namespace" if item.namespace.HasField("policies"):
                self.policies = _unpacked(item.namespace.policies.SerializeToString())
            case "topic":
                topic = item.topic
                if topic.HasField("policies"):
                    self.policies = _unpacked(topic.policies.SerializeToString())
                if topic.name != self.name:
                    self._lead(topic.name, topic.topic_id, topic.former_names)
            case "pointer":
                self.pointer = item.pointer.topic_id

    def _take_event(self, event: Event) -> None:
        payload = event.WhichOneof("payload")
        if self.kind == KIND_TENANT:
            if payload in ("tenant_created", "tenant_properties_set"):
                self.admins = frozenset(admin_roles_in(getattr(event, payload).properties))
            elif payload == "tenant_deleted":
                self.admins = NO_ADMINS
        elif payload in _GONE:
            self._clear()
        elif payload == "topic_name_pointed":
            self.pointer = event.topic_name_pointed.topic_id
        elif payload == "topic_name_freed":
            self.pointer = ""
        elif payload == "topic_renamed":
            self._take_rename(event.topic_renamed)
        elif payload == "policy_set" and _SCOPES.get(event.policy_set.scope) == self.kind:
            self.policies = _unpacked(event.policy_set.policy)
        elif payload == "policy_cleared" and _SCOPES.get(event.policy_cleared.scope) == self.kind:
            self.policies = NO_POLICIES

    def _take_rename(self, renamed: TopicRenamed) -> None:
        self.policies = _unpacked(renamed.policies) if renamed.policies else NO_POLICIES
        self.topic, self.until_ms = "", 0
        if renamed.name == self.name:
            self._lead(renamed.new_name, renamed.topic_id, renamed.former_names)

    def _lead(self, topic: str, topic_id: str, former_names: Iterable[OldName]) -> None:
        """Note that this is a former name of ``topic``."""
        self.topic = topic
        self.pointer = topic_id
        until_ms = [each.until_ms for each in former_names if each.name == self.name]
        self.until_ms = max(until_ms, default=0)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _unpacked(packed: bytes) -> Policies:
    """Return of policies what decides about access, so that others change nothing here."""
    whole = unpack_policies(packed)
    return Policies(
        permissions=whole.permissions,
        subscription_permissions=whole.subscription_permissions,
        subscription_auth_mode=whole.subscription_auth_mode,
    )
