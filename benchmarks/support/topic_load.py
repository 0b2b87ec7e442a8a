"""What the generators of benchmarks/engine/million_topics.py do: create topics, change properties.

    python -m benchmarks.support.topic_load create --target T --first 0 --count 100000
    python -m benchmarks.support.topic_load update --target T --rate 300

``create`` prints one JSON line with its rate. ``update`` writes properties of the same hundred
topics again and again, so that the log grows and the inventory does not, until its standard
input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time

from nextgen.client import Client
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX

NAMESPACE = "acme/orders"
UPDATED_TOPICS = 100
PROPERTY_BYTES = 3_500
UPDATES_IN_FLIGHT = 16


def topic_name(number: int) -> str:
    """Return a name of 58 characters, as long as real ones."""
    return f"persistent://{NAMESPACE}/region-7-customer-{number:014d}"


async def create(target: str, first: int, count: int, in_flight: int) -> dict[str, float]:
    """Create ``count`` topics in full batches, ``in_flight`` batches at a time."""
    starts = iter(range(first, first + count, TOPICS_PER_CREATE_MAX))
    async with Client([target], timeout_ms=60_000) as client:

        async def work() -> None:
            for start in starts:
                end = min(start + TOPICS_PER_CREATE_MAX, first + count)
                await client.create_topics([topic_name(n) for n in range(start, end)])

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(in_flight)))
        elapsed_s = time.perf_counter() - began
    return {"creates_per_s": round(count / elapsed_s), "elapsed_s": round(elapsed_s, 2)}


async def update(target: str, rate: float) -> None:
    """Change properties ``rate`` times a second, as far as the cluster keeps up."""
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    numbers = iter(range(10**9))
    began = loop.time()
    async with Client([target], timeout_ms=20_000) as client:

        async def work() -> None:
            while not ended.done():
                number = next(numbers)
                await asyncio.sleep(began + number / rate - loop.time())
                name = topic_name(number % UPDATED_TOPICS)
                try:
                    await client.set_topic_properties(
                        name, {"note": os.urandom(PROPERTY_BYTES // 2).hex()}
                    )
                except MetadataError as error:
                    print(f"an update failed: {error}", file=sys.stderr)

        await asyncio.gather(*(work() for _ in range(UPDATES_IN_FLIGHT)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["create", "update"])
    parser.add_argument("--target", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--rate", type=float, default=300.0)
    given = parser.parse_args()
    if given.what == "create":
        print(
            json.dumps(asyncio.run(create(given.target, given.first, given.count, given.in_flight)))
        )
    else:
        asyncio.run(update(given.target, given.rate))


if __name__ == "__main__":
    main()
