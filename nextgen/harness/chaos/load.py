"""The load of a chaos run, at the process that starts it: names, processes, their results.

    load-1, load-2      recorded operations over the public ports (``chaos_load_job``)
    publish, receive    stock Pulsar clients, if they are installed (``chaos_message_jobs``);
    receive-shadows     consumers of the shadows of the topics that are published to
    scalable            scalable-topics clients, and an operator (``chaos_scalable``)
    watch               watches at shards and at discovery (``chaos_watch_job``)

All names are below one tenant that only this load uses, so an object there that no operation
requested is a phantom.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.log.reader import pin_log
from nextgen.harness.history.record_file import Recorder
from nextgen.harness.load.process import LoadProcess
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Unavailable
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.routing.slots import SlotTable
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.policies_pb2 import Policies, RetentionPolicy

PROCESSES = 2
"""Processes with recorded operations: one for each discovery node of a default cluster."""

MIXED_LANES = 4
"""Lanes of each process. Eight lanes in all contend for the hot names."""

HOT_TOPICS = 6
PROBES_PER_SHARD = 2
"""Lanes that measure commits of a shard: a single one may be waiting for a lost answer."""

MESSAGE_TOPICS = 8
RENAMED_TOPICS = 2
"""Further topics with messages. They are renamed, so they have no shadows."""

MESSAGES_PER_SECOND_PER_TOPIC = 5
OPERATIONS_PER_SECOND_DEFAULT = 80
"""Operations per second: two cores can bear it beside the cluster."""

SCALABLE_TOPICS = 3
BURSTS_PER_SECOND_PER_TOPIC = 4
LAYOUT_INTERVAL_MS = 2_000
"""Between two changes of a topic's layout, on average."""

READY_TIMEOUT_MS = 90_000
STOP_TIMEOUT_MS = 90_000
"""Grace for pending requests: operations end by themselves after ten seconds, sends after forty."""

DRAIN_TIMEOUT_MS = 120_000
SCALABLE_STOP_TIMEOUT_MS = 240_000
"""How long the clients of scalable topics may go on after the order to stop: they finish layout
changes and sends, and read every message twice."""

KEPT_FOR_EVER = Policies(retention=RetentionPolicy(time_ms=-1, size_bytes=-1))
"""Retention of the messages: all are read again, and a broker whose clock leaps finds them old."""

SETUP_TIMEOUT_MS = 30_000
JUDGING_MS = 1_800_000
"""Time after the load for recovering and reading everything again."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The parameters of the load. ``service_url`` empty: no messages."""

    targets: tuple[str, ...]
    service_url: str
    run_dir: Path
    tenant: str
    seed: int
    operations_per_second: int = OPERATIONS_PER_SECOND_DEFAULT
    log_kept_ms: int = JUDGING_MS
    """How long the shards' logs are pinned for the run."""
    since: Mapping[int, int] = field(default_factory=dict)
    """Last position of each shard before the run, for a cluster with an earlier history."""

    @property
    def history_dir(self) -> Path:
        return self.run_dir / "history"

    @property
    def scopes(self) -> tuple[str, ...]:
        """Prefixes of all keys that the load uses."""
        return (self.tenant, f"persistent://{self.tenant}/", f"topic://{self.tenant}/")

    def namespace(self, name: str) -> str:
        return f"{self.tenant}/{name}"

    def topic(self, namespace: str, name: str) -> str:
        return f"persistent://{self.namespace(namespace)}/{name}"

    @property
    def hot(self) -> list[str]:
        topics = [self.topic("hot", f"topic-{number}") for number in range(HOT_TOPICS)]
        return [*topics, self.namespace("hot"), self.namespace("cold")]

    @property
    def message_topics(self) -> list[str]:
        return [self.topic("messages", f"lane-{number}") for number in range(MESSAGE_TOPICS)]

    @property
    def renamed_topics(self) -> list[str]:
        """First names of topics with messages that are renamed."""
        return [self.topic("messages", f"renamed-{number}") for number in range(RENAMED_TOPICS)]

    @property
    def stream_topics(self) -> list[str]:
        """All topics that messages are published to, those with shadows first."""
        return [*self.message_topics, *self.renamed_topics]

    @property
    def shadow_topics(self) -> list[str]:
        """One shadow of each message topic."""
        return [f"{name}-shadow" for name in self.message_topics]

    @property
    def scalable_topics(self) -> list[str]:
        namespace = self.namespace("messages")
        return [f"topic://{namespace}/growing-{number}" for number in range(SCALABLE_TOPICS)]


