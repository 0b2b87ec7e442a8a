"""Looks topics of stock brokers and of embedded ones up through discovery, in turns."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.support.stock.brokers import BROKERS, Clusters
from nextgen.client import Client
from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.process import run_job
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.runtime.lifecycle.exit_code import CheckFailed

TURNS = 4
"""Of each kind of broker, which begin them by turns, so that neither has the quieter minute."""

CONNECTIONS = 4
IN_FLIGHT = 32
WARM_SECONDS = 2
JOB_TIMEOUT_MS = 300_000
AGREEING = 20
"""Topics of which every stock broker is asked, too."""

FIRST = 60
"""Topics looked up first: each broker gets tenant and namespace with one of them."""


async def measure_lookups(
    clusters: Clusters, client: Client, *, cold: int, warm: int, seconds: float
) -> dict[str, Any]:
    """Return times of first lookups, which assign, and of later ones: medians of the turns.

    Raises:
        CheckFailed: A lookup failed, or a broker's own answer was another one than discovery's.
    """
    stock = clusters.by_topic("looked-up")
    embedded = clusters.embedded("looked-up-embedded")
    kinds = {"stock": stock, "embedded": embedded}
    for namespace in kinds.values():
        for stem, count in (("first", FIRST), ("cold", cold * TURNS), ("warm", warm)):
            await _create(client, TopicRange(namespace, stem, 0, count))
        await _looked_up(clusters, TopicRange(namespace, "first", 0, FIRST))
        await _assign(clusters, TopicRange(namespace, "warm", 0, warm))
    first: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    counts: dict[str, list[dict[str, int]]] = {kind: [] for kind in kinds}
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(TURNS):
        order = list(kinds.items())[:: -1 if turn % 2 else 1]
        for kind, namespace in order:
            part = TopicRange(namespace, "cold", turn * cold, cold)
            first[kind].append(await _looked_up(clusters, part))
        for kind, namespace in order:
            result = await _warm(clusters, TopicRange(namespace, "warm", 0, warm), seconds)
            counts[kind].append(result["latency_us"])
            rates[kind].append(result["answers"] / result["seconds"])
    return {
        "cold": {kind: _median(first[kind]) for kind in kinds},
        "warm": {
            kind: {
                **{f"{name}_ms": ms for name, ms in summary_of_counts(counts[kind]).items()},
                "rate": round(statistics.median(rates[kind])),
            }
            for kind in kinds
        },
        "brokers_agree": await _agree(clusters, client, stock),
        "run": {
            "cold": cold * TURNS,
            "warm": warm,
            "turns": TURNS,
            "seconds": seconds,
            "connections": CONNECTIONS,
            "in_flight_per_connection": IN_FLIGHT,
        },
    }


async def _create(client: Client, topics: TopicRange) -> None:
    names = topics.names()
    for start in range(0, len(names), TOPICS_PER_CREATE_MAX):
        created = await client.create_topics(names[start : start + TOPICS_PER_CREATE_MAX])
        if refused := [each for each in created if not each.is_created]:
            raise CheckFailed(f"a topic was refused: {refused[0]}")


async def _looked_up(clusters: Clusters, topics: TopicRange) -> dict[str, float]:
    """Look topics up one by one, from a process of its own; return quantiles of the times."""
    result = await _job(clusters, kind="lookup_serial", topics=topics.as_json())
    if result["errors"]:
        raise CheckFailed(f"{result['errors']} lookups failed: {result['first_error']}")
    times: dict[str, float] = result["latency_ms"]
    return times


def _median(turns: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        f"{name}_ms": round(statistics.median(each[name] for each in turns), 2)
        for name in ("p50", "p99", "max")
    }


async def _assign(clusters: Clusters, topics: TopicRange) -> None:
    result = await _job(
        clusters, kind="lookup_all", topics=topics.as_json(), names_per_message=256, in_flight=4
    )
    if result["errors"]:
        raise CheckFailed(f"{result['errors']} topics have no broker: {result['first_error']}")


async def _warm(clusters: Clusters, topics: TopicRange, seconds: float) -> dict[str, Any]:
    result = await _job(
        clusters,
        kind="pulsar_lookup",
        pulsar=clusters.ours.plan.of_kind("discovery")[0].pulsar,
        brokers=[],
        topics=topics.as_json(),
        is_partition_metadata=False,
        connections=CONNECTIONS,
        in_flight=IN_FLIGHT,
        warm_seconds=min(WARM_SECONDS, seconds),
        seconds=seconds,
        check_every=0,
    )
    if result["errors"] or result["unexpected"]:
        raise CheckFailed(f"{result['errors']} lookups failed: {result['first_error']}")
    return result


async def _job(clusters: Clusters, **job: Any) -> dict[str, Any]:
    return await run_job({"targets": list(clusters.targets), **job}, timeout_ms=JOB_TIMEOUT_MS)


async def _agree(clusters: Clusters, client: Client, namespace: str) -> int:
    """Return how many answers of stock brokers were the same as discovery's.

    Raises:
        CheckFailed: One was not.
    """
    names = TopicRange(namespace, "warm", 0, AGREEING).names()
    located = {each.topic: each.broker_url for each in await client.lookup(names)}
    for topic, number in itertools.product(names, BROKERS):
        answer = await asyncio.to_thread(clusters.stock.lookup, number, topic.replace("://", "/"))
        if answer["brokerUrl"] != located[topic]:
            raise CheckFailed(
                f"broker {number} says {json.dumps(answer)} of {topic}, discovery {located[topic]}"
            )
    return len(names) * len(BROKERS)
