"""``perf broker-kill``: how long producers and lookups wait after a broker is killed or frozen.

Every topic is moved to the broker that is struck next. One process has a steadily sending producer
of the stock Python client on each topic, another one has their consumers. A topic's gap is the
longest time between two acknowledged sends that overlaps the seconds after the strike. All
acknowledged messages are accounted for at a consumer.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.cluster import LocalCluster
from nextgen.harness.load.measure import quantiles
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan
from nextgen.harness.perf.bench import Bench, note
from nextgen.kernel.errors import MetadataError
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from protos.nextgen.v1.discovery_service_pb2 import (
    LookupRequest,
    MoveTopicsRequest,
)
from protos.nextgen.v1.shard_service_pb2 import TopicMove

MESSAGE_BYTES = 100
SETTLE_S = 5
"""Time of undisturbed sends before each kill, so that the kill before it is not measured."""

DEAD_S = 3
WINDOW_MS = 8_000
"""Time after a kill; gaps that overlap it count as its effect."""

GATHER_ATTEMPTS = 20
GATHER_PAUSE_MS = 500
LOOKUP_INTERVAL_MS = 20
LOOKUP_TIMEOUT_MS = 1_000
ELSEWHERE_TIMEOUT_S = 60
CLIENT = "pulsar-client (Python), unbatched, send timeout off"
ACCOUNTS = (
    "sent",
    "received",
    "lost",
    "duplicated",
    "out_of_order",
    "redelivered",
    "failed",
    "unanswered",
    "examples",
)


@dataclass(frozen=True, slots=True)
class KillLoad:
    """Number of topics, number of strikes of each kind, and time that a broker stays frozen."""

    topics: int
    kills: int
    stops: int
    stop_seconds: float
    interval_ms: float


@dataclass(frozen=True, slots=True)
class Strike:
    """One broker struck. ``elsewhere_ms``: until a lookup of each topic named another broker."""

    kind: str
    broker_id: str
    at_s: float
    elsewhere_ms: tuple[float, ...]


async def measure_broker_kill(bench: Bench, load: KillLoad) -> dict[str, Any]:
    """Return the measurement: kills (SIGKILL), then stops (SIGSTOP); brokers take turns.

    Raises:
        CheckFailed: The topics could not be moved to one broker, or are not served again.
    """
    assert bench.cluster is not None, "only a cluster of our own is hurt"
    topics = [f"persistent://{bench.namespace}/topic-{number:04d}" for number in range(load.topics)]
    with tempfile.TemporaryDirectory(prefix="nextgen-clients-") as log_dir:
        async with DiscoveryClient(bench.targets) as client:
            await bench.create(topics)
            plan = TrafficPlan(
                bench.cluster.plan.service_url,
                tuple(topics),
                interval_ms=load.interval_ms,
                message_bytes=MESSAGE_BYTES,
                log_dir=Path(log_dir),
            )
            traffic = Traffic(plan)
            try:
                await traffic.start()
                strikes = await _Striker(bench.cluster, client, traffic, topics).all(load)
                result = await traffic.finish()
            finally:
                await traffic.stop()
    return report(result, strikes, load)


def report(result: dict[str, Any], strikes: Sequence[Strike], load: KillLoad) -> dict[str, Any]:
    """Return the figures of the report from the clients' accounts. Pure."""
    pairs = list(zip(strikes, result["strikes"], strict=True))

    def gaps_ms(kind: str) -> list[float]:
        return [gap for one, seen in pairs if one.kind == kind for gap in seen["gaps_ms"]]

    def elsewhere_ms(kind: str) -> list[float]:
        return [ms for one in strikes if one.kind == kind for ms in one.elsewhere_ms]

    return {
        "benchmark": "broker-kill",
        **quantiles("gap_", gaps_ms("kill")),
        **quantiles("elsewhere_", elsewhere_ms("kill")),
        **quantiles("stop_gap_", gaps_ms("stop")),
        **quantiles("stop_elsewhere_", elsewhere_ms("stop")),
        **{name: result[name] for name in ACCOUNTS},
        "wrong": sum(result[name] for name in ("lost", "duplicated", "out_of_order", "unanswered")),
        "strikes": [
            {
                "kind": one.kind,
                "broker": one.broker_id,
                "in_flight": seen["in_flight"],
                **quantiles("gap_", seen["gaps_ms"]),
                **quantiles("elsewhere_", one.elsewhere_ms),
            }
            for one, seen in pairs
        ],
        "run": {
            "topics": load.topics,
            "kills": load.kills,
            "stops": load.stops,
            "stop_seconds": load.stop_seconds,
            "interval_ms": load.interval_ms,
            "message_bytes": MESSAGE_BYTES,
            "client": CLIENT,
        },
    }


