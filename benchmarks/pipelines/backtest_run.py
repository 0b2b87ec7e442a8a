"""Do the splits and merges of a real cluster, whose shard leaders are killed, follow from its log?

    python -m benchmarks.pipelines.backtest_run [--seconds 75] [--kills 4] [--keep DIR]

A cluster of processes (two shards of three replicas, two brokers) has some scalable topics with
short cool-downs. Producers and consumers of this project's client load them in waves; an operator
changes policies; the node that leads the most shards is killed again and again, and started again.
Then the log is exported, and ``pipeline backtest`` decides again, with a slack of ``SLACK_S``.
Prints one JSON line last: kills, terms of leaders, actions by kind, differences, seconds. Exits
with 1 if there is a difference, if nothing was split or nothing merged, or if fewer leaders were
lost than ``KILLS_MIN``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow.parquet as pq

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client, st
from nextgen.kernel.errors import MetadataError
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.groups import TaskGroup
from tests.support.callers.cluster_questions import client_of, prepare_namespace

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=2)
NAMESPACE = "acme/waves"
TOPICS = [f"topic://{NAMESPACE}/wave-{number}" for number in range(5)]
SLACK_S = 20
KILLS_MIN = 3
SETTINGS = {"scalableTopicLoadReportIntervalSeconds": "0.5", "scalableTopicMaxDagDepth": "8"}
"""Of the service level, in the log of the cluster manager."""

READY_MS = 120_000
POLICY = {
    "splitMsgRateInThreshold": 60,
    "mergeMsgRateInThreshold": 12,
    "splitVsRebucketMinMsgRateInThreshold": 30,
    "splitCooldownSeconds": 2,
    "rebucketCooldownSeconds": 2,
    "mergeCooldownSeconds": 2,
    "mergeWindowSeconds": 3,
    "maxSegments": 5,
}
_WAVE_S = 14.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=75.0, help="How long there is load.")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="Keep the export and the tables there.")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="backtest-run-") as name:
        directory = asked.keep or Path(name)
        directory.mkdir(parents=True, exist_ok=True)
        result = asyncio.run(recorded(directory, asked.seconds, asked.kills))
        result |= decided_again(directory)
    result["seconds"] = round(time.monotonic() - began, 1)
    result["load_average"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result))
    by_kind = result["actions_by_kind"]
    is_fine = (
        result["differences"] == 0
        and result["kills"] >= KILLS_MIN
        and by_kind.get("split", 0) > 0
        and by_kind.get("merge", 0) > 0
    )
    return 0 if is_fine else 1


async def recorded(directory: Path, seconds: float, kills: int) -> dict[str, Any]:
    """Run the cluster, and export its log to ``directory``/export."""
    plan = make_plan_on_free_ports(SIZE, cluster_id="backtest")
    async with LocalCluster(plan, directory / "cluster") as cluster:
        await cluster.wait_ready(timeout_ms=READY_MS)
        (node,) = plan.of_kind("discovery")
        url = f"http://{node.http}/admin/v2"
        async with client_of(cluster, timeout_ms=30_000) as client:
            await prepare_namespace(client, NAMESPACE)
        for name, value in SETTINGS.items():
            await post(f"{url}/brokers/configuration/{name}/{value}", None)
        await post(f"{url}/namespaces/{NAMESPACE}/scalableTopicAutoScalePolicy", POLICY)
        for name in TOPICS:
            await put(f"{url}/scalable/{name.removeprefix('topic://')}")
        load = Load(plan.service_url, seconds)
        running = asyncio.create_task(load.run())
        try:
            killed = await kill_leaders(cluster, seconds, kills, url)
        finally:
            load.end()
            await running
        # Everything is quiet: merges, some of them by the window's end alone.
        await asyncio.sleep(12)
        await asyncio.to_thread(export, node.grpc, directory / "export")
    return {"kills": killed, "messages": load.sent}


class Load:
    """Waves of messages on every topic, each at another time, and consumers that come and go."""

    def __init__(self, service_url: str, seconds: float) -> None:
        self.sent = 0
        self._url = service_url
        self._ends_at = time.monotonic() + seconds
        self._is_over = False

    def end(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        async with st.PulsarClient(self._url) as client, TaskGroup() as tasks:
            for number, name in enumerate(TOPICS):
                tasks.create_task(self._send(client, name, number))
                if number % 2 == 0:
                    tasks.create_task(self._consume(client, name, number))

    @property
    def _goes_on(self) -> bool:
        return not self._is_over and time.monotonic() < self._ends_at

    async def _send(self, client: st.PulsarClient, name: str, number: int) -> None:
        producer = await client.create_producer(name)
        while self._goes_on:
            phase = (time.monotonic() / _WAVE_S + number / len(TOPICS)) % 1
            burst = 16 if phase < 0.55 else 1
            with contextlib.suppress(MetadataError):
                futures = [
                    await producer.submit(b"x" * 100, key=f"k{self.sent + each}")
                    for each in range(burst)
                ]
                await asyncio.gather(*futures, return_exceptions=True)
            self.sent += burst
            await asyncio.sleep(0.1)

    async def _consume(self, client: st.PulsarClient, name: str, number: int) -> None:
        while self._goes_on:
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(1 + number):
                    with contextlib.suppress(MetadataError):
                        consumer = await client.stream_consumer(name, "s")
                        stack.push_async_callback(consumer.close)
                await asyncio.sleep(min(_WAVE_S, max(0.0, self._ends_at - time.monotonic())))


async def kill_leaders(cluster: LocalCluster, seconds: float, kills: int, url: str) -> int:
    """Kill the node that leads the most shards, again and again; return how often."""
    killed = 0
    ends_at = time.monotonic() + seconds
    pause_s = seconds / (kills + 1)
    async with Client(list(cluster.plan.discovery_endpoints), timeout_ms=20_000) as client:
        for number in range(kills):
            await asyncio.sleep(pause_s - 3)
            leader = await busiest_leader(client)
            await cluster.kill(leader)
            killed += 1
            if number == 1:
                policy = {**POLICY, "maxSegments": 3, "mergeWindowSeconds": 2}
                topic = TOPICS[1].removeprefix("topic://")
                await post(f"{url}/scalable/{topic}/autoScalePolicy", policy)
            await asyncio.sleep(3)
            await cluster.start_node(leader)
    await asyncio.sleep(max(0.0, ends_at - time.monotonic()))
    return killed


async def busiest_leader(client: Client) -> str:
    """Return the node that leads the most shards."""
    while True:
        led = Counter(each.leader_node for each in (await client.cluster()).shards)
        led.pop("", None)
        if led:
            return max(led, key=lambda node: (led[node], node))
        await asyncio.sleep(0.2)


async def post(url: str, content: Any) -> None:
    await _call("POST", url, content)


async def put(url: str) -> None:
    await _call("PUT", url, {})


async def _call(method: str, url: str, content: Any) -> None:
    """Call the Admin REST until it answers: a leader may have been killed just now."""
    async with aiohttp.ClientSession() as session:
        for _ in range(60):
            async with session.request(method, url, json=content) as answer:
                if answer.status < 500:
                    assert answer.status in (200, 204, 409), (url, await answer.text())
                    return
            await asyncio.sleep(0.5)
    raise SystemExit(f"{url} is not answered")


def export(target: str, folder: Path) -> None:
    command = [sys.executable, "-m", "nextgen", "export", "run", str(folder), "--target", target]
    ended = subprocess.run(
        command, env=environment_of_child(os.environ), capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"the export failed: {ended.stderr}")


def decided_again(directory: Path) -> dict[str, Any]:
    """Run the backtest over the export; return what it tells."""
    command = [sys.executable, "-m", "pipelines", "backtest", str(directory / "export"), "--json"]
    command += ["--out", str(directory / "tables"), "--slack-s", str(SLACK_S)]
    command += ["--report", str(directory / "page.html")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ended.stdout.strip():
        raise SystemExit(f"the backtest failed: {ended.stderr}")
    told = json.loads(ended.stdout.strip().splitlines()[-1])
    kinds: Counter[str] = Counter()
    for row in told["operations"]:
        kinds[row["kind"]] += row["count"]
    return {
        "events": told["rows_read"],
        "load_records": told["rows_accounted"]["loads_of_segments"],
        "topics": told["topics"],
        "terms": terms_of(directory / "export"),
        "actions": told["actions"],
        "actions_reproduced": told["actions_reproduced"],
        "actions_by_kind": dict(kinds),
        "differences": told["differences"],
        "findings": told["findings"][:5],
    }


def terms_of(folder: Path) -> dict[str, int]:
    """Return how many terms of leaders each shard's log has."""
    found: dict[str, set[int]] = {}
    for path in folder.rglob("*.parquet"):
        table = pq.read_table(path, columns=["shard_id", "term"], partitioning=None)
        for shard_id, term in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if shard_id:
                found.setdefault(str(shard_id), set()).add(term)
    return {shard_id: len(terms) for shard_id, terms in sorted(found.items())}


if __name__ == "__main__":
    sys.exit(main())
