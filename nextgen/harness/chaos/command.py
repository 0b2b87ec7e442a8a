"""``chaos``: load, faults on purpose, and a verdict by the history."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, data_dir_of, endpoints_of
from nextgen.cli.console.output import print_json
from nextgen.kernel.errors import RefusesToStart, Unavailable
from nextgen.runtime.lifecycle.exit_code import CheckFailed, print_error

if TYPE_CHECKING:
    from nextgen.harness.chaos.run import ChaosOptions
    from nextgen.harness.chaos.schedule import FaultKind

SEEDS_MAX = 2**63 - 1
MINUTES_MAX = 7 * 24 * 60
"""A week. The history of an hour is some hundred megabytes."""

RATE_DEFAULT = 80
RATE_MAX = 5_000
SENTENCES_TOLD = 5
_TERMINATED = "a signal ended the run; nothing was judged"

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(chaos)


def chaos(
    minutes: Annotated[
        float, typer.Option("--minutes", min=1, max=MINUTES_MAX, help="Minutes under load.")
    ] = 3,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=SEEDS_MAX, help="The same seed, the same faults.")
    ] = 1,
    schedule: Annotated[
        Path | None,
        typer.Option("--schedule", help="Faults of an earlier run: its schedule.json."),
    ] = None,
    rate: Annotated[
        int, typer.Option("--rate", min=1, max=RATE_MAX, help="Operations per second.")
    ] = RATE_DEFAULT,
    # No environment variable for it: a variable left in a shell must not break a cluster.
    target: Annotated[
        str | None,
        typer.Option("--target", help="host:port of discovery nodes of your own cluster."),
    ] = None,
    service_url: Annotated[
        str, typer.Option("--service-url", help="With --target: where Pulsar clients connect.")
    ] = "",
    faults: Annotated[
        Path | None,
        typer.Option("--faults", help="With --target: commands that break and mend a node."),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="With --target: export its whole log too.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the nodes' data even after a successful run.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A kind of faults; no others are made.")
    ] = None,
    allow_missing_faults: Annotated[
        bool, typer.Option("--allow-missing-faults", help="Accept faults that are impossible here.")
    ] = False,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Break a cluster under load and prove by its history that it kept its promises.

    Without --target it starts a cluster of its own. Exit code 4 if a promise was broken, or if
    there was too little traffic or too few faults for the run to prove anything. Then the run's
    whole directory is kept, with an HTML timeline. The last line with --json is the result.
    """

    async def work() -> None:
        from nextgen.harness.chaos.run import ChaosRun
        from nextgen.harness.chaos.summary import as_json, print_summary

        options = _options(
            minutes, seed, schedule, rate, target, service_url, faults, export, keep, data_dir
        )
        options = replace(options, allows_missing_faults=allow_missing_faults, only=_kinds(only))
        run = ChaosRun(options, print_error)
        print_summary(report := await _unless_terminated(run.run()))
        is_good = report.is_ok and report.is_valid
        result = as_json(report) | {"run_dir": str(run.run_dir), "replay": run.replay_command}
        run.tidy(result)
        if not is_good:
            print_error(f"everything is kept in {run.run_dir}; again: {run.replay_command}")
        if json_output:
            print_json(result)
        if not is_good:
            said = [*report.invalid, *report.complaints][:SENTENCES_TOLD]
            raise CheckFailed("; ".join(said) or "a promise was broken, see the table")

    run_command(work())


async def _unless_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``. SIGTERM cancels it, and it undoes its faults.

    Raises:
        Unavailable: SIGTERM ended it.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel, _TERMINATED)
    try:
        return await task
    except asyncio.CancelledError as cancelled:
        if _TERMINATED in cancelled.args:
            raise Unavailable(_TERMINATED) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _kinds(names: Sequence[str] | None) -> frozenset[FaultKind]:
    from nextgen.harness.chaos.schedule import FaultKind

    known = [str(kind) for kind in FaultKind]
    for name in names or ():
        if name not in known:
            raise RefusesToStart(f"--only {name} is none of {', '.join(known)}")
    return frozenset(map(FaultKind, names or ()))


def _options(
    minutes: float,
    seed: int,
    schedule: Path | None,
    rate: int,
    target: str | None,
    service_url: str,
    faults: Path | None,
    export: bool,
    keep: bool,
    data_dir: Path | None,
) -> ChaosOptions:
    from nextgen.harness.chaos.faults.hooks import load_hooks
    from nextgen.harness.chaos.run import ChaosOptions
    from nextgen.harness.chaos.schedule import Schedule

    if not target and (faults or service_url or export):
        raise RefusesToStart("--faults, --service-url and --export are about a --target")
    replayed = Schedule.load(schedule) if schedule is not None else None
    return ChaosOptions(
        data_dir=data_dir_of(data_dir),
        minutes=replayed.minutes if replayed else minutes,
        seed=replayed.seed if replayed else seed,
        operations_per_second=rate,
        schedule=replayed,
        targets=endpoints_of(target, None) if target else (),
        service_url=service_url,
        hooks=load_hooks(faults) if faults is not None else None,
        is_exported=export or not target,
        keep=keep,
    )
