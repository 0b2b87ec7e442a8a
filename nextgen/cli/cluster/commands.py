"""``up``, ``down`` and ``status``."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import (
    DataDir,
    JsonFlag,
    Target,
    Wide,
    data_dir_of,
    endpoints_of,
)
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.cli.local.local_tokens import OPERATOR_ROLE, TOKENS
from nextgen.cli.local.plan import ClusterPlan, load_plan
from nextgen.cli.local.security import authority_file
from nextgen.cli.local.supervise import Supervisor, choose_plan, start_detached, stop_running
from nextgen.kernel.errors import MetadataError, RefusesToStart
from nextgen.runtime.lifecycle.exit_code import ExitCode, code_of, print_error


class LocalAuth(StrEnum):
    """How clients of a local cluster prove their role."""

    TOKEN = "token"
    NONE = "none"


class Switch(StrEnum):
    """Whether something is on."""

    TRUE = "true"
    FALSE = "false"


_AUTHENTICATION = {LocalAuth.TOKEN: TOKENS, LocalAuth.NONE: ""}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(
    minimal: Annotated[
        bool, typer.Option("--minimal", help="One process of each kind, one shard.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="Shards. Default: 4, minimal 1.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is ready; stop it with 'down'.")
    ] = False,
    port_base: Annotated[
        int | None,
        typer.Option("--port-base", min=1, max=65_535, help="First port. Default: 17000."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Every port with TLS; certificates are made.")
    ] = False,
    auth: Annotated[
        LocalAuth | None,
        typer.Option(
            "--auth",
            help="token: clients need one; the operator's is in the data directory. Kept until "
            "another is named. Default: none.",
            show_default=False,
        ),
    ] = None,
    authorization: Annotated[
        Switch | None,
        typer.Option(
            "--authorization",
            help="false: with tokens, roles need no permissions. Kept until another is named. "
            "Default: true, and the operator is a superuser.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Start a local cluster of real processes and keep it running until Ctrl-C.

    A process that is killed is started again. Data stays in the data directory.
    """
    directory = data_dir_of(data_dir)
    began = time.monotonic()
    try:
        plan = choose_plan(
            directory,
            minimal=minimal,
            shards=shards,
            port_base=port_base,
            tls=tls,
            authentication=None if auth is None else _AUTHENTICATION[auth],
            authorization=None if authorization is None else authorization is Switch.TRUE,
        )
        plan.check_ports()
        if not json_output:
            print_line(f"starting {len(plan.nodes)} processes in {directory} …", stderr=True)
        if detach:
            arguments = _arguments(directory, minimal, shards, port_base, tls)
            start_detached([*arguments, *_auth_arguments(auth, authorization)], directory)
            _announce(plan, directory, began, json_output)
            return
    except MetadataError as error:
        print_error(str(error))
        raise typer.Exit(code_of(error)) from None
    run_command(_run_in_foreground(plan, directory, began, json_output))


def _arguments(
    directory: Path, minimal: bool, shards: int | None, port_base: int | None, tls: bool
) -> list[str]:
    arguments = ["--data-dir", str(directory)]
    if minimal:
        arguments.append("--minimal")
    if tls:
        arguments.append("--tls")
    if shards is not None:
        arguments += ["--shards", str(shards)]
    if port_base is not None:
        arguments += ["--port-base", str(port_base)]
    return arguments


def _auth_arguments(auth: LocalAuth | None, authorization: Switch | None) -> list[str]:
    chosen = {"--auth": auth, "--authorization": authorization}
    return [part for name, value in chosen.items() if value is not None for part in (name, value)]


async def _run_in_foreground(
    plan: ClusterPlan, directory: Path, began: float, json_output: bool
) -> None:
    from nextgen.cli.calls.leader_places import misplaced_leaders

    supervisor = Supervisor(
        plan,
        directory,
        print_error,
        unsettled=lambda: misplaced_leaders(plan.discovery_endpoints),
    )
    await supervisor.run(lambda: _announce(plan, directory, began, json_output))
    if sys.stderr.isatty():
        print_error("the cluster is stopped, its data is kept")


def _announce(plan: ClusterPlan, directory: Path, began: float, json_output: bool) -> None:
    """Print the addresses of the cluster, which is ready; ``began``: the monotonic time before."""
    if json_output:
        print_json(
            {
                "ready": True,
                "data_dir": str(directory),
                "target": ",".join(plan.discovery_endpoints),
                "service_url": plan.service_url,
                **({"tls_ca_file": str(authority_file(directory))} if plan.tls else {}),
                **_token_file(plan, directory),
                "nodes": [
                    {"node_id": n.node_id, "kind": n.kind, "grpc": n.grpc, "http": n.http}
                    | ({"pulsar": n.pulsar} if n.pulsar else {})
                    for n in plan.nodes
                ],
            }
        )
        return
    rows = [(n.node_id, n.grpc, n.pulsar, n.http) for n in plan.nodes]
    print_table(
        f"cluster {plan.cluster_id!r}: {plan.size.shards} shards x "
        f"{plan.size.replication_factor} replicas, data in {directory}",
        ("process", "gRPC", "Pulsar", "HTTP: /metrics"),
        rows,
    )
    print_line(f"ready after {time.monotonic() - began:.1f} s")
    print_line(f"service URL for Pulsar clients: {plan.service_url}")
    if plan.tls:
        print_line(f"trusted certificates for them: {authority_file(directory)}")
    if (token_file := plan.token_file(directory)) is not None:
        print_line(f"token of the operator, role {OPERATOR_ROLE!r}: {token_file}")


def _token_file(plan: ClusterPlan, directory: Path) -> dict[str, str]:
    file = plan.token_file(directory)
    return {} if file is None else {"token_file": str(file)}


def down(data_dir: DataDir = None, json_output: JsonFlag = False) -> None:
    """Stop the local cluster. Its data is kept."""
    directory = data_dir_of(data_dir)
    try:
        was_running = stop_running(directory)
    except MetadataError as error:
        print_error(str(error))
        raise typer.Exit(code_of(error)) from None
    if json_output:
        print_json({"stopped": was_running, "data_dir": str(directory)})
    elif was_running:
        print_line(f"stopped the cluster in {directory}; its data is kept")
    else:
        print_error(f"no cluster runs in {directory}")
    if not was_running:
        raise typer.Exit(ExitCode.REFUSED)


def status(
    wide: Wide = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show whether the cluster is well; shard leaders, positions, lag, brokers' sessions."""
    from nextgen.cli.calls.cluster_problems import assessed
    from nextgen.cli.calls.cluster_status import gather_status, print_status

    async def show() -> None:
        plan = _local_plan(target, data_dir)
        managers = tuple(node.grpc for node in plan.of_kind("cluster-manager")) if plan else ()
        planned = frozenset(node.node_id for node in plan.nodes) if plan else None
        gathered = await gather_status(endpoints_of(target, data_dir), managers)
        gathered = assessed(gathered, planned)
        if json_output:
            print_json(gathered)
        else:
            print_status(gathered, wide=wide)

    run_command(show())


def _local_plan(target: str | None, data_dir: Path | None) -> ClusterPlan | None:
    """Return the plan of the local cluster; none for a named target."""
    if target:
        return None
    try:
        return load_plan(data_dir_of(data_dir))
    except RefusesToStart:
        return None
