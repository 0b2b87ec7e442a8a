"""``slo``: how many recorded minutes of lookups met the objective."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.kernel.errors import PositionCompacted
from nextgen.kernel.governance.lookup_slo import (
    LOOKUP_WINDOW_MS,
    LookupWindow,
    merged_windows,
    once_each,
)
from nextgen.runtime.lifecycle.exit_code import CheckFailed

MINUTES_DEFAULT = 60
MINUTES_MAX = 45_000
"""A month, the period of the availability objective."""

_EVENT = "lookup_window_recorded"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(slo)


def slo(
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=MINUTES_MAX, help="How far to look back.")
    ] = MINUTES_DEFAULT,
    check: Annotated[
        bool, typer.Option("--check", help="Fail if a minute of any node was a bad one.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the minutes of lookups: p99 at most 1 s, none above 3 s, at most 1 % failed by us.

    A minute without lookups is neither good nor bad, and is not shown. A minute is here some
    seconds after its end.
    """

    async def work() -> Objective:
        since_ms = time.time_ns() // 1_000_000 - minutes * LOOKUP_WINDOW_MS
        nodes = endpoints_of(target, data_dir)
        return objective_of(await _windows(nodes), since_ms)

    found = run_command(work())
    if json_output:
        print_json(found.as_json())
    else:
        _show(found)
    if check and found.bad_nodes:

        async def fail() -> None:
            raise CheckFailed(found.sentence)

        run_command(fail())


@dataclass(frozen=True, slots=True)
class Objective:
    """The verdicts on the recorded windows by minute, of each node and of all together."""

    nodes: Mapping[str, Sequence[LookupWindow]]
    """By node id, each in order of time; a node's processes are summed."""

    cluster: Sequence[LookupWindow]

    @property
    def bad_nodes(self) -> list[LookupWindow]:
        return [each for windows in self.nodes.values() for each in windows if each.is_bad]

    @property
    def bad_minutes(self) -> int:
        return sum(window.is_bad for window in self.cluster)

    @property
    def availability_per_cent(self) -> float:
        """Return the share of good minutes among those with lookups; 100 without any."""
        if not self.cluster:
            return 100.0
        return 100 * (1 - self.bad_minutes / len(self.cluster))

    @property
    def sentence(self) -> str:
        bad = len(self.bad_nodes)
        return (
            f"{self.bad_minutes} of {len(self.cluster)} minutes were bad for the cluster "
            f"({self.availability_per_cent:.2f} % good), {bad} for a node"
        )

    def as_json(self) -> dict[str, object]:
        """Return the document that ``--json`` prints."""
        return {
            "minutes": [_as_json(each) for each in self.cluster],
            "nodes": {
                node_id: [_as_json(each) for each in windows]
                for node_id, windows in self.nodes.items()
            },
            "bad_minutes": self.bad_minutes,
            "bad_minutes_of_nodes": len(self.bad_nodes),
            "availability_per_cent": round(self.availability_per_cent, 4),
        }


def objective_of(windows: Iterable[LookupWindow], since_ms: int) -> Objective:
    """Return the sums of those windows that began at ``since_ms`` or later.

    ``windows`` are in the log's order; of several for one minute of a process the first counts.
    """
    recent = sorted(
        (each for each in once_each(windows) if each.began_at_ms >= since_ms),
        key=lambda each: each.node_id,
    )
    nodes = {
        node_id: tuple(merged_windows(of_node, node_id).values())
        for node_id, of_node in groupby(recent, key=lambda each: each.node_id)
    }
    return Objective(nodes, tuple(merged_windows(recent).values()))


async def _windows(nodes: Sequence[str]) -> list[LookupWindow]:
    """Read the recorded windows from the cluster manager's log.

    Raises:
        MetadataError: It cannot be read.
    """
    try:
        return await _windows_from(nodes, 1)
    except PositionCompacted as error:
        return await _windows_from(nodes, error.oldest)


async def _windows_from(nodes: Sequence[str], position: int) -> list[LookupWindow]:
    from nextgen.client.log.reader import read_events
    from nextgen.client.wire.lookup_windows import window_from_proto
    from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID

    reading = read_events(nodes, CLUSTER_MANAGER_GROUP_ID, position, types=[_EVENT])
    async with aclosing(reading) as events:
        return [window_from_proto(event.lookup_window_recorded) async for event in events]


def _show(found: Objective) -> None:
    rows = [
        (
            _minute(window.began_at_ms),
            window.node_id,
            window.lookups,
            window.errors,
            _bound(window.quantile_ms(50)),
            _bound(window.quantile_ms(99)),
            window.why_bad or "good",
        )
        for windows in found.nodes.values()
        for window in windows
    ]
    columns = ("minute (UTC)", "node", "lookups", "failed", "p50", "p99", "")
    print_table("Lookups, minute by minute", columns, sorted(rows), extra=("p50",))
    print_line(found.sentence)


def _minute(began_at_ms: int) -> str:
    return datetime.fromtimestamp(began_at_ms / 1_000, tz=UTC).strftime("%Y-%m-%d %H:%M")


def _bound(quantile_ms: float) -> str:
    return "> 3,000 ms" if quantile_ms == float("inf") else f"<= {quantile_ms:,.0f} ms"


def _as_json(window: LookupWindow) -> dict[str, object]:
    p99_ms = window.quantile_ms(99)
    return {
        "began_at_ms": window.began_at_ms,
        "lookups": window.lookups,
        "errors": window.errors,
        "too_slow": window.too_slow,
        "latency_counts": list(window.latency_counts),
        "p99_ms_at_most": None if p99_ms == float("inf") else p99_ms,
        "is_bad": window.is_bad,
        "why_bad": window.why_bad,
    }
