"""What does the Admin REST cost beside gRPC, and how many topics a second does it make and show?

A cluster (4 shards, 3 replicas each, fsync, one discovery node) serves blocks of single operations
on topics: creates, gets of what was created, deletes. The blocks go over REST and over gRPC in
turns, each from the same process with as many connections, one request in flight on each. What is
compared is the processor time of all server processes for one operation, without what the idle
cluster uses, because the generator shares the machine.

Every answer is checked: a get must have the property that the create set, and a listing behind each
block of creates or deletes has exactly the expected names. With ``--stock`` a stock Pulsar broker
from Maven Central makes topics behind it, with the same generator; where it cannot run, the result
says why. Prints one JSON line last; exits with 1 if an answer is wrong, or with ``--check`` if a
goal is missed.

    python -m benchmarks.inventory.admin_rest [--rounds 5] [--stock 5.0.0-M1] [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import grpc.aio
import psutil
import uvloop

from benchmarks.support import block_generator
from benchmarks.support.block_generator import Generator, WrongAnswer, serve_blocks
from benchmarks.support.stock.standalone import NoPeer, StockBroker
from nextgen.cli.local.plan import MINIMAL, ClusterSize
from nextgen.harness.perf.bench import Bench, bench
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import TopicSpec

WAYS = ("rest", "grpc")
OPERATIONS = ("create", "get", "delete")
CPU_RATIO_MAX = 1.25
"""Most processor time of an operation over REST, beside the same over gRPC."""

GETS_PER_SECOND_MIN = 2_000
IDLE_SECONDS = 5.0
STOCK_WARM_SECONDS = 30.0
"""For its compiler; ours needs none."""

REQUEST_S_MAX = 30.0


class Connection(Protocol):
    """One connection, with at most one request in flight. Raises ``WrongAnswer``."""

    async def create(self, number: int) -> None: ...

    async def get(self, number: int) -> None: ...

    async def delete(self, number: int) -> None: ...


class RestConnection:
    """Speaks as much HTTP as servers answer with: a client library would cost more than they."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, path: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._path = path
        self._headers = f" HTTP/1.1\r\nHost: {target}\r\nAccept: application/json\r\n"

    @classmethod
    async def open(cls, target: str, namespace: str, stem: str) -> RestConnection:
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        return cls(reader, writer, target, f"/admin/v2/persistent/{namespace}/{stem}-")

    async def create(self, number: int) -> None:
        body = json.dumps({"number": str(number)})
        await self._request("PUT", f"{number}", 204, body)

    async def get(self, number: int) -> None:
        found = json.loads(await self._request("GET", f"{number}/properties", 200))
        if found != {"number": str(number)}:
            raise WrongAnswer(f"topic {number} has properties {found}")

    async def delete(self, number: int) -> None:
        await self._request("DELETE", f"{number}", 204)

    async def _request(self, method: str, rest: str, expected: int, body: str = "") -> bytes:
        head = f"{method} {self._path}{rest}{self._headers}"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}\r\n{body}".encode())
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answered[9:12])
        _, _, length = answered.partition(b"\r\ncontent-length:")
        size = int(length.partition(b"\r\n")[0] or 0)
        content = await self._reader.readexactly(size) if size else b""
        if status != expected:
            raise WrongAnswer(f"{method} is answered with {status}: {content[:200]!r}")
        return content


