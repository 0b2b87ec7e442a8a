"""``shards list|split|merge|move-slots|rebalance|add|remove|plans|stop``: which shard has what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import (
    as_dict,
    counted,
    plain_console,
    print_json,
    print_line,
    print_table,
)
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.input.printable import printable
from nextgen.kernel.limits.cluster import SLOT_COUNT

if TYPE_CHECKING:
    from nextgen.cli.shards.slot_plans import OnProgress
    from protos.nextgen.v1.cluster_service_pb2 import SlotPlan

WAIT_MS_DEFAULT = 3_600_000
"""An hour: a hundred moves of fifty thousand rows each."""

RANGES_SHOWN_MAX = 5
"""Ranges of slots in a line of a dry run; ``--json`` has all: the ring scatters a shard's slots."""

Shard = Annotated[int, typer.Argument(metavar="SHARD", min=1, help="Shard id.")]
Into = Annotated[int, typer.Argument(metavar="INTO", min=1, help="Shard that gets the slots.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return when the plan is recorded.")]
TimeoutMs = Annotated[
    int, typer.Option("--timeout-ms", min=1_000, help="How long to wait; it goes on after that.")
]


def register(group: typer.Typer) -> None:
    """Add the commands to the group of shards."""
    group.command("list")(list_shards)
    group.command("split")(split)
    group.command("merge")(merge)
    group.command("move-slots")(move_slots)
    group.command("rebalance")(rebalance)
    group.command("add")(add)
    group.command("remove")(remove)
    group.command("plans")(plans)
    group.command("stop")(stop)


def list_shards(
    target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False
) -> None:
    """Show the shards: their slots, their sizes as reported, their leaders and replicas."""

    async def work() -> None:
        from nextgen.cli.shards.slot_plans import get_plans

        shards = (await get_plans(endpoints_of(target, data_dir), plans_max=1)).shards
        if json_output:
            print_json({"shards": [as_dict(shard) for shard in shards]})
            return
        rows = [
            (
                shard.shard_id,
                shard.slots,
                shard.size.topics if shard.HasField("size") else "",
                shard.size.commands_per_second if shard.HasField("size") else "",
                shard.leader,
                ", ".join(shard.placement.replicas),
                "retired" if shard.is_retired else "",
            )
            for shard in shards
        ]
        columns = ("shard", "slots", "topics", "commands/s", "leader", "replicas", "")
        print_table("shards", columns, rows, extra=("replicas",))

    run_command(work())


