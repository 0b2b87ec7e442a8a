"""A backup of three shards, taken while a leader dies and clients write, restored into nine.

The second cluster gets the ledger directory of the first, as after the loss of all shards: it must
serve the messages that are there, in epochs above those that the first cluster used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nextgen.backup.cluster import BackupCluster
from nextgen.backup.errors import BackupUnusable, RestoreRefused
from nextgen.backup.manifest import MANIFEST, PROGRESS, Manifest
from nextgen.backup.restore import Restored, RestoreRun, open_backup
from nextgen.backup.run import BackupProgress, BackupRun
from nextgen.cli.local.plan import LEDGERS_FOLDER
from nextgen.cli.shards.verify import verify_shards
from nextgen.client import Client
from nextgen.client.model import NewTopic, ScalableTopic
from nextgen.export.stores.urls import open_store
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.kernel.governance.permissions import AuthAction
from nextgen.kernel.governance.policies import NO_POLICIES, PlacementRules
from nextgen.kernel.governance.quota_file import QuotaFile
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=3)
THREE_TIMES = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=9)
TOPICS = [f"persistent://acme/orders/t{number:04}" for number in range(2_500)]
KEPT, WIDE = "persistent://acme/orders/kept", "persistent://acme/orders/wide"
AUDIT = "persistent://acme/orders/audit"
"""A shadow of ``KEPT``, whose name comes before that of its source."""
DELETED = "persistent://acme/orders/deleted"
"""Deleted, with its messages, behind the backup."""
SCALED = "topic://acme/orders/scaled"
"""Split behind the backup, so that the segment which the backup has is ended."""

PATIENCE_S = 60.0
SECOND_RESTORE = 2
"""The generation of a restore over a ledger directory that an earlier restore has used."""


SETTINGS = {"loadBalancerEnabled": "false", "scalableTopicMaxSegments": "16"}


class Settings:
    """The settings of a cluster manager that somebody else asks."""

    async def read(self) -> dict[str, str]:
        return SETTINGS

    async def write(self, settings: Mapping[str, str]) -> None:
        raise AssertionError(f"nothing restores {settings} here")


class Quotas:
    """The quotas of a cluster manager that somebody else asks."""

    def __init__(self, held: QuotaFile | None = None) -> None:
        self.held = held

    async def read(self) -> QuotaFile | None:
        return self.held

    async def write(self, quotas: QuotaFile) -> None:
        self.held = quotas


@contextlib.asynccontextmanager
async def opened(cluster: LocalCluster, quotas: Quotas) -> AsyncIterator[BackupCluster]:
    asked = BackupCluster(cluster.plan.discovery_endpoints, quotas, Settings())
    try:
        yield asked
    finally:
        await asked.close()


async def nextgen(cluster: LocalCluster, *arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code, and what it printed and said."""
    ended = await asyncio.to_thread(
        run_warm,
        "nextgen",
        list(arguments),
        environment=environment_of_child(os.environ)
        | {"NEXTGEN_TARGET": cluster.plan.discovery_endpoints[0]},
        timeout_s=PATIENCE_S,
    )
    return ended.returncode, ended.stdout + ended.stderr


async def produce(cluster: LocalCluster, topic: str, text: str) -> None:
    url = cluster.plan.service_url
    code, said = await nextgen(cluster, "produce", topic, text, "--service-url", url)
    assert code == 0, said


async def change_layout(cluster: LocalCluster, *arguments: str) -> None:
    code, said = await nextgen(cluster, "scalable-topics", *arguments)
    assert code == 0, said


async def fill(client: Client) -> None:
    await client.create_tenant("acme", {"owner": "shop"})
    await client.create_namespace("acme/orders")
    await client.set_policies("acme/orders", replace(NO_POLICIES, message_ttl_ms=600_000))
    await client.create_topics([*TOPICS, NewTopic(WIDE, 4, {"team": "a"}), KEPT, DELETED])
    rules = PlacementRules(pinned_brokers=("broker-1",))
    await client.set_policies(KEPT, replace(NO_POLICIES, placement=rules))
    await client.set_policies(KEPT, replace(NO_POLICIES, placement=rules, message_ttl_ms=900_000))
    await client.grant(KEPT, "app", [AuthAction.PRODUCE, AuthAction.CONSUME])
    await client.create_shadow(AUDIT, KEPT)


async def delete_with_messages(cluster: LocalCluster, ledgers: Path) -> None:
    """Delete a topic, and wait until a broker has removed its messages."""
    async with Client(list(cluster.plan.discovery_endpoints)) as client:
        topic = await client.get_topic(DELETED)
        assert topic is not None
        await client.delete_topic(DELETED)
    directory = ledgers / topic.topic_id[:4] / topic.topic_id
    async with timeout(PATIENCE_S):
        while directory.exists():
            await asyncio.sleep(0.1)
    assert (directory.parent / f"removed-{topic.topic_id}").exists()


