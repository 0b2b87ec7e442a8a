"""When the replicas of a cluster are at rest, and whether their views agree then."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import text

from nextgen.tasks.timeouts import timeout
from tests.support.cluster_simulation.simulation import ClusterSimulation


def is_settled(simulation: ClusterSimulation) -> bool:
    """Return whether every replica is there, led, and at the end of its log."""
    ends: dict[int, set[tuple[int, int]]] = {}
    leaders: dict[int, int] = {}
    replicas = 0
    placements = simulation.invariants.placements.values()
    if any(placement.joining or placement.leaving for placement in placements):
        return False
    for node in simulation.nodes.values():
        for log in simulation.logs_of(node):
            status = log.status
            replicas += 1
            ends.setdefault(status.group_id, set()).add((status.last_index, status.applied.index))
            leaders[status.group_id] = leaders.get(status.group_id, 0) + log.is_leader
    expected = simulation.plan.managers + sum(len(each.replicas) for each in placements)
    return (
        replicas == expected
        and all(len(each) == 1 for each in ends.values())
        and all(each[0] == each[1] for group in ends.values() for each in group)
        and all(count == 1 for count in leaders.values())
    )


def check_views(simulation: ClusterSimulation) -> None:
    """ReplicasAgree: every table of every replica of a group has the same rows."""
    first: dict[int, tuple[str, dict[str, list[str]]]] = {}
    for node in simulation.nodes.values():
        if node.machine is None:
            continue
        for group_id, store in node.machine.open_views():
            rows = _rows(store)
            name, known = first.setdefault(group_id, (node.name, rows))
            for table in sorted({*rows, *known}):
                if rows.get(table) != known.get(table):
                    simulation.violate(
                        f"group {group_id}: {table} of {node.name} differs from {name}'s"
                    )


def _rows(store: Any) -> dict[str, list[str]]:
    with store.read_transaction() as connection:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type='table'"))
        return {
            name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}"))))
            for (name,) in names.all()
        }


async def wait_unchanging(simulation: ClusterSimulation, within_s: float) -> None:
    """Wait until no change of a layout is under way, which takes a bounded time."""
    changing = simulation.invariants.changing
    try:
        async with timeout(within_s):
            while changing:
                await asyncio.sleep(0.5)
    except TimeoutError:
        few = [each.name for each in changing.values()][:4]
        simulation.violate(f"changes of {few} have not ended {within_s} s after the last fault")
