"""How long does a message take from its source to a consumer of a shadow at another broker?

    .venv/bin/python benchmarks/shadow/shadow_latency.py [--quick]

One producer sends at a fixed rate; beside the shadow's consumer there is one at the source itself,
in the same run. Times are from before a message is written until it is read, all in this process.
Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from typing import Any

from benchmarks.support.shadow_topics import (
    Brokers,
    Publisher,
    arrivals,
    make_shadows,
    quantiles_ms,
    subscribe,
)
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.bench import bench

GOAL_MS = {"p50": 10, "p99": 50}
BODY_BYTES = 1_000
PERMITS = 1_000_000
ARRIVES_S = 10


async def measure(messages: int, per_second: float) -> dict[str, Any]:
    async with bench(None, ClusterSize(brokers=2)) as cluster:
        shadowed = await make_shadows(cluster, "latency", 1)
        (shadow,) = shadowed.shadows
        brokers = Brokers(cluster)
        publisher = await Publisher.open(
            brokers, shadowed.owners[shadowed.source], shadowed.source, BODY_BYTES
        )
        seen: dict[str, dict[int, float]] = {}
        for topic in (shadowed.source, shadow):
            at = seen[topic] = {}
            connection = await brokers.connect(shadowed.owners[topic], arrivals(at.setdefault))
            await subscribe(connection, topic, "reads", 0, permits=PERMITS)
        await publisher.publish(messages // 10, per_second)
        warm = len(publisher.sent_at)
        await publisher.publish(messages, per_second)
        for _ in range(ARRIVES_S * 100):
            if all(len(each) == warm + messages for each in seen.values()):
                break
            await asyncio.sleep(0.01)
        brokers.close()
    took = {
        topic: [at[number] - publisher.sent_at[number] for number in at if number >= warm]
        for topic, at in seen.items()
    }
    missing = {topic: messages - len(each) for topic, each in took.items()}
    assert not any(missing.values()), f"messages did not arrive: {missing}"
    shadow_ms = quantiles_ms(took[shadow])
    return {
        "benchmark": "shadow_latency",
        "shadow_ms": shadow_ms,
        "source_ms": quantiles_ms(took[shadowed.source]),
        "receipt_ms": quantiles_ms(
            [publisher.receipt_s[each] for each in range(warm, warm + messages)]
        ),
        "goal_ms": GOAL_MS,
        "reached": all(shadow_ms[name] <= most for name, most in GOAL_MS.items()),
        "messages": messages,
        "per_second": per_second,
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--per-second", type=float, default=200)
    parser.add_argument("--quick", action="store_true", help="500 messages")
    options = parser.parse_args()
    messages = 500 if options.quick else options.messages
    print(json.dumps(asyncio.run(measure(messages, options.per_second))))


if __name__ == "__main__":
    main()