async def write_on(client: Client, until: asyncio.Event) -> None:
    """Create tenants with namespaces and topics, and delete some, as long as the backup takes."""
    number = 0
    while not until.is_set():
        number += 1
        tenant = f"tenant-{number}"
        namespace, topic = f"{tenant}/ns", f"persistent://{tenant}/ns/topic"
        with contextlib.suppress(MetadataError):
            await client.create_tenant(tenant)
            await client.create_namespace(namespace)
            await client.create_topics([topic])
            if number % 2:
                await client.delete_topic(topic)
                await client.delete_namespace(namespace)
                await client.delete_tenant(tenant)


async def back_up(cluster: LocalCluster, directory: Path, quotas: QuotaFile) -> Manifest:
    """Take a backup while clients write, and the leader of shard 1 is killed in its middle."""
    async with (
        opened(cluster, Quotas(quotas)) as asked,
        Client(list(cluster.plan.discovery_endpoints)) as client,
    ):
        done, killing = asyncio.Event(), []
        writing = asyncio.ensure_future(write_on(client, done))

        def on_progress(progress: BackupProgress) -> None:
            if not killing and progress.objects:
                leader = asked.link.view.leaders[1].node_id
                killing.append(asyncio.ensure_future(cluster.kill(leader)))

        manifest = await BackupRun(asked, open_store(directory), on_progress).run()
        await asyncio.gather(*killing)
        done.set()
        await writing
        assert killing
        return manifest


@contextlib.asynccontextmanager
async def backed_up(tmp_path: Path) -> AsyncIterator[tuple[Manifest, dict[str, Any]]]:
    before: dict[str, Any] = {}
    async with running_cluster(tmp_path / "first", SIZE) as cluster:
        async with Client(list(cluster.plan.discovery_endpoints)) as client:
            await fill(client)
            await change_layout(cluster, "create", SCALED)
            await change_layout(cluster, "subscribe", SCALED, "-s", "readers")
            before["layout"] = await client.get_scalable_topic(SCALED)
            await produce(cluster, SCALED, "from before")
            await produce(cluster, KEPT, "from before")
            await produce(cluster, DELETED, "from before")
            (answer,) = await client.lookup([KEPT])
            before["epoch"] = answer.epoch
            before["kept"] = await client.get_topic(KEPT)
            before["policies"] = await client.get_policies(KEPT)
        quotas = QuotaFile(1, {"broker-1": 600}, {"acme": 500})
        manifest = await back_up(cluster, tmp_path / "backup", quotas)
        await delete_with_messages(cluster, tmp_path / "first" / LEDGERS_FOLDER)
        await change_layout(cluster, "split", SCALED, "0")
    shutil.copytree(tmp_path / "first" / LEDGERS_FOLDER, tmp_path / "second" / LEDGERS_FOLDER)
    yield manifest, before


async def interrupt(cluster: LocalCluster, directory: Path) -> None:
    """Begin a restore, and end it as a kill would when the first topics are there."""
    async with opened(cluster, Quotas()) as asked:
        restoring: asyncio.Task[Restored]

        def on_restored(restored: Restored) -> None:
            if restored.done > 1_000:
                restoring.cancel()

        restoring = asyncio.ensure_future(
            RestoreRun(asked, open_store(directory), on_restored, generation=SECOND_RESTORE).run()
        )
        with pytest.raises(asyncio.CancelledError):
            await restoring


async def check_half_restored(cluster: LocalCluster, directory: Path, tmp_path: Path) -> None:
    """Nobody writes meanwhile, and no other backup is mixed in."""
    code, said = await nextgen(cluster, "tenants", "create", "early")
    assert code == 3
    assert "is being restored" in said
    code, said = await nextgen(cluster, "backup", str(tmp_path / "early"))
    assert code == 78
    assert "being restored" in said
    other = tmp_path / "other"
    shutil.copytree(directory, other)
    manifest = open_backup(open_store(other))
    from nextgen.backup.manifest import encode_manifest

    (other / MANIFEST).write_bytes(encode_manifest(replace(manifest, backup_id="another")))
    async with opened(cluster, Quotas()) as asked:
        with pytest.raises(RestoreRefused, match="has not ended in shard 1"):
            await RestoreRun(asked, open_store(other)).run()


async def check_layout(client: Client, before: ScalableTopic) -> None:
    """The segment of the backup has ended, and another one takes its messages."""
    layout = await client.get_scalable_topic(SCALED)
    async with timeout(PATIENCE_S):
        while layout is None or len(layout.segments) == 1:
            await asyncio.sleep(0.1)
            layout = await client.get_scalable_topic(SCALED)
    ended, active = layout.segments
    assert (ended.segment_id, ended.is_sealed) == (before.segments[0].segment_id, True)
    assert ended.created_at_ms == before.segments[0].created_at_ms
    assert active.segment_id == SECOND_RESTORE << GENERATION_BITS
    assert (active.parents, active.is_sealed) == ((0,), False)
    assert layout.subscriptions == before.subscriptions


