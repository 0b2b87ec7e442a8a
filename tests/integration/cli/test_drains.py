"""Brokers as real processes that are emptied: by the command, and by SIGTERM, under lookups."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.brokers import evacuation_run
from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client import Client
from nextgen.client.log.reader import read_events
from nextgen.kernel.errors import MetadataError
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout
from tests.support.callers.cluster_questions import client_of, prepare_namespace, wait_brokers_used
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=3, shards=2)
NAMES = [f"persistent://acme/orders/t-{number}" for number in range(60)]
WAIT_S = 90


async def nextgen(cluster: LocalCluster, *arguments: str) -> tuple[int, Any, str]:
    """Run a command; return its exit code, what it printed as JSON, and what it said."""
    target = cluster.plan.of_kind("discovery")[0].grpc
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "nextgen", *arguments, "--json", "--target", target),
        env=environment_of_child(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(printed) if printed else None, said.decode()


async def owners(client: Client, names: Sequence[str]) -> Counter[str]:
    return Counter(answer.broker_id for answer in await client.lookup(names))


class Lookups:
    """Looks all topics up, again and again, until it is stopped."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.count = 0
        self.failures: list[str] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        while not self._stop.is_set():
            try:
                answers = await self.client.lookup(NAMES)
            except MetadataError as error:
                self.failures.append(str(error))
                continue
            self.count += len(answers)
            self.failures += [answer.message for answer in answers if not answer.is_found]
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()


@pytest.mark.slow
async def test_brokers_are_emptied_and_restarted_while_every_lookup_is_answered(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, SIZE) as cluster,
        client_of(cluster, timeout_ms=30_000) as client,
        DiscoveryClient(cluster.plan.discovery_endpoints) as discovery,
    ):
        await prepare_namespace(client)
        await wait_brokers_used(cluster, client)
        await client.create_topics(NAMES)
        assert len(await owners(client, NAMES)) == 3
        lookups = Lookups(client)
        looking = asyncio.create_task(lookups.run())

        code, drained, said = await nextgen(cluster, "brokers", "drain", "broker-1")
        assert code == ExitCode.DONE, said
        assert (drained["draining"], drained["units"] > 0) == (True, True)
        assert "broker-1" not in await owners(client, NAMES)
        await evacuation_run.drain(discovery, "broker-2")
        code, _, said = await nextgen(cluster, "brokers", "drain", "broker-3")
        assert (code, "is the last that may be given units" in said) == (ExitCode.REFUSED, True)
        for broker_id in ("broker-1", "broker-2"):
            await evacuation_run.drain(discovery, broker_id, undo=True)

        code, plan, said = await nextgen(cluster, "rebalance", "--apply", "--rate", "500/s")
        assert code == ExitCode.DONE, said
        assert plan["count"] > 0
        counts = await owners(client, NAMES)
        assert counts["broker-1"] >= 10, "units came back to the broker that was empty"

        for broker in cluster.plan.of_kind("broker"):
            async with timeout(WAIT_S):
                await cluster.kill(broker.node_id, signal.SIGTERM)
                await cluster.start_node(broker.node_id)
                await cluster.wait_ready([broker.node_id])

        lookups.stop()
        await looking
        reasons = Counter(
            [
                event.topic_assigned.reason
                for shard_id in (1, 2)
                async for event in read_events(
                    cluster.plan.discovery_endpoints, shard_id, types=["topic_assigned"]
                )
            ]
        )

    assert lookups.count > 0
    assert lookups.failures == []
    assert reasons.keys() == {"first_lookup", "drained", "rebalanced"}, "none was lost"
