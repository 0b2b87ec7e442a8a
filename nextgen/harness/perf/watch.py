"""``perf watch``: what many watchers of one shard cost its commits, and what they receive.

Three parts, on one cluster and in one run: commits without and with watchers in turns, at full
load; creates one after the other, whose time until the update is at its watcher is measured; and
the same while leaders of the shard are killed. Watchers are those of topic lists by pattern at a
discovery node, each on its own pattern, or watches of prefixes at the shard itself.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.harness.load.jobs.watch import WatchedNames
from nextgen.harness.load.polled_cluster import PolledCluster
from nextgen.harness.load.process import LoadProcess
from nextgen.harness.perf.bench import SETUP_TIMEOUT_MS, Bench, make_namespace
from nextgen.harness.perf.watch_findings import Findings, compare, watcher_of
from nextgen.harness.perf.watch_kill import measure_kills
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.tasks.background import cancel_and_wait
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import GetNodeStatusRequest, NodeStatus

FAN_OUT_CHANGES = 50
"""Changes of the fan-out, made one after the other, so that two never share a message."""

FAN_OUT_SUBSCRIBERS = (5, 50)

PAUSE_MS = 2
"""Between creates that are made one after the other."""

SETTLED_MS = 600
"""Watches have settled after this long without a message with events: more than a round of
progress updates."""

_STATUS = "/nextgen.v1.ShardService/GetNodeStatus"
_STATUS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class WatchLoad:
    """Size of the load."""

    watchers: int
    processes: int
    streams: int
    seconds: float
    rounds: int
    in_flight: int
    kills: int
    lists: bool
    """Whether the watchers are those of topic lists, at a discovery node."""


async def measure_watch(bench: Bench, load: WatchLoad) -> dict[str, Any]:
    """Return the measurement: commits without and with watchers in turn, then the fan-out.

    Raises:
        MetadataError: A generator failed, or did not catch up.
    """
    # Lists stay for a while when their watchers have left, and cost a little then too.
    unwatched = await make_namespace(bench.targets, secrets.token_hex(3))
    run = WatchRun(bench, load, await _first_shard(bench), unwatched)
    without: list[dict[str, Any]] = []
    watched: list[dict[str, Any]] = []
    findings = Findings()
    await run.change(seconds=min(1.0, load.seconds), is_watched=False)
    for number in range(load.rounds):
        # In turn, the second time the other way round: what drifts does so for both.
        for is_watched in (False, True) if number % 2 == 0 else (True, False):
            if is_watched:
                watched.append(await run.change_watched(findings))
            else:
                without.append(await run.change(seconds=load.seconds, is_watched=False))
    one_by_one = Findings()
    await run.change_watched(one_by_one, in_flight=1, pause_ms=PAUSE_MS)
    killed = await measure_kills(bench, run, load.kills) if load.kills else {}
    fan_out = {
        str(count): await run.messages_per_change(count, findings)
        for count in (() if load.lists else FAN_OUT_SUBSCRIBERS)
    }
    rate_without, rate_with = _rate(without), _rate(watched)
    return {
        "benchmark": "watch",
        "rate": round(rate_with),
        "rate_unit": "commits/s with watchers",
        "rate_without": round(rate_without),
        "ratio": round(rate_with / rate_without, 3) if rate_without else 0.0,
        "cpu_ms_per_commit": _cpu(watched),
        "cpu_ms_per_commit_without": _cpu(without),
        "commit_p50": _median(watched, "p50"),
        "commit_p99": _median(watched, "p99"),
        "commit_p50_without": _median(without, "p50"),
        "commit_p99_without": _median(without, "p99"),
        "update_p50": one_by_one.from_send_ms(0.50),
        "update_p99": one_by_one.from_send_ms(0.99),
        **killed,
        "delivery_p50": findings.from_send_ms(0.50),
        "delivery_p99": findings.from_send_ms(0.99),
        "behind_acknowledgement_p50": findings.from_acknowledgement_ms(0.50),
        "behind_acknowledgement_p99": findings.from_acknowledgement_ms(0.99),
        "delivered": len(findings.delivered)
        + len(one_by_one.delivered)
        + killed.get("kill_delivered", 0),
        "wrong": findings.wrong + one_by_one.wrong + killed.get("kill_wrong", 0),
        "first_wrong": findings.first_wrong
        or one_by_one.first_wrong
        or killed.get("kill_first_wrong", ""),
        "messages_per_change": fan_out,
        "run": {
            "watchers": load.watchers,
            "processes": load.processes,
            "streams": load.streams,
            "seconds": load.seconds,
            "rounds": load.rounds,
            "in_flight": load.in_flight,
            "watches": "topic lists" if load.lists else "prefixes",
        },
    }


class WatchRun:
    """Generators against one shard. Names are never used twice."""

    def __init__(self, bench: Bench, load: WatchLoad, shard_id: int, unwatched: str) -> None:
        """``unwatched``: a namespace without watchers."""
        self._bench = bench
        self._load = load
        self._unwatched = unwatched
        self.shard_id = shard_id
        self._stem = f"w{secrets.token_hex(2)}-"
        self._next = 0
        self.changing = asyncio.Event()
        """Set while topics are created, some moments before the first one."""

    async def change(
        self,
        *,
        seconds: float,
        watchers: int = 0,
        changes_max: int = 10**9,
        is_watched: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Create topics for some seconds; return the generator's report, with the CPU time that the
        cluster took."""
        names = self._names(watchers or self._load.watchers)
        if not is_watched:
            names = replace(names, namespace=self._unwatched)
        used_s = self._bench.cluster_cpu_seconds()
        self.changing.set()
        results = await self._bench.run(
            "change_topics",
            "committing",
            0,
            names=names.as_json(),
            shard_id=self.shard_id,
            first=self._next,
            seconds=seconds,
            changes_max=changes_max,
            in_flight=options.get("in_flight", self._load.in_flight),
            pause_ms=options.get("pause_ms", 0),
        )
        self.changing.clear()
        results["cpu_seconds"] = self._bench.cluster_cpu_seconds() - used_s
        self._next = results["next"]
        if results["errors"]:
            raise Unavailable(f"a topic was refused: {results['errors'][0]}")
        return results

    async def change_watched(self, findings: Findings, **options: Any) -> dict[str, Any]:
        """The same while all watchers watch; compare the events that they received."""
        async with AsyncExitStack() as stack:
            crowd = await self._watch(stack, self._load)
            options.setdefault("seconds", self._load.seconds)
            results = await self.change(**options)
            compare(findings, await self._seen(crowd, results), results["acknowledged"])
        return results

    async def messages_per_change(self, subscribers: int, findings: Findings) -> float:
        """Return how many messages with events the shard sent for a change that matches one
        watcher."""
        load = replace(self._load, watchers=subscribers, processes=1, streams=subscribers)
        async with AsyncExitStack() as stack:
            crowd = await self._watch(stack, load)
            before = await self._settled_messages()
            results = await self.change(
                seconds=SETUP_TIMEOUT_MS / 1000,
                watchers=subscribers,
                changes_max=FAN_OUT_CHANGES,
                in_flight=1,
                pause_ms=10,
            )
            sent = await self._messages() - before
            changes = len(results["acknowledged"])
            compare(findings, await self._seen(crowd, results), results["acknowledged"])
        return round(sent / changes, 3)

    async def _watch(self, stack: AsyncExitStack, load: WatchLoad) -> list[_Watching]:
        crowd = []
        for place in range(load.processes):
            mine = list(range(place, load.watchers, load.processes))
            job = {
                "kind": "watch_topic_lists" if load.lists else "watch_topics",
                "targets": list(self._bench.targets),
                "pulsar": self._bench.pulsar,
                "names": self._names(load.watchers).as_json(),
                "shard_id": self.shard_id,
                "watchers": mine,
                "streams": max(1, load.streams // load.processes),
            }
            watching = _Watching(await LoadProcess.start(job))
            stack.push_async_callback(watching.stop)
            crowd.append(watching)
        async with timeout(SETUP_TIMEOUT_MS / 1000):
            for watching in crowd:
                await watching.wait_ready()
        return crowd

    async def _seen(
        self, crowd: Sequence[_Watching], changed: Mapping[str, Any]
    ) -> dict[int, list[tuple[str, int, float]]]:
        """Let the watchers catch up, and return the events that each received."""
        finish: dict[str, Any] = {"until": await self._commit_position()}
        if self._load.lists:
            finish["topics"] = Counter(map(watcher_of, changed["acknowledged"]))
        seen: dict[int, list[tuple[str, int, float]]] = {}
        for watching in crowd:
            results = await watching.finish(finish)
            if results["errors"]:
                raise Unavailable(results["errors"][0])
            seen |= {int(number): events for number, events in results["seen"].items()}
        return seen

    def _names(self, watchers: int) -> WatchedNames:
        return WatchedNames(self._bench.namespace, f"{self._stem}{watchers}-", watchers)

    async def _commit_position(self) -> int:
        return max(
            replica.commit_position
            for status in await _node_statuses(self._bench)
            for replica in status.replicas
            if replica.group_id == self.shard_id
        )

    async def _settled_messages(self) -> int:
        """Return the count of messages when the watches' initial messages have all arrived."""
        before = -1
        while (after := await self._messages()) != before:
            before = after
            await asyncio.sleep(SETTLED_MS / 1000)
        return after

    async def _messages(self) -> int:
        statuses = await _node_statuses(self._bench)
        return sum(status.counters["watch_updates"] for status in statuses)


class _Watching:
    """A process of watchers."""

    def __init__(self, process: LoadProcess) -> None:
        self._process = process
        self._ready = asyncio.Event()
        self._result = asyncio.create_task(process.result(self._hear))

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("ready"):
            self._ready.set()

    async def wait_ready(self) -> None:
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._result}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._result.done():
            self._result.result()

    async def finish(self, command: dict[str, Any]) -> dict[str, Any]:
        await self._process.tell(command)
        return await self._result

    async def stop(self) -> None:
        await cancel_and_wait(self._result)
        await self._process.stop()