async def check_shadow(client: Client) -> None:
    """A restored shadow has its source, is in its list, and keeps it from being deleted."""
    assert await client.get_shadow_source(AUDIT) == KEPT
    assert await client.get_shadows(KEPT) == [AUDIT]
    with pytest.raises(Refused, match=AUDIT) as refused:
        await client.delete_topic(KEPT, force=True)
    assert refused.value.code == RejectionCode.NOT_EMPTY


async def check_restored(cluster: LocalCluster, manifest: Manifest, before: dict[str, Any]) -> None:
    async with Client(list(cluster.plan.discovery_endpoints)) as client:
        kept, wide = await client.get_topic(KEPT), await client.get_topic(WIDE)
        assert kept is not None
        assert wide is not None
        assert kept.topic_id == before["kept"].topic_id, "messages are stored under the id"
        assert await client.get_policies(KEPT) == before["policies"]
        assert (wide.partitions, wide.properties) == (4, {"team": "a"})
        tenant = await client.get_tenant("acme")
        assert tenant is not None
        assert tenant.properties == {"owner": "shop"}
        assert (await client.get_policies("acme/orders")).policies.message_ttl_ms == 600_000
        names = [topic.name async for topic, _ in client.list_topics_and_policies("acme/orders")]
        assert names == sorted([*TOPICS, AUDIT, DELETED, KEPT, WIDE, SCALED])
        await check_shadow(client)
        await check_layout(client, before["layout"])
        (answer,) = await client.lookup([KEPT])
        assert manifest.least_epoch == 1 << GENERATION_BITS > before["epoch"]
        assert answer.epoch >= SECOND_RESTORE << GENERATION_BITS
        (fresh,) = await client.lookup([TOPICS[0]])
        assert fresh.epoch >= SECOND_RESTORE << GENERATION_BITS
        await client.create_topics(["persistent://acme/orders/later"])
        await client.delete_topic("persistent://acme/orders/later")
    url = cluster.plan.service_url
    await produce(cluster, KEPT, "from after")
    code, said = await nextgen(cluster, "read", KEPT, "--service-url", url)
    assert code == 0
    assert said.index("from before") < said.index("from after")
    code, said = await nextgen(cluster, "read", AUDIT, "--service-url", url)
    assert code == 0, said
    assert said.index("from before") < said.index("from after"), "the shadow reads its source"
    await produce(cluster, SCALED, "from after")
    code, said = await nextgen(cluster, "read", SCALED, "--service-url", url)
    assert code == 0, said
    assert said.index("from before") < said.index("from after")
    await produce(cluster, DELETED, "from after")
    code, said = await nextgen(cluster, "read", DELETED, "--service-url", url)
    assert code == 0
    assert "from after" in said
    assert "from before" not in said, "its messages went with it"
    report = await verify_shards(cluster.plan.discovery_endpoints)
    assert report.differences == []


async def test_three_shards_come_back_as_nine_with_their_messages(tmp_path: Path) -> None:
    directory = tmp_path / "backup"
    async with (
        backed_up(tmp_path) as (manifest, before),
        running_cluster(tmp_path / "second", THREE_TIMES) as cluster,
    ):
        assert manifest.counts.topics >= len(TOPICS) + 3
        await interrupt(cluster, directory)
        await check_half_restored(cluster, directory, tmp_path)

        code, said = await nextgen(cluster, "restore", str(directory), "--generation", "0")
        assert code == 78
        assert "can begin in generations 1 to 1023, not in 0" in said
        code, said = await nextgen(cluster, "restore", str(directory), "--json")

        assert code == 0, said
        assert json.loads(said)["not_restored"] == []
        await check_restored(cluster, manifest, before)
        code, said = await nextgen(cluster, "quotas", "show", "--json")
        assert json.loads(said)["tenants"] == [{"tenant": "acme", "quota_units": 500}]
        code, said = await nextgen(cluster, "brokers", "settings", "list", "--set", "--json")
        settings = json.loads(said)["settings"]
        assert {each["name"]: each["value"] for each in settings} == SETTINGS
        code, said = await nextgen(cluster, "restore", str(directory))
        assert code == 0
        assert "nothing to do" in said, "what was deleted since must not come back"
        with pytest.raises(BackupUnusable, match="holds a whole backup already"):
            async with opened(cluster, Quotas()) as asked:
                await BackupRun(asked, open_store(directory)).run()
        await check_over_a_living_cluster(cluster, tmp_path)


async def check_over_a_living_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    """A backup of the restored cluster begins one generation later, and goes into no other."""
    again = tmp_path / "again"
    code, said = await nextgen(cluster, "backup", str(again))
    assert code == 0, said
    assert "(1 scalable)" in said
    assert open_backup(open_store(again)).least_epoch == 3 << GENERATION_BITS
    assert not (again / PROGRESS).exists()
    code, said = await nextgen(cluster, "restore", str(again))
    assert code == 78
    assert "of its own: a backup is restored into an empty cluster only" in said
