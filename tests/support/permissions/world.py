"""Shards that tell a table permissions, without a network, on a clock that the test moves.

As real ones they answer a write as effective once each stream that watches the object has taken it
in, or was silent for one time-to-live.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence

from nextgen.client.permissions.known_object import FRESH_SECONDS, KnownObject
from nextgen.client.permissions.table import PermissionTable
from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.governance.access import Principal
from nextgen.kernel.governance.access_rules import AccessRules
from nextgen.kernel.governance.permissions import AuthAction, granted
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import slot_of_id
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import events_pb2 as events
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
)

TENANT, NAMESPACE = "acme", "acme/orders"
TOPIC = "persistent://acme/orders/paid"
ADA, BOB, ROOT = Principal("ada"), Principal("bob"), Principal("root")
RULES = AccessRules(frozenset({"root"}))
PRODUCE, CONSUME = AuthAction.PRODUCE, AuthAction.CONSUME
TTL_S = ASSIGNMENT_TTL_MS / 1_000

_SCOPES = {KIND_TENANT: "tenant", KIND_NAMESPACE: "namespace", KIND_TOPIC: "topic"}


class FakeStream:
    """The stream of one shard. Unless ``is_held``, watches have their snapshot at once."""

    def __init__(self, shard_id: int, world: PermissionWorld) -> None:
        self.shard_id = shard_id
        self.heard_at = world.now
        self.breaks = 0
        self.is_connected = True
        self.is_held = False
        self.is_begun_only = False
        """Whether it is connected, and its watches have not caught up."""
        self.is_stuck = False
        """Whether updates stay on their way, and nobody has noticed."""
        self.acknowledgements = 0
        self.watches: dict[int, KnownObject] = {}
        self.added = 0
        self.withheld: Callable[[], Collection[int]] = lambda: ()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._caught_up: set[int] = set()
        self._missed: list[events.Event] = []
        self._world = world

    # As the table calls it ------------------------------------------------------------------------

    def add(
        self,
        listener: KnownObject,
        *,
        kinds: Sequence[Kind],
        names: Sequence[str],
        acknowledged: bool,
        on_caught_up: Callable[[], None],
    ) -> int:
        assert acknowledged
        assert (tuple(kinds), tuple(names)) == ((listener.kind,), (listener.name,))
        if self._world.refuses is not None:
            raise self._world.refuses
        self.added += 1
        self.watches[self.added] = listener
        self._callbacks[self.added] = on_caught_up
        if self.is_connected and not (self.is_held or self.is_stuck or self.is_begun_only):
            self._snapshot(self.added)
        return self.added

    def remove(self, watch_id: int) -> None:
        del self.watches[watch_id]
        self._caught_up.discard(watch_id)

    def is_caught_up(self, watch_id: int) -> bool:
        return watch_id in self._caught_up

    def acknowledge(self) -> None:
        self.acknowledgements += 1

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None:
        self.withheld = withheld

    # As tests call it -----------------------------------------------------------------------------

    def release(self) -> None:
        """Send the snapshots that were held back."""
        self.is_held = False
        for watch_id in tuple(self.watches):
            if watch_id not in self._caught_up:
                self._snapshot(watch_id)

    def deliver(self, event: events.Event, kind: Kind, *names: str) -> None:
        self._missed.append(event)
        if not self.is_connected or self.is_stuck or self.is_begun_only:
            return
        if self._is_overdue():
            self._begin_anew()
            return
        self._missed.clear()
        self.heard_at = self._world.now
        for listener in tuple(self.watches.values()):
            if listener.kind == kind and listener.name in names and listener.is_known:
                listener.on_events([event])

    def tick(self) -> None:
        """Send the position, as a shard does twice a second."""
        if not self.is_connected or self.is_stuck:
            return
        if self._is_overdue() and not self.is_begun_only:
            self._begin_anew()
        else:
            self.heard_at = self._world.now

    def unstick(self) -> None:
        """Deliver what was on its way."""
        self.is_stuck = False
        if not self.is_connected:
            return
        if self._is_overdue():
            self._begin_anew()
            return
        self.heard_at = self._world.now
        missed, self._missed = self._missed, []
        for listener in tuple(self.watches.values()):
            if listener.is_known:
                listener.on_events(missed)

    def _is_overdue(self) -> bool:
        # An update after a silence may have been delayed on the way: a stream does not use it.
        return self._world.now - self.heard_at >= FRESH_SECONDS

    def _begin_anew(self) -> None:
        self.disconnect()
        self.reconnect()

    def disconnect(self) -> None:
        if self.is_connected:
            self.is_connected = self.is_begun_only = False
            self.breaks += 1
            self._caught_up.clear()

    def begin(self) -> None:
        """Connect, and bring no watch anything yet."""
        self.is_connected, self.is_stuck, self.is_begun_only = True, False, True
        self.heard_at = self._world.now

    def reconnect(self, *, with_snapshots: bool = False) -> None:
        """Connect, and bring what was missed: the events, or everything anew."""
        self.begin()
        self.is_begun_only = False
        missed, self._missed = self._missed, []
        for watch_id, listener in tuple(self.watches.items()):
            if watch_id not in self.watches:
                continue
            if with_snapshots or not listener.is_known:
                self._snapshot(watch_id)
                continue
            listener.on_events(missed)
            self._catch_up(watch_id)

    def end(self, name: str, error: MetadataError) -> None:
        """End the watch of an object for good."""
        watch_id = next(each for each, known in self.watches.items() if known.name == name)
        listener = self.watches.pop(watch_id)
        self._caught_up.discard(watch_id)
        listener.on_ended(error)

    def _snapshot(self, watch_id: int) -> None:
        self.heard_at = self._world.now
        listener = self.watches[watch_id]
        listener.on_reset()
        item = self._world.item(listener.kind, listener.name, self.shard_id)
        if item is not None:
            listener.on_items([item])
        listener.on_snapshot_complete(self._world.position)
        self._catch_up(watch_id)

    def _catch_up(self, watch_id: int) -> None:
        if watch_id in self.watches:
            self._caught_up.add(watch_id)
            self._callbacks[watch_id]()


class PermissionWorld:
    """Tenants, namespaces and topics by name, and the streams of one table."""

    def __init__(self, shards: int = 1) -> None:
        self.now = 1_000.0
        self.shards = shards
        self.position = 0
        self.streams: dict[int, FakeStream] = {}
        self.refuses: MetadataError | None = None
        """What every new watch is refused with."""
        self.has_map = True
        self.moved = 0
        """Added to the number of each home shard."""
        self._tenants: dict[str, dict[str, str]] = {}
        self._policies: dict[tuple[Kind, str], Policies] = {}
        self._homes: dict[str, str] = {}
        """Topic ids by the names of renamed topics, former ones included."""
        self._former: dict[str, events.TopicRenamed] = {}

    def table(self, rules: AccessRules = RULES) -> PermissionTable:
        table = PermissionTable(rules, self, self)
        table.clock = lambda: self.now
        return table

    def stream(self, shard_id: int) -> FakeStream:
        return self.streams.setdefault(shard_id, FakeStream(shard_id, self))

    def shard_of_key(self, routing_key: str) -> int:
        return self.shard_of_slot(slot_of(routing_key))

    def shard_of_slot(self, slot: int) -> int:
        if not self.has_map:
            raise Unavailable("no shard map is known here yet")
        return slot % self.shards + 1 + self.moved

    def item(self, kind: Kind, name: str, shard_id: int) -> Item | None:
        home = self._homes.get(name) if kind == KIND_TOPIC else None
        if home is not None and self.shard_of_slot(slot_of_id(home)) != shard_id:
            item = Item(kind=kind, name=name)
            item.pointer.topic_id = home
            return item
        if home is not None and name in self._former:
            item = self.item(kind, self._former[name].new_name, shard_id)
            assert item is not None, "the topic is there"
            item.name, item.topic.topic_id = name, home
            item.topic.former_names.extend(self._former[name].former_names)
            return item
        if kind == KIND_TENANT:
            if name not in self._tenants:
                return None
            item = Item(kind=kind, name=name)
            item.tenant.properties.update(self._tenants[name])
            return item
        if (kind, name) not in self._policies:
            return None
        item = Item(kind=kind, name=name)
        value = item.namespace if kind == KIND_NAMESPACE else item.topic
        value.name = name
        policies = self._policies[kind, name]
        if policies != NO_POLICIES:
            value.policies.CopyFrom(policies_to_proto(policies))
        return item

    # Writes ---------------------------------------------------------------------------------------

    def create(self, kind: Kind, name: str, policies: Policies = NO_POLICIES) -> None:
        self._policies[kind, name] = policies
        event = events.Event()
        created = event.namespace_created if kind == KIND_NAMESPACE else event.topic_created
        created.name = name
        self._publish(event, kind, name)

    def delete(self, kind: Kind, name: str) -> None:
        del self._policies[kind, name]
        event = events.Event()
        deleted = event.namespace_deleted if kind == KIND_NAMESPACE else event.topic_deleted
        deleted.name = name
        self._publish(event, kind, name)

    def set_policies(self, kind: Kind, name: str, policies: Policies) -> None:
        self._policies[kind, name] = policies
        event = events.Event()
        event.policy_set.scope = _SCOPES[kind]
        event.policy_set.name = name
        event.policy_set.policy = policies_to_proto(policies).SerializeToString()
        self._publish(event, kind, name)

    def rename(self, name: str, new_name: str, *, topic_id: str, until_ms: int) -> None:
        """Rename a topic that has its home where ``topic_id`` says."""
        policies = self._policies.pop((KIND_TOPIC, name))
        self._policies[KIND_TOPIC, new_name] = policies
        home = self.shard_of_slot(slot_of_id(topic_id))
        for each in (name, new_name):
            self._homes[each] = topic_id
            pointed = events.Event()
            pointed.topic_name_pointed.name = each
            pointed.topic_name_pointed.topic_id = topic_id
            at = self.shard_of_key(parse_topic(each).routing_key)
            self._publish_at(at, pointed, each)
        event = events.Event()
        renamed = event.topic_renamed
        renamed.name, renamed.new_name, renamed.topic_id = name, new_name, topic_id
        renamed.policies = policies_to_proto(policies).SerializeToString()
        renamed.former_names.add(name=name, until_ms=until_ms)
        self._former[name] = renamed
        self._publish_at(home, event, name, new_name)

    def recreate(self, name: str) -> None:
        """Create a topic of a name that a renamed topic had."""
        topic_id = self._homes.pop(name)
        del self._former[name]
        at = self.shard_of_key(parse_topic(name).routing_key)
        freed = events.Event()
        freed.topic_name_freed.name = name
        freed.topic_name_freed.topic_id = topic_id
        self._publish_at(at, freed, name)
        self.create(KIND_TOPIC, name)

    def _publish_at(self, shard_id: int, event: events.Event, *names: str) -> None:
        self.position += 1
        event.position = self.position
        self.stream(shard_id).deliver(event, KIND_TOPIC, *names)

    def clear_policies(self, kind: Kind, name: str) -> None:
        self._policies[kind, name] = NO_POLICIES
        event = events.Event()
        event.policy_cleared.scope = _SCOPES[kind]
        event.policy_cleared.name = name
        self._publish(event, kind, name)

    def grant(
        self, role: str, *actions: AuthAction, kind: Kind = KIND_NAMESPACE, name: str = NAMESPACE
    ) -> None:
        """Let ``role`` do ``actions`` and nothing else; without any, revoke everything."""
        permissions = self._policies.get((kind, name), NO_POLICIES).permissions
        self.set_policies(kind, name, Policies(permissions=granted(permissions, role, actions)))

    def set_admins(self, roles: Iterable[str], tenant: str = TENANT) -> None:
        self._tenants[tenant] = {"adminRoles": json.dumps(list(roles))}
        event = events.Event()
        event.tenant_properties_set.name = tenant
        event.tenant_properties_set.properties.update(self._tenants[tenant])
        self._publish(event, KIND_TENANT, tenant)

    def delete_tenant(self, tenant: str = TENANT) -> None:
        del self._tenants[tenant]
        event = events.Event()
        event.tenant_deleted.name = tenant
        self._publish(event, KIND_TENANT, tenant)

    def pass_time(self, seconds: float, *, ticks: bool = True) -> None:
        self.now += seconds
        if ticks:
            for stream in self.streams.values():
                stream.tick()

    def _publish(self, event: events.Event, kind: Kind, name: str) -> None:
        self.position += 1
        event.position = self.position
        for stream in self.streams.values():
            stream.deliver(event, kind, name)