class GrpcConnection:
    """Calls ``DiscoveryService`` on a connection of its own."""

    def __init__(self, target: str, namespace: str, stem: str) -> None:
        # Without a pool of its own every channel to one address is the same connection.
        self._channel = grpc.aio.insecure_channel(
            target, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._name = f"persistent://{namespace}/{stem}-"
        self._create = self._method("CreateTopics", pb.CreateTopicsResponse)
        self._get = self._method("GetTopic", pb.GetObjectResponse)
        self._delete = self._method("DeleteTopic", pb.WriteResponse)

    @classmethod
    async def open(cls, target: str, namespace: str, stem: str) -> GrpcConnection:
        connection = cls(target, namespace, stem)
        await connection._channel.channel_ready()
        return connection

    async def create(self, number: int) -> None:
        spec = TopicSpec(name=f"{self._name}{number}", properties={"number": str(number)})
        answer = await self._create(pb.CreateTopicsRequest(topics=[spec]), timeout=REQUEST_S_MAX)
        if answer.topics[0].rejection_code:
            raise WrongAnswer(f"a create is refused: {answer}")

    async def get(self, number: int) -> None:
        request = pb.GetObjectRequest(name=f"{self._name}{number}")
        found = (await self._get(request, timeout=REQUEST_S_MAX)).item.topic.properties
        if dict(found) != {"number": str(number)}:
            raise WrongAnswer(f"topic {number} has properties {found}")

    async def delete(self, number: int) -> None:
        request = pb.DeleteRequest(name=f"{self._name}{number}")
        await self._delete(request, timeout=REQUEST_S_MAX)

    def _method(self, name: str, response: Any) -> Callable[..., Awaitable[Any]]:
        return self._channel.unary_unary(
            f"/nextgen.v1.DiscoveryService/{name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response.FromString,
        )


async def generate(job: dict[str, Any]) -> None:
    """Carry out blocks over connections that all go one way."""
    opened = RestConnection.open if job["way"] == "rest" else GrpcConnection.open
    connections: list[Connection] = [
        await opened(job["target"], job["namespace"], job["way"]) for _ in range(job["connections"])
    ]
    await serve_blocks(connections)


def generator(
    way: str, target: str, namespace: str, connections: int
) -> AbstractAsyncContextManager[Generator]:
    """Start a process that sends requests one way."""
    job = {"way": way, "target": target, "namespace": namespace, "connections": connections}
    return block_generator.generator("benchmarks.inventory.admin_rest", job)


class Costs:
    """Processor time of the servers, as a difference between two looks."""

    def __init__(self, ready: Bench) -> None:
        assert ready.cluster is not None, "the cluster is our own"
        self._ready = ready
        self._kinds = {node.node_id: node.kind for node in ready.cluster.plan.nodes}
        self._idle_share: dict[str, float] = {}

    async def learn_idle(self) -> dict[str, float]:
        """Note what each kind of process uses while nothing is requested, in cores."""
        before = self._look()
        await asyncio.sleep(IDLE_SECONDS)
        self._idle_share = {
            kind: (used - before[kind]) / IDLE_SECONDS for kind, used in self._look().items()
        }
        return self._idle_share

    async def of(self, work: Awaitable[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the result of ``work`` and its seconds of processor time by kind of process."""
        before = self._look()
        began = time.monotonic()
        result = await work
        seconds = time.monotonic() - began
        used = {
            kind: max(0.0, now - before[kind] - self._idle_share[kind] * seconds)
            for kind, now in self._look().items()
        }
        return result, used

    def _look(self) -> dict[str, float]:
        used = dict.fromkeys(self._kinds.values(), 0.0)
        for node_id, kind in self._kinds.items():
            used[kind] += self._ready.cpu_seconds(node_id) or 0.0
        return used


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    size = MINIMAL if options.minimal else ClusterSize(discovery=1)
    async with bench(None, size) as ready:
        assert ready.cluster is not None, "the cluster is our own"
        (discovery,) = ready.cluster.plan.of_kind("discovery")
        targets = {"rest": discovery.http, "grpc": ready.targets[0]}
        costs = Costs(ready)
        async with (
            generator("rest", targets["rest"], ready.namespace, options.connections) as rest,
            generator("grpc", targets["grpc"], ready.namespace, options.connections) as grpc_calls,
        ):
            listing = f"http://{targets['rest']}/admin/v2/namespaces/{ready.namespace}/topics"
            idle = await costs.learn_idle()
            ways = {"rest": rest, "grpc": grpc_calls}
            blocks = await turns(ways, costs, listing, options)
    return {"idle_cores": idle, "ways": summary(blocks, options.operations)}


async def turns(
    ways: dict[str, Generator], costs: Costs, listing: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return all blocks. The first round warms everything up and is left out."""
    blocks = []
    for number in range(options.rounds + 1):
        first = number * options.operations
        order = WAYS if number % 2 else WAYS[::-1]
        for operation in OPERATIONS:
            for way in order:
                work = ways[way].run(operation, first, options.operations)
                result, used = await costs.of(work)
                if number:
                    blocks.append({"way": way, "operation": operation, "used": used, **result})
                print(json.dumps({"round": number, way: operation}), file=sys.stderr, flush=True)
            if operation != "get":
                numbers = range(first, first + options.operations)
                await check_listing(listing, numbers if operation == "create" else range(0))
    return blocks


async def check_listing(url: str, numbers: range) -> None:
    """Check that exactly the topics with these numbers are there, made in either way.

    Raises:
        WrongAnswer: Others are there, or fewer.
    """
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        found = [name.rpartition("/")[2] for name in await answer.json()]
    expected = sorted(f"{way}-{number}" for way in WAYS for number in numbers)
    if sorted(found) != expected:
        raise WrongAnswer(f"{len(found)} topics are listed, {len(expected)} were expected")


def summary(blocks: list[dict[str, Any]], operations: int) -> dict[str, Any]:
    """Return the medians of all rounds, by operation and way. Pure.

    The ratio is the median of the rounds' own ratios: two blocks of a round follow each other, and
    meet the same load of the machine.
    """
    found: dict[str, Any] = {}
    for operation in OPERATIONS:
        by_way = {
            way: [one for one in blocks if (one["way"], one["operation"]) == (way, operation)]
            for way in WAYS
        }
        ratios = [
            sum(rest["used"].values()) / sum(grpc_block["used"].values())
            for rest, grpc_block in zip(by_way["rest"], by_way["grpc"], strict=True)
        ]
        found[operation] = {
            **{way: figures(mine, operations) for way, mine in by_way.items()},
            "rest_to_grpc_cpu": round(statistics.median(ratios), 3),
            "rest_to_grpc_cpu_of_rounds": sorted(round(ratio, 3) for ratio in ratios),
        }
    return found


def figures(blocks: list[dict[str, Any]], operations: int) -> dict[str, Any]:
    """Return the medians of blocks of one operation one way. Pure."""
    latencies = sorted(latency for one in blocks for latency in one["latencies_ms"])

    def cpu_ms(seconds: Iterable[float]) -> float:
        return round(1_000 * statistics.median(seconds) / operations, 3)

    return {
        "per_second": round(operations / statistics.median(one["seconds"] for one in blocks)),
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[int(len(latencies) * 0.99)],
        "cpu_ms": cpu_ms(sum(one["used"].values()) for one in blocks),
        "cpu_ms_by_kind": {
            kind: cpu_ms([one["used"][kind] for one in blocks]) for kind in blocks[0]["used"]
        },
    }


async def measure_stock(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a stock broker's creates take and cost.

    Raises:
        NoPeer: It cannot run here.
    """
    with tempfile.TemporaryDirectory(prefix="nextgen-peer-") as directory:
        async with (
            StockBroker(
                Path(directory), version=options.stock, java=options.java, heap=options.heap
            ) as broker,
            generator("rest", broker.http, "public/default", options.connections) as rest,
        ):
            process = psutil.Process(broker.process_id)
            warm = await rest.run("create", 0, 10**6, seconds=STOCK_WARM_SECONDS)
            first = 10**7
            rounds = []
            for number in range(options.rounds):
                before = sum(process.cpu_times()[:2])
                result = await rest.run("create", first, options.operations)
                used = sum(process.cpu_times()[:2]) - before
                rounds.append({"number": number, "used": used, **result})
                first += options.operations
    latencies = sorted(latency for one in rounds for latency in one["latencies_ms"])
    return {
        "version": options.stock,
        "creates_before": len(warm["latencies_ms"]),
        "per_second": round(
            options.operations / statistics.median(one["seconds"] for one in rounds)
        ),
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[int(len(latencies) * 0.99)],
        "cpu_ms": round(
            1_000 * statistics.median(one["used"] for one in rounds) / options.operations, 3
        ),
    }


def missed_goals(ways: dict[str, Any]) -> list[str]:
    """Return the goals that were missed. Pure."""
    missed = [
        f"{operation}: {one['rest_to_grpc_cpu']} times the processor time of gRPC"
        for operation, one in ways.items()
        if one["rest_to_grpc_cpu"] > CPU_RATIO_MAX
    ]
    if ways["get"]["rest"]["per_second"] < GETS_PER_SECOND_MIN:
        missed.append(f"get: {ways['get']['rest']['per_second']} a second")
    return missed


async def run(options: argparse.Namespace) -> dict[str, Any]:
    report = await measure(options)
    stock: dict[str, Any] | str | None = None
    beside: dict[str, float] = {}
    if options.stock:
        try:
            stock = await measure_stock(options)
            ours = report["ways"]["create"]["rest"]
            beside = {
                "rate": round(ours["per_second"] / stock["per_second"], 2),
                "cpu": round(ours["cpu_ms"] / stock["cpu_ms"], 2),
            }
        except NoPeer as reason:
            stock = f"no peer: {reason}"
    return {
        "benchmark": "admin_rest",
        "missed": missed_goals(report["ways"]),
        **report,
        "stock_broker": stock,
        "creates_ours_to_stock": beside,
        "run": {**vars(options), "load_average_after": os.getloadavg()[0]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--operations", type=int, default=1_000, help="in a block")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--minimal", action="store_true", help="one process of each kind")
    parser.add_argument("--stock", default="", help="version of org.apache.pulsar:pulsar-broker")
    parser.add_argument("--java", default="java", help="to run it with")
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.generate:
            runner.run(generate(json.loads(options.generate)))
            return 0
        try:
            result = runner.run(run(options))
        except WrongAnswer as wrong:
            print(json.dumps({"benchmark": "admin_rest", "wrong": str(wrong)}))
            return 1
    print(json.dumps(result))
    return int(options.check and bool(result["missed"]))


if __name__ == "__main__":
    sys.exit(main())
