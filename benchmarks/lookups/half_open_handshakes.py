"""Measures what TLS handshakes that never end cost a discovery process and its other clients.

Another process opens so many connections to ``pulsar+ssl``, sends the beginning of a handshake on
each and holds them all. Beside it a stock of connections asks for warm lookups, and a client
connects anew ten times a second. Prints one JSON line last; exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import ssl
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, NodePlan, make_plan_on_free_ports
from nextgen.cli.local.security import authority_file
from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.process import run_job
from nextgen.harness.perf.bench import Bench, make_namespace
from nextgen.harness.perf.lookup import prepare_assigned
from nextgen.kernel.limits.inbound import TLS_HANDSHAKES_MAX
from nextgen.runtime.lifecycle.process import allow_open_files
from nextgen.runtime.security.process_tls import tls_in_use
from nextgen.runtime.security.tls import client_context

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=1)
TOPICS = 2_000
OPEN_AT_A_TIME = 100
MEASURED_S = 10.0
NEW_CLIENT_PAUSE_S = 0.1


def beginning_of_handshake() -> bytes:
    """Return a client's whole first message: the server answers it, and waits for the next."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody has answered")


def hold(line: Connection, port: int, count: int) -> None:
    """Open ``count`` connections and hold them until a word comes over ``line``."""
    allow_open_files()

    async def all_of_them() -> None:
        hello = beginning_of_handshake()
        held = []
        for _ in range(0, count, OPEN_AT_A_TIME):
            opened = await asyncio.gather(
                *(asyncio.open_connection("127.0.0.1", port) for _ in range(OPEN_AT_A_TIME))
            )
            for _, writer in opened:
                writer.write(hello)
            held += opened
        line.send(len(held))
        await asyncio.get_running_loop().run_in_executor(None, line.recv)

    asyncio.run(all_of_them())


async def connect_anew(port: int, context: ssl.SSLContext, times_ms: list[float]) -> None:
    """Shake hands again and again, for ever, and note how long each took."""
    while True:
        began = time.perf_counter()
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        times_ms.append((time.perf_counter() - began) * 1_000)
        writer.transport.abort()
        await asyncio.sleep(NEW_CLIENT_PAUSE_S)


async def outcomes(node: NodePlan) -> dict[str, int]:
    """Return what the process counts of handshakes."""
    tls = tls_in_use()
    assert tls is not None, "the cluster has TLS"
    host, _, port = node.http.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls.client_context())
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    page = (await reader.read(-1)).decode()
    writer.close()
    found = re.findall(r'nextgen_tls_handshakes_total{outcome="(\w+)"} (\S+)', page)
    return {outcome: int(float(value)) for outcome, value in found}


class Run:
    """One cluster, and what is measured of it."""

    def __init__(self, cluster: LocalCluster, bench: Bench) -> None:
        self.node = cluster.plan.of_kind("discovery")[0]
        self._ca_file = authority_file(cluster.data_dir)
        self._topics = bench.topics("topic", TOPICS).as_json()
        self._process = psutil.Process(cluster.process_id(self.node.node_id))

    @property
    def rss_mb(self) -> float:
        return round(self._process.memory_info().rss / 1e6, 1)

    async def others(self) -> dict[str, Any]:
        """Return how clients fare that are connected, and ones that connect."""
        job = {
            "kind": "pulsar_lookup",
            "pulsar": self.node.pulsar,
            "ca_file": str(self._ca_file),
            "brokers": [],
            "topics": self._topics,
            "is_partition_metadata": False,
            "connections": 2,
            "in_flight": 1,
            "warm_seconds": 1,
            "seconds": MEASURED_S,
            "check_every": 0,
        }
        times_ms: list[float] = []
        new = asyncio.create_task(
            connect_anew(self.node.pulsar_port, client_context(self._ca_file), times_ms)
        )
        try:
            result = await run_job(job, timeout_ms=120_000)
            failure = new.exception() if new.done() else None
        finally:
            new.cancel()
        times_ms.sort()
        return {
            "lookups_ms": summary_of_counts([result["latency_us"]]),
            "lookup_errors": result["errors"],
            "new_connections": len(times_ms),
            "new_connection_ms_p50": round(times_ms[len(times_ms) // 2], 1),
            "new_connection_ms_max": round(times_ms[-1], 1),
            "new_connection_failure": repr(failure) if failure else "",
        }

    async def flooded(self, count: int) -> dict[str, Any]:
        """Return the same beside ``count`` handshakes that are begun meanwhile and never end."""
        ours, theirs = multiprocessing.Pipe()
        holder = multiprocessing.get_context("spawn").Process(
            target=hold, args=(theirs, self.node.pulsar_port, count)
        )
        most_mb = 0.0

        async def watch() -> None:
            nonlocal most_mb
            while True:
                most_mb = max(most_mb, self.rss_mb)
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        holder.start()
        try:
            opened = asyncio.get_running_loop().run_in_executor(None, ours.recv)
            fared = await self.others()
            return {"opened": await opened, **fared, "rss_mb_most": most_mb}
        finally:
            watching.cancel()
            ours.send("enough")
            await asyncio.to_thread(holder.join)


async def measure(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="nextgen-half-open-") as name:
        plan = replace(make_plan_on_free_ports(SIZE), tls=True)
        async with LocalCluster(plan, Path(name)) as cluster:
            await cluster.wait_ready()
            targets = plan.discovery_endpoints
            bench = Bench(targets, await make_namespace(targets, "tls"), cluster, "")
            await prepare_assigned(bench, bench.topics("topic", TOPICS))
            run = Run(cluster, bench)
            alone = await run.others()
            before_mb, before = run.rss_mb, await outcomes(run.node)
            flooded = await run.flooded(count)
            after = await outcomes(run.node)
            after_mb = run.rss_mb
    counted = {outcome: after[outcome] - before[outcome] for outcome in after}
    return {
        "benchmark": "half_open_handshakes",
        "alone": alone,
        "flooded": flooded,
        "outcomes": counted,
        "rss_mb_before": before_mb,
        "rss_mb_after": after_mb,
        "kib_per_handshake": round(
            (flooded["rss_mb_most"] - before_mb) * 1e6 / 1_024 / TLS_HANDSHAKES_MAX, 1
        ),
        "load_average": psutil.getloadavg(),
        "is_kept": flooded["opened"] == count
        and not flooded["lookup_errors"]
        and not flooded["new_connection_failure"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--handshakes", type=int, default=10_000)
    arguments = parser.parse_args()
    allow_open_files()
    result = asyncio.run(measure(arguments.handshakes))
    print(json.dumps(result))
    sys.exit(0 if result["is_kept"] else 1)


if __name__ == "__main__":
    main()
