"""``perf handover``: how long the stock producer of a topic waits while the topic moves.

Two processes have a producer and a consumer of the stock Python client on each of some topics, the
*probes*, which send steadily. First one probe at a time moves to another broker, again and again;
then all topics move at once, most of which have clients that hardly send. A gap is the longest time
between two acknowledged sends that overlaps a move. For many moves at once it is reported twice:
over the time of all moves, which is long and includes other delays, and over the probe's own move.
All acknowledged messages are accounted for at a consumer.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.log.reader import read_events
from nextgen.harness.load.measure import quantile, quantiles
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan
from nextgen.harness.perf.bench import Bench, grown, note
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from protos.nextgen.v1.discovery_service_pb2 import (
    GetClusterRequest,
    LookupRequest,
    MoveTopicsRequest,
)
from protos.nextgen.v1.shard_service_pb2 import TopicMove

MESSAGE_BYTES = 100
REST_INTERVAL_MS = 5_000
"""Interval of sends on a topic that is no probe."""

SETTLE_S = 2.0
"""Time of undisturbed sends before anything is measured."""

STILL_WINDOWS = 10
"""Measured intervals without moves, each as long as a move: their gaps are the baseline."""

PAUSE_S = 0.25
"""Pause between two moves of one topic, so that each gap belongs to one move."""

TAIL_MS = 150
"""Time after the answer to a move until its clients have reached their new broker."""

OWN_MOVE_MS = 250
"""Time from the decision to move a probe, among many, in which its gap begins: as long as for a
single move."""

MOVE_TIMEOUT_MS = 60_000
MOVE_REQUESTS_MAX = 5
"""Attempts for the moves of one batch: units of a shard move one after the other."""

LOOKED_UP_AT_ONCE = 64
CLIENT = "pulsar-client (Python), unbatched, send timeout off"
ACCOUNTS = ("sent", "received", "lost", "duplicated", "out_of_order", "redelivered")


@dataclass(frozen=True, slots=True)
class HandoverLoad:
    """Number of topics and of probes among them; of single moves, and of rounds of all at once."""

    topics: int
    probes: int
    moves: int
    rounds: int
    interval_ms: float


@dataclass(frozen=True, slots=True)
class Moved:
    """Result of one phase: moves per kind of gap, lookups of clients, refusals."""

    moves: int
    lookups: int
    errors: int
    first_error: str
    move_ms: tuple[float, ...]


async def measure_handover(bench: Bench, load: HandoverLoad) -> dict[str, Any]:
    """Return the measurement: gaps of moves one by one, then of all topics at once.

    Raises:
        CheckFailed: The topics could not be gathered at one broker.
    """
    assert bench.cluster is not None, "the brokers are to be our own"
    topics = [f"persistent://{bench.namespace}/topic-{number:04d}" for number in range(load.topics)]
    probes, rest = topics[: load.probes], topics[load.probes :]
    with tempfile.TemporaryDirectory(prefix="nextgen-clients-") as log_dir:
        url = bench.cluster.plan.service_url

        def plan(part: Sequence[str], interval_ms: float) -> TrafficPlan:
            return TrafficPlan(url, tuple(part), interval_ms, MESSAGE_BYTES, Path(log_dir))

        async with DiscoveryClient(bench.targets, timeout_ms=MOVE_TIMEOUT_MS) as client:
            await bench.create(topics)
            traffic = Traffic(plan(probes, load.interval_ms))
            background = Traffic(plan(rest, REST_INTERVAL_MS)) if rest else None
            try:
                if background is not None:
                    await background.start()
                await traffic.start()
                mover = _Mover(bench, client, traffic, background)
                one = await mover.one_by_one(probes, load.moves)
                many = await mover.all_at_once(topics, probes, load.rounds)
                result = await traffic.finish()
                if background is not None:
                    other = await background.finish()
                    result |= {name: result[name] + other[name] for name in ACCOUNTS}
            finally:
                await traffic.stop()
                if background is not None:
                    await background.stop()
    return report(result, one, many, load)


def report(result: dict[str, Any], one: Moved, many: Moved, load: HandoverLoad) -> dict[str, Any]:
    """Return the figures of the report from the clients' accounts. Pure."""
    strikes = result["strikes"]
    moves_begin = STILL_WINDOWS
    still = _gaps(strikes[:moves_begin])
    singly = _gaps(strikes[moves_begin : moves_begin + one.moves])
    rounds_begin = moves_begin + one.moves
    together = _gaps(strikes[rounds_begin : rounds_begin + many.moves])
    own = _gaps(strikes[rounds_begin + many.moves :])
    one_p50 = quantile(singly, 0.5)
    return {
        "benchmark": "handover",
        **quantiles("", singly),
        "lookups": one.lookups,
        **{name: result[name] for name in ("lost", "out_of_order")},
        "errors": one.errors + many.errors + result["failed"],
        "first_error": one.first_error or many.first_error or result["first_failure"],
        **quantiles("still_", still),
        **quantiles("many_", together),
        "many_lookups": many.lookups,
        "many_to_one": _times(together, one_p50),
        **quantiles("many_own_", own),
        "many_own_to_one": _times(own, one_p50),
        "move_p50_ms": quantile(sorted(one.move_ms), 0.5),
        "many_move_ms": list(many.move_ms),
        **{name: result[name] for name in ("sent", "received", "duplicated", "redelivered")},
        "wrong": sum(result[name] for name in ("lost", "duplicated", "out_of_order", "unanswered")),
        "run": {
            "topics": load.topics,
            "probes": load.probes,
            "moves": one.moves,
            "rounds": load.rounds,
            "interval_ms": load.interval_ms,
            "message_bytes": MESSAGE_BYTES,
            "client": CLIENT,
        },
    }


