"""Hands a namespace of open topics over with ``nextgen adopt run``, under stock clients."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import aiohttp

from benchmarks.support.stock.brokers import BROKERS, Clusters
from benchmarks.support.stock.moves import ACCOUNTS, MESSAGE_BYTES
from benchmarks.support.stock.placements import ByBundle, ByTopic, names_in
from nextgen.client import Client
from nextgen.harness.load.measure import quantiles
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.timeouts import timeout

INTERVAL_MS = 100
SETTLE_S = 5.0
RUN_S_MAX = 900.0
CREATES_AT_ONCE = 32
CREATE_S_MAX = 120
NEVER_DELETED = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 86_400,
    "deleteWhileInactive": False,
}
"""Of itself Pulsar deletes a topic that nobody has used for a minute."""


async def measure_adoption(
    clusters: Clusters,
    client: Client,
    session: aiohttp.ClientSession,
    *,
    topics: int,
    clients: int,
    deduplicates: bool,
) -> dict[str, Any]:
    """Return how long it took, and what the clients noticed, who know stock brokers only.

    Raises:
        CheckFailed: The command failed, or a topic is at no stock broker afterwards.
        MetadataError: A client gave up.
    """
    namespace = clusters.by_bundle("adopted")
    clusters.stock.admin("POST", f"namespaces/{namespace}/inactiveTopicPolicies", NEVER_DELETED)
    if deduplicates:
        clusters.deduplicate(namespace)
    names = names_in(namespace, "adopted", topics)
    created_s = await _create(clusters, session, names)
    used = names[:: max(1, topics // clients)][:clients]
    traffic = Traffic(
        TrafficPlan(
            ByBundle(clusters, session, namespace).service_url,
            tuple(used),
            INTERVAL_MS,
            MESSAGE_BYTES,
        )
    )
    try:
        await traffic.start()
        await asyncio.sleep(SETTLE_S)
        begin_s = time.monotonic()
        told = await _adopt(clusters, namespace)
        seconds = time.monotonic() - begin_s
        await asyncio.sleep(SETTLE_S)
        end_s = time.monotonic()
        traffic.topics_moved(begin_s, end_s)
        await traffic.struck(begin_s, used, window_ms=round(1_000 * (end_s - begin_s)))
        await asyncio.sleep(SETTLE_S)
        result = await traffic.finish()
    finally:
        await traffic.stop()
    places = await _places(ByTopic(clusters, client, namespace), names)
    (strike,) = result["strikes"]
    return {
        "topics": topics,
        "seconds": round(seconds, 1),
        "topics_a_second": round(topics / seconds),
        "created_seconds": round(created_s, 1),
        "clients": len(used),
        **quantiles("gap_", strike["gaps_ms"]),
        "topics_by_broker": {number: places.count(number) for number in BROKERS},
        **{name: result[name] for name in ACCOUNTS},
        "first_failure": result["first_failure"],
        "examples": result["examples"],
        "told": told,
    }


async def _create(
    clusters: Clusters, session: aiohttp.ClientSession, names: Sequence[str]
) -> float:
    """Create topics over the Admin REST, which opens them; return the seconds that it took."""
    at_once = asyncio.Semaphore(CREATES_AT_ONCE)
    time_out = aiohttp.ClientTimeout(total=CREATE_S_MAX)

    async def create(number: int, name: str) -> None:
        broker = clusters.http(BROKERS[number % len(BROKERS)])
        path = name.replace("://", "/")
        async with (
            at_once,
            session.put(f"http://{broker}/admin/v2/{path}", timeout=time_out) as answer,
        ):
            if answer.status >= 300:
                raise CheckFailed(f"{name}: {answer.status} {(await answer.text())[:200]}")

    begin_s = time.monotonic()
    await asyncio.gather(*(create(number, name) for number, name in enumerate(names)))
    return time.monotonic() - begin_s


async def _adopt(clusters: Clusters, namespace: str) -> Any:
    """Run the command; return the last JSON line that it printed.

    Raises:
        CheckFailed: It failed, or took too long.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nextgen", "adopt", "run", namespace, "--json"),
        *("--pulsar-admin", f"http://{clusters.http(BROKERS[0])}"),
        env={**os.environ, "NEXTGEN_DATA_DIR": str(clusters.ours.cluster.data_dir)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with timeout(RUN_S_MAX):
            output, complaints = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CheckFailed(f"adopt run was not done after {RUN_S_MAX} s") from None
    if process.returncode:
        raise CheckFailed(f"adopt run: {complaints.decode()[-2_000:]}")
    lines = output.decode().splitlines()
    return json.loads(lines[-1]) if lines else None


async def _places(placement: ByTopic, names: Sequence[str]) -> list[int]:
    """Return the broker of each topic.

    Raises:
        CheckFailed: One has none.
    """
    places: list[int] = []
    for start in range(0, len(names), NAMES_PER_LOOKUP_MAX):
        places += await placement.brokers_of(names[start : start + NAMES_PER_LOOKUP_MAX])
    if 0 in places:
        raise CheckFailed(
            f"{places.count(0)} topics are at no stock broker, {names[places.index(0)]}"
        )
    return places
