"""The ``nextgen`` command. Each group of commands is a module that is loaded with it.

This module alone registers the harness's commands, if it is installed.

Modules that import gRPC do so inside the command: ``--help`` and completion stay fast.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from nextgen.cli.brokers import commands as broker_commands
from nextgen.cli.brokers import quota_commands, rebalance_command
from nextgen.cli.cluster import commands as cluster_commands
from nextgen.cli.cluster import node_commands
from nextgen.cli.console.output import print_line
from nextgen.cli.data import (
    bulk_commands,
    event_commands,
    export_commands,
    migration_commands,
    pipeline_commands,
    watch_commands,
)
from nextgen.cli.messages import commands as message_commands
from nextgen.cli.observability import audit_command, slo_command, trace_command
from nextgen.cli.shards import commands as shard_commands
from nextgen.cli.topics import (
    inventory_commands,
    lookup_commands,
    move_commands,
    placement_commands,
    policy_commands,
)
from nextgen.runtime.lifecycle.exit_code import run_program
from nextgen.runtime.security.cluster_proof import CLUSTER_ID_VARIABLE, SECRET_FILE_VARIABLE
from nextgen.runtime.telemetry.trace_export import version

app = typer.Typer(
    name="nextgen",
    help="Pulsar NextGen: a metadata and topic-ownership layer for Apache Pulsar.",
    epilog="Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no answer, 4 a check failed, "
    "70 broken, 78 cannot run like this.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print_line(f"nextgen {version()}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the release and end.", is_eager=True, callback=_show_version
        ),
    ] = False,
    cluster_secret_file: Annotated[
        Path | None,
        typer.Option(
            "--cluster-secret-file",
            envvar=SECRET_FILE_VARIABLE,
            help="File with the cluster secret, for commands that ask more than discovery. "
            "Default: that of the local cluster.",
            show_default=False,
        ),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id",
            envvar=CLUSTER_ID_VARIABLE,
            help="Whose secret that is: what its processes have as --cluster-id.",
            show_default=False,
        ),
    ] = None,
) -> None:
    # Where commands, and the processes that they start, look for them.
    if cluster_secret_file is not None:
        os.environ[SECRET_FILE_VARIABLE] = str(cluster_secret_file.absolute())
    if cluster_id is not None:
        os.environ[CLUSTER_ID_VARIABLE] = cluster_id


cluster_commands.register(app)
lookup_commands.register(app)
inventory_commands.register(app)
policy_commands.register(app)
placement_commands.register(app)
move_commands.register(app)
message_commands.register(app)
event_commands.register(app)
export_commands.register(app)
pipeline_commands.register(app)
bulk_commands.register(app)
migration_commands.register(app)
watch_commands.register(app)
node_commands.register(app)
broker_commands.register(app)
quota_commands.register(app)
rebalance_command.register(app)
shard_commands.register(app)
trace_command.register(app)
slo_command.register(app)
audit_command.register(app)
if importlib.util.find_spec("nextgen.harness") is not None:
    from nextgen.harness.commands import register as register_harness

    register_harness(app)


def main() -> None:
    """Run the command line."""
    # A terminal without UTF-8 gets escapes for what it cannot show.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    run_program(app)


if __name__ == "__main__":
    main()
