"""``demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from nextgen.cli.exit_code import CheckFailed, run_command
from nextgen.cli.options import JsonFlag
from nextgen.cli.output import print_json

RESULT_FIELDS = (
    "created",
    "lookups",
    "wrong",
    "lost",
    "failed_after_retry",
    "max_gap_ms",
    "leader_failovers",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    topics: Annotated[int, typer.Option("--topics", min=800, help="How many to create.")] = 20_000,
    json_output: JsonFlag = False,
) -> None:
    """Kill leaders under load and prove that nothing was lost and nobody was told wrong.

    Starts a cluster of its own, ends within two minutes. The last line is JSON.
    """

    async def work() -> None:
        from nextgen.cli.demo.run import run_demo

        result = await run_demo(topics=topics, is_quiet=json_output)
        print_json({name: result[name] for name in RESULT_FIELDS})
        if not result["is_good"]:
            raise CheckFailed(
                f"{result['lost']} acknowledged topics are lost, "
                f"{result['wrong']} answers were wrong: {result['examples']}"
            )

    run_command(work())
