"""Faults by the commands of an operator: whatever begins is ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from nextgen.harness.chaos.faults.hooks import Hook, Hooks
from nextgen.harness.chaos.operators_cluster import OperatorsCluster, OperatorsMaker, nodes_of
from nextgen.harness.chaos.schedule import THROUGH_THE_API, FaultKind, FaultStep, Group, Role
from nextgen.kernel.errors import Unavailable

STATUS: dict[str, Any] = {
    "shards": [{"shard_id": 4, "leader": "shard-node-2"}],
    "nodes": [
        {"node_id": "shard-node-1", "kind": "shard", "grpc": "10.0.0.1:1"},
        {"node_id": "shard-node-2", "kind": "shard", "grpc": "10.0.0.2:1"},
        {"node_id": "broker-1", "kind": "broker", "grpc": "10.0.0.3:1"},
    ],
    "managers": [{"node_id": "manager-1", "grpc": "10.0.0.4:1"}, {"error": "gone", "grpc": "x"}],
}


async def ask() -> dict[str, Any]:
    return STATUS


def writing(path: Path, what: str, code: int = 0) -> tuple[str, ...]:
    script = f"import sys; open({str(path)!r}, 'a').write(sys.argv[1] + ' '); sys.exit({code})"
    return (sys.executable, "-c", script, f"{what}:{{node}}:{{grpc}}:{{group}}")


def maker_of(told: Path, *, begin_code: int = 0) -> OperatorsMaker:
    hook = Hook(
        writing(told, "begin", begin_code), writing(told, "end"), frozenset({Group.SHARD_NODE})
    )
    return OperatorsMaker(("target:1",), Hooks({FaultKind.KILL: hook}), ask=ask)


def kill(for_ms: int = 0) -> FaultStep:
    return FaultStep(0, for_ms, FaultKind.KILL, Group.SHARD_NODE, Role.LEADER)


BEGIN = "begin:shard-node-2:10.0.0.2:1:shard-node "
END = "end:shard-node-2:10.0.0.2:1:shard-node "


async def test_the_leader_is_broken_and_mended_by_name(tmp_path):
    happened = await maker_of(tmp_path / "told").carry_out(kill())

    assert (tmp_path / "told").read_text() == BEGIN + END
    assert happened.took_hold
    assert (happened.target.node_id, happened.target.shards) == ("shard-node-2", (4,))


async def test_what_has_begun_is_ended_whatever_happens(tmp_path):
    with pytest.raises(Unavailable):
        await maker_of(tmp_path / "failed", begin_code=1).carry_out(kill())
    assert (tmp_path / "failed").read_text() == BEGIN + END

    told = tmp_path / "cancelled"
    task = asyncio.create_task(maker_of(told).carry_out(kill(for_ms=600_000)))
    while not (told.exists() and told.read_text() == BEGIN):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told.read_text() == BEGIN + END


async def test_nothing_is_ended_twice(tmp_path):
    maker = maker_of(tmp_path / "told")
    await maker.carry_out(kill())

    await maker.undo_all()

    assert (tmp_path / "told").read_text() == BEGIN + END


def test_nodes_are_known_by_their_groups():
    assert nodes_of(STATUS) == {
        Group.SHARD_NODE: {"shard-node-1": "10.0.0.1:1", "shard-node-2": "10.0.0.2:1"},
        Group.BROKER: {"broker-1": "10.0.0.3:1"},
        Group.MANAGER: {"manager-1": "10.0.0.4:1"},
    }


def test_without_commands_there_are_only_faults_through_the_api():
    site = OperatorsCluster(("target:1",), "", Hooks({}))

    assert site.kinds == list(THROUGH_THE_API)
    assert FaultKind.KILL in site.unavailable
