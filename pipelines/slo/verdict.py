"""The answer of the job in one sentence, and the worst minutes, each once. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def slo_verdict(numbers: Mapping[str, Any]) -> str:
    """Return whether the objective was met, and which months missed it."""
    if not numbers["minutes"]:
        return "SLO not judged: no minute has lookups"
    wanted = f"the objective is {numbers['objective_per_cent']:g} %"
    missed = [
        f"{month} had {one['availability_per_cent']:g} % good minutes"
        for month, one in numbers["months"].items()
        if not one["is_met"]
    ]
    if missed:
        return f"SLO missed: {'; '.join(missed)}; {wanted}"
    return f"SLO met: {numbers['availability_per_cent']:g} % of minutes were good, {wanted}"


def one_row_a_minute(rows: Iterable[Any]) -> list[tuple[Any, list[str]]]:
    """Return the worst row of each minute, in order, with the nodes that the minute was bad for.

    ``rows`` are those of ``worst_minutes``: of nodes, and with an empty ``node_id`` of the cluster.
    The cluster's row counts, where there is one.
    """
    chosen: dict[int, Any] = {}
    nodes: dict[int, list[str]] = {}
    for row in rows:
        minute = row["began_at_ms"]
        if row["node_id"]:
            nodes.setdefault(minute, []).append(row["node_id"])
        if minute not in chosen or not row["node_id"]:
            chosen[minute] = row
    return [(row, sorted(nodes.get(minute, []))) for minute, row in chosen.items()]