class _Striker:
    def __init__(
        self, cluster: LocalCluster, client: DiscoveryClient, traffic: Traffic, topics: list[str]
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._traffic = traffic
        self._topics = topics

    async def all(self, load: KillLoad) -> list[Strike]:
        brokers = [node.node_id for node in self._cluster.plan.of_kind("broker")]
        strikes: list[Strike] = []
        for number in range(load.kills + load.stops):
            victim = brokers[number % len(brokers)]
            await self._gather_at(victim)
            await asyncio.sleep(SETTLE_S)
            if number < load.kills:
                strikes.append(await self._kill(victim))
            else:
                strikes.append(await self._stop(victim, load.stop_seconds))
            self._traffic.check()
            note(f"{strikes[-1].kind} of {victim}")
        return strikes

    async def _kill(self, victim: str) -> Strike:
        struck_at_s = time.monotonic()
        await self._cluster.kill(victim)
        await self._traffic.broker_killed(struck_at_s, self._topics, window_ms=WINDOW_MS)
        elsewhere_ms = await self._elsewhere(victim, struck_at_s)
        await asyncio.sleep(DEAD_S)
        await self._cluster.start_node(victim)
        await self._cluster.wait_ready([victim])
        await _sleep_until(struck_at_s + WINDOW_MS / 1000 + 1)
        return Strike("kill", victim, struck_at_s, elsewhere_ms)

    async def _stop(self, victim: str, stop_seconds: float) -> Strike:
        struck_at_s = time.monotonic()
        window_ms = round(stop_seconds * 1000) + WINDOW_MS
        self._cluster.strike(victim, signal.SIGSTOP)
        try:
            await self._traffic.broker_killed(struck_at_s, self._topics, window_ms=window_ms)
            elsewhere_ms = await self._elsewhere(victim, struck_at_s)
            await _sleep_until(struck_at_s + stop_seconds)
        finally:
            self._cluster.strike(victim, signal.SIGCONT)
        # Its remaining consumers lose their connection only when it resumes.
        self._traffic.topics_moved(struck_at_s, time.monotonic() + DEAD_S)
        await self._cluster.wait_ready([victim])
        await _sleep_until(struck_at_s + window_ms / 1000 + 1)
        return Strike("stop", victim, struck_at_s, elsewhere_ms)

    async def _elsewhere(self, victim: str, struck_at_s: float) -> tuple[float, ...]:
        """Return for each topic when a lookup first named another broker: ms since the strike."""
        left = list(self._topics)
        elsewhere_ms: list[float] = []
        while left:
            if time.monotonic() > struck_at_s + ELSEWHERE_TIMEOUT_S:
                raise CheckFailed(f"{len(left)} topics are still looked up at {victim}: {left[0]}")
            moved = await self._look_up(left, victim)
            elsewhere_ms += [(time.monotonic() - struck_at_s) * 1000] * len(moved)
            left = [topic for topic in left if topic not in moved]
            if left:
                await asyncio.sleep(LOOKUP_INTERVAL_MS / 1000)
        return tuple(round(ms, 1) for ms in elsewhere_ms)

    async def _look_up(self, topics: list[str], victim: str) -> set[str]:
        """Return the topics whose lookup names another broker than the victim."""
        try:
            response = await self._client.call_at(
                self._client.endpoints[0],
                "Lookup",
                LookupRequest(topics=topics),
                timeout_ms=LOOKUP_TIMEOUT_MS,
            )
        except MetadataError:
            return set()  # It is retried at once, because the time is what is measured.
        return {
            topic
            for topic, answer in zip(topics, response.answers, strict=True)
            if not answer.rejection_code and answer.broker_id != victim
        }

    async def _gather_at(self, broker_id: str) -> None:
        """Have every topic assigned to one broker, by moves if necessary.

        Raises:
            CheckFailed: A topic did not arrive there.
        """
        why = ""
        for _ in range(GATHER_ATTEMPTS):
            request = LookupRequest(topics=self._topics)
            answers = (await self._client.call("Lookup", request)).answers
            moves = [
                TopicMove(topic=answer.topic, target_broker_id=broker_id)
                for answer in answers
                if answer.broker_id != broker_id
            ]
            if not moves:
                return
            began_s = time.monotonic()
            moved = await self._client.call("MoveTopics", MoveTopicsRequest(moves=moves))
            self._traffic.topics_moved(began_s, time.monotonic())
            why = next((one.message for one in moved.answers if one.rejection_code), "")
            if why:
                await asyncio.sleep(GATHER_PAUSE_MS / 1000)
        raise CheckFailed(f"the topics do not get to {broker_id}: {why}")


async def _sleep_until(moment_s: float) -> None:
    await asyncio.sleep(max(0.0, moment_s - time.monotonic()))