def _rate(results: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(one["count"] for one in results) / sum(one["seconds"] for one in results))


def _cpu(results: Sequence[Mapping[str, Any]]) -> float:
    used_s = sum(one["cpu_seconds"] for one in results)
    return float(round(1_000 * used_s / sum(one["count"] for one in results), 3))


def _median(results: Sequence[Mapping[str, Any]], name: str) -> float:
    return round(median(float(one["latency_ms"][name]) for one in results), 3)


async def _first_shard(bench: Bench) -> int:
    cluster = PolledCluster(bench.targets)
    await cluster.look()
    if not cluster.view.shard_ids:
        raise Unavailable("the cluster has no shards")
    return cluster.view.shard_ids[0]


async def _node_statuses(bench: Bench) -> list[NodeStatus]:
    """Return the status of every shard node that answers."""
    cluster = PolledCluster(bench.targets)
    await cluster.look()
    endpoints = [node.grpc for node in cluster.view.nodes.values() if node.kind == "shard"]
    answers = await asyncio.gather(*map(_node_status, endpoints), return_exceptions=True)
    statuses = [answer for answer in answers if isinstance(answer, NodeStatus)]
    if not statuses:
        failures = [answer for answer in answers if isinstance(answer, MetadataError)]
        raise failures[0] if failures else Unavailable("no shard node answers")
    return statuses


async def _node_status(endpoint: str) -> NodeStatus:
    channel = open_channel(endpoint)
    try:
        ask: Any = channel.unary_unary(
            _STATUS,
            request_serializer=GetNodeStatusRequest.SerializeToString,
            response_deserializer=NodeStatus.FromString,
        )
        status: NodeStatus = await ask(GetNodeStatusRequest(), timeout=_STATUS_TIMEOUT_S)
        return status
    finally:
        await close_channel(channel)
