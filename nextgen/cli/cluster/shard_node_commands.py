"""``nodes list | drain | undo``: the shard nodes of a cluster, and whether they hold replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nextgen.cli.calls.replica_plan import (
    described,
    described_node,
    replica_plan,
    set_node_state,
)
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Node id of a shard node.")]

ACTIVE, LEAVING, REMOVED = "active", "leaving", "removed"


def list_nodes(
    target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False
) -> None:
    """Show the shard nodes: state, zone, replicas, and the shards that they lead."""

    async def work() -> None:
        plan = await replica_plan(endpoints_of(target, data_dir))
        if json_output:
            print_json(described(plan))
            return
        rows = [
            (
                node.node_id,
                node.state,
                node.is_connected,
                node.zone,
                node.replicas,
                node.joining,
                node.leaving,
                node.leaders,
            )
            for node in plan.nodes
        ]
        columns = ("node", "state", "connected", "zone", "replicas")
        print_table("shard nodes", (*columns, "joining", "leaving", "leads"), rows)
        print_line(f"{len(plan.under_way)} replicas under way, {len(plan.moves)} to move")

    run_command(work())


def drain(
    node: NodeArgument,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Have a shard node give up its replicas, one after the other; it serves them until then.

    Refused if fewer connected nodes would be left than each shard has replicas.
    """
    _set(node, LEAVING, target, data_dir, json_output)


def undo(
    node: NodeArgument,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Take back a 'drain' or 'remove': the node gets replicas again."""
    _set(node, ACTIVE, target, data_dir, json_output)


async def set_state(endpoints: Sequence[str], node_id: str, state: str, json_output: bool) -> None:
    """Set the state of a shard node, and show the node.

    Raises:
        Refused: The message has the reason.
        MetadataError: No cluster manager could be reached.
    """
    node = await set_node_state(endpoints, node_id, state)
    if json_output:
        print_json(described_node(node))
    else:
        print_line(f"{node.node_id} is {node.state}, with {node.replicas} replicas")


def _set(
    node_id: str, state: str, target: str | None, data_dir: Path | None, json_output: bool
) -> None:
    run_command(set_state(endpoints_of(target, data_dir), node_id, state, json_output))
