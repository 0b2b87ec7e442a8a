"""Replicas are added, removed and replaced while creates and lookups go on.

Measured gaps are printed; a busy machine makes them longer, so they are not asserted tightly.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.tasks.timeouts import timeout
from tests.support.callers.replica_world import (
    add_shard_node,
    change,
    change_everywhere,
    led_shards_of,
    place_by_hand,
    shards_of,
    wait_level,
    wait_members,
)
from tests.support.callers.steady_load import SteadyLoad, steady_load
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

SIZE = ClusterSize(cluster_managers=1, discovery=1, brokers=1, shards=2)
THREE = ["shard-node-1", "shard-node-2", "shard-node-3"]
WISHES_TAKEN_BACK = 8
WAIT_S = 60
GAP_MS_MAX = 30_000
"""No request waits longer: beyond it the client would have given up."""

pytestmark = pytest.mark.timeout(240)


def report(capsys: pytest.CaptureFixture[str], what: str, load: SteadyLoad) -> None:
    with capsys.disabled():
        print(json.dumps({"what": what, **load.summary()}))


def check(load: SteadyLoad) -> None:
    """No request failed, and none stood still for good."""
    assert load.errors == []
    assert load.creates.slowest_ms < GAP_MS_MAX
    assert load.lookups.slowest_ms < GAP_MS_MAX


async def voters_of(cluster: LocalCluster) -> dict[int, list[str]]:
    return {shard_id: shard["voters"] for shard_id, shard in (await led_shards_of(cluster)).items()}


async def leader_of(cluster: LocalCluster, shard_id: int) -> str:
    leader: str = (await led_shards_of(cluster))[shard_id]["leader"]
    return leader


@pytest.mark.slow
async def test_a_cluster_grows_to_five_nodes_and_shrinks_to_three_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        async with steady_load(cluster, timeout_ms=GAP_MS_MAX) as load:
            for _ in range(2):
                load.step("add")
                await change_everywhere(cluster, "add", await add_shard_node(cluster))
            assert await voters_of(cluster) == {
                shard_id: [*THREE, "shard-node-4", "shard-node-5"] for shard_id in (1, 2)
            }
            await load.progress()
            for node_id in ("shard-node-1", "shard-node-2"):
                load.step(f"remove {node_id}")
                await change_everywhere(cluster, "remove", node_id)
            await load.progress()
            await wait_level(cluster)
        shards = await led_shards_of(cluster)

    report(capsys, "3 to 5 to 3 nodes", load)
    check(load)
    for shard in shards.values():
        assert shard["voters"] == ["shard-node-3", "shard-node-4", "shard-node-5"]
        assert not shard["learners"]
        assert {replica["stage"] for replica in shard["replicas"]} == {"replica"}


async def test_a_node_that_died_is_replaced_by_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        async with steady_load(cluster, timeout_ms=GAP_MS_MAX) as load:
            load.step("kill")
            await cluster.kill("shard-node-2")
            load.step("replace")
            newcomer = await add_shard_node(cluster)
            await change_everywhere(cluster, "add", newcomer)
            await change_everywhere(cluster, "remove", "shard-node-2")
            await load.progress()
            load.step("kill another")
            # The newcomer counts: without it there would be no majority any more.
            await cluster.kill("shard-node-1")
            await load.progress()
        voters = await voters_of(cluster)

    report(capsys, "replace a dead node", load)
    check(load)
    survivors = ["shard-node-1", "shard-node-3", newcomer]
    assert voters == {1: survivors, 2: survivors}


@pytest.mark.slow
async def test_a_leader_is_removed_and_may_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes back with nothing: its old data was put aside, and does not vote."""
    async with running_cluster(tmp_path, SIZE) as cluster:
        async with steady_load(cluster, timeout_ms=GAP_MS_MAX) as load:
            await change(cluster, "add", 1, await add_shard_node(cluster))
            leader = await leader_of(cluster, 1)
            load.step("remove the leader")
            await change(cluster, "remove", 1, leader)
            await load.progress()
            assert leader not in (await voters_of(cluster))[1]
            directory = cluster.data_dir / leader
            async with timeout(WAIT_S):
                while (directory / "group-1").exists():
                    await asyncio.sleep(0.1)
            assert (directory / "group-1.removed" / "journal").is_dir()
            assert (directory / "group-1.member").exists()
            assert (directory / "group-2").is_dir()

            load.step("add it again")
            await change(cluster, "add", 1, leader)
            await wait_level(cluster)
            await load.progress()
        shard = (await led_shards_of(cluster))[1]

    report(capsys, "remove a leader", load)
    check(load)
    assert leader in shard["voters"]


