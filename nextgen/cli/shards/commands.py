"""``shards``: commands for shards and their replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.cli.shards import plan_commands, rebalance_command
from nextgen.cli.shards import recover_command as shard_recover_command
from nextgen.cli.shards import verify_command as shard_verify_command
from nextgen.kernel.errors import InvalidRequest

ALL_SHARDS = "all"
WAIT_MS_DEFAULT = 600_000
"""Default wait: a replica that needs a snapshot of a large shard takes minutes."""

ShardArgument = Annotated[
    str, typer.Argument(metavar="SHARD", help=f"Shard id, or '{ALL_SHARDS}' for each of them.")
]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Node id of a shard node.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return when the wish is recorded, not when it is done.")
]
TimeoutMs = Annotated[
    int, typer.Option("--timeout-ms", min=1_000, help="How long to wait for all of it.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Shards and their replicas.", no_args_is_help=True)
    replicas = typer.Typer(
        help="Which nodes hold replicas of which shard, and changing that while everything runs.",
        no_args_is_help=True,
    )
    replicas.command("list")(list_replicas)
    replicas.command("add")(add_replica)
    replicas.command("remove")(remove_replica)
    replicas.command("cancel")(cancel_change)
    replicas.command("rebalance")(rebalance_command.rebalance)
    group.add_typer(replicas, name="replicas")
    plan_commands.register(group)
    group.command("verify")(shard_verify_command.verify)
    group.command("recover")(shard_recover_command.recover)
    app.add_typer(group, name="shards")


def list_replicas(
    shard: Annotated[int | None, typer.Argument(min=1, help="Shard id. Default: all.")] = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show every replica: where it is, whether it votes, how far it is, what is under way."""

    async def work() -> None:
        from nextgen.cli.shards.replica_list import gather_replicas

        gathered = await gather_replicas(endpoints_of(target, data_dir), shard)
        if json_output:
            print_json(gathered)
        else:
            _print_replicas(gathered)

    run_command(work())


def add_replica(
    shard: ShardArgument,
    node: NodeArgument,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give a shard a replica on another node, and wait until it votes.

    The node replicates first and votes when it has caught up. The shard serves meanwhile.
    """
    run_command(_carry_out("add", shard, node, no_wait, timeout_ms, target, data_dir, json_output))


def remove_replica(
    shard: ShardArgument,
    node: NodeArgument,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Take a shard's replica away from a node, and wait until it is gone.

    Refused if too few of the others are there. A node that leads the shard hands over first.
    """
    run_command(
        _carry_out("remove", shard, node, no_wait, timeout_ms, target, data_dir, json_output)
    )


def cancel_change(
    shard: ShardArgument,
    node: NodeArgument,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Take back an 'add' or a 'remove' that is still under way."""
    run_command(
        _carry_out("cancel", shard, node, no_wait, timeout_ms, target, data_dir, json_output)
    )


async def _carry_out(
    change: str,
    shard: str,
    node: str,
    no_wait: bool,
    timeout_ms: int,
    target: str | None,
    data_dir: Path | None,
    json_output: bool,
) -> None:
    from nextgen.cli.shards.replica_change import ReplicaChanger

    async with ReplicaChanger(endpoints_of(target, data_dir), timeout_ms=timeout_ms) as changer:
        shard_ids = await changer.shard_ids(change, _shard_id(shard), node)
        for shard_id in shard_ids:
            outcome = await changer.change(change, shard_id, node, wait=not no_wait)
            if json_output:
                print_json(outcome)
            else:
                print_line(_sentence(outcome))


def _shard_id(given: str) -> int | None:
    """Return the shard id, None for ``all``.

    Raises:
        InvalidRequest: The text is neither.
    """
    if given == ALL_SHARDS:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise InvalidRequest(f"{given!r} is neither a shard id nor '{ALL_SHARDS}'")
    return int(given)


def _sentence(outcome: dict[str, Any]) -> str:
    where = f"shard {outcome['shard_id']}, {outcome['node_id']}: {outcome['change']}"
    if not outcome["done"]:
        return f"{where} recorded in map {outcome['shard_map_version']}, under way"
    return f"{where} done in {outcome['took_ms']:,} ms, map {outcome['shard_map_version']}"


def _print_replicas(gathered: dict[str, Any]) -> None:
    rows = [
        (
            shard["shard_id"],
            replica["node_id"],
            replica["stage"],
            replica["role"],
            replica["lag_entries"] if replica["lag_entries"] is not None else "",
            "" if replica["is_connected"] is None else replica["is_connected"],
        )
        for shard in gathered["shards"]
        for replica in shard["replicas"]
    ]
    print_table(
        f"replicas (map version {gathered['shard_map_version']})",
        ("shard", "node", "in map", "in group", "entries behind", "connected"),
        rows,
    )
