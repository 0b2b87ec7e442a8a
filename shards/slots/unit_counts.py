"""How many units of some slots a shard has assigned, to each session and of each tenant."""

from __future__ import annotations

from collections import Counter

from shards.domain.assignment import Assignment
from shards.domain.slots.events import CountedUnits, SlotRanges
from shards.domain.states import State, StateKind
from shards.projections.rows import Query, read_states, unpack_id
from shards.projections.tables import ASSIGNMENTS
from shards.slots.slot_scan import SlotScan
from shards.state.state_cache import StateCache

_PATH = "substr(name, instr(name, '://') + 3)"
_COUNT = (
    f"SELECT session_id, substr({_PATH}, 1, instr({_PATH}, '/') - 1) AS tenant, count(*) "
    f"FROM {ASSIGNMENTS.name} WHERE key >= ? AND key < ? AND session_id <> '' "
    "GROUP BY session_id, tenant"
)

Counted = tuple[CountedUnits, ...]


def count_units(
    query: Query, cache: StateCache, scan: SlotScan, ranges: SlotRanges
) -> tuple[Counted, Counted]:
    """Return the units by session and by tenant, each sorted; what is pending included."""
    sessions: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for first, last in ranges:
        for session_id, tenant, units in query(_COUNT, (f"{first:04x}", f"{last + 1:04x}")):
            sessions[unpack_id(session_id)] += units
            tenants[tenant] += units
    kind = StateKind.ASSIGNMENT
    pending = {key: state for key, state in cache.pending(kind) if scan.has(kind, key)}
    stored = read_states(query, kind, pending)
    for key, after in pending.items():
        _add(sessions, tenants, stored[key], -1)
        _add(sessions, tenants, after, 1)
    return _counted(sessions), _counted(tenants)


def _add(sessions: Counter[str], tenants: Counter[str], state: State | None, change: int) -> None:
    if isinstance(state, Assignment) and state.is_assigned:
        sessions[state.session_id] += change
        tenants[state.tenant] += change


def _counted(units: Counter[str]) -> Counted:
    assert all(count >= 0 for count in units.values()), f"fewer than no units: {units}"
    return tuple([CountedUnits(of, count) for of, count in sorted(units.items()) if count])
