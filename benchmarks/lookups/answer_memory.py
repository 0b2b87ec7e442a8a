"""What do a million cached answers take, and what does reading them cost?

    python -m benchmarks.lookups.answer_memory [--answers 1000000] [--beside TREE] [--check]

A process with all modules of discovery fills its cache through ``LookupService``: each name is
looked up once, and a stand-in for the shards answers in their encoding. Names have 48 characters,
there are 8 shards and 100 brokers. Prints one JSON line last:

- ``base_mb``, ``quarter_mb``, ``full_mb``: resident memory without answers, with a quarter of them,
  and with all, the names for the rounds left out; ``bytes_per_answer`` of all; ``in_use_mb``
  once they were read
- ``collection_ms``: processor time of a full garbage collection with all answers
- ``put_ms_max``: the longest that a message of 64 first lookups of a further answer takes
- ``lookup_ns``: processor time to answer a warm name, in messages of 64, when 1,000 names are in
  use, 40,000, or all, chosen at random; ``route_ns``: the same for the route of a Pulsar lookup

``--beside TREE`` has another checkout of the sources measured in turns, round by round, with as
many answers and room for twice as many: earlier ones drop half of them as soon as a full cache is
read. ``--check`` exits with 1 if ``in_use_mb`` is more than 400 for a million answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GOAL_MB = 400
BROKERS = 100
SHARDS = 8
NAMES_PER_MESSAGE = 64
MESSAGES_PER_ROUND = 1_000
USED = (1_000, 40_000)
ROUNDS = 5
WARM_ROUNDS = 6


# In the measured process --------------------------------------------------------------------------


def name_of(number: int) -> str:
    return f"persistent://tenant-{number % 1_000:03}/ns/orders-{number:015}"


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def made_service(answers_max: int) -> tuple[Any, Any]:
    """Return a lookup service with a stand-in for the shards behind it, and its cache."""
    # Imported here: the process that only starts others must not need them.
    import discovery.bootstrap.node  # noqa: F401  (what a process has without answers)
    from discovery.domain.absent_names import AbsentNames
    from discovery.domain.answer_cache import AnswerCache
    from discovery.service.counters import DiscoveryCounters
    from discovery.service.lookups.lookup import LookupService
    from discovery.wire import encoded_answer_facts
    from nextgen.pulsar.lookups import lookup_answer_beginnings
    from protos.nextgen.v1.inventory_pb2 import LookupAnswer
    from protos.nextgen.v1.shard_service_pb2 import ShardLookupResponse, ShardResponse

    def answered(topic: str) -> LookupAnswer:
        number = zlib.crc32(topic.encode())
        broker = number % BROKERS
        return LookupAnswer(
            topic=topic,
            broker_id=f"broker-{broker}",
            broker_url=f"pulsar://broker-{broker}.pulsar.svc.cluster.local:6650",
            broker_grpc=f"broker-{broker}.pulsar.svc.cluster.local:7650",
            epoch=1 + number % 3,
            session_id=f"{broker:024x}",
            topic_id=f"{number:024x}",
            shard_id=1 + number % SHARDS,
            position=10_000_000 + number % 1_000_000,
        )

    class Shards:
        def shard_of_key(self, routing_key: str) -> int:
            return 1 + zlib.crc32(routing_key.encode()) % SHARDS

        async def call(self, _shard_id: int, request: Any, **_options: Any) -> Any:
            answers = map(answered, request.lookup.topics)
            encoded = ShardResponse(lookup=ShardLookupResponse(answers=answers))
            return ShardResponse.FromString(encoded.SerializeToString())

    class View:
        shard_map_version = 1

        def has_session_ended(self, _broker_id: str, _session_id: str) -> bool:
            return False

    class Directory:
        view = View()

    cache = AnswerCache(
        encoded_answer_facts,
        answers_max=answers_max,
        aliases_max=50_000,
        deltas_max=10_000,
        route_of=lookup_answer_beginnings,
    )
    for shard_id in range(1, SHARDS + 1):
        cache.reset(shard_id, 1)
        cache.renew(shard_id, 1e12)
    absent = AbsentNames(names_max=9, answer_bytes_max=999, ttl_ms=9, idle_ms=9)
    shards: Any = Shards()
    directory: Any = Directory()
    counters = DiscoveryCounters()
    return LookupService(shards, directory, cache, absent, counters, time.monotonic), cache


def message_of(names: list[str]) -> bytes:
    from protos.nextgen.v1.discovery_service_pb2 import LookupRequest

    return LookupRequest(request_id=1, topics=names).SerializeToString()


async def fill(service: Any, first: int, end: int) -> None:
    for start in range(first, end, NAMES_PER_MESSAGE):
        names = [name_of(number) for number in range(start, min(end, start + NAMES_PER_MESSAGE))]
        await service.answer(message_of(names), 10_000)


def chosen_names(answers: int, count: int) -> list[list[str]]:
    """Return the names of a round's messages, with ``count`` of the answers in use."""
    chance = random.Random(count)
    # What is in use was not put one after the other: it lies anywhere in memory.
    used = chance.sample(range(answers), count)
    return [
        [name_of(chance.choice(used)) for _ in range(NAMES_PER_MESSAGE)]
        for _ in range(MESSAGES_PER_ROUND)
    ]