def _gaps(strikes: Sequence[dict[str, Any]]) -> list[float]:
    return sorted(gap for strike in strikes for gap in strike["gaps_ms"])


def _times(ordered_ms: Sequence[float], one_p50_ms: float) -> float | None:
    """Return the median as a multiple of a single move's; None without samples."""
    return round(quantile(ordered_ms, 0.5) / one_p50_ms, 2) if one_p50_ms and ordered_ms else None


class _Mover:
    def __init__(
        self, bench: Bench, client: DiscoveryClient, traffic: Traffic, background: Traffic | None
    ) -> None:
        self._bench = bench
        self._client = client
        self._traffics = [traffic] if background is None else [traffic, background]
        self._traffic = traffic

    async def one_by_one(self, probes: Sequence[str], moves: int) -> Moved:
        """Move one probe at a time to any other broker, after measuring the gaps without moves."""
        await asyncio.sleep(SETTLE_S)
        for _ in range(STILL_WINDOWS):
            began_s = time.monotonic()
            await asyncio.sleep(2 * TAIL_MS / 1000)
            await self._traffic.struck(began_s, probes, window_ms=TAIL_MS)
        before = await self._bench.counters()
        took_ms: list[float] = []
        errors: list[str] = []
        for number in range(moves):
            topic = probes[number % len(probes)]
            ms, refused = await self._move([TopicMove(topic=topic)], [topic])
            took_ms.append(ms)
            errors += refused
            await asyncio.sleep(PAUSE_S)
        note(f"{moves} moves, one by one")
        return await self._moved(moves, before, errors, took_ms)

    async def all_at_once(self, topics: Sequence[str], probes: Sequence[str], rounds: int) -> Moved:
        """Move every topic from one broker to the next, in one request."""
        brokers = [node.node_id for node in self._broker_nodes()]
        if rounds:
            await self._gather(topics, brokers[0])
        before = await self._bench.counters()
        took_ms: list[float] = []
        errors: list[str] = []
        own_moves: list[tuple[str, float]] = []
        for number in range(rounds):
            await asyncio.sleep(SETTLE_S)
            target = brokers[(number + 1) % len(brokers)]
            moves = [TopicMove(topic=topic, target_broker_id=target) for topic in topics]
            ms, refused = await self._move(moves, probes)
            took_ms.append(ms)
            errors += refused
            own_moves += await self._moved_at(probes)
        for topic, at_s in own_moves:
            await self._traffic.struck(at_s, [topic], window_ms=OWN_MOVE_MS)
        note(f"{rounds} rounds of {len(topics)} topics")
        return await self._moved(rounds, before, errors, took_ms)

    async def _moved_at(self, topics: Sequence[str]) -> list[tuple[str, float]]:
        """Return when the last move of each was decided, on this machine's monotonic clock."""
        cluster = await self._client.call("GetCluster", GetClusterRequest())
        table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
        wanted = set(topics)
        decided_ms: dict[str, int] = {}
        for shard_id in {table.shard_for_key(parse_topic(topic).routing_key) for topic in topics}:
            async for event in read_events(self._bench.targets, shard_id, types=["topic_assigned"]):
                if event.topic_assigned.name in wanted:
                    decided_ms[event.topic_assigned.name] = event.time_ms
        booted_s = time.time() - time.monotonic()
        return [(topic, decided_ms[topic] / 1000 - booted_s) for topic in topics]

    async def _gather(self, topics: Sequence[str], broker_id: str) -> None:
        moves = [
            TopicMove(topic=answer.topic, target_broker_id=broker_id)
            for answer in await self._looked_up(topics)
            if answer.broker_id != broker_id
        ]
        refused = (await self._move(moves, []))[1] if moves else []
        if refused:
            raise CheckFailed(f"{len(refused)} topics do not get to their place: {refused[0]}")

    async def _move(
        self, moves: Sequence[TopicMove], measured: Sequence[str]
    ) -> tuple[float, list[str]]:
        """Move topics and record the gaps of ``measured``; return the duration and the refusals."""
        began_s = time.monotonic()
        answers = await self._asked_until_over(moves)
        took_ms = (time.monotonic() - began_s) * 1000
        await asyncio.sleep(TAIL_MS / 1000)
        ended_s = time.monotonic()
        for traffic in self._traffics:
            traffic.topics_moved(began_s, ended_s)
        if measured:
            window_ms = round((ended_s - began_s) * 1000)
            await self._traffic.struck(began_s, measured, window_ms=window_ms)
        for traffic in self._traffics:
            traffic.check()
        refused = [answer.message for answer in answers if answer.rejection_code]
        return round(took_ms, 1), refused

    async def _asked_until_over(self, moves: Sequence[TopicMove]) -> Sequence[Any]:
        """Move topics; repeat requests for moves to a named broker that are still in progress."""
        summary: dict[str, Any] = {}
        asked = list(moves)
        for _ in range(MOVE_REQUESTS_MAX):
            response = await self._client.call("MoveTopics", MoveTopicsRequest(moves=asked))
            summary |= {answer.topic: answer for answer in response.answers}
            asked = [
                move for move in asked if move.target_broker_id and summary[move.topic].retryable
            ]
            if not asked:
                break
        return [summary[move.topic] for move in moves]

    async def _moved(
        self, moves: int, before: dict[str, int], errors: list[str], took_ms: list[float]
    ) -> Moved:
        after = await self._bench.counters()
        lookups = grown(before, after, "pulsar_lookups")
        return Moved(moves, lookups, len(errors), errors[0] if errors else "", tuple(took_ms))

    async def _looked_up(self, topics: Sequence[str]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(topics), LOOKED_UP_AT_ONCE):
            request = LookupRequest(topics=topics[start : start + LOOKED_UP_AT_ONCE])
            answers += (await self._client.call("Lookup", request)).answers
        return answers

    def _broker_nodes(self) -> Sequence[Any]:
        assert self._bench.cluster is not None, "the brokers are our own"
        return self._bench.cluster.plan.of_kind("broker")
