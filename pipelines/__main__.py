"""``python -m pipelines JOB``: what ``nextgen pipeline JOB`` runs."""

from __future__ import annotations

import importlib
import sys
from functools import partial

import typer

from nextgen.runtime.lifecycle.exit_code import run_program

JOBS = (
    *("generate", "rebuild", "audit", "slo", "load", "quotas", "reshard", "bulk", "stream"),
    "backtest",
)
"""Each is a package with ``command.py``, whose ``register(app)`` adds the command."""


def main() -> None:
    """Run the job that the command line names."""
    app = typer.Typer(
        help="Spark jobs over the exported event log.",
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _group() -> None:
        """Spark jobs over the exported event log."""

    named = [job for job in sys.argv[1:2] if job in JOBS]
    for job in named or JOBS:
        # Import the requested job only: Spark and the plots take a second each.
        importlib.import_module(f"pipelines.{job}.command").register(app)
    run_program(partial(app, prog_name="nextgen pipeline"))


if __name__ == "__main__":
    main()