def spent_ns(service: Any, cache: Any, chosen: list[list[str]]) -> tuple[float, float]:
    """Return the processor time of a warm name, and of a route."""
    messages = [message_of(names) for names in chosen]
    began = time.thread_time()
    for message in messages:
        if not isinstance(service.answer_at_once(message), bytes):
            raise AssertionError("an answer is not in the cache")
    lookups = time.thread_time() - began
    route = cache.route
    began = time.thread_time()
    for names in chosen:
        for name in names:
            if not route(name, 1.0):
                raise AssertionError("a name has no route")
    routes = time.thread_time() - began
    each = 1e9 / MESSAGES_PER_ROUND / NAMES_PER_MESSAGE
    return lookups * each, routes * each


async def serve(answers: int, room: int) -> None:
    """Fill the cache, print the figures of that, then measure a round for each line of input."""
    service, cache = made_service(room)
    gc.collect()
    before_mb = resident_mb()
    rounds = [chosen_names(answers, count) for count in (*USED, answers)]
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    base_mb = before_mb
    own_mb = resident_mb() - base_mb
    await fill(service, 0, answers // 4)
    quarter_mb = round(resident_mb() - own_mb, 1)
    await fill(service, answers // 4, answers)
    full_mb = round(resident_mb() - own_mb, 1)
    if len(cache) != answers:
        raise AssertionError(f"{len(cache)} answers are cached")
    began = time.thread_time()
    gc.collect()
    figures: dict[str, Any] = {
        "base_mb": base_mb,
        "quarter_mb": quarter_mb,
        "full_mb": full_mb,
        "bytes_per_answer": round((full_mb - base_mb) * 1e6 / answers),
        "collection_ms": round((time.thread_time() - began) * 1e3, 1),
    }
    print(json.dumps(figures), flush=True)
    for line in sys.stdin:
        if line.strip() == "put":
            in_use_mb = round(resident_mb() - own_mb, 1)
            longest_ms = await longest_put_ms(service, answers)
            print(json.dumps({"in_use_mb": in_use_mb, "put_ms_max": longest_ms}), flush=True)
            continue
        for chosen in rounds:
            # Rounds that are not measured: what is in use comes to be at hand.
            for _ in range(WARM_ROUNDS):
                spent_ns(service, cache, chosen)
            print(json.dumps(spent_ns(service, cache, chosen)), flush=True)
    await service.stop()


async def longest_put_ms(service: Any, answers: int) -> float:
    """Return the longest processor time of a message of first lookups while all are replaced."""
    longest = 0.0
    for start in range(answers, answers + answers // 2 + 1_000, NAMES_PER_MESSAGE):
        began = time.thread_time()
        await fill(service, start, start + NAMES_PER_MESSAGE)
        longest = max(longest, time.thread_time() - began)
    return round(longest * 1e3, 1)


# The process that starts them ---------------------------------------------------------------------


class Measured:
    """A process that runs the sources of ``tree``."""

    def __init__(self, tree: Path, answers: int, room: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, f"--serve={room}", f"--answers={answers}"],
            env={**os.environ, "PYTHONPATH": str(tree)},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.rounds: list[list[tuple[float, float]]] = []

    def heard(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the measured process ended: {self._process.wait()}")
        return json.loads(line)

    def said(self, words: str) -> None:
        assert self._process.stdin is not None
        print(words, file=self._process.stdin, flush=True)

    def round(self) -> None:
        self.said("round")
        self.rounds.append([self.heard() for _ in range(len(USED) + 1)])

    def figures(self, filled: dict[str, Any]) -> dict[str, Any]:
        self.said("put")
        by_use = list(zip(*self.rounds, strict=True))
        names = [*map(str, USED), "all"]
        return {
            **filled,
            **self.heard(),
            **{
                figure: {
                    name: round(statistics.median(each[place] for each in use))
                    for name, use in zip(names, by_use, strict=True)
                }
                for place, figure in enumerate(("lookup_ns", "route_ns"))
            },
        }

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    trees = {"here": ROOT} | ({"beside": options.beside.resolve()} if options.beside else {})
    with contextlib.ExitStack() as stack:
        count = options.answers
        measured = {
            name: Measured(tree, count, count if tree == ROOT else 2 * count)
            for name, tree in trees.items()
        }
        for each in measured.values():
            stack.callback(each.stop)
        filled = {name: each.heard() for name, each in measured.items()}
        for _ in range(options.rounds):
            for each in measured.values():
                each.round()
        figures = {name: each.figures(filled[name]) for name, each in measured.items()}
    return {
        "answers": options.answers,
        **figures.pop("here"),
        **figures,
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--check", action="store_true", help="exit with 1 if it takes too much")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.answers, options.serve))
        return
    result = measure(options)
    print(json.dumps(result))
    if options.check and result["in_use_mb"] * 1_000_000 > GOAL_MB * options.answers:
        sys.exit(1)


if __name__ == "__main__":
    main()
