"""Measures how well a broker keeps a topic to its rate, and what limits cost other topics.

Stock clients, in processes of their own, publish to one broker. First one sends 100 messages/s to a
topic without limits, alone; then again, while another floods a topic that may have ``--limit`` a
second, for ``--seconds``; then alone again. The broker's own count of the flooded topic is compared
with the limit, and the p99 of the other with those that it has alone. Then floods of a topic
without limits and of one with limits that are never reached take turns: processor time of the
broker for a message. Everything that was acknowledged is read back. Prints one JSON line last;
``--check`` fails beyond the bounds.

    python -m benchmarks.brokers.client_quotas [--limit 1000] [--seconds 20] [--turns 4] [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
import urllib.request
from typing import Any

from nextgen.cli.local.cluster import child_environment
from nextgen.cli.local.plan import MINIMAL
from nextgen.harness.perf.bench import Bench, bench
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout

BROKER = "broker-1"
FREE_RATE = 100
CLIENT_SECONDS_MAX = 300
WARM_S = 3.0
"""A topic's first burst, and what one read brings beyond it, are over by then."""

FLOOD_S = 6.0
COST_RATIO_MAX = 1.05
RATE_ERROR_MAX = 0.05
FAR_AWAY: dict[str, Any] = {
    "publishRate": {"publishThrottlingRateInMsg": 10**9, "publishThrottlingRateInByte": 10**12},
    "dispatchRate": {"dispatchThrottlingRateInMsg": 10**9, "dispatchThrottlingRateInByte": 10**12},
    "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10**9},
    "maxProducers": 1_000,
    "maxConsumers": 1_000,
}
"""Limits that no client here reaches."""


class Load:
    """One stock client that publishes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, cluster: Bench, topic: str, seconds: float, *more: str) -> Load:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.brokers.quota_load"),
            *("--service-url", f"pulsar://{cluster.pulsar}", "--topic", name(cluster, topic)),
            *("--seconds", str(seconds), *more),
            stdout=asyncio.subprocess.PIPE,
            env=environment_of_child(child_environment(lifeline=False)),
        )
        load = cls(process)
        await load._line()
        return load

    async def result(self) -> dict[str, Any]:
        found = await self._line()
        await self._process.wait()
        return found

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with timeout(CLIENT_SECONDS_MAX):
                line = await self._process.stdout.readline()
        except TimeoutError:
            self._process.kill()
            raise
        if not line:
            raise SystemExit(f"a client ended with code {await self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


def name(cluster: Bench, topic: str) -> str:
    return f"persistent://{cluster.namespace}/{topic}"


async def rest(cluster: Bench, path: str, body: Any = None) -> Any:
    assert cluster.cluster is not None
    http = cluster.cluster.plan.of_kind("discovery")[0].http
    request = urllib.request.Request(
        f"http://{http}/admin/v2/persistent/{cluster.namespace}/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="GET" if body is None else "POST",
    )

    def call() -> bytes:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    text = await asyncio.to_thread(call)
    return json.loads(text) if text else None


async def stored(cluster: Bench, topic: str) -> tuple[float, int]:
    """Return the broker's own count of messages of a topic, and when it was taken."""
    began = time.monotonic()
    count = (await rest(cluster, f"{topic}/stats"))["msgInCounter"]
    return (began + time.monotonic()) / 2, count


async def rates(cluster: Bench, limit: int, seconds: float) -> dict[str, Any]:
    """Publish to a free topic alone, beside a flood of a limited one, and alone again."""
    paced = ("--rate", str(FREE_RATE), "--read-back")
    alone = await (await Load.start(cluster, "free", seconds, *paced)).result()
    flood = await Load.start(cluster, "limited", seconds + 2 * WARM_S, "--read-back")
    await asyncio.sleep(WARM_S)
    beside = await Load.start(cluster, "free-beside", seconds, *paced)
    began, before = await stored(cluster, "limited")
    await asyncio.sleep(seconds)
    ended, after = await stored(cluster, "limited")
    free, limited = await beside.result(), await flood.result()
    again = await (await Load.start(cluster, "free-again", seconds, *paced)).result()
    rate = (after - before) / (ended - began)
    loads = (alone, free, limited, again)
    p99_alone, p99_beside, p99_again = (load["latency_ms"]["p99"] for load in (alone, free, again))
    return {
        "limit_per_s": limit,
        "counted_per_s": round(rate, 1),
        "error": round(rate / limit - 1, 4),
        "free_p99_ms": {
            "alone": p99_alone,
            "beside_the_flood": p99_beside,
            "alone_again": p99_again,
        },
        "free_p99_ratio": round(2 * p99_beside / (p99_alone + p99_again), 2),
        "lost": sum(load["lost"] for load in loads),
        "failed": sum(load["failed"] for load in loads),
        "acknowledged": sum(load["acknowledged"] for load in loads),
    }


async def cost(cluster: Bench, topic: str) -> float:
    """Flood a topic for a while; return microseconds of the broker for a message."""
    load = await Load.start(cluster, topic, FLOOD_S, "--consume")
    cpu_before, (_, before) = cluster.cpu_seconds(BROKER) or 0.0, await stored(cluster, topic)
    await asyncio.sleep(FLOOD_S - 1)
    cpu_after, (_, after) = cluster.cpu_seconds(BROKER) or 0.0, await stored(cluster, topic)
    await load.result()
    return (cpu_after - cpu_before) / (after - before) * 1e6


async def costs(cluster: Bench, turns: int) -> dict[str, Any]:
    """Flood two topics in turn; the one that begins changes each time."""
    found: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(turns):
        kinds = ("without", "with") if turn % 2 else ("with", "without")
        for kind in kinds:
            found[kind].append(await cost(cluster, f"costs-{kind}"))
    by_turn = zip(found["with"], found["without"], strict=True)
    return {
        "broker_us_per_message": {
            kind: [round(each, 2) for each in each_turn] for kind, each_turn in found.items()
        },
        "cost_ratio": round(
            statistics.median(found["with"]) / statistics.median(found["without"]), 3
        ),
        "cost_ratio_by_turn": [round(have / have_not, 3) for have, have_not in by_turn],
    }


async def measure(limit: int, seconds: float, turns: int) -> dict[str, Any]:
    async with bench(None, MINIMAL) as cluster:
        topics = ("free", "free-beside", "free-again", "limited", "costs-with", "costs-without")
        await cluster.create([name(cluster, topic) for topic in topics])
        await rest(cluster, "limited/publishRate", {"publishThrottlingRateInMsg": limit})
        for policy, value in FAR_AWAY.items():
            await rest(cluster, f"costs-with/{policy}", value)
        found = await rates(cluster, limit, seconds)
        found |= await costs(cluster, turns)
    return {
        "benchmark": "client_quotas",
        **found,
        "seconds": seconds,
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def check(found: dict[str, Any]) -> None:
    """Raise ``CheckFailed`` beyond a bound."""
    if found["lost"] or found["failed"]:
        raise CheckFailed(f"{found['lost']} messages are lost, {found['failed']} failed")
    if abs(found["error"]) > RATE_ERROR_MAX:
        raise CheckFailed(f"the rate differs by {found['error']:.1%} from its limit")
    if found["cost_ratio"] > COST_RATIO_MAX:
        raise CheckFailed(f"limits make a message {found['cost_ratio']} times as expensive")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(given.limit, given.seconds, given.turns))
    print(json.dumps(found))
    if given.check:
        check(found)


if __name__ == "__main__":
    main()
