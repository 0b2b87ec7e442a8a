"""``pipeline backtest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from pipelines.running.options import (
    DEFAULT_HEAP,
    DEFAULT_MASTER,
    ExportArgument,
    HeapOption,
    JsonFlag,
    MasterOption,
    OutOption,
    ReportOption,
    run_job,
)
from pipelines.running.summary import Summary

OUT_DEFAULT = Path("backtest")

_MS = 1_000
_SECONDS_MAX = 7 * 24 * 3_600


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(backtest)


def backtest(
    export: ExportArgument,
    out: OutOption = OUT_DEFAULT,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help="Also tell what another policy would have done: a JSON file with fields by "
            "Pulsar's names, and under 'namespaces' those of namespaces.",
        ),
    ] = None,
    slack_s: Annotated[
        float,
        typer.Option(
            "--slack-s", min=0, max=_SECONDS_MAX, help="How late a recorded action may be."
        ),
    ] = 90.0,
    operation_s: Annotated[
        float,
        typer.Option(
            "--operation-s",
            min=0.001,
            max=_SECONDS_MAX,
            help="How long an operation takes in a simulated scenario.",
        ),
    ] = 0.5,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Decide again about the splits and merges that scalable topics did by themselves.

    Each recorded action must be what the decision gives for the loads, consumers, policies and
    clocks in the log. With --policy, the same loads under another policy, too.
    """
    from pipelines.backtest.job import JOB, run
    from pipelines.backtest.model import Question
    from pipelines.backtest.policy_file import read_policy
    from pipelines.scaling.scaled_topic import Durations

    def work(spark: SparkSession) -> Summary:
        changed = None if policy is None else read_policy(policy)
        durations = Durations(operation_ms=round(operation_s * _MS))
        question = Question(changed, round(slack_s * _MS), durations)
        return run(spark, export, out, question, report=report)

    run_job(JOB, work, master=master, heap=heap, as_json=json_output)
