"""``nodes``: adds and removes processes of the local cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from nextgen.cli.calls.replica_plan import set_node_state
from nextgen.cli.cluster import shard_node_commands
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, data_dir_of, endpoints_of
from nextgen.cli.console.output import print_json, print_line
from nextgen.cli.local.cluster import BROKER_LEAVES_MS_MAX
from nextgen.cli.local.cluster_state import RunningCluster, read_state
from nextgen.cli.local.plan import ClusterPlan, NodePlan, load_plan
from nextgen.cli.local.readiness import readiness
from nextgen.cli.local.security import use_security
from nextgen.cli.local.supervise import RELOAD_SIGNAL
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest, Refused, RefusesToStart
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX

KINDS = {"shard": "shard-node", "discovery": "discovery", "broker": "broker"}
"""Kinds of nodes that can be added. The set of cluster managers is fixed by their flags."""

READY_MS_MAX = 30_000
LOOK_MS = 250

Force = Annotated[
    bool, typer.Option("--force", help="Also if the shard map still has replicas there.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Shard nodes of the cluster, and the processes of a local one.", no_args_is_help=True
    )
    group.command("list")(shard_node_commands.list_nodes)
    group.command("drain")(shard_node_commands.drain)
    group.command("undo")(shard_node_commands.undo)
    group.command("add")(add_node)
    group.command("remove")(remove_node)
    app.add_typer(group, name="nodes")


def add_node(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="shard, discovery or broker.")],
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Start one more process, now and whenever the cluster starts, and wait until it is ready.

    A shard node gets its share of the replicas by itself: see 'nodes list'.
    """

    async def work() -> None:
        directory = data_dir_of(data_dir)
        plan, running = _running(directory)
        if kind not in KINDS:
            raise InvalidRequest(f"{kind!r} cannot be added, {', '.join(KINDS)} can")
        taken = [child.name for child in directory.iterdir() if child.is_dir()]
        grown = plan.with_node(KINDS[kind], taken)
        node = grown.nodes[-1]
        _store(grown, directory, running)
        await _wait_ready(node)
        if json_output:
            print_json(
                {"node_id": node.node_id, "kind": node.kind, "grpc": node.grpc, "http": node.http}
            )
        else:
            print_line(f"{node.node_id} is ready: gRPC {node.grpc}")

    run_command(work())


def remove_node(
    node_id: Annotated[str, typer.Argument(metavar="NODE", help="Node id.")],
    force: Force = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Stop a process for good. Its data directory is kept, and its id is not used again.

    Refused while the shard map has replicas there: see 'nodes drain'. With --target nothing is
    stopped: the shard node does not come back, and its replicas are placed elsewhere at once.
    """

    async def work() -> None:
        if target is not None:
            await shard_node_commands.set_state(
                endpoints_of(target, data_dir), node_id, shard_node_commands.REMOVED, json_output
            )
            return
        directory = data_dir_of(data_dir)
        plan, running = _running(directory)
        node = next((node for node in plan.nodes if node.node_id == node_id), None)
        _check_may_go(plan, node, node_id)
        if not force:
            await _check_holds_nothing(plan, node_id)
        if node is not None and node.kind == KINDS["shard"]:
            await _record_removed(plan, node_id, force=force)
        _store(plan.without_node(node_id), directory, running)
        await _wait_gone(directory, node_id)
        if json_output:
            print_json({"node_id": node_id, "removed": True})
        else:
            print_line(f"{node_id} is stopped and out of the plan")

    run_command(work())


def _running(directory: Path) -> tuple[ClusterPlan, RunningCluster]:
    plan, running = load_plan(directory), read_state(directory)
    if plan is None or running is None:
        raise RefusesToStart(f"no cluster runs in {directory}: start one with 'nextgen up'")
    use_security(plan, directory)
    return plan, running


def _store(plan: ClusterPlan, directory: Path, running: RunningCluster) -> None:
    plan.save(directory)
    os.kill(running.supervisor_pid, RELOAD_SIGNAL)


def _check_may_go(plan: ClusterPlan, node: NodePlan | None, node_id: str) -> None:
    if node is None:
        raise Refused(RejectionCode.NOT_FOUND, f"the local cluster has no node {node_id}")
    if node.kind not in KINDS.values():
        raise Refused(
            RejectionCode.NOT_ALLOWED, f"{node_id} stays: cluster managers know each other by flags"
        )
    if len(plan.of_kind(node.kind)) == 1:
        raise Refused(RejectionCode.NOT_ALLOWED, f"{node_id} is the last {node.kind}")


async def _record_removed(plan: ClusterPlan, node_id: str, *, force: bool) -> None:
    """Have the cluster manager give the node no replicas any more, before it stops.

    Raises:
        Refused: Too few nodes would be left, and there is no ``force``.
    """
    try:
        await set_node_state(plan.discovery_endpoints, node_id, shard_node_commands.REMOVED)
    except Refused:
        if not force:
            raise


async def _check_holds_nothing(plan: ClusterPlan, node_id: str) -> None:
    from nextgen.cli.shards.replica_list import gather_replicas

    gathered = await gather_replicas(plan.discovery_endpoints)
    held = [
        str(shard["shard_id"])
        for shard in gathered["shards"]
        if any(replica["node_id"] == node_id for replica in shard["replicas"])
    ]
    if held:
        raise Refused(
            RejectionCode.NOT_EMPTY,
            f"{node_id} has replicas of shard {', '.join(held)}: move them first with "
            f"'nextgen nodes drain {node_id}'",
        )


async def _wait_ready(node: NodePlan) -> None:
    lacks = ""
    for _ in range(READY_MS_MAX // LOOK_MS):
        is_ready, lacks = await readiness(node.http)
        if is_ready:
            return
        await asyncio.sleep(LOOK_MS / 1_000)
    raise DeadlineExceeded(f"{node.node_id} is not ready after {READY_MS_MAX} ms: {lacks}")


async def _wait_gone(directory: Path, node_id: str) -> None:
    timeout_ms = 2 * SHUTDOWN_MS_MAX + BROKER_LEAVES_MS_MAX
    for _ in range(timeout_ms // LOOK_MS):
        running = read_state(directory)
        if running is None or node_id not in running.node_pids:
            return
        await asyncio.sleep(LOOK_MS / 1_000)
    raise DeadlineExceeded(f"{node_id} still runs after {timeout_ms} ms")
