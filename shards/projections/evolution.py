"""Which states an event changes, and how: the one rule that view and leader share.

``evolve_all`` calls the aggregates' ``evolve`` and keeps the sums that go with them. Nothing here
decides, reads or writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shards.domain import (
    assignment,
    broker_session,
    namespace,
    parent_gate,
    shard,
    tenant,
    topic,
)
from shards.domain.scalable import events as scalable
from shards.domain.scalable import loads as scalable_loads
from shards.domain.scalable import state as scalable_state
from shards.domain.shadows import source as shadow_source
from shards.domain.slots import events as slots
from shards.domain.states import LoadStates, StateKind, States
from shards.wire.event import DomainEvent


@dataclass(frozen=True, slots=True)
class Route:
    """Where an event of one type goes.

    ``is_birth``: there is no state before it, so none is read.
    ``total``: what it adds to the number of objects of its kind.
    ``also``: another state that it changes.
    ``is_row``: it is a row of a moving slot. Whether it adds to the number of objects depends on
    what was there; the units in it are counted with the shard's slots.
    """

    kind: StateKind
    key: Callable[[Any], str]
    evolve: Callable[[Any, Any], Any]
    is_birth: bool = False
    total: int = 0
    also: Route | None = None
    is_row: bool = False


def _name(event: Any) -> str:
    return event.name  # type: ignore[no-any-return]


def _gate(event: parent_gate.ParentGateEvent) -> str:
    return parent_gate.gate_key(event.kind, event.name)


def _unit(event: assignment.AssignmentEvent) -> str:
    return f"{event.topic_id}/{event.unit}"


def _broker(event: broker_session.BrokerSessionEvent) -> str:
    return event.broker_id


def _shard(_: shard.ShardEvent) -> str:
    return shard.SHARD_KEY


def _tenant_route(*, is_birth: bool = False, total: int = 0) -> Route:
    return Route(StateKind.TENANT, _name, tenant.evolve, is_birth, total)


def _namespace_route(*, is_birth: bool = False, total: int = 0) -> Route:
    return Route(StateKind.NAMESPACE, _name, namespace.evolve, is_birth, total)


def _topic_route(*, is_birth: bool = False, total: int = 0) -> Route:
    return Route(StateKind.TOPIC, _name, topic.evolve, is_birth, total)


_SESSION = Route(StateKind.BROKER_SESSION, _broker, broker_session.evolve)
_GATE = Route(StateKind.PARENT_GATE, _gate, parent_gate.evolve)
_SOURCE = Route(StateKind.SHADOW_SOURCE, _name, shadow_source.evolve)
_SHARD = Route(StateKind.SHARD, _shard, shard.evolve)
_ASSIGNMENT = Route(StateKind.ASSIGNMENT, _unit, assignment.evolve)
_SCALABLE = Route(StateKind.SCALABLE_TOPIC, _name, scalable_state.evolve)
_LOADS = Route(StateKind.TOPIC_LOADS, _name, scalable_loads.evolve)

ROUTES: dict[type, Route] = {
    tenant.TenantCreated: _tenant_route(is_birth=True, total=1),
    tenant.TenantPropertiesSet: _tenant_route(),
    tenant.TenantPoliciesSet: _tenant_route(),
    tenant.TenantDeletionStarted: _tenant_route(),
    tenant.TenantDeletionAborted: _tenant_route(),
    tenant.TenantDeleted: _tenant_route(total=-1),
    namespace.NamespaceCreated: _namespace_route(is_birth=True, total=1),
    namespace.NamespacePropertiesSet: _namespace_route(),
    namespace.NamespacePoliciesSet: _namespace_route(),
    namespace.NamespaceDeletionStarted: _namespace_route(),
    namespace.NamespaceDeletionAborted: _namespace_route(),
    namespace.NamespaceDeleted: _namespace_route(total=-1),
    topic.TopicCreated: _topic_route(is_birth=True, total=1),
    topic.TopicPropertiesSet: _topic_route(),
    topic.TopicPoliciesSet: _topic_route(),
    topic.TopicPartitionsGrown: _topic_route(),
    topic.TopicDeleted: _topic_route(total=-1),
    assignment.TopicAssigned: _ASSIGNMENT,
    assignment.TopicUnassigned: _ASSIGNMENT,
    broker_session.BrokerSessionEstablished: _SESSION,
    broker_session.BrokerSessionEnded: _SESSION,
    broker_session.CapacityGranted: _SESSION,
    broker_session.BrokerDrainSet: _SESSION,
    broker_session.BrokerCapacitySet: _SESSION,
    broker_session.BrokerLoadReported: _SESSION,
    shard.SlotsAdopted: _SHARD,
    shard.RestoreMarked: _SHARD,
    slots.SlotsIncoming: _SHARD,
    slots.SlotRowsCopied: _SHARD,
    slots.SlotsReleased: _SHARD,
    slots.SlotsRefused: _SHARD,
    slots.SlotsReclaimed: _SHARD,
    slots.SlotRowsRemoved: _SHARD,
    parent_gate.ParentGateOpened: _GATE,
    parent_gate.ParentGateClosed: _GATE,
    shadow_source.ShadowSourceCreated: replace(_SOURCE, is_birth=True, total=1),
    shadow_source.ShadowShardRecorded: _SOURCE,
    shadow_source.ShadowSourceHeld: _SOURCE,
    shadow_source.ShadowSourceRemoved: replace(_SOURCE, total=-1),
    scalable.ScalableTopicCreated: replace(_SCALABLE, is_birth=True, total=1),
    scalable.ScalableTopicRestored: replace(_SCALABLE, is_birth=True, total=1),
    scalable.ScalableTopicDeleted: replace(_SCALABLE, total=-1, also=_LOADS),
    scalable.LayoutChangePlanned: _SCALABLE,
    scalable.SegmentChildrenReady: _SCALABLE,
    scalable.SegmentSealed: _SCALABLE,
    scalable.LayoutChanged: replace(_SCALABLE, also=_LOADS),
    scalable.LayoutChangeAbandoned: _SCALABLE,
    scalable.SegmentPrunePostponed: _SCALABLE,
    scalable.SegmentStorageRemoved: _SCALABLE,
    scalable.SegmentLoadsRecorded: _LOADS,
    scalable.AutoScaleDecided: _SCALABLE,
    scalable.ScalableSubscriptionCreated: _SCALABLE,
    scalable.ScalableSubscriptionSought: _SCALABLE,
    scalable.ScalableSubscriptionReady: _SCALABLE,
    scalable.ScalableSubscriptionDeletionStarted: _SCALABLE,
    scalable.ScalableSubscriptionDeleted: _SCALABLE,
    scalable.SegmentDrained: _SCALABLE,
    scalable.ScalableConsumerRegistered: _SCALABLE,
    scalable.ScalableConsumerLeft: _SCALABLE,
    scalable.SegmentsAssigned: _SCALABLE,
}


_ROW_ROUTES = {
    kind: Route(
        kind,
        key=lambda row: row.key,
        evolve=lambda _, row: getattr(row, "state", None),
        is_row=True,
    )
    for kind in StateKind
}
"""Of ``SlotRow`` and ``SlotKey``, which leaves nothing under the key."""

_WITH_ROWS = frozenset({slots.SlotRowsCopied, slots.SlotRowsRemoved})

_COUNTED = frozenset({route.kind for route in ROUTES.values() if route.total})
"""The kinds of objects whose number is kept. Rows that move count where they are stored."""


def state_of(event: DomainEvent) -> tuple[StateKind, str]:
    """Return kind and key of the state that ``event`` is about."""
    route = ROUTES[event.__class__]
    return route.kind, route.key(event)


def evolve_all(events: Iterable[DomainEvent], load: LoadStates) -> States:
    """Return every state that ``events`` change, as it is after all of them.

    ``load`` is called at most twice per kind, with all keys at once, for what the events build on.
    """
    states: States = defaultdict(dict)
    wanted: dict[StateKind, set[str]] = defaultdict(set)
    routed = [*_routed(events, states, wanted)]
    for kind, keys in wanted.items():
        states[kind].update(load(kind, keys))

    sums: Counter[tuple[StateKind, str]] = Counter()
    totals: Counter[StateKind] = Counter()
    for route, key, event in routed:
        known = states[route.kind]
        before: Any = known[key]
        after: Any = route.evolve(before, event)
        known[key] = after
        if route.total:
            totals[route.kind] += route.total
        elif route.is_row:
            if route.kind in _COUNTED:
                totals[route.kind] += (after is not None) - (before is not None)
        elif route.kind is StateKind.ASSIGNMENT:
            _count_units(sums, before, after)
        elif route.kind is StateKind.SHARD:
            _count_moved_units(sums, before, event)
    for of_kind, change in totals.items():
        sums[StateKind.TOTAL, of_kind.value] += change
    _add_sums(states, sums, load)
    return states


def _routed(
    events: Iterable[DomainEvent], states: States, wanted: dict[StateKind, set[str]]
) -> Iterator[tuple[Route, str, Any]]:
    """Yield what changes a state, with its route and key, in order.

    Every key is noted in ``states``; in ``wanted``, the keys whose state has to be loaded.
    """
    for event in events:
        route: Route | None = ROUTES[event.__class__]
        while route is not None:
            key = route.key(event)
            known = states[route.kind]
            if key not in known:
                known[key] = None
                if not (route.is_birth or _is_first_assignment(event)):
                    wanted[route.kind].add(key)
            yield route, key, event
            route = route.also
        for row in _moving_rows(event) if event.__class__ in _WITH_ROWS else ():
            kind = StateKind(row.kind)
            known = states[kind]
            if row.key not in known:
                known[row.key] = None
                wanted[kind].add(row.key)
            yield _ROW_ROUTES[kind], row.key, row


def _moving_rows(event: Any) -> Iterable[slots.SlotRow | slots.SlotKey]:
    rows: Iterable[slots.SlotRow | slots.SlotKey] = (
        event.rows if isinstance(event, slots.SlotRowsCopied) else event.keys
    )
    return rows


def _is_first_assignment(event: DomainEvent) -> bool:
    return isinstance(event, assignment.TopicAssigned) and event.epoch == 1


def _count_units(
    sums: Counter[tuple[StateKind, str]],
    before: assignment.AssignmentState,
    after: assignment.AssignmentState,
) -> None:
    change = 0
    if before is not None and before.is_assigned:
        sums[StateKind.USAGE, before.session_id] -= 1
        change -= 1
    if after is not None and after.is_assigned:
        sums[StateKind.USAGE, after.session_id] += 1
        change += 1
    if change and after is not None:
        sums[StateKind.TENANT_USAGE, after.tenant] += change


def _count_moved_units(
    sums: Counter[tuple[StateKind, str]], before: shard.ShardSelf, event: DomainEvent
) -> None:
    """Count the assigned units of slots that a shard adopts, releases or reclaims."""
    moved: shard.SlotsAdopted | slots.SlotsReleased | slots.OutgoingSlots
    if isinstance(event, shard.SlotsAdopted | slots.SlotsReleased):
        moved = event
    elif isinstance(event, slots.SlotsReclaimed):
        assert before is not None, "slots are adopted before anything else"
        released = [each for each in before.outgoing if each.move_id == event.move_id]
        if not released:
            return
        moved = released[0]
    else:
        return
    sign = -1 if isinstance(event, slots.SlotsReleased) else 1
    for kind, counted in (
        (StateKind.USAGE, moved.session_units),
        (StateKind.TENANT_USAGE, moved.tenant_units),
    ):
        for each in counted:
            sums[kind, each.of] += sign * each.units


def _add_sums(states: States, sums: Counter[tuple[StateKind, str]], load: LoadStates) -> None:
    for kind in (StateKind.USAGE, StateKind.TENANT_USAGE, StateKind.TOTAL):
        changes = {key: change for (of_kind, key), change in sums.items() if of_kind is kind}
        if not changes:
            continue
        present = load(kind, changes)
        for key, change in changes.items():
            present_sum = present.get(key) or 0
            assert isinstance(present_sum, int)
            total = present_sum + change
            assert total >= 0, f"{kind.value} of {key} fell to {total}"
            states[kind][key] = total or None