@dataclass(slots=True)
class LoadResult:
    """The results of all processes. ``failures``: the processes that failed, with reasons."""

    asked: int = 0
    acked: int = 0
    renames: int = 0
    """Acknowledged renames of topics."""
    published: int = 0
    received: int = 0
    scalable: Mapping[str, Any] = field(default_factory=dict)
    """The result of ``chaos_scalable``."""
    observed: int = 0
    acked_by_topic: Mapping[str, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


class ChaosLoad:
    """The load. Call ``prepare``, ``start``, ``finish``; on the recovered cluster ``drain`` and
    ``finish_watching``; and ``stop`` in every case.
    """

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._processes: dict[str, LoadProcess] = {}
        self._results: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._begun: dict[str, asyncio.Event] = {}
        self._ticks: dict[str, dict[str, int]] = {}
        self._probes: dict[int, list[str]] = {}
        self.has_messages = bool(plan.service_url) and bool(importlib.util.find_spec("pulsar"))
        self.has_scalable_topics = bool(plan.service_url)

    @property
    def counts(self) -> Counter[str]:
        """The sums of the jobs' reports so far: asked, acked, sent, published, observed."""
        total: Counter[str] = Counter()
        for tick in self._ticks.values():
            total.update(tick)
        return total

    async def prepare(self) -> None:
        """Create the tenant, its namespaces, and the topics that exist from the beginning.

        Raises:
            Unavailable: One of them was not created.
            MetadataError: A shard's log cannot be pinned for the run.
        """
        plan = self._plan
        self._probes = await self._probe_topics()
        for shard in self._probes:
            await self._pin(shard, plan.log_kept_ms)
        names = [plan.tenant, *map(plan.namespace, ("hot", "cold", "probes", "messages"))]
        names += self.probe_topics
        names += plan.stream_topics if self.has_messages else []
        with Recorder(plan.history_dir / "prepare.jsonl") as recorder:
            async with DiscoveryClient(plan.targets, timeout_ms=SETUP_TIMEOUT_MS) as client:
                calls = RecordedCalls("prepare", client, recorder)
                for name in names:
                    created = await calls.create(name, {})
                    if not created.is_ok:
                        raise Unavailable(f"{name} was not created: {created.outcome}")
                if self.has_messages:
                    await self._prepare_shadows(calls)
                if self.has_scalable_topics:
                    await self._prepare_scalable(calls)
                kept = await calls.set_policies(plan.namespace("messages"), KEPT_FOR_EVER)
                if not kept.is_ok:
                    why = calls.not_understood or kept.outcome
                    raise Unavailable(f"messages are not retained for the verdict: {why}")

    async def _prepare_shadows(self, calls: RecordedCalls) -> None:
        plan = self._plan
        for source, shadow in zip(plan.message_topics, plan.shadow_topics, strict=True):
            for made in (
                await calls.create(shadow, {SHADOW_SOURCE_PROPERTY: source}),
                await calls.set_policies(source, Policies(shadow_topics=[shadow])),
            ):
                if not made.is_ok:
                    raise Unavailable(f"{made.kind} of {made.key}: {made.outcome}")

    async def _prepare_scalable(self, calls: RecordedCalls) -> None:
        for number, name in enumerate(self._plan.scalable_topics):
            made = [await calls.create(name, {}, segments=number + 1)]
            for type_ in ("queue", "stream"):
                made.append(await calls.create_subscription(name, type_, type_))
            for each in made:
                if not each.is_ok:
                    raise Unavailable(f"{each.kind} of {name}: {each.outcome}")

    @property
    def probe_topics(self) -> list[str]:
        """Topics that exist for the whole run, some in each shard."""
        return [topic for topics in self._probes.values() for topic in topics]

    @property
    def movable_topics(self) -> list[str]:
        """Topics that faults may move from their brokers: those with clients first."""
        plan = self._plan
        messages = [*plan.message_topics, *plan.shadow_topics] if self.has_messages else []
        return [*messages, *self.probe_topics]

    async def start(self) -> None:
        """Return when every process has begun its work.

        Raises:
            MetadataError: A process failed.
        """
        plan = self._plan
        probes = self.probe_topics
        lanes = PROCESSES * MIXED_LANES + len(probes)
        for number in range(PROCESSES):
            name = f"load-{number + 1}"
            await self._begin(
                name,
                kind="chaos_load",
                client=name,
                # Each process begins with another discovery node.
                targets=[*plan.targets[number:], *plan.targets[:number]],
                mixed=MIXED_LANES,
                hot=plan.hot,
                cold=plan.namespace("cold"),
                probes=probes[number::PROCESSES],
                renamed=plan.renamed_topics if self.has_messages and not number else [],
                interval_ms=1_000 * lanes / plan.operations_per_second,
                seed=plan.seed,
            )
        await self._begin(
            "watch",
            kind="chaos_watch",
            since=[[shard, plan.since.get(shard, 0)] for shard in sorted(self._probes)],
            tenant=plan.tenant,
        )
        if self.has_messages:
            await self._begin(
                "receive", kind="chaos_receive", consumer="attached", subscription="attached"
            )
            await self._begin(
                "receive-shadows",
                kind="chaos_receive",
                consumer="attached-to-shadows",
                subscription="attached",
                topics=plan.message_topics,
                read_at=plan.shadow_topics,
            )
            await self._wait_event("receive")
            await self._wait_event("receive-shadows")
            interval_ms = 1_000 / MESSAGES_PER_SECOND_PER_TOPIC
            await self._begin("publish", kind="chaos_publish", interval_ms=interval_ms)
            await self._wait_event("publish")
        if self.has_scalable_topics:
            await self._begin(
                "scalable",
                kind="chaos_scalable",
                topics=plan.scalable_topics,
                interval_ms=1_000 / BURSTS_PER_SECOND_PER_TOPIC,
                layout_interval_ms=LAYOUT_INTERVAL_MS,
                seed=plan.seed,
            )
            await self._wait_event("scalable")

    async def finish(self) -> LoadResult:
        """Stop new requests, wait for pending ones, and return the results."""
        result = LoadResult()
        names = [name for name in self._results if name != "watch"]
        for name in names:
            await self._processes[name].request_stop()
        for name in names:
            timeout_ms = SCALABLE_STOP_TIMEOUT_MS if name == "scalable" else STOP_TIMEOUT_MS
            totals = await self._told(name, result, timeout_ms)
            result.received += totals.get("received", 0)
            if name == "scalable":
                result.scalable = totals
                result.failures += [f"{name}: {each}" for each in totals.get("failures", ())]
            if name == "publish":
                result.published = totals.get("acked", 0)
                result.acked_by_topic = totals.get("acked_by_topic", {})
            else:
                result.asked += totals.get("asked", 0)
                result.acked += totals.get("acked", 0)
                result.renames += totals.get("renames", 0)
                if totals.get("not_understood"):
                    result.failures.append(f"{name}: unknown answers: {totals['not_understood']}")
        return result

    async def finish_watching(self, positions: Mapping[int, int], result: LoadResult) -> None:
        """Let the watchers reach ``positions`` of the shards, and end them."""
        await self._processes["watch"].tell({"until": {str(s): p for s, p in positions.items()}})
        result.observed = (await self._told("watch", result)).get("observed", 0)

    async def drain(self, result: LoadResult) -> None:
        """Read every message again with new consumers, also at shadows, and record them."""
        if not result.acked_by_topic:
            return
        plan = self._plan
        for name, topics, read_at in (
            ("drain", plan.stream_topics, plan.stream_topics),
            ("drain-shadows", plan.message_topics, plan.shadow_topics),
        ):
            await self._begin(
                name,
                kind="chaos_drain",
                consumer=name,
                subscription="drain",
                acked_by_topic={each: result.acked_by_topic[each] for each in topics},
                topics=topics,
                read_at=read_at,
            )
            await self._told(name, result, DRAIN_TIMEOUT_MS)

    async def let_go_of_logs(self) -> None:
        """Remove the pins of the shards' logs."""
        for shard in self._probes:
            with contextlib.suppress(MetadataError):  # The pin then expires by itself.
                await self._pin(shard, 0)

    async def stop(self) -> None:
        """End every running process."""
        for task in self._results.values():
            task.cancel()
        for process in self._processes.values():
            await process.stop()

    # ------------------------------------------------------------------------------------------

    async def _pin(self, shard: int, kept_ms: int) -> None:
        plan = self._plan
        position = plan.since.get(shard, 0) + 1
        await pin_log(plan.targets, shard, plan.tenant, position, ttl_ms=kept_ms)

    async def _probe_topics(self) -> dict[int, list[str]]:
        """Return topics by the shard that has them."""
        plan = self._plan
        async with DiscoveryClient(plan.targets, timeout_ms=SETUP_TIMEOUT_MS) as client:
            cluster = await client.call("GetCluster", GetClusterRequest())
        table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
        found: dict[int, list[str]] = {one.shard_id: [] for one in cluster.shard_map.shards}
        number = 0
        while any(len(topics) < PROBES_PER_SHARD for topics in found.values()):
            number += 1
            topic = plan.topic("probes", f"probe-{number}")
            topics = found[table.shard_for_key(parse_topic(topic).routing_key)]
            if len(topics) < PROBES_PER_SHARD:
                topics.append(topic)
        return found

    async def _begin(self, name: str, **job: Any) -> None:
        plan = self._plan
        logs = plan.run_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        described = {
            "targets": list(plan.targets),
            "service_url": plan.service_url,
            "topics": plan.stream_topics,
            "history": str(plan.history_dir / f"{name}.jsonl"),
            "log_path": str(logs / f"client-{name}.log"),
            **job,
        }
        begun = self._begun[name] = asyncio.Event()

        def hear(message: dict[str, Any]) -> None:
            self._ticks[name] = message.get("tick", self._ticks.get(name, {}))
            if "event" in message:
                begun.set()

        process = await LoadProcess.start(described)
        self._processes[name] = process
        self._results[name] = asyncio.create_task(process.result(hear))

    async def _wait_event(self, name: str) -> None:
        waiting = asyncio.create_task(self._begun[name].wait())
        try:
            async with timeout(READY_TIMEOUT_MS / 1000):
                await asyncio.wait(
                    {waiting, self._results[name]}, return_when=asyncio.FIRST_COMPLETED
                )
            if not waiting.done():
                self._results[name].result()
        except TimeoutError:
            raise DeadlineExceeded(f"{name} did not begin in {READY_TIMEOUT_MS} ms") from None
        finally:
            waiting.cancel()

    async def _told(
        self, name: str, result: LoadResult, timeout_ms: int = STOP_TIMEOUT_MS
    ) -> dict[str, Any]:
        task = self._results.pop(name)
        try:
            async with timeout(timeout_ms / 1000):
                return await task
        except TimeoutError:
            result.failures.append(f"{name} was not done {timeout_ms} ms after it was to stop")
        except MetadataError as error:
            result.failures.append(f"{name}: {error}")
        return {}


def tenant_of_run(seed: int) -> str:
    """Return a tenant name that is unique to this run."""
    return f"chaos-{seed}-{time.time_ns() // 1_000_000:x}"
