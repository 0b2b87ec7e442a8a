"""How long does a split or a merge keep writers waiting, and when do clients have the new layout?

A cluster (one shard of three replicas with fsync, two discovery nodes, three brokers) has a topic
of one segment, which is split and merged in turns over the Admin REST. A watch of its layout is
open at a discovery node's Pulsar port. First rounds without load but for one connection that sends
to the parent each millisecond, and so notices when it ends; then under the stock Java client of
Pulsar 5 with ``--rate`` messages a second, each key's one after the other. With ``--stock`` a stock
broker (Java 21 or newer, Maven Central) gets the same; where it cannot run, the result says why.
Prints one JSON line last, all times in milliseconds, quantiles of the rounds:

- ``call_to_layout``: from the call until the watcher has the new layout; ``call``: until its answer
- ``sealed_to_layout``: from the first refused message until the watcher has the new layout
- ``gap``: the longest time between two acknowledgements of the load around a split or merge;
  ``slowest``: the message that waited longest; ``failed``: what the producer was told, if anything

    python -m benchmarks.brokers.scalable_splits [--splits 60] [--rate 1000] [--stock 5.0.0-M1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.inventory.topic_listing import quantile
from benchmarks.support.stock.standalone import NoPeer, StockBroker
from nextgen.cli.local.plan import ClusterSize
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    ACTIVE,
    BaseCommand,
    CommandLookupTopic,
    CommandProducer,
    CommandScalableTopicLookup,
    CommandSend,
    MessageMetadata,
    ScalableTopicDAG,
)
from tests.support.callers.foreign_client import java_v5_program
from tests.support.callers.stock_client import running_system
from tests.support.scalable_client.servers import newest_java

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=3, shards=1)
HEAP = "600m"
WARM_ROUNDS = 5
"""Splits and merges that are not counted, for compilers and disks to warm up."""

QUIET_S = 0.4
"""Between two changes, and before and behind each that is measured."""

WAIT_S = 20.0
KEYS = 500
NAMESPACE = "public/default"


class Watch:
    """A watch of one topic's layout, with the moment at which the last one came."""

    def __init__(self) -> None:
        self.layout = ScalableTopicDAG()
        self.at = 0.0
        self._updated = asyncio.Event()
        self._connection: PulsarClientConnection

    @classmethod
    async def open(cls, address: str, topic: str) -> Watch:
        self = cls()
        host, _, port = address.rpartition(":")
        self._connection = await PulsarClientConnection.open(host, int(port), on_push=self._take)
        lookup = CommandScalableTopicLookup(session_id=1, topic=topic, create_if_missing=False)
        self._connection.send_command(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP, scalableTopicLookup=lookup)
        )
        await self.newer(-1)
        return self

    @property
    def active(self) -> list[str]:
        """The segments that take messages, as descriptors, by range."""
        found = [
            (each.hash_start, each.hash_end, each.segment_id)
            for each in self.layout.segments
            if each.state == ACTIVE
        ]
        return [f"{start:04x}-{end:04x}-{number}" for start, end, number in sorted(found)]

    async def newer(self, epoch: int) -> float:
        """Return when a layout later than ``epoch`` came."""
        async with timeout(WAIT_S):
            while not self.layout.segments or self.layout.epoch <= epoch:
                self._updated.clear()
                await self._updated.wait()
        return self.at

    def close(self) -> None:
        self._connection.close()

    def _take(self, command: BaseCommand, _: bytes) -> None:
        update = command.scalableTopicUpdate
        if update.HasField("dag"):
            if update.dag.epoch > self.layout.epoch or not self.layout.segments:
                self.at = time.perf_counter()
            self.layout = update.dag
            self._updated.set()


