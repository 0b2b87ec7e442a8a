"""The verdict on a run: gathers the cluster's final state and an export, and checks the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from nextgen.audit.verdict import Verdict
from nextgen.export.checking.check import check_export
from nextgen.export.writing.run import run_export
from nextgen.harness.chaos.gather import (
    committed_positions,
    gather_final,
    gather_log,
    gather_views,
)
from nextgen.harness.chaos.load import ChaosLoad, LoadPlan
from nextgen.harness.chaos.summary import RunReport
from nextgen.harness.history.check import check
from nextgen.harness.history.record_file import load_history
from nextgen.harness.history.report import write_report
from nextgen.kernel.errors import MetadataError

Notice = Callable[[str], None]


async def judge_cluster(
    run_report: RunReport, load: ChaosLoad, plan: LoadPlan, notice: Notice, *, is_exported: bool
) -> None:
    """Read from a recovered cluster everything that its history is compared with.

    A read that fails becomes a complaint, and the others are still made.
    """
    steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
        ("reading all messages again", lambda: load.drain(run_report.load)),
        ("reading the logs", lambda: _log(run_report, load, plan)),
        ("comparing replicas", lambda: _views(run_report, plan)),
        *([("exporting", lambda: _export(run_report, plan))] if is_exported else []),
    )
    for name, step in steps:
        notice(name)
        try:
            await step()
        except MetadataError as error:
            run_report.complaints.append(f"{name}: {error}")


async def judge(history_dir: Path) -> Verdict:
    """Return the verdict on the history that is recorded in the directory."""
    return await asyncio.to_thread(lambda: check(load_history(history_dir)))


async def draw(history_dir: Path, verdict: Verdict, path: Path) -> None:
    """Write the timeline of a failed run."""
    await asyncio.to_thread(lambda: write_report(path, load_history(history_dir), verdict))


async def _log(run_report: RunReport, load: ChaosLoad, plan: LoadPlan) -> None:
    positions = await committed_positions(plan.targets)
    await load.finish_watching(positions, run_report.load)
    gathered = await gather_log(plan.targets, plan.since, positions, plan.history_dir)
    run_report.events = gathered.events
    await gather_final(plan.targets, plan.tenant, plan.history_dir, gathered)


async def _views(run_report: RunReport, plan: LoadPlan) -> None:
    report = await gather_views(plan.targets, plan.history_dir)
    run_report.verify_differences = len(report.differences)
    run_report.complaints += report.differences


async def _export(run_report: RunReport, plan: LoadPlan) -> None:
    url = str(plan.run_dir / "export")
    summary = await run_export(plan.targets, url)
    run_report.exported_events = summary.events
    report = await check_export(url, endpoints=plan.targets)
    run_report.export_equals_log = report.ok and report.compared_with_log and summary.events > 0
    if not report.ok:
        run_report.complaints += [f"export: {sentence}" for sentence in report.findings]
