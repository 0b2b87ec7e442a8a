"""How long do import and export of metadata take, and does a second import change nothing?

    python -m benchmarks.inventory.metadata_import [--topics 1000000] [--stock 5.0.0-M1]

A cluster of one process of each kind and 3 shards, as ``nextgen up --minimal`` starts it but for
the shards, and the commands as people run them. Prints its steps and one JSON line last:

- ``import_s``, ``again_s``: ``nextgen import metadata`` of a file with so many topics in ten
  namespaces, each with a property, twice
- ``export_s``, ``equal``: ``nextgen export metadata``, and whether it writes the file's lines
- ``stock``: with ``--stock``, import from a stock broker with topics, partitions and policies
  (fetched with Maven); ``again_writes_nothing``: whether a second import only finds the same
- ``load_average``: of the machine, at the end

Exits with 1 if anything was refused, is missing, or was changed by a second import.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.support.stock.standalone import NoPeer, StockBroker
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=3)
NAMESPACES = 10
STOCK_TOPICS = 200
STOCK_SCHEMAS = 5
AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
LEVELS = ("tenants", "namespaces", "topics")
COMMAND_TIMEOUT_S = 3_600


def lines_of(topics: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file in the order in which an export writes them."""
    yield {"format": "nextgen-metadata", "version": 1}
    yield {"tenant": "moved"}
    names = [f"moved/n{number}" for number in range(NAMESPACES)]
    yield from ({"namespace": name} for name in names)
    for place, name in enumerate(names):
        for number in range(place, topics, NAMESPACES):
            topic = f"persistent://{name}/topic-{number:09}"
            yield {"topic": topic, "properties": {"owner": "someone"}}
    yield {"end": {"tenants": 1, "namespaces": NAMESPACES, "topics": topics}}


async def command(target: str, *arguments: str) -> tuple[dict[str, Any], float]:
    """Run a command of the program; return what it printed, and its seconds."""
    began = time.perf_counter()
    finished = await asyncio.to_thread(
        subprocess.run,
        (sys.executable, "-m", "nextgen", *arguments, "--target", target, "--json"),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    if finished.returncode:
        raise SystemExit(f"{arguments} failed: {finished.stderr}{finished.stdout[-1_000:]}")
    return json.loads(finished.stdout.splitlines()[-1]), time.perf_counter() - began


async def measure_file(target: str, directory: Path, topics: int) -> dict[str, Any]:
    """Return what a file takes in and out, and whether all is there."""
    file, copy = directory / "metadata.jsonl", directory / "copy.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for line in lines_of(topics):
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    first, import_s = await command(target, "import", "metadata", str(file))
    print(json.dumps({"import_s": round(import_s, 1), "topics": first["topics"]}), flush=True)
    again, again_s = await command(target, "import", "metadata", str(file))
    print(json.dumps({"again_s": round(again_s, 1), "topics": again["topics"]}), flush=True)
    _, export_s = await command(target, "export", "metadata", str(copy))
    return {
        "topics": topics,
        "import_s": round(import_s, 1),
        "again_s": round(again_s, 1),
        "export_s": round(export_s, 1),
        "created": first["topics"]["created"] == topics,
        "again_writes_nothing": again["topics"]["same"] == topics,
        "equal": file.read_bytes() == copy.read_bytes(),
    }


async def fill(http: str) -> None:
    """Give a stock broker a tenant, two namespaces, policies, topics and partitions."""
    admin = f"http://{http}/admin/v2"
    async with aiohttp.ClientSession() as session:

        async def put(path: str, body: Any, method: str = "PUT") -> None:
            async with session.request(method, f"{admin}/{path}", json=body) as answer:
                if answer.status >= 300:
                    raise NoPeer(f"{method} {path}: {answer.status} {await answer.text()}")

        roles = {"adminRoles": ["root"], "allowedClusters": ["standalone"]}
        await put("tenants/shop", roles)
        await put("namespaces/shop/orders", {})
        await put("namespaces/shop/returns", {})
        retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}
        await put("namespaces/shop/orders/retention", retention, "POST")
        await put("namespaces/shop/orders/messageTTL", 60, "POST")
        await put("namespaces/shop/returns/maxConsumersPerTopic", 3, "POST")
        for number in range(STOCK_TOPICS):
            await put(f"persistent/shop/orders/plain-{number}", {"number": str(number)})
            if number < STOCK_SCHEMAS:
                schema = {"type": "AVRO", "schema": AVRO, "properties": {"team": "shop"}}
                await put(f"schemas/shop/orders/plain-{number}/schema", schema, "POST")
        for number in range(10):
            await put(f"persistent/shop/returns/wide-{number}/partitions", 4)


async def measure_stock(target: str, directory: Path, version: str, java: str) -> Any:
    """Return what an import from a stock broker did, and its repetition; or why there is none."""
    try:
        async with StockBroker(directory, version=version, java=java, heap="1g") as broker:
            await fill(broker.http)
            url = f"http://{broker.http}"
            first, seconds = await command(target, "import", "pulsar", url)
            again, again_s = await command(target, "import", "pulsar", url)
    except NoPeer as reason:
        return str(reason)
    print(json.dumps({"first": first, "again": again}), flush=True)
    return {
        "version": version,
        "import_s": round(seconds, 1),
        "again_s": round(again_s, 1),
        **{level: first[level]["created"] for level in LEVELS},
        "not_carried": first["not_carried"]["count"],
        "schemas": first["schemas"]["added"],
        "complete": first["topics"]["created"] >= STOCK_TOPICS + 10
        and first["schemas"]["added"] == STOCK_SCHEMAS == again["schemas"]["same"],
        "again_writes_nothing": all(
            again[level]["same"] == again[level]["read"] == first[level]["read"] for level in LEVELS
        ),
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--stock", default="")
    parser.add_argument("--java", default="java")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        plan = make_plan_on_free_ports(SIZE)
        async with LocalCluster(plan, directory / "cluster") as cluster:
            await cluster.wait_ready()
            target = plan.discovery_endpoints[0]
            result = await measure_file(target, directory, options.topics)
            if options.stock:
                (directory / "stock").mkdir()
                result["stock"] = await measure_stock(
                    target, directory / "stock", options.stock, options.java
                )
    result["load_average"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result))
    stock = result.get("stock")
    checked = [*result.values(), *(stock.values() if isinstance(stock, dict) else ())]
    return int(any(value is False for value in checked))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