@pytest.mark.slow
async def test_a_node_that_was_away_while_it_was_removed_puts_its_data_aside(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, SIZE) as cluster,
        steady_load(cluster, timeout_ms=GAP_MS_MAX) as load,
    ):
        await place_by_hand(cluster)
        await cluster.kill("shard-node-3")
        await change(cluster, "remove", 1, "shard-node-3")
        await cluster.start_node("shard-node-3")
        await cluster.wait_ready(["shard-node-3"])
        await wait_level(cluster)
        await load.progress()
        directory = cluster.data_dir / "shard-node-3"
        async with timeout(WAIT_S):
            while (directory / "group-1").exists():
                await asyncio.sleep(0.1)
        assert (directory / "group-1.removed").is_dir()

        # And an empty disk is no obstacle to a replica of a later map.
        await change(cluster, "add", 1, "shard-node-3")
        await wait_level(cluster)

    check(load)


@pytest.mark.slow
async def test_the_next_process_completes_the_steps_of_one_that_died(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wish is recorded; then the shard's leader dies, then the newcomer, then the manager."""
    async with running_cluster(tmp_path, SIZE) as cluster:
        async with steady_load(cluster, timeout_ms=GAP_MS_MAX) as load:
            newcomer = await add_shard_node(cluster)
            for victim in (await leader_of(cluster, 1), newcomer, "cluster-manager-1"):
                load.step(f"kill {victim}")
                await change(cluster, "add", 1, newcomer, wait=False)
                await cluster.restart(victim)
                await wait_members(cluster, 1, [*THREE, newcomer])
                await cluster.wait_ready()
                await wait_level(cluster)
                load.step("remove again")
                await change(cluster, "remove", 1, newcomer, wait=False)
                if victim != newcomer:
                    await cluster.restart(victim)
                await wait_members(cluster, 1, THREE)
                await cluster.wait_ready()
                await wait_level(cluster)
        shards = await led_shards_of(cluster)

    report(capsys, "kill whoever takes part", load)
    check(load)
    assert shards[1]["voters"] == THREE


@pytest.mark.slow
async def test_versions_of_the_map_that_move_no_slot_disturb_no_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replica is wished for and taken back again and again: three versions each time."""
    async with running_cluster(tmp_path, SIZE) as cluster:
        async with steady_load(cluster, timeout_ms=GAP_MS_MAX) as load:
            newcomer = await add_shard_node(cluster)
            before = (await load.client.cluster()).shard_map_version
            load.step("versions")
            for _ in range(WISHES_TAKEN_BACK):
                for shard_id in (1, 2):
                    await change(cluster, "add", shard_id, newcomer, wait=False)
                    await change(cluster, "cancel", shard_id, newcomer)
            versions = (await load.client.cluster()).shard_map_version - before
            counters = await load.client.counters()
        voters = await voters_of(cluster)

    report(capsys, f"{versions} versions of the map", load)
    check(load)
    assert versions >= 4 * WISHES_TAKEN_BACK
    assert counters["routed_failures"] == 0
    assert voters == {1: THREE, 2: THREE}


async def test_what_must_not_be_is_refused_and_what_was_wished_can_be_taken_back(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        await wait_level(cluster)
        for what, node_id, code in (
            ("add", "shard-node-1", RejectionCode.ALREADY_EXISTS),
            ("add", "broker-1", RejectionCode.NOT_FOUND),
            ("add", "discovery-1", RejectionCode.NOT_ALLOWED),
            ("remove", "shard-node-9", RejectionCode.NOT_FOUND),
            ("cancel", "shard-node-9", RejectionCode.NOT_FOUND),
        ):
            assert (await refused(cluster, what, node_id)).code == code
        newcomer = await add_shard_node(cluster)
        await cluster.kill(newcomer)
        await change(cluster, "add", 1, newcomer, wait=False)
        await wait_stages(cluster, {**dict.fromkeys(THREE, "replica"), newcomer: "joining"})

        await change(cluster, "cancel", 1, newcomer)

        await wait_members(cluster, 1, THREE)
        # With one of three dead, neither of the other two may be taken away.
        await cluster.kill("shard-node-3")
        async with timeout(WAIT_S):
            while not isinstance(await outcome(cluster, "remove", "shard-node-2"), Refused):
                # The cluster manager has not heard of the death: the leader waits instead.
                assert "shard-node-2" in (await voters_of(cluster))[1]
                await change(cluster, "cancel", 1, "shard-node-2")
                await asyncio.sleep(0.2)


async def wait_stages(cluster: LocalCluster, wanted: dict[str, str]) -> None:
    """Return once discovery knows that shard 1 has these replicas, in these stages."""
    async with timeout(WAIT_S):
        while True:
            replicas = (await shards_of(cluster))[1]["replicas"]
            if {replica["node_id"]: replica["stage"] for replica in replicas} == wanted:
                return
            await asyncio.sleep(0.1)


async def refused(cluster: LocalCluster, what: str, node_id: str) -> Refused:
    found = await outcome(cluster, what, node_id)
    assert isinstance(found, Refused)
    return found


async def outcome(cluster: LocalCluster, what: str, node_id: str) -> dict[str, Any] | Refused:
    try:
        return await change(cluster, what, 1, node_id, wait=False)
    except Refused as refusal:
        return refusal
