"""Which states an event changes, and how: the one rule that view and leader share.

``evolve_all`` calls the aggregates' ``evolve`` and keeps the sums that go with them. Nothing here
decides, reads or writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
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
from shards.domain.renames import names as topic_names
from shards.domain.scalable import events as scalable
from shards.domain.scalable import loads as scalable_loads
from shards.domain.scalable import state as scalable_state
from shards.domain.shadows import source as shadow_source
from shards.domain.slot_moves.keys import slot_of_change, slot_of_state
from shards.domain.slots import events as slots
from shards.domain.states import LoadStates, State, StateKind, States
from shards.wire.event import DomainEvent


@dataclass(frozen=True, slots=True)
class Route:
    """Where an event of one type goes.

    ``is_birth``: there is no state before it, so none is read.
    ``total``: what it adds to the number of objects of its kind.
    ``also``: another state that it changes.
    ``is_row``: whether it adds to the number of objects depends on what was there. So it is with a
    row of a moving slot, whose units are counted with the shard's slots, and with names, which may
    have been taken from another topic.
    ``of``: the key of the state that it makes this one of, if that is another.
    """

    kind: StateKind
    key: Callable[[Any], str]
    evolve: Callable[[Any, Any], Any]
    is_birth: bool = False
    total: int = 0
    also: Route | None = None
    is_row: bool = False
    of: Callable[[Any], str] | None = None


def _name(event: Any) -> str:
    return event.name  # type: ignore[no-any-return]


def _new_name(event: topic_names.TopicRenamed) -> str:
    return event.new_name


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


def _without_stale(before: topic.TopicState, event: topic_names.TopicNameFreed) -> topic.TopicState:
    """Return what is under a name that is free: no copy of the topic that had it last."""
    return None if before is None or before.topic_id == event.topic_id else before


_SESSION = Route(StateKind.BROKER_SESSION, _broker, broker_session.evolve)
_GATE = Route(StateKind.PARENT_GATE, _gate, parent_gate.evolve)
_SOURCE = Route(StateKind.SHADOW_SOURCE, _name, shadow_source.evolve)
_SHARD = Route(StateKind.SHARD, _shard, shard.evolve)
_POINTER = Route(StateKind.TOPIC_NAME, _name, topic_names.evolve_pointer, is_row=True)
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
    topic_names.TopicRenamed: Route(
        StateKind.TOPIC,
        _new_name,
        topic.evolve,
        is_row=True,
        of=_name,
        also=Route(StateKind.TOPIC, _name, lambda _, __: None, is_row=True),
    ),
    topic_names.TopicNamePointed: _POINTER,
    topic_names.TopicNameFreed: replace(
        _POINTER, also=Route(StateKind.TOPIC, _name, _without_stale, is_row=True)
    ),
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

_FORMER = Route(StateKind.FORMER_NAME, _name, lambda _, former: former, is_row=True)


def _without_own(
    before: topic_names.FormerName | None, event: topic_names.TopicRenamed | topic.TopicDeleted
) -> topic_names.FormerName | None:
    """Return what a name leads to that does not lead to the topic of ``event`` any more."""
    return None if before is None or before.topic_id == event.topic_id else before


_DROPPED = replace(_FORMER, evolve=_without_own)

_WITH_ROWS = frozenset({slots.SlotRowsCopied, slots.SlotRowsRemoved})
_WITH_PARTS = _WITH_ROWS | {topic_names.TopicRenamed, topic.TopicDeleted}
_ROWS = frozenset({slots.SlotRow, slots.SlotKey})
_WITH_HOMES = (topic.Topic, topic_names.FormerName, shadow_source.ShadowSource)

_WITH_UNITS = frozenset({StateKind.ASSIGNMENT, StateKind.SHARD})
"""The kinds of states whose changes change how many units sessions and tenants have."""

_Sums = defaultdict[StateKind, dict[str, int]]
"""By kind of sum and key: by how much it changes."""

_COUNTED = frozenset(
    {
        *[route.kind for route in ROUTES.values() if route.total],
        StateKind.TOPIC_NAME,
        StateKind.FORMER_NAME,
    }
)
"""The kinds of objects whose number is kept. Rows that move count where they are stored."""


def slot_of(event: DomainEvent) -> int | None:
    """Return the slot of what ``event`` is about, None if that is the shard itself or a gate."""
    route = ROUTES[event.__class__]
    return slot_of_change(route.kind, route.key(event), getattr(event, "topic_id", ""))


def changes_of(event: DomainEvent) -> Iterator[tuple[StateKind, str, int | None]]:
    """Yield kind, key and slot of each state that ``event`` changes, but for rows that move."""
    topic_id = getattr(event, "topic_id", "")
    for route, key, _ in chain(_own_parts(event), () if _has_rows(event) else _parts(event)):
        yield route.kind, key, slot_of_change(route.kind, key, topic_id)


def evolve_all(events: Iterable[DomainEvent], load: LoadStates) -> States:
    """Return every state that ``events`` change, as it is after all of them.

    ``load`` is called at most twice per kind, with all keys at once, for what the events build on.
    """
    states: States = defaultdict(dict)
    wanted: dict[StateKind, set[str]] = defaultdict(set)
    routed = _routed(events, states, wanted)
    for kind, keys in wanted.items():
        states[kind].update(load(kind, keys))

    sums: _Sums = defaultdict(Counter)
    totals: Counter[StateKind] = Counter()
    moving: slots.SlotRanges | None = None
    for route, key, event in routed:
        known = states[route.kind]
        before: Any = known[key]
        if not route.is_row and route.kind not in _WITH_UNITS:
            # Nearly every event: it changes one state, and at most the number of its kind.
            known[key] = route.evolve(before, event)
            if route.total:
                totals[route.kind] += route.total
            continue
        if route.kind is StateKind.SHARD:
            moving = _moving_ranges(before, event)
        after: Any = route.evolve(before if route.of is None else known[route.of(event)], event)
        if event.__class__ in _ROWS and moving is not None and isinstance(before, _WITH_HOMES):
            after = _kept(route.kind, key, before, after, moving)
        known[key] = after
        if route.is_row:
            totals[route.kind] += (after is not None) - (before is not None)
        elif route.kind is StateKind.ASSIGNMENT:
            _count_units(sums, before, after)
        else:
            _count_moved_units(sums, before, event)
    if totals:
        sums[StateKind.TOTAL] = {of.value: totals[of] for of in totals if of in _COUNTED}
    _add_sums(states, sums, load)
    return states


def _routed(
    events: Iterable[DomainEvent], states: States, wanted: dict[StateKind, set[str]]
) -> list[tuple[Route, str, Any]]:
    """Return what changes a state, with its route and key, in order.

    Every key is noted in ``states``; in ``wanted``, the keys whose state has to be loaded.
    """
    routed: list[tuple[Route, str, Any]] = []
    for event in events:
        route = ROUTES[event.__class__]
        parts: Iterable[tuple[Route, str, Any]]
        if event.__class__ in _WITH_PARTS:
            parts = chain(_own_parts(event), _parts(event))
        elif route.also is not None:
            parts = _own_parts(event)
        else:
            parts = ((route, route.key(event), event),)
        for part in parts:
            route, key, _ = part
            known = states[route.kind]
            if key not in known:
                known[key] = None
                if not (route.is_birth or _is_first_assignment(event)):
                    wanted[route.kind].add(key)
            routed.append(part)
    return routed


def _own_parts(event: DomainEvent) -> Iterator[tuple[Route, str, Any]]:
    """Yield an event with each of its routes."""
    route: Route | None = ROUTES[event.__class__]
    while route is not None:
        yield route, route.key(event), event
        route = route.also


def _has_rows(event: DomainEvent) -> bool:
    return event.__class__ in _WITH_ROWS


def _parts(event: Any) -> Iterator[tuple[Route, str, Any]]:
    """Yield the parts of an event of which each changes a state of its own."""
    if _has_rows(event):
        for row in _moving_rows(event):
            yield _ROW_ROUTES[StateKind(row.kind)], row.key, row
    elif isinstance(event, topic_names.TopicRenamed):
        for name in event.dropped_names:
            yield _DROPPED, name, event
        for former in topic_names.former_names_of(event):
            yield _FORMER, former.name, former
    elif isinstance(event, topic.TopicDeleted):
        for name in event.former_names:
            yield _DROPPED, name, event


def _moving_rows(event: Any) -> Iterable[slots.SlotRow | slots.SlotKey]:
    rows: Iterable[slots.SlotRow | slots.SlotKey] = (
        event.rows if isinstance(event, slots.SlotRowsCopied) else event.keys
    )
    return rows


def _moving_ranges(before: shard.ShardSelf, event: DomainEvent) -> slots.SlotRanges | None:
    """Return the slots whose rows an event brings or removes, None if it does not."""
    if before is None or event.__class__ not in _WITH_ROWS:
        return None
    assert isinstance(event, slots.SlotRowsCopied | slots.SlotRowsRemoved)
    moves: tuple[slots.IncomingSlots | slots.OutgoingSlots, ...]
    moves = (*before.incoming, *before.outgoing)
    return next((each.ranges for each in moves if each.move_id == event.move_id), None)


def _kept(
    kind: StateKind, key: str, before: State, after: State | None, moving: slots.SlotRanges
) -> State | None:
    """Return what is under a key behind a row of moving slots: a state of other slots stays.

    A name that was one topic's may be another's by now, and rows that move tell of a time before.
    Of two former names the one counts that leads to its topic for longer.
    """
    slot = slot_of_state(kind, key, before)
    if slot is None or slots.has_slot(moving, slot):
        return after
    if isinstance(before, topic_names.FormerName) and isinstance(after, topic_names.FormerName):
        return max(before, after, key=lambda each: each.until_ms)
    return before


def _is_first_assignment(event: DomainEvent) -> bool:
    return isinstance(event, assignment.TopicAssigned) and event.epoch == 1


def _count_units(
    sums: _Sums,
    before: assignment.AssignmentState,
    after: assignment.AssignmentState,
) -> None:
    change = 0
    if before is not None and before.is_assigned:
        sums[StateKind.USAGE][before.session_id] -= 1
        change -= 1
    if after is not None and after.is_assigned:
        sums[StateKind.USAGE][after.session_id] += 1
        change += 1
    if change and after is not None:
        sums[StateKind.TENANT_USAGE][after.tenant] += change


def _count_moved_units(sums: _Sums, before: shard.ShardSelf, event: DomainEvent) -> None:
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
            sums[kind][each.of] += sign * each.units


def _add_sums(states: States, sums: _Sums, load: LoadStates) -> None:
    for kind, changes in sums.items():
        if not changes:
            continue
        present = load(kind, changes)
        for key, change in changes.items():
            present_sum = present.get(key) or 0
            assert isinstance(present_sum, int)
            total = present_sum + change
            assert total >= 0, f"{kind.value} of {key} fell to {total}"
            states[kind][key] = total or None