def split(
    shard: Shard,
    into: Annotated[
        int, typer.Option("--into", min=0, help="Shard that gets them. Default: a new one.")
    ] = 0,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give half of a shard's slots to a new shard, or to another one. It serves meanwhile."""
    wish = {"kind": "split", "shard_id": shard, "into_shard": into, "dry_run": dry_run}
    _run(wish, no_wait, timeout_ms, target, data_dir, json_output)


def merge(
    shard: Shard,
    into: Into,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give all slots of a shard to another one.

    The empty shard is retired: it stays for the history in its log, until it is removed.
    """
    wish = {"kind": "merge", "shard_id": shard, "into_shard": into, "dry_run": dry_run}
    _run(wish, no_wait, timeout_ms, target, data_dir, json_output)


def move_slots(
    slots: Annotated[
        str, typer.Argument(metavar="SLOTS", help="Slots and ranges, such as 0-4095,9000.")
    ],
    into: Into,
    source: Annotated[
        int, typer.Option("--from", min=0, help="Shard that must have them. Default: any.")
    ] = 0,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Move slots to a shard from the shards that have them now."""

    async def work() -> None:
        wish = {
            "kind": "move_slots",
            "shard_id": source,
            "into_shard": into,
            "ranges": [{"first": first, "last": last} for first, last in parse_slots(slots)],
            "dry_run": dry_run,
        }
        await _carry_out(wish, no_wait, timeout_ms, target, data_dir, json_output)

    run_command(work())


def rebalance(
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give every shard the same number of slots, moving as few as possible.

    Retired shards get none. So after 'shards add' this fills the new ones.
    """
    _run(
        {"kind": "rebalance", "dry_run": dry_run},
        no_wait,
        timeout_ms,
        target,
        data_dir,
        json_output,
    )


def add(
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="How many.")] = 1,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Add shards without slots, on the nodes that have the fewest replicas."""
    _run(
        {"kind": "add_shards", "shards": count, "dry_run": dry_run},
        no_wait,
        timeout_ms,
        target,
        data_dir,
        json_output,
    )


def remove(
    shard: Shard,
    force: Annotated[
        bool, typer.Option("--force", help="Though named readers of its log may not be done.")
    ] = False,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Retire a shard that has slots, or take one without slots out of the cluster.

    A shard with slots gives them to the others, evenly, and stays: its log has history. Repeat the
    command when whoever reads that log, such as an export, is at its end. Nodes then move what they
    have of the shard aside.
    """

    async def work() -> None:
        from nextgen.cli.shards.slot_plans import check_no_readers

        if not force and not dry_run:
            await check_no_readers(endpoints_of(target, data_dir), shard)
        wish = {"kind": "remove_shard", "shard_id": shard, "dry_run": dry_run}
        await _carry_out(wish, no_wait, timeout_ms, target, data_dir, json_output)

    run_command(work())


def plans(target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False) -> None:
    """Show the last plans, the newest first, and how far they are."""

    async def work() -> None:
        from nextgen.cli.shards.slot_plans import get_plans

        gathered = (await get_plans(endpoints_of(target, data_dir))).plans
        if json_output:
            print_json({"plans": [as_dict(plan) for plan in gathered]})
            return
        rows = [
            (
                plan.plan.plan_id,
                plan.plan.kind.replace("_", " "),
                plan.plan.phase,
                plan.slots - plan.slots_left if plan.plan.phase != "done" else plan.slots,
                plan.slots,
                sum(1 for move in plan.moves if move.move.phase != "taken_back"),
                plan.waits_for or plan.plan.reason,
            )
            for plan in gathered
        ]
        columns = ("plan", "kind", "phase", "slots moved", "of", "moves under way", "why")
        print_table("plans", columns, rows)

    run_command(work())


def stop(
    plan: Annotated[
        int, typer.Argument(metavar="PLAN", min=0, help="Default: the one under way.")
    ] = 0,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Stop a plan: nothing further moves, and what has moved stays.

    A move under way is taken back, unless the other shard has adopted the slots already.
    """

    async def work() -> None:
        from nextgen.cli.shards.slot_plans import stop_plan

        stopped = await stop_plan(endpoints_of(target, data_dir), plan)
        if json_output:
            print_json(as_dict(stopped))
        else:
            print_line(
                f"plan {stopped.plan.plan_id} is {stopped.plan.phase}, "
                f"{counted(stopped.slots_left, 'slot')} left where they are"
            )

    run_command(work())


def parse_slots(given: str) -> list[tuple[int, int]]:
    """Return the ranges in ``0-4095,9000``, ascending.

    Raises:
        InvalidRequest: It is malformed, or names a slot twice or one that does not exist.
    """
    ranges = []
    for part in given.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < SLOT_COUNT):
            raise InvalidRequest(
                f"{part.strip()!r} is neither a slot nor a range: they are 0 to {SLOT_COUNT - 1}, "
                "such as 0-4095,9000"
            )
        ranges.append((int(first), int(last)))
    ranges.sort()
    for before, after in pairwise(ranges):
        if after[0] <= before[1]:
            raise InvalidRequest(f"slot {after[0]} is named twice")
    return ranges


def _run(
    wish: dict[str, Any],
    no_wait: bool,
    timeout_ms: int,
    target: str | None,
    data_dir: Path | None,
    json_output: bool,
) -> None:
    run_command(_carry_out(wish, no_wait, timeout_ms, target, data_dir, json_output))


async def _carry_out(
    wish: dict[str, Any],
    no_wait: bool,
    timeout_ms: int,
    target: str | None,
    data_dir: Path | None,
    json_output: bool,
) -> None:
    from nextgen.cli.shards.slot_plans import follow, plan_slots
    from protos.nextgen.v1.cluster_service_pb2 import PlanSlotsRequest

    endpoints = endpoints_of(target, data_dir)
    plan = await plan_slots(endpoints, PlanSlotsRequest(**wish))
    if wish["dry_run"]:
        _show_plan(plan, json_output)
        return
    if not no_wait:
        with _shown_progress(plan.slots, is_shown=not json_output) as on_progress:
            plan = await follow(endpoints, plan.plan.plan_id, timeout_ms, on_progress)
    if json_output:
        print_json(as_dict(plan))
    else:
        print_line(_sentence(plan))


def _show_plan(plan: SlotPlan, json_output: bool) -> None:
    if json_output:
        print_json(as_dict(plan))
        return
    for placement in plan.added:
        print_line(f"shard {placement.shard_id} would be new, on {', '.join(placement.replicas)}")
    for shard_id in plan.plan.removed:
        print_line(f"shard {shard_id} would leave the cluster")
    wanted: dict[int, list[str]] = {}
    counts: Counter[int] = Counter()
    for run in plan.plan.wanted:
        counts[run.shard_id] += run.last + 1 - run.first
        shown = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
        wanted.setdefault(run.shard_id, []).append(shown)
    rows = [
        (shard_id, counts[shard_id], _shortened(ranges))
        for shard_id, ranges in sorted(wanted.items())
    ]
    print_table(
        f"{counted(plan.slots, 'slot')} in {counted(plan.moves_left, 'move')}, "
        f"about {counted(plan.rows_left, 'row')}",
        ("to shard", "slots", "which"),
        rows,
    )


def _shortened(ranges: Sequence[str]) -> str:
    shown = ", ".join(ranges[:RANGES_SHOWN_MAX])
    return shown if len(ranges) <= RANGES_SHOWN_MAX else f"{shown}, … {len(ranges)} ranges"


def _sentence(plan: SlotPlan) -> str:
    recorded = plan.plan
    what = f"plan {recorded.plan_id} ({recorded.kind.replace('_', ' ')}) is {recorded.phase}"
    if recorded.phase == "done":
        what += f", {counted(plan.slots, 'slot')} moved, map {plan.shard_map_version}"
    else:
        what += f", {counted(plan.slots_left, 'slot')} left"
    for name, shard_ids in (("new", recorded.added), ("removed", recorded.removed)):
        if shard_ids:
            what += f", {name}: shard {', '.join(map(str, shard_ids))}"
    return what


@contextmanager
def _shown_progress(slots: int, *, is_shown: bool) -> Iterator[OnProgress]:
    """Yield a function that shows progress as a bar on stderr, or does nothing."""
    if not is_shown:
        yield lambda _plan: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    with Progress(*columns, console=plain_console(stderr=True), transient=True) as bars:
        task = bars.add_task("slots", total=slots)

        def show(plan: SlotPlan) -> None:
            copied = sum(move.rows_copied for move in plan.moves)
            more = plan.waits_for or (f"{counted(copied, 'row')} copied" if plan.moves else "")
            bars.update(
                task,
                description=printable(f"slots {more}".strip()),
                completed=plan.slots - plan.slots_left,
            )

        yield show