class Probe:
    """Sends to one segment each millisecond until that is refused."""

    def __init__(self) -> None:
        self.refused_at = 0.0
        self._connection: PulsarClientConnection
        self._is_over = asyncio.Event()

    @classmethod
    async def open(cls, address: str, segment: str) -> Probe:
        self = cls()
        async with await _connected(address) as connection:
            found = await _served(connection, segment)
        self._connection = await _connected(found, on_push=self._take)
        await _served(self._connection, segment)
        await self._connection.request(
            BaseCommand(
                type=BaseCommand.PRODUCER,
                producer=CommandProducer(topic=segment, producer_id=1, producer_name="probe"),
            )
        )
        return self

    async def run(self) -> None:
        """Send until a message is refused, which sets ``refused_at``."""
        number = 0
        while not self._is_over.is_set():
            metadata = MessageMetadata(
                producer_name="probe", sequence_id=number, publish_time=1, partition_key="k"
            )
            send = CommandSend(producer_id=1, sequence_id=number, num_messages=1)
            self._connection.send(
                encode_frame(
                    BaseCommand(type=BaseCommand.SEND, send=send), message_payload(metadata, b"x")
                )
            )
            number += 1
            await asyncio.sleep(0.001)
        self._connection.close()

    def _take(self, command: BaseCommand, _: bytes) -> None:
        if command.type != BaseCommand.SEND_RECEIPT and not self._is_over.is_set():
            self.refused_at = time.perf_counter()
            self._is_over.set()


async def _connected(address: str, **options: Any) -> PulsarClientConnection:
    host, _, port = address.rpartition(":")
    return await PulsarClientConnection.open(host, int(port), **options)


async def _served(connection: PulsarClientConnection, topic: str) -> str:
    """Look a topic up; return the address of its broker."""
    lookup = CommandLookupTopic(topic=topic, authoritative=False)
    answer = await connection.request(
        BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup), timeout_ms=10_000
    )
    url = answer.lookupTopicResponse.brokerServiceUrl
    assert url, answer
    return str(url).rpartition("/")[2]


class Topic:
    """One topic of a server, its watch, and the calls that change it."""

    def __init__(self, pulsar: str, http: str, name: str, session: aiohttp.ClientSession) -> None:
        self.name = f"topic://{NAMESPACE}/{name}"
        self.pulsar = pulsar
        self.watch: Watch
        self._url = f"http://{http}/admin/v2/scalable/{NAMESPACE}/{name}"
        self._session = session

    async def create(self) -> None:
        await self._call("PUT", "?numInitialSegments=1")
        self.watch = await Watch.open(self.pulsar, self.name)

    async def change(self) -> dict[str, float]:
        """Split the only segment, or merge the two that there are; return how long it took."""
        ids = [each.rpartition("-")[2] for each in self.watch.active]
        path = f"/split/{ids[0]}" if len(ids) == 1 else f"/merge/{ids[0]}/{ids[1]}"
        epoch = self.watch.layout.epoch
        began = time.perf_counter()
        calling = asyncio.ensure_future(self._call("POST", path))
        at = await self.watch.newer(epoch)
        await calling
        return {"call_to_layout": at - began, "call": time.perf_counter() - began}

    async def _call(self, method: str, path: str) -> None:
        async with self._session.request(method, self._url + path, json={}) as answer:
            assert answer.status < 300, await answer.text()


async def measure_idle(topic: Topic, rounds: int) -> dict[str, Any]:
    """Split and merge while nothing but the probe sends."""
    times: dict[str, list[dict[str, float]]] = {"split": [], "merge": []}
    for number in range(2 * rounds):
        kind = "split" if len(topic.watch.active) == 1 else "merge"
        segment = topic.name.replace("topic://", "segment://") + "/" + topic.watch.active[0]
        probe = await Probe.open(topic.pulsar, segment)
        probing = asyncio.ensure_future(probe.run())
        await asyncio.sleep(QUIET_S / 2)
        measured = await topic.change()
        async with timeout(WAIT_S):
            await probing
        measured["sealed_to_layout"] = topic.watch.at - probe.refused_at
        if number >= 2 * WARM_ROUNDS:
            times[kind].append(measured)
        await asyncio.sleep(QUIET_S / 2)
    return {kind: _summary(each) for kind, each in times.items()}


