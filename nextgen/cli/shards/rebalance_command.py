"""``shards replicas rebalance``: moves replicas to where they should be."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from nextgen.cli.calls.replica_plan import balance_replicas, described, replica_plan, sentence
from nextgen.cli.calls.settings_state import apply_changes
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest
from nextgen.kernel.governance.service_settings import REPLICAS_BALANCE
from protos.nextgen.v1.cluster_service_pb2 import ReplicaPlan

WAIT_MS_DEFAULT = 3_600_000
"""Default wait: with large shards every replica takes minutes, and four move at a time."""

PAUSE_MS = 1_000
"""Between two looks at the progress: as often as the cluster manager plans."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would move.")]
Stop = Annotated[
    bool,
    typer.Option("--stop", help="Begin no further move, and turn off that replicas move unasked."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return when it has begun.")]
TimeoutMs = Annotated[int, typer.Option("--timeout-ms", min=1_000, help="How long to wait.")]


def rebalance(
    dry_run: DryRun = False,
    stop: Stop = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Even out the replicas of shards over the shard nodes, and wait until that is done.

    It also replaces those of nodes that are drained, removed or lost. It happens by itself unless
    the setting shardReplicasBalanceEnabled is false; then this does it once.
    """

    async def work() -> None:
        if dry_run and stop:
            raise InvalidRequest("--dry-run changes nothing, --stop does: give one of them")
        endpoints = endpoints_of(target, data_dir)
        if dry_run:
            plan = await replica_plan(endpoints)
        elif stop:
            plan = await _stopped(endpoints)
        else:
            plan = await balance_replicas(endpoints, stop=False)
            if not no_wait:
                plan = await _wait_done(endpoints, timeout_ms, is_silent=json_output)
        if json_output:
            print_json(described(plan))
        else:
            _print(plan)

    run_command(work())


async def _stopped(endpoints: tuple[str, ...]) -> ReplicaPlan:
    plan = await balance_replicas(endpoints, stop=True)
    if plan.is_on:
        await apply_changes(endpoints, {REPLICAS_BALANCE: "false"})
        plan = await replica_plan(endpoints)
    return plan


async def _wait_done(
    endpoints: tuple[str, ...], timeout_ms: int, *, is_silent: bool
) -> ReplicaPlan:
    """Wait until nothing is left to move; show each step that was made meanwhile.

    Raises:
        DeadlineExceeded: The message says what is left, and what that waits for.
    """
    wait_until = asyncio.get_running_loop().time() + timeout_ms / 1_000
    shown = ""
    while True:
        plan = await replica_plan(endpoints)
        if not plan.moves and not plan.under_way:
            return plan
        progress = f"{len(plan.under_way)} under way, {len(plan.moves)} left"
        if progress != shown and not is_silent:
            print_line(progress)
            shown = progress
        if not plan.is_on and not plan.is_requested:
            return plan  # Stopped, or another leader of the cluster manager knows of no request.
        if asyncio.get_running_loop().time() >= wait_until:
            raise DeadlineExceeded(
                f"it goes on, but is not done after {timeout_ms} ms: {progress}, "
                f"waiting for {plan.waits_for or 'them'}"
            )
        await asyncio.sleep(PAUSE_MS / 1_000)


def _print(plan: ReplicaPlan) -> None:
    for heading, moves in (("under way", plan.under_way), ("to move", plan.moves)):
        for move in moves:
            print_line(f"{heading}: {sentence(move)}")
    if not plan.moves and not plan.under_way:
        print_line("every replica is where it should be")
    elif not plan.is_on and not plan.is_requested:
        print_line("nothing more begins: replicas do not move by themselves")
    elif plan.waits_for:
        print_line(f"waiting: {plan.waits_for}")
