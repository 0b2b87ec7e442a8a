"""How fast is a broker emptied, and who notices?

The default cluster with some thousand assigned topics; lookups are asked for at a constant rate, a
tenth of them of topics that no broker serves. One broker is drained at a rate: what is left of it
is counted twice a second until it is empty. It may not get anything meanwhile, nor afterwards until
the drain is undone; then it does again. One JSON line last; exits with 1 if a lookup failed, or the
broker got a topic while it was draining.

    python -m benchmarks.brokers.drain [--topics 3000] [--rate 100]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.support.constant_lookups import LookupRate, constant_lookups
from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.bench import Bench, bench
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest
from protos.nextgen.v1.shard_service_pb2 import DrainRequest, UnitCountRequest

LOOKUPS_PER_SECOND = 100.0
NEW_TOPICS = 60
"""Looked up first behind the drain, and again behind its end: a third would be the broker's."""

COUNT_INTERVAL_S = 0.5
TIMEOUT_SHARE = 4.0
TIMEOUT_EXTRA_S = 30.0
KNOWN_S = 2.0
"""For the end of the drain to be known to every shard."""


async def units_of(client: DiscoveryClient, broker_id: str) -> int:
    counted = await client.call("CountUnits", UnitCountRequest())
    return sum(one.units for one in counted.brokers if one.broker_id == broker_id)


async def first_looked_up(ready: Bench, client: DiscoveryClient, stem: str) -> Counter[str]:
    """Return the brokers that get topics on their first lookup."""
    topics = ready.topics(stem, NEW_TOPICS)
    await ready.run(
        "create_batched", stem, NEW_TOPICS, topics=topics.as_json(), batch=NEW_TOPICS, in_flight=1
    )
    response = await client.call("Lookup", LookupRequest(topics=topics.names()))
    for answer in response.answers:
        if answer.rejection_code:
            raise CheckFailed(f"{answer.topic}: {answer.message}")
    return Counter(answer.broker_id for answer in response.answers)


async def emptied(client: DiscoveryClient, broker_id: str, timeout_s: float) -> list[list[float]]:
    """Return pairs of seconds and units that were left, until there are none."""
    began_at = time.monotonic()
    left: list[list[float]] = []
    while not left or left[-1][1]:
        elapsed_s = time.monotonic() - began_at
        if elapsed_s > timeout_s:
            raise CheckFailed(f"{left[-1][1]:.0f} units are left after {elapsed_s:.0f} s")
        left.append([round(elapsed_s, 2), await units_of(client, broker_id)])
        await asyncio.sleep(COUNT_INTERVAL_S)
    return left


async def drain(ready: Bench, rate: int, broker_id: str) -> dict[str, Any]:
    async with DiscoveryClient(ready.targets) as client:
        before = await units_of(client, broker_id)
        began_at = time.monotonic()
        await client.call("DrainBroker", DrainRequest(broker_id=broker_id, units_per_second=rate))
        left = await emptied(client, broker_id, TIMEOUT_SHARE * before / rate + TIMEOUT_EXTRA_S)
        seconds = time.monotonic() - began_at
        drained = await first_looked_up(ready, client, "drained")
        await client.call("DrainBroker", DrainRequest(broker_id=broker_id, undo=True))
        await asyncio.sleep(KNOWN_S)
        undone = await first_looked_up(ready, client, "undone")
    return {
        "units": before,
        "seconds": round(seconds, 2),
        "predicted_s": round(before / rate, 2),
        "units_per_second": round(before / seconds, 1),
        "got_while_drained": drained[broker_id],
        "got_when_undone": undone[broker_id],
        "left": left,
    }


async def measure(topics: int, rate: int) -> dict[str, Any]:
    async with bench(None, ClusterSize()) as ready:
        assert ready.cluster is not None, "the cluster is our own"
        broker_id = ready.cluster.plan.of_kind("broker")[0].node_id
        load = LookupRate(LOOKUPS_PER_SECOND, warm_topics=topics)
        async with constant_lookups(ready, load) as told:
            drained = await drain(ready, rate, broker_id)
    return {
        "benchmark": "drain",
        **drained,
        "lookups": told["lookups"],
        "failed_lookups": told["errors"],
        "bad_windows": told["bad_windows"],
        "windows": told["windows"],
        "run": {"topics": topics, "rate": rate, "load_average_after": os.getloadavg()[0]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=3_000)
    parser.add_argument("--rate", type=int, default=100, help="units a second, whole cluster")
    options = parser.parse_args()
    result = asyncio.run(measure(options.topics, options.rate))
    print(json.dumps(result))
    if result["failed_lookups"] or result["bad_windows"] or result["got_while_drained"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
