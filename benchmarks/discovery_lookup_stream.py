"""How many names a second does one discovery process answer from its cache?

    python benchmarks/discovery_lookup_stream.py [--names 100000] [--seconds 10] [--streams 2]

Three processes on loopback: this generator, one ``python -m discovery``, and one that plays the
cluster manager and four shards from dictionaries. All names are looked up once (cold) and then at
random, 64 a message. Prints one JSON line; names are counted by the server's own counters too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nextgen.client.client import Client  # noqa: E402
from nextgen.client.transport.channel import open_channel  # noqa: E402
from nextgen.kernel.routing.names import parse_topic  # noqa: E402
from nextgen.kernel.routing.slots import initial_table  # noqa: E402
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse  # noqa: E402
from tests.support.fake_cluster import FakeClusterServer, full_update  # noqa: E402
from tests.support.fake_shard_server import FakeShardServer  # noqa: E402

SHARDS = (1, 2, 3, 4)
NAMES_PER_MESSAGE = 64


def names(count: int) -> list[str]:
    return [
        f"persistent://tenant-{number % 50}/namespace-{number % 500}/orders-of-region-{number}"
        for number in range(count)
    ]


async def play_cluster(count: int) -> None:
    """Serve ``count`` assigned topics until the parent goes away."""
    server = FakeShardServer(*SHARDS)
    server.keeps_requests = False
    table = initial_table(SHARDS)
    for number, name in enumerate(names(count)):
        shard = server.shards[table.shard_for_key(parse_topic(name).routing_key)]
        shard.assign(name, f"broker-{number % 3}", f"00af0011223344556677889{number % 3}")
        shard.deltas.clear()
    endpoint = await server.start()
    manager = FakeClusterServer(full_update(dict.fromkeys(SHARDS, endpoint)))
    print(await manager.start(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await manager.stop()
    await server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Load:
    """One stream with a window of messages in flight; round-trip times in seconds."""

    def __init__(self, messages: Sequence[bytes], window: int) -> None:
        self._messages = messages
        self._window = window
        self.latencies: list[float] = []
        self.wrong = 0

    async def run(self, endpoint: str, deadline: float) -> None:
        channel = open_channel(endpoint)
        stream: Any = channel.stream_stream(
            "/nextgen.v1.DiscoveryService/LookupStream",
            request_serializer=None,
            response_deserializer=None,
        )
        call = stream()
        room = asyncio.Semaphore(self._window)
        sent_at: dict[int, float] = {}
        finished = asyncio.Event()
        sent = 0

        async def read() -> None:
            while not finished.is_set() or sent_at:
                response = LookupResponse.FromString(await call.read())
                self.latencies.append(time.perf_counter() - sent_at.pop(response.request_id))
                if len(response.answers) != NAMES_PER_MESSAGE or any(
                    answer.rejection_code for answer in response.answers
                ):
                    self.wrong += 1
                room.release()

        reading = asyncio.create_task(read())
        while time.perf_counter() < deadline:
            await room.acquire()
            sent += 1
            tail = LookupRequest(request_id=sent).SerializeToString()
            sent_at[sent] = time.perf_counter()
            await call.write(random.choice(self._messages) + tail)
        finished.set()
        await reading
        await call.done_writing()
        await channel.close(None)


async def warm(endpoint: str, all_names: list[str]) -> float:
    started = time.perf_counter()
    client = Client([endpoint], timeout_ms=60_000)
    async with client, client.lookup_stream() as stream:
        chunks = [all_names[at : at + 1_000] for at in range(0, len(all_names), 1_000)]
        for at in range(0, len(chunks), 4):
            await asyncio.gather(*(stream.lookup(chunk) for chunk in chunks[at : at + 4]))
    return time.perf_counter() - started


async def measure(arguments: argparse.Namespace, discovery: psutil.Process, at: str) -> None:
    all_names = names(arguments.names)
    cold_seconds = await warm(at, all_names)
    # Once more: what was asked before the process followed the shards was not kept.
    await warm(at, all_names)
    generator = random.Random(1)
    messages = [
        LookupRequest(topics=generator.sample(all_names, NAMES_PER_MESSAGE)).SerializeToString()
        for _ in range(4_000)
    ]
    client = Client([at])
    before = await client.counters()
    cpu_before = sum(discovery.cpu_times()[:2])
    loads = [Load(messages, arguments.window) for _ in range(arguments.streams)]
    started = time.perf_counter()
    deadline = started + arguments.seconds
    await asyncio.gather(*(load.run(at, deadline) for load in loads))
    elapsed = time.perf_counter() - started
    cpu = sum(discovery.cpu_times()[:2]) - cpu_before
    after = await client.counters()
    await client.close()
    latencies = sorted(latency for load in loads for latency in load.latencies)
    looked_up = after["names_looked_up"] - before["names_looked_up"]
    result = {
        "rate": round(len(latencies) * NAMES_PER_MESSAGE / elapsed),
        "p50": round(latencies[len(latencies) // 2] * 1_000, 2),
        "p99": round(latencies[int(len(latencies) * 0.99)] * 1_000, 2),
        "max": round(latencies[-1] * 1_000, 2),
        "errors": sum(load.wrong for load in loads),
        "names": arguments.names,
        "names_by_server": looked_up,
        "names_by_generator": len(latencies) * NAMES_PER_MESSAGE,
        "from_cache": after["answers_from_cache"] - before["answers_from_cache"],
        "server_cpu_cores": round(cpu / elapsed, 2),
        "server_rss_mb": round(discovery.memory_info().rss / 2**20, 1),
        "cold_names_per_second": round(arguments.names / cold_seconds),
        "streams": arguments.streams,
        "window": arguments.window,
    }
    print(json.dumps(result))


async def run(arguments: argparse.Namespace) -> None:
    cluster = subprocess.Popen(  # noqa: ASYNC220  # Started once, before anything is measured.
        [sys.executable, __file__, "--play-cluster", "--names", str(arguments.names)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert cluster.stdout is not None
    manager = cluster.stdout.readline().strip()
    port, http_port = free_port(), free_port()
    discovery = subprocess.Popen(  # noqa: ASYNC220
        [
            *(sys.executable, "-m", "discovery", "--node-id", "discovery-1"),
            *("--cluster-id", "benchmark"),
            *("--listen", f"127.0.0.1:{port}", "--http-listen", f"127.0.0.1:{http_port}"),
            *("--cluster-managers", manager),
        ],
        cwd=ROOT,
        env={**os.environ, "NEXTGEN_LOG_LEVEL": "warning"},
    )
    try:
        await measure(arguments, psutil.Process(discovery.pid), f"127.0.0.1:{port}")
    finally:
        discovery.terminate()
        discovery.wait()
        cluster.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--play-cluster", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    uvloop.install()
    asyncio.run(play_cluster(arguments.names) if arguments.play_cluster else run(arguments))


if __name__ == "__main__":
    main()