async def measure_loaded(topic: Topic, rounds: int, rate: int) -> dict[str, Any]:
    """Split and merge under the stock Java client."""
    times: dict[str, list[dict[str, float]]] = {"split": [], "merge": []}
    failed = ""
    async with _java_load(topic, rate) as take:
        await asyncio.sleep(2.0)
        for number in range(2 * rounds):
            kind = "split" if len(topic.watch.active) == 1 else "merge"
            await asyncio.sleep(QUIET_S)
            await take()
            measured = await topic.change()
            await asyncio.sleep(QUIET_S)
            taken = await take()
            measured["gap"] = taken["longest_gap_ms"] / 1_000
            measured["slowest"] = taken["slowest_ms"] / 1_000
            failed = failed or taken["failed"]
            if number >= 2 * WARM_ROUNDS:
                times[kind].append(measured)
        taken = await take(is_last=True)
    summary: dict[str, Any] = {kind: _summary(each) for kind, each in times.items()}
    unanswered = taken["unanswered_keys"]
    return summary | {
        "acknowledged": taken["acknowledged"],
        "unanswered_keys": unanswered,
        "failed": failed or taken["failed"],
    }


@asynccontextmanager
async def _java_load(topic: Topic, rate: int) -> AsyncIterator[Any]:
    """Start the producer; yield a function that returns what happened since its last call."""
    command = await asyncio.to_thread(java_v5_program, "checks.Paced", "256m", flags=())
    url = f"pulsar://{topic.pulsar}"
    process = await asyncio.create_subprocess_exec(
        *(*command, url, topic.name, str(rate), str(KEYS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    async def take(*, is_last: bool = False) -> dict[str, Any]:
        if is_last:
            questions.close()
        else:
            questions.write(b"\n")
        async with timeout(WAIT_S):
            taken: dict[str, Any] = json.loads(await answers.readline())
        return taken

    try:
        yield take
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _summary(times: list[dict[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"rounds": len(times)}
    for what in times[0] if times else ():
        values = sorted(1_000 * each[what] for each in times)
        found[what] = {
            "p50": round(statistics.median(values), 1),
            "p99": round(quantile(values, 0.99), 1),
            "max": round(values[-1], 1),
        }
    return found


async def measure(pulsar: str, http: str, options: argparse.Namespace) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        idle = Topic(pulsar, http, "bench-idle", session)
        loaded = Topic(pulsar, http, "bench-loaded", session)
        results = {}
        await idle.create()
        results["without_load"] = await measure_idle(idle, options.splits + WARM_ROUNDS)
        idle.watch.close()
        if options.rate:
            await loaded.create()
            rounds = options.splits + WARM_ROUNDS
            results["under_load"] = await measure_loaded(loaded, rounds, options.rate)
            loaded.watch.close()
        return results


async def measure_stock(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    java = newest_java()
    if java is None:
        return {"why_not": "there is no Java 21 or newer"}
    try:
        async with StockBroker(directory, version=options.stock, java=java, heap=HEAP) as broker:
            return await measure(f"127.0.0.1:{broker.port}", broker.http, options)
    except NoPeer as error:
        return {"why_not": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=60, help="as many merges, in each part")
    parser.add_argument("--rate", type=int, default=1_000, help="0: only without load")
    parser.add_argument("--shard-nodes", type=int, default=SIZE.shard_nodes)
    parser.add_argument("--stock", default="", help="version of a stock broker to measure, too")
    options = parser.parse_args()
    size = ClusterSize(
        cluster_managers=1, shard_nodes=options.shard_nodes, discovery=2, brokers=3, shards=1
    )
    result: dict[str, Any] = {"benchmark": "scalable_splits", "run": vars(options)}
    with tempfile.TemporaryDirectory(prefix="nextgen-bench-") as directory:
        with running_system(Path(directory) / "cluster", size) as system:
            pulsar = system.first_service_url.rpartition("/")[2]
            http = system.http_url.rpartition("/")[2]
            result["ours"] = asyncio.run(measure(pulsar, http, options))
        if options.stock:
            stock = Path(directory) / "stock"
            stock.mkdir()
            result["stock"] = asyncio.run(measure_stock(stock, options))
    print(json.dumps(result | {"load": os.getloadavg()}))


if __name__ == "__main__":
    main()
