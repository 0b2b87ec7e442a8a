"""``pipeline``: Spark jobs over the exported event log, each in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from nextgen.cli.console.command_run import run_blocking
from nextgen.cli.console.install_hint import install_hint
from nextgen.cli.console.options import endpoints_of
from nextgen.cli.console.output import print_line
from nextgen.cli.console.own_cluster_checks import check_of
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error
from nextgen.runtime.security.cluster_proof import environment_of_child

LIBRARIES = ("pyspark", "pyarrow", "matplotlib", "jinja2")

app = typer.Typer(help="Spark jobs over the exported event log.", no_args_is_help=True)

Arguments = Annotated[
    list[str] | None, typer.Argument(help="See the job's --help.", show_default=False)
]

_HELP = frozenset({"--help", "-h"})
"""Work without the libraries, and without a cluster."""

_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}

SUMMARIES = {
    "generate": "Make a realistic history of a given size, for trying the others.",
    "rebuild": "Fold events into tenants, namespaces, topics, policies and assignments.",
    "audit": "Find gaps, overlaps, orphans and broken rules; exit code 4 if any.",
    "slo": "Availability, error budget and worst minutes from recorded lookups.",
    "load": "Load history: percentiles, growth, skew, forecast.",
    "quotas": "Capacity and assignment quotas from history, as a file to apply.",
    "reshard": "What moves when the number of shards changes, and how long it takes.",
    "bulk": "Turn an inventory of names into files that shards load in batches.",
    "stream": "Follow a growing export: counts, churn and load, continuously.",
    "backtest": "Splits and merges decided again over the recorded load, or by another policy.",
}


def register(parent: typer.Typer) -> None:
    """Add the group of commands."""
    for job, summary in SUMMARIES.items():
        app.command(job, help=summary, context_settings=_PASSED_ON)(_command_of(job))
    parent.add_typer(app, name="pipeline")


def run_pipeline(job: str, arguments: Sequence[str]) -> int:
    """Run a job with this process's terminal; return its exit code.

    A killed job has no exit code: it was interrupted, or is broken.

    Raises:
        RefusesToStart: The libraries of pipelines are not installed.
    """
    if _HELP.intersection(arguments) and _missing():
        print_line(f"pipeline {job}: {SUMMARIES[job]}")
        print_line("Its options are in docs/flows/pipelines.md; to run it:")
        print_line(install_hint("pipeline"))
        return ExitCode.DONE
    _check_libraries()
    target = _value_of("--target", arguments)
    if target is not None:
        # Finds the secret of the cluster there, which the job is given by its environment.
        endpoints_of(target, None)
    command = [sys.executable, "-m", "pipelines", job, *arguments]
    # A process group of its own would not get Ctrl-C; this child ends by the terminal's signal.
    with subprocess.Popen(command, env=environment_of_child(os.environ)) as process:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                continue
    if code >= 0:
        return code
    if code == -signal.SIGINT:
        return ExitCode.INTERRUPTED
    print_error(f"the job was killed by {signal.Signals(-code).name}")
    return ExitCode.BROKEN


def run_rebuild(arguments: Sequence[str]) -> int:
    """Run ``rebuild``; with verification but no target, on a cluster of its own.

    Raises:
        RefusesToStart: The libraries of pipelines, or the harness, are not installed.
    """
    has_target = _value_of("--target", arguments) is not None
    if "--verify" not in arguments or _HELP.intersection(arguments) or has_target:
        return run_pipeline("rebuild", arguments)
    _check_libraries()
    return int(check_of("pipeline rebuild --verify")(arguments))


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    """Return the flag's value: None without the flag, empty without a value."""
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else next(iter(arguments[number + 1 :]), "")
    return None


def _missing() -> list[str]:
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is None]


def _check_libraries() -> None:
    if missing := _missing():
        raise RefusesToStart(
            f"pipelines need {', '.join(missing)}, which are not installed: "
            f"{install_hint('pipeline')}"
        )


def _command_of(job: str) -> Callable[[list[str] | None], None]:
    def command(arguments: Arguments = None) -> None:
        run = run_rebuild if job == "rebuild" else partial(run_pipeline, job)
        code = run_blocking(lambda: run(arguments or ()))
        if code:
            raise typer.Exit(code)

    return command
