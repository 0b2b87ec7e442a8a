"""The ``nextgen`` command. Each group of commands is a module that registers it.

A run imports the modules of the command that it names, and all of them for help and completion:
a command answers sooner without the others'. This module alone names those of the harness, if it
is installed. Modules that import gRPC do so inside the command.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from nextgen.cli.console.output import print_line
from nextgen.runtime.lifecycle.exit_code import run_program
from nextgen.runtime.security.client_token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from nextgen.runtime.security.cluster_proof import CLUSTER_ID_VARIABLE, SECRET_FILE_VARIABLE

if TYPE_CHECKING:
    app: typer.Typer

PLAIN_HELP_COLUMNS_MAX = 60
"""Up to this width help has no frames: they would cut the names of options."""

_OPTIONS_WITH_VALUE = frozenset(
    {"--cluster-secret-file", "--cluster-id", "--token", "--token-file"}
)


def _cluster() -> Sequence[ModuleType]:
    from nextgen.cli.cluster import commands

    return (commands,)


def _lookup() -> Sequence[ModuleType]:
    from nextgen.cli.topics import lookup_commands

    return (lookup_commands,)


def _topics() -> Sequence[ModuleType]:
    from nextgen.cli.topics import (
        inventory_commands,
        move_commands,
        parent_rename_commands,
        placement_commands,
        rename_command,
        shadow_commands,
        watch_command,
    )

    return (
        inventory_commands,
        placement_commands,
        move_commands,
        rename_command,
        parent_rename_commands,
        shadow_commands,
        watch_command,
    )


def _scalable() -> Sequence[ModuleType]:
    from nextgen.cli.scalable import commands

    return (commands,)


def _policies() -> Sequence[ModuleType]:
    from nextgen.cli.topics import permission_commands, policy_commands

    return policy_commands, permission_commands


def _messages() -> Sequence[ModuleType]:
    from nextgen.cli.messages import commands

    return (commands,)


def _events() -> Sequence[ModuleType]:
    from nextgen.cli.data import event_commands

    return (event_commands,)


def _export() -> Sequence[ModuleType]:
    from nextgen.cli.data import export_commands, migration_commands

    return export_commands, migration_commands


def _adopt() -> Sequence[ModuleType]:
    from nextgen.cli.data import adopt_commands

    return (adopt_commands,)


def _pipeline() -> Sequence[ModuleType]:
    from nextgen.cli.data import pipeline_commands

    return (pipeline_commands,)


def _bulk() -> Sequence[ModuleType]:
    from nextgen.cli.data import bulk_commands

    return (bulk_commands,)


def _backup() -> Sequence[ModuleType]:
    from nextgen.cli.data import backup_commands

    return (backup_commands,)


def _watch() -> Sequence[ModuleType]:
    from nextgen.cli.data import watch_commands

    return (watch_commands,)


def _nodes() -> Sequence[ModuleType]:
    from nextgen.cli.cluster import node_commands

    return (node_commands,)


def _brokers() -> Sequence[ModuleType]:
    from nextgen.cli.brokers import commands, quota_commands, rebalance_command

    return commands, quota_commands, rebalance_command


def _shards() -> Sequence[ModuleType]:
    from nextgen.cli.shards import commands

    return (commands,)


def _observability() -> Sequence[ModuleType]:
    from nextgen.cli.observability import audit_command, slo_command, trace_command

    return trace_command, slo_command, audit_command


def _security() -> Sequence[ModuleType]:
    from nextgen.cli.security import certs_commands, exclusion_command, token_commands

    return certs_commands, exclusion_command, token_commands


def _harness() -> Sequence[ModuleType]:
    if importlib.util.find_spec("nextgen.harness") is None:
        return ()
    from nextgen.harness import commands

    return (commands,)


_MODULES_OF: Sequence[tuple[Callable[[], Sequence[ModuleType]], frozenset[str]]] = (
    (_cluster, frozenset({"up", "down", "status"})),
    (_lookup, frozenset({"lookup", "move"})),
    (_topics, frozenset({"tenants", "namespaces", "topics"})),
    (_scalable, frozenset({"scalable-topics"})),
    (_policies, frozenset({"policies", "permissions"})),
    (_messages, frozenset({"produce", "consume", "read"})),
    (_events, frozenset({"events"})),
    (_export, frozenset({"export", "import"})),
    (_adopt, frozenset({"adopt"})),
    (_pipeline, frozenset({"pipeline"})),
    (_bulk, frozenset({"bulk"})),
    (_backup, frozenset({"backup", "restore"})),
    (_watch, frozenset({"watch"})),
    (_nodes, frozenset({"nodes"})),
    (_brokers, frozenset({"brokers", "leases", "quotas", "rebalance"})),
    (_shards, frozenset({"shards"})),
    (_observability, frozenset({"trace", "slo", "audit"})),
    (_security, frozenset({"certs", "cluster", "tokens"})),
    # It also brings checks that two commands of operators carry out on a cluster of their own.
    (_harness, frozenset({"perf", "demo", "chaos", "history", "shards", "pipeline"})),
)
"""Modules by the commands that need them, in the order in which help lists the commands."""


def program(command: str | None = None, *, columns: int | None = None) -> typer.Typer:
    """Return the program with ``command`` and its neighbours, or with all commands.

    ``columns``: the width of the terminal, else that of standard output's.
    """
    width = shutil.get_terminal_size().columns if columns is None else columns
    made = typer.Typer(
        name="nextgen",
        help="Pulsar NextGen: a metadata and topic-ownership layer for Apache Pulsar.",
        epilog="Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no answer, 4 a check failed, "
        "70 broken, 78 cannot run like this.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich" if width > PLAIN_HELP_COLUMNS_MAX else None,
    )
    made.callback()(_options)
    for modules, commands in _MODULES_OF:
        if command is None or command in commands:
            for module in modules():
                module.register(made)
    return made


def command_in(arguments: Iterable[str]) -> str | None:
    """Return the command that the arguments of the program name, None if they name none.

    "" if all that they ask for is the version.
    """
    rest = iter(arguments)
    for word in rest:
        if word == "--version":
            return ""
        if word in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word if any(word in commands for _, commands in _MODULES_OF) else None
    return None


def __getattr__(name: str) -> typer.Typer:
    """Return the program with all commands as ``app``: made when something asks for it."""
    if name != "app":
        raise AttributeError(name)
    whole = program()
    globals()["app"] = whole
    return whole


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from nextgen.runtime.telemetry.trace_export import version

        print_line(f"nextgen {version()}")
        raise typer.Exit


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
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar=TOKEN_VARIABLE,
            help="Token that proves the role of this client. Others can see it in the list of "
            "processes: a file is better.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            envvar=TOKEN_FILE_VARIABLE,
            help="File with that token. Default: the operator's of the local cluster.",
            show_default=False,
        ),
    ] = None,
) -> None:
    # Where commands, and the processes that they start, look for them.
    if cluster_secret_file is not None:
        os.environ[SECRET_FILE_VARIABLE] = str(cluster_secret_file.absolute())
    if cluster_id is not None:
        os.environ[CLUSTER_ID_VARIABLE] = cluster_id
    if token is not None:
        os.environ[TOKEN_VARIABLE] = token
    if token_file is not None:
        os.environ[TOKEN_FILE_VARIABLE] = str(token_file.absolute())


def main() -> None:
    """Run the command line."""
    # A terminal without UTF-8 gets escapes for what it cannot show.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    run_program(program(command_in(sys.argv[1:])))


if __name__ == "__main__":
    main()
