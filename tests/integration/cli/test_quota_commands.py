"""Quotas from a file: set through the command, obeyed by leases and by first lookups."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.kernel.governance.quota_file import QuotaFile, to_bytes
from nextgen.runtime.security.cluster_proof import environment_of_child
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicSpec
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = pytest.mark.integration

SIZE = ClusterSize(1, 1, 1, brokers=2, shards=2)
TENANT = "acme"
TOPICS = [f"persistent://{TENANT}/orders/t{number}" for number in range(60)]
TENANT_QUOTA = 20
BROKER_QUOTA = 8
SECONDS_MAX = 60.0


async def nextgen(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it printed and said."""
    target = cluster.plan.of_kind("discovery")[0].grpc
    ended = await asyncio.to_thread(
        run_warm,
        "nextgen",
        [*arguments, "--target", target],
        environment=environment_of_child(os.environ),
        timeout_s=SECONDS_MAX,
    )
    return ended.returncode, ended.stdout, ended.stderr


async def shown(cluster: LocalCluster) -> dict[str, Any]:
    code, printed, said = await nextgen(cluster, "quotas", "show", "--json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(printed)
    return found


async def lookup(client: DiscoveryClient, names: Sequence[str]) -> list[LookupAnswer]:
    """Return answers; those that are retryable are asked for again."""
    until = asyncio.get_running_loop().time() + SECONDS_MAX
    while True:
        answers = list((await client.call("Lookup", pb.LookupRequest(topics=names))).answers)
        late = asyncio.get_running_loop().time() > until
        if late or not any(answer.retryable for answer in answers):
            return answers
        await asyncio.sleep(0.2)


async def create(client: DiscoveryClient) -> None:
    command_id = new_command_id
    await client.call("CreateTenant", pb.CreateTenantRequest(command_id=command_id(), name=TENANT))
    namespace = pb.CreateNamespaceRequest(command_id=command_id(), name=f"{TENANT}/orders")
    await client.call("CreateNamespace", namespace)
    topics = [TopicSpec(name=name) for name in TOPICS]
    await client.call(
        "CreateTopics", pb.CreateTopicsRequest(command_id=command_id(), topics=topics)
    )


async def test_quotas_are_set_from_a_file_shown_and_obeyed(tmp_path: Path) -> None:
    file = tmp_path / "quotas.json"
    quotas = QuotaFile(1, {"broker-1": BROKER_QUOTA}, {TENANT: TENANT_QUOTA}, "ab12")
    file.write_bytes(to_bytes(quotas))
    async with running_cluster(tmp_path / "cluster", SIZE) as cluster:
        assert (await shown(cluster))["version"] == 0
        # Shards lease first blocks of brokers as they come: quotas come before any is used.
        code, printed, said = await nextgen(cluster, "quotas", "apply", str(file), "--json")
        assert code == 0, said
        assert json.loads(printed)["tenants"] == [{"tenant": TENANT, "quota_units": TENANT_QUOTA}]
        code, _, said = await nextgen(cluster, "quotas", "apply", str(file))
        assert code == 0, f"the same file twice is harmless: {said}"

        async with DiscoveryClient([cluster.plan.of_kind("discovery")[0].grpc]) as client:
            await create(client)
            answers = await lookup(client, TOPICS)
        served = [answer for answer in answers if answer.broker_id]
        refused = [answer for answer in answers if not answer.broker_id]
        assert len(served) == TENANT_QUOTA, "both shards have more topics than their shares"
        assert {answer.rejection_code for answer in refused} == {"LIMIT_EXCEEDED"}
        assert "may have 20 units assigned by its quota, 10 of them in shard" in refused[0].message

        held = await shown(cluster)
        assert (held["version"], held["source"]) == (1, "ab12")
        (broker,) = held["brokers"]
        assert broker["quota_units"] == BROKER_QUOTA

        await refuses_what_is_stale_or_does_not_fit(cluster, file)
        # What brokers have at the moment changes by itself.
        assert await shown(cluster) | {"brokers": []} == held | {"brokers": []}
        code, printed, _ = await nextgen(cluster, "events", "0", "--type", "quotas_set")
        assert code == 0
        assert printed.count("quotas_set") == 1


async def refuses_what_is_stale_or_does_not_fit(cluster: LocalCluster, file: Path) -> None:
    for quotas, why in (
        (QuotaFile(1, {}, {TENANT: 1}), "so the next are 2: these are 1"),
        (QuotaFile(2, {"broker-9": 1}), "no broker broker-9 was ever seen"),
        (QuotaFile(2, {"broker-1": 10**9}), "is more than broker broker-1 has"),
        (QuotaFile(2, {}, {TENANT: 10**9}), "brokers may be leased out"),
    ):
        file.write_bytes(to_bytes(quotas))
        code, _, said = await nextgen(cluster, "quotas", "apply", str(file))
        assert (code, why in said) == (1, True), said
    file.write_text("{}")
    code, _, said = await nextgen(cluster, "quotas", "apply", str(file))
    assert (code, "no file of quotas" in said) == (2, True), said
