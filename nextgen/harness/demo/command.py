"""``demo``."""

from __future__ import annotations

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import JsonFlag
from nextgen.cli.console.output import print_json
from nextgen.runtime.lifecycle.exit_code import CheckFailed

RESULT_FIELDS = (
    "sent",
    "received",
    "received_at_shadows",
    "lost",
    "duplicated",
    "out_of_order",
    "max_publish_gap_ms",
    "leader_failovers",
    "redelivered",
    "in_flight_at_kill",
)
"""``sent`` is the number of acknowledged sends."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(json_output: JsonFlag = False) -> None:
    """Kill leaders and a broker under stock Pulsar clients: no acknowledged message is lost.

    Neither at the topics that they are sent to, nor at shadows of some of them.

    Starts a cluster of its own and ends within two minutes. The last line is JSON.
    """

    async def work() -> None:
        from nextgen.harness.demo.run import run_demo
        from nextgen.harness.load.pulsar.stock_client import load_pulsar

        load_pulsar()  # Before a cluster is started for it.
        result = await run_demo(is_quiet=json_output)
        print_json({name: result[name] for name in RESULT_FIELDS})
        if result["complaints"]:
            raise CheckFailed("; ".join(result["complaints"]))

    run_command(work())
