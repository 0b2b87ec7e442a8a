"""``cluster exclude``: shuts a lost or stolen node out, whatever certificate it has."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nextgen.cli.calls.manager_leader import ask_manager_leader
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line
from protos.nextgen.v1.cluster_service_pb2 import ExcludeNodeRequest, ExcludeNodeResponse

ATTEMPT_TIMEOUT_MS = 4_000
"""Time-out of one call; the cluster manager itself gives up a little earlier."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="The cluster as a whole.", no_args_is_help=True)
    group.command("exclude")(exclude)
    group.command("excluded")(list_excluded)
    app.add_typer(group, name="cluster")


def exclude(
    node_id: Annotated[str, typer.Argument(metavar="NODE", help="Node id; it need not run.")],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Exclude NODE for ever: its connections are closed, and it gets no new ones.

    It needs TLS: without certificates nobody can tell which node is calling. What the node did is
    left to others, as if it were dead. It comes back under another name, with a new certificate.
    """

    async def work() -> None:
        excluded = await _ask(endpoints_of(target, data_dir), node_id)
        if json_output:
            print_json({"excluded": excluded})
        else:
            print_line(f"{node_id} is excluded for ever")

    run_command(work())


def list_excluded(
    target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False
) -> None:
    """Show the excluded nodes."""

    async def work() -> None:
        excluded = await _ask(endpoints_of(target, data_dir), "")
        if json_output:
            print_json({"excluded": excluded})
        else:
            print_line("\n".join(excluded) or "no node is excluded")

    run_command(work())


async def _ask(endpoints: tuple[str, ...], node_id: str) -> list[str]:
    async def ask(stub: Any) -> ExcludeNodeResponse:
        response: ExcludeNodeResponse = await stub.ExcludeNode(
            ExcludeNodeRequest(node_id=node_id), timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    response = await ask_manager_leader(endpoints, ask)
    return list(response.excluded_nodes)
