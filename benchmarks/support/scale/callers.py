"""Looks topics of a scale run up, or creates more: a process. Prints one JSON line.

    python -m benchmarks.support.scale.callers lookups --target T --topics N --count 1000000
    python -m benchmarks.support.scale.callers creates --target T --topics N --count 100000

``lookups`` draws different topics at random. The first ``--singles`` of them are looked up one by
one, the others ``--batch`` at a time by ``CALLERS``; then those, as far as a discovery node keeps
that many answers, again: the warm ones. ``creates`` makes topics that the run does not have, the
first ``--singles`` one by one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.support.scale.names import name_of
from nextgen.client import Client
from nextgen.harness.load.measure import Latencies

CALLERS = 4
WARM_NAMES_MAX = 100_000
"""Far fewer than a discovery node keeps, so that the warm ones are warm."""

Call = Callable[[Sequence[str]], Awaitable[int]]
"""Asks about names; returns how many answers were wrong."""


async def one_by_one(names: Sequence[str], call: Call) -> dict[str, float]:
    latencies = Latencies()
    wrong = 0
    for name in names:
        began = time.perf_counter()
        wrong += await call([name])
        latencies.add(time.perf_counter() - began)
    return {**latencies.summary(), "wrong": wrong}


async def at_once(names: Sequence[str], batch: int, call: Call) -> dict[str, float]:
    starts = iter(range(0, len(names), batch))
    wrong = 0

    async def work() -> None:
        nonlocal wrong
        for start in starts:
            wrong += await call(names[start : start + batch])

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CALLERS)))
    elapsed_s = time.perf_counter() - began
    return {
        "count": len(names),
        "per_s": round(len(names) / elapsed_s),
        "elapsed_s": round(elapsed_s, 2),
        "wrong": wrong,
    }


async def lookups(client: Client, given: argparse.Namespace) -> dict[str, object]:
    # A run that goes on draws others than the one before: these are first lookups.
    numbers = random.sample(range(given.topics), given.count)
    names = [name_of(number) for number in numbers]
    singles, others = names[: given.singles], names[given.singles :]

    async def call(some: Sequence[str]) -> int:
        found = await client.lookup(list(some))
        return sum(
            location.topic != name or not location.broker_id
            for name, location in zip(some, found, strict=True)
        )

    await client.lookup(["persistent://scale-0/large/absent"])  # The connection is there.
    return {
        "first_alone": await one_by_one(singles, call),
        "first": await at_once(others, given.batch, call),
        "warm_alone": await one_by_one(singles, call),
        "warm": await at_once(others[:WARM_NAMES_MAX], given.batch, call),
    }


async def creates(client: Client, given: argparse.Namespace) -> dict[str, object]:
    stem = f"persistent://scale-1/n-00/more-{os.getpid()}-{time.time_ns():x}"
    names = [f"{stem}-{number:09d}" for number in range(given.count)]

    async def call(some: Sequence[str]) -> int:
        return sum(not topic.is_created for topic in await client.create_topics(list(some)))

    return {
        "alone": await one_by_one(names[: given.singles], call),
        "at_once": await at_once(names[given.singles :], given.batch, call),
    }


async def run(given: argparse.Namespace) -> dict[str, object]:
    async with Client([given.target], timeout_ms=60_000) as client:
        return await (lookups if given.what == "lookups" else creates)(client, given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("lookups", "creates"))
    parser.add_argument("--target", required=True)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--singles", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=500)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
