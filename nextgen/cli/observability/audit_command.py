"""``audit``: no two brokers acknowledge messages of one topic at the same time, watched live."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line
from nextgen.runtime.lifecycle.exit_code import CheckFailed

if TYPE_CHECKING:
    from nextgen.cli.observability.audit_run import Auditor

ONCE_S = 5.0
"""Duration without ``--follow``: every broker reports all its intervals in this time."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until interrupted.")
    ] = False,
    for_s: Annotated[
        float | None, typer.Option("--for-s", min=1, help="End after so many seconds.")
    ] = None,
    skew_ms: Annotated[
        float,
        typer.Option(
            "--skew-ms", min=0, help="By how much brokers' clocks differ; 0: one machine."
        ),
    ] = 0.0,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Compare brokers' acknowledgements with each other and with the logs; exit 4 on an overlap.

    Every broker reports the intervals in which it acknowledged messages, by topic and epoch.
    Intervals of two epochs of one topic must not overlap, and each epoch must be in the log of the
    topic's shard. The last second of a killed broker is not reported.
    """

    async def work() -> None:
        from nextgen.audit.interval_check import IntervalAudit
        from nextgen.cli.observability.audit_run import Auditor

        intervals = IntervalAudit(tolerance_ns=int(skew_ms * 1_000_000))
        auditor = Auditor(endpoints_of(target, data_dir), intervals)
        duration_s = for_s if follow or for_s is not None else ONCE_S
        try:
            await auditor.run(duration_s)
        finally:
            _show(auditor, json_output=json_output)
        if auditor.findings:
            raise CheckFailed(auditor.findings[0].message)

    run_command(work())


def _show(auditor: Auditor, *, json_output: bool) -> None:
    found = auditor.audit
    if json_output:
        print_json(
            {
                "findings": [asdict(finding) for finding in auditor.findings],
                "units": found.units,
                "intervals": found.intervals,
                "assignments": found.grants,
                "unjudged": found.unjudged,
                "unknown": found.unknown,
                "has_whole_log": found.has_whole_log,
                "positions": dict(sorted(auditor.positions.items())),
                "brokers": sorted(auditor.reached),
                "unreached": dict(sorted(auditor.unreached.items())),
            }
        )
        return
    lines = [f"{finding.kind}: {finding.message}" for finding in auditor.findings]
    lines.append(
        f"{len(auditor.reached)} brokers, {len(auditor.positions)} shards: {found.units} units, "
        f"{found.grants} assignments, {found.intervals} reports of intervals, "
        f"{len(auditor.findings)} findings"
    )
    if found.unjudged:
        lines.append(f"{found.unjudged} epochs are older than what is left or remembered of logs")
    lines += [f"broker {name} was not reached: {why}" for name, why in auditor.unreached.items()]
    for line in lines:
        print_line(line)
