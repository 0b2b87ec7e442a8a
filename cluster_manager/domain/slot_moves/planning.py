"""Making plans: which slots change their owner for a split, a merge or another wish.

A plan is refused with the reason before anything is recorded. One that is accepted leaves every
slot with exactly one owner at each moment: slots change hands only by moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import assert_never

from cluster_manager.domain.capacity_ledger import CapacityLeaseReleased, Ledger
from cluster_manager.domain.shard_map import Placement, ShardChanged, ShardMap
from cluster_manager.domain.slot_moves.moves import SlotMoves
from cluster_manager.domain.slot_moves.plans import Plan, PlanChanged, PlanKind, Plans
from cluster_manager.domain.slot_moves.ranges import SlotRanges, mistake_in, slots_of
from cluster_manager.domain.zone_spread import ZoneSpread
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import DISK_RESERVE_BYTES, SHARDS_MAX
from nextgen.kernel.limits.placement import SLOT_ROW_BYTES
from nextgen.kernel.limits.write import OUTCOME_WINDOW_MS
from nextgen.kernel.routing.slots import SHARD_ID_MAX, SlotTable, preference_order, rebalanced

SHARD_REMOVED = "shard_removed"


@dataclass(frozen=True, slots=True)
class PlanSlots:
    """A wish. Which fields count depends on the kind:

    split         ``shard_id`` gives half of its slots to ``into_shard``; 0: to a new or unused one
    merge         ``shard_id`` gives all of its slots to ``into_shard``
    move_slots    ``ranges`` go to ``into_shard``; ``shard_id`` must have them, 0: whoever has them
    rebalance     every shard that is not retired gets as many slots as the others
    add_shards    ``shards`` new ones, without slots
    remove_shard  ``shard_id`` gives its slots to the others; without any it leaves the map
    """

    kind: PlanKind
    shard_id: int = 0
    into_shard: int = 0
    ranges: SlotRanges = ()
    shards: int = 0
    request_id: str = ""
    is_automatic: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What a plan depends on besides the map: ``node_ids`` are the nodes that may have replicas."""

    node_ids: AbstractSet[str]
    replication_factor: int
    now_ms: int
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zone of each node that has one."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """The rows of each shard that has reported them."""
    disk_free: Mapping[str, int] = field(default_factory=dict)
    """The bytes left on the disk of each node that has reported them."""


@dataclass(slots=True)
class _Draft:
    """The owners after the plan, and the shards that come and go."""

    owners: list[int]
    retired: set[int]
    added: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)


PlanEvent = PlanChanged | ShardChanged | CapacityLeaseReleased


def decide_plan(
    plans: Plans,
    moves: SlotMoves,
    shard_map: ShardMap | None,
    ledger: Ledger,
    command: PlanSlots,
    context: PlanContext,
) -> Accepted[PlanEvent] | Rejected:
    """Make a plan. The same request twice makes one plan."""
    if plans.of_request(command.request_id) is not None:
        return Accepted(())
    if shard_map is None:
        return Rejected(RejectionCode.NOT_ALLOWED, "the cluster has no shard map yet")
    present = plans.present
    if present is not None:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"plan {present.plan_id} ({present.kind}) is {present.phase}: wait for its end, or "
            "stop it",
        )
    # A move that was stopped may end later than its plan.
    busy = next(iter(moves.under_way), None)
    if busy is not None:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"move {busy.move_id} of shards {busy.from_shard} and {busy.to_shard} is not over",
        )
    draft = _draft(plans, moves, shard_map, command, context.now_ms)
    if isinstance(draft, Rejected):
        return draft
    refused = _refused(shard_map, draft, context)
    if refused is not None:
        return refused
    changes = _map_changed(shard_map, draft, context)
    refused = _without_room(shard_map, draft, changes, context)
    if refused is not None:
        return refused
    wanted = shard_map.table.runs_to(SlotTable(shard_map.version, tuple(draft.owners)))
    plan = Plan(
        plans.next_id,
        command.kind,
        wanted=wanted,
        added=tuple(draft.added),
        removed=tuple(draft.removed),
        retired=tuple(sorted(draft.retired)),
        last_shard_id=plans.next_shard_id((*shard_map.shard_ids, *draft.added)) - 1,
        is_automatic=command.is_automatic,
        request_id=command.request_id,
        reason=command.reason,
        began_at_ms=context.now_ms,
    )
    return Accepted(
        (
            *_leases_released(ledger, draft.removed),
            *changes,
            PlanChanged(plan),
        )
    )


def place_added(
    placements: Iterable[Placement],
    shard_ids: Sequence[int],
    context: PlanContext,
) -> tuple[Placement, ...]:
    """Return placements of new shards on the nodes that have the fewest replicas now.

    Each is spread over the zones as evenly as their nodes allow. The first replica is on that node
    of the shard which has the fewest first ones. Among equals the ring decides.
    """
    zone_of = {node: context.zones.get(node, "") for node in context.node_ids}
    spread = ZoneSpread.of(zone_of.values(), context.replication_factor)
    first_replicas: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for placement in placements:
        held.update(placement.named)
        first_replicas.update(placement.staying[:1])
    placed = []
    for shard_id in shard_ids:
        order = preference_order(f"shard-{shard_id}", tuple(context.node_ids))
        nodes: list[str] = []
        while len(nodes) < context.replication_factor:
            others = [node for node in order if node not in nodes]
            uneven = spread.with_one_more(zone_of[node] for node in nodes)
            nodes.append(min(others, key=lambda n: (uneven[zone_of[n]], held[n])))
        leader = min(nodes, key=lambda node: (first_replicas[node], held[node]))
        replicas = (leader, *(node for node in nodes if node != leader))
        first_replicas[leader] += 1
        held.update(replicas)
        placed.append(Placement(shard_id, replicas))
    return tuple(placed)


def _draft(
    plans: Plans, moves: SlotMoves, shard_map: ShardMap, command: PlanSlots, now_ms: int
) -> _Draft | Rejected:
    draft = _Draft(list(shard_map.table.owners), set(plans.retired))
    match command.kind:
        case PlanKind.SPLIT:
            return _split(draft, plans, shard_map, command)
        case PlanKind.MERGE:
            return _merge(draft, shard_map, command)
        case PlanKind.MOVE_SLOTS:
            return _move_slots(draft, shard_map, command)
        case PlanKind.REBALANCE:
            return _evened(draft, shard_map, set(shard_map.shard_ids) - draft.retired)
        case PlanKind.ADD_SHARDS:
            if command.shards < 1:
                return _not_allowed(f"{command.shards} new shards are none")
            _add(draft, plans, shard_map, min(command.shards, SHARDS_MAX + 1))
            return draft
        case PlanKind.REMOVE_SHARD:
            wait_ms = _asked_until_ms(plans, moves, command.shard_id) - now_ms
            return _remove(draft, shard_map, command, wait_ms)
    assert_never(command.kind)


def _split(
    draft: _Draft, plans: Plans, shard_map: ShardMap, command: PlanSlots
) -> _Draft | Rejected:
    source, target = command.shard_id, command.into_shard
    unknown = _unknown(shard_map, source, *([target] if target else []))
    if unknown is not None:
        return unknown
    slots = shard_map.table.slots_of(source)
    if len(slots) < 2:
        return _not_allowed(f"shard {source} has {len(slots)} slots: two are needed for a split")
    if source == target:
        return _not_allowed(f"shard {source} cannot be split into itself")
    if not target:
        unused = draft.retired - set(shard_map.table.shard_ids)
        target = min(unused) if unused else _add(draft, plans, shard_map, 1)
    _give(draft, slots[(len(slots) + 1) // 2 :], target)
    return draft


def _merge(draft: _Draft, shard_map: ShardMap, command: PlanSlots) -> _Draft | Rejected:
    source, target = command.shard_id, command.into_shard
    unknown = _unknown(shard_map, source, target)
    if unknown is not None:
        return unknown
    if source == target:
        return _not_allowed(f"shard {source} cannot be merged into itself")
    slots = shard_map.table.slots_of(source)
    if not slots:
        return _not_allowed(f"shard {source} has no slots: nothing is left to merge")
    _give(draft, slots, target)
    draft.retired.add(source)
    return draft


def _move_slots(draft: _Draft, shard_map: ShardMap, command: PlanSlots) -> _Draft | Rejected:
    source, target = command.shard_id, command.into_shard
    unknown = _unknown(shard_map, target, *([source] if source else []))
    if unknown is not None:
        return unknown
    mistake = mistake_in(command.ranges)
    if mistake:
        return _not_allowed(mistake)
    slots = tuple(slots_of(command.ranges))
    if source:
        foreign = next((slot for slot in slots if draft.owners[slot] != source), None)
        if foreign is not None:
            return _not_allowed(
                f"shard {source} cannot give slot {foreign}, shard {draft.owners[foreign]} has it"
            )
    if all(draft.owners[slot] == target for slot in slots):
        return _not_allowed(f"shard {target} has these slots already")
    _give(draft, slots, target)
    return draft


def _remove(
    draft: _Draft, shard_map: ShardMap, command: PlanSlots, wait_ms: int
) -> _Draft | Rejected:
    shard_id = command.shard_id
    unknown = _unknown(shard_map, shard_id)
    if unknown is not None:
        return unknown
    if not shard_map.table.slots_of(shard_id):
        if wait_ms > 0:
            return _not_allowed(
                f"retries of commands may still ask shard {shard_id} for first outcomes: try again "
                f"in {-(-wait_ms // 1_000)} s"
            )
        draft.removed.append(shard_id)
        draft.retired.discard(shard_id)
        return draft
    others = set(shard_map.shard_ids) - draft.retired - {shard_id}
    if not others:
        return _not_allowed(f"nobody would have the slots of shard {shard_id}: add another first")
    draft.retired.add(shard_id)
    return _evened(draft, shard_map, others)


def _asked_until_ms(plans: Plans, moves: SlotMoves, shard_id: int) -> int:
    """Return until when (Unix time) retries may ask a shard for what it decided."""
    gave = {move.plan_id for move in moves.moves.values() if move.from_shard == shard_id}
    ended = (plan.ended_at_ms for plan in plans.plans.values() if plan.plan_id in gave)
    return max(ended, default=0) + OUTCOME_WINDOW_MS


def _evened(draft: _Draft, shard_map: ShardMap, shard_ids: AbstractSet[int]) -> _Draft | Rejected:
    if not shard_ids:
        return _not_allowed("every shard is retired: give one of them slots first")
    # Retired shards with slots, of a merge that was stopped, give up the rest of them.
    draft.owners = list(rebalanced(shard_map.table, shard_ids).owners)
    return draft


def _add(draft: _Draft, plans: Plans, shard_map: ShardMap, count: int) -> int:
    """Add new shards; return the id of the first."""
    first = plans.next_shard_id(shard_map.shard_ids)
    draft.added.extend(range(first, first + count))
    return first


def _give(draft: _Draft, slots: Iterable[int], target: int) -> None:
    for slot in slots:
        draft.owners[slot] = target
    draft.retired.discard(target)


def _refused(shard_map: ShardMap, draft: _Draft, context: PlanContext) -> Rejected | None:
    if not draft.added:
        return None
    count = len(shard_map.placements) + len(draft.added)
    if count > SHARDS_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED, f"{count} shards, at most {SHARDS_MAX} are allowed"
        )
    if draft.added[-1] > SHARD_ID_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED, f"shard ids end at {SHARD_ID_MAX}: none is left"
        )
    if len(context.node_ids) < context.replication_factor:
        return _not_allowed(
            f"{len(context.node_ids)} shard nodes are there, a new shard needs "
            f"{context.replication_factor}: start more, or add them first"
        )
    return None


def _map_changed(
    shard_map: ShardMap, draft: _Draft, context: PlanContext
) -> tuple[ShardChanged, ...]:
    if not draft.added and not draft.removed:
        return ()
    placed = place_added(shard_map.placements, draft.added, context)
    change = ShardChanged(shard_map.version + 1, changed=placed, removed=tuple(draft.removed))
    return (change,)


def _without_room(
    shard_map: ShardMap, draft: _Draft, changes: Sequence[ShardChanged], context: PlanContext
) -> Rejected | None:
    """Refuse a plan that brings more rows to a node than fit on its disk, by estimate."""
    placed = {each.shard_id: each for each in shard_map.placements}
    placed.update((each.shard_id, each) for change in changes for each in change.changed)
    slots = Counter(shard_map.table.owners)
    brought: Counter[str] = Counter()
    moving = Counter(
        (source, target)
        for source, target in zip(shard_map.table.owners, draft.owners, strict=True)
        if source != target
    )
    for (source, target), count in moving.items():
        rows = context.rows.get(source, 0) * count // slots[source]
        for node_id in placed[target].named:
            brought[node_id] += rows * SLOT_ROW_BYTES
    for node_id, more in sorted(brought.items()):
        left = context.disk_free.get(node_id)
        if left is not None and more > max(0, left - DISK_RESERVE_BYTES):
            return _not_allowed(
                f"the plan brings some {more >> 20:,} MiB to {node_id}, which has "
                f"{left >> 20:,} MiB of its disk left"
            )
    return None


def _leases_released(ledger: Ledger, shard_ids: Sequence[int]) -> tuple[CapacityLeaseReleased, ...]:
    """A shard without slots has nothing assigned, so nobody uses what it has leased."""
    return tuple(
        CapacityLeaseReleased(broker_id, account.session_id, shard_id, SHARD_REMOVED)
        for broker_id, account in sorted(ledger.accounts.items())
        for shard_id in shard_ids
        if shard_id in account.leases
    )


def _unknown(shard_map: ShardMap, *shard_ids: int) -> Rejected | None:
    for shard_id in shard_ids:
        if shard_map.placement(shard_id) is None:
            return Rejected(
                RejectionCode.NOT_FOUND, f"there is no shard {shard_id} in the shard map"
            )
    return None


def _not_allowed(message: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, message)
