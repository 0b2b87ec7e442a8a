"""The judging of a run: what the cluster says of itself, the export, and the history's verdict."""

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
from nextgen.harness.chaos.summary import RunTold
from nextgen.harness.history.check import check
from nextgen.harness.history.record_file import load_history
from nextgen.harness.history.report import write_report
from nextgen.kernel.errors import MetadataError

Notice = Callable[[str], None]


async def judge_cluster(
    told: RunTold, load: ChaosLoad, plan: LoadPlan, notice: Notice, *, is_exported: bool
) -> None:
    """Ask a cluster that is well for everything that its history is compared with.

    What it does not answer is a complaint, and the rest is asked for nevertheless.
    """
    steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
        ("reading all messages again", lambda: load.drain(told.load)),
        ("reading the logs", lambda: _log(told, load, plan)),
        ("comparing replicas", lambda: _views(told, plan)),
        *([("exporting", lambda: _export(told, plan))] if is_exported else []),
    )
    for name, step in steps:
        notice(name)
        try:
            await step()
        except MetadataError as error:
            told.complaints.append(f"{name}: {error}")


async def judge(history_dir: Path) -> Verdict:
    """Return what the history says, of everything recorded in the directory."""
    return await asyncio.to_thread(lambda: check(load_history(history_dir)))


async def draw(history_dir: Path, verdict: Verdict, path: Path) -> None:
    """Write the timeline of a run that failed."""
    await asyncio.to_thread(lambda: write_report(path, load_history(history_dir), verdict))


async def _log(told: RunTold, load: ChaosLoad, plan: LoadPlan) -> None:
    positions = await committed_positions(plan.targets)
    await load.finish_watching(positions, told.load)
    gathered = await gather_log(plan.targets, plan.since, positions, plan.history_dir)
    told.events = gathered.events
    await gather_final(plan.targets, plan.tenant, plan.history_dir, gathered)


async def _views(told: RunTold, plan: LoadPlan) -> None:
    report = await gather_views(plan.targets, plan.history_dir)
    told.verify_differences = len(report.differences)
    told.complaints += report.differences


async def _export(told: RunTold, plan: LoadPlan) -> None:
    url = str(plan.run_dir / "export")
    summary = await run_export(plan.targets, url)
    told.exported_events = summary.events
    report = await check_export(url, endpoints=plan.targets)
    told.export_equals_log = report.ok and report.compared_with_log and summary.events > 0
    if not report.ok:
        told.complaints += [f"export: {sentence}" for sentence in report.findings]
