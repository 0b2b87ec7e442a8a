"""One of a thousand scalable topics gets ten times its traffic: who notices, and how soon?

A cluster of processes (one shard of three replicas with fsync, three brokers, one discovery node)
has ``--topics`` topics of one segment, to which one process sends steadily over the public port.
Its client is this project's own (``nextgen.client.st``), for producers and for consumers. Then one
topic gets ten times its messages for a while, is split until no segment is above the threshold, and
is merged again afterwards. Meanwhile ten further topics get ten times theirs, one after the other
and out of step with the brokers' reports. Thresholds, cool-downs and the window of merges are
lowered by the namespace's policy, so that two cores carry the burst. Prints one JSON line last,
times in milliseconds unless they say otherwise:

- ``crossing_to_layout``: from the first message of the burst until the topic's producer has the new
  layout; of the burst itself (``first``) and of the ten (``p50``, ``max``)
- ``burst``: seconds from its beginning to its last split; ``gap``: the longest time between two
  acknowledgements of the topic, from the beginning of the burst to the end of the merges
- ``others``: how long each message of the other topics waited until it was acknowledged, before the
  burst and in it; how many of these topics got another layout
- ``messages``: of all topics, read in the end by consumers that were not there before; of the topic
  of the burst by one that was

    python -m benchmarks.brokers.auto_scale_burst [--topics 1000] [--others-rate 300] [--check]

With ``--check`` it exits with 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.inventory.topic_listing import quantile
from nextgen.cli.local.plan import ClusterSize
from nextgen.client import BlockingClient, st
from nextgen.kernel.governance.auto_scale_policy import AUTO_SCALE_POLICY
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.scalable import SEGMENT_LOAD_REPORT_MS
from nextgen.tasks.timeouts import timeout
from tests.support.callers.stock_client import PulsarSystem, running_system

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=3, shards=1)
NAMESPACE = "acme/burst"
TIMES = 10
BURST_RATE = 300
"""Messages a second of the topic of the burst."""

AGAIN_RATE = 60
"""Of one of those that follow."""

AGAIN = 10
AGAIN_EVERY_S = 3.3
"""No divisor of the interval of the reports."""

POLICY = {
    "splitMsgRateInThreshold": 100,
    "mergeMsgRateInThreshold": 20,
    "splitCooldownSeconds": 10,
    "mergeCooldownSeconds": 3,
    "mergeWindowSeconds": 5,
}
AGAIN_POLICY = {"splitMsgRateInThreshold": 30, "mergeMsgRateInThreshold": 2, "maxSegments": 2}
"""Of each of the ten, above those of the namespace."""

CROSSING_MS_MAX = 2 * SEGMENT_LOAD_REPORT_MS + 1_000
GAP_MS_MAX = 1_000
OTHERS_P99_TIMES = 2.0
"""How much longer the messages of the others may wait in the burst. Two cores are shared by all."""

BEFORE_S = 15.0
BURST_S = 50.0
MERGED_S_MAX = 60.0
WAIT_S = 60.0
QUIET_MS = 2_000
"""Everything is read when nothing came for this long."""

ODD_SHOWN_MAX = 20
ACKNOWLEDGED_EVERY = 500
TICK_S = 0.01
KEYS = 400
OPENED_AT_ONCE = 50
PADDING = b"." * 100


class Topic:
    """One topic: what was sent to it, by key, and what became of that."""

    def __init__(self, name: str, keys: int) -> None:
        self.name = f"topic://{NAMESPACE}/{name}"
        self.producer: st.Producer[bytes]
        self.failed: list[BaseException] = []
        self.waits: list[tuple[float, float]] = []
        """Of acknowledged messages: when they were sent, and for how long they waited."""
        self.layouts: list[tuple[float, int]] = []
        """When the producer got each layout, and how many active segments that has."""
        self.sent: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._keys = [f"{name}-k{number}" for number in range(keys)]
        self._next = 0

    async def open(self, client: st.PulsarClient) -> None:
        self.producer = await client.create_producer(self.name)

    def send(self) -> None:
        key = self._keys[self._next % len(self._keys)]
        self._next += 1
        number = self.sent[key]
        self.sent[key] += 1
        sent_at = time.monotonic()
        future = self.producer.submit_nowait(b"%s %d " % (key.encode(), number) + PADDING, key=key)
        future.add_done_callback(lambda done: self._settled(done, sent_at))

    def _settled(self, done: asyncio.Future[st.MessageId], sent_at: float) -> None:
        error = done.exception()
        if error is not None:
            self.failed.append(error)
        else:
            self.waits.append((sent_at, time.monotonic() - sent_at))

    @property
    def epoch(self) -> int:
        layout = self.producer.layout
        assert layout is not None, "it has started"
        return layout.epoch

    @property
    def active(self) -> int:
        layout = self.producer.layout
        assert layout is not None, "it has started"
        return len(layout.active)

    async def note_layouts(self) -> None:
        """Note each layout that the producer gets, within a few milliseconds, until cancelled."""
        while True:
            if not self.layouts or self.layouts[-1][1] != self.active:
                self.layouts.append((time.monotonic(), self.active))
                self._changed.set()
            await asyncio.sleep(TICK_S / 2)

    async def has_active(self, is_reached: Callable[[int], bool], seconds: float) -> float:
        """Return when the number of active segments was as asked, 0 if it never was. Layouts have
        to be noted meanwhile."""
        try:
            async with timeout(seconds):
                while not is_reached(self.active):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return 0.0
        return time.monotonic()

    def longest_gap(self, since: float) -> float:
        """Return the longest time between two acknowledgements from ``since`` on."""
        times = sorted(sent_at + waited for sent_at, waited in self.waits)
        return max(after - before for before, after in pairwise([t for t in times if t >= since]))


class Pace:
    """Sends to topics in turn, ``rate`` messages a second in all, until cancelled."""

    def __init__(self, topics: Sequence[Topic], rate: float) -> None:
        self.rate = rate
        self._topics = topics
        self._turn = 0

    async def run(self) -> None:
        due, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due += (now - last) * self.rate
            last = now
            while due >= 1:
                self._topics[self._turn % len(self._topics)].send()
                self._turn += 1
                due -= 1


class Received:
    """Messages as consumers get them: each key's are to be numbered without a gap, once each."""

    def __init__(self) -> None:
        self.count = 0
        self.next: Counter[str] = Counter()
        self.duplicated = 0
        self.out_of_order = 0
        self.odd: list[str] = []
        """The first of the messages that are not as expected."""

    def note(self, message: st.Message[bytes]) -> None:
        key, number = message.value.split(b" ", 2)[:2]
        expected, found = self.next[key.decode()], int(number)
        self.count += 1
        if found < expected:
            self.duplicated += 1
        elif found > expected:
            self.out_of_order += 1
        if found != expected and len(self.odd) < ODD_SHOWN_MAX:
            self.odd.append(f"{message!r}: {key!r} {found}, expected {expected}")
        self.next[key.decode()] = max(expected, found + 1)

    def lost(self, topics: Iterable[Topic]) -> int:
        return sum(
            max(0, count - self.next[key]) for topic in topics for key, count in topic.sent.items()
        )


class Run:
    """One run against a cluster that is up."""

    def __init__(self, client: st.PulsarClient, topics: int, others_rate: float) -> None:
        self.client = client
        self.burst = Topic("burst", KEYS)
        self.again = [Topic(f"again-{number}", 40) for number in range(AGAIN)]
        self.others = [Topic(f"other-{number}", 2) for number in range(topics - 1 - AGAIN)]
        self.paces = {self.burst.name: Pace([self.burst], BURST_RATE / TIMES)}
        self.paces |= {each.name: Pace([each], AGAIN_RATE / TIMES) for each in self.again}
        self.paces[""] = Pace(self.others, others_rate)
        self.live = Received()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def all(self) -> list[Topic]:
        return [self.burst, *self.again, *self.others]

    async def measure(self) -> dict[str, Any]:
        opened_s = await self._open()
        before = time.monotonic()
        await asyncio.sleep(BEFORE_S)
        began = time.monotonic()
        self.paces[self.burst.name].rate *= TIMES
        await asyncio.sleep(BURST_S)
        ended = time.monotonic()
        self.paces[self.burst.name].rate /= TIMES
        again = asyncio.ensure_future(self._repeat())
        merged_at = await self.burst.has_active(lambda active: active == 1, MERGED_S_MAX)
        crossings = await again
        over = time.monotonic()
        untouched = sum(each.epoch == 0 for each in self.others)
        messages = await self._read_all()
        splits = [at for at, _ in self.burst.layouts if began <= at < ended]
        return {
            "opened_s": round(opened_s, 1),
            "crossing_to_layout": {
                "first": round(1_000 * (splits[0] - began)) if splits else None,
                "repeated": len(crossings),
                "p50": round(statistics.median(crossings)),
                "max": round(max(crossings)),
            },
            "burst": {
                "seconds_to_last_split": round(splits[-1] - began, 1) if splits else None,
                "active_segments": max(active for _, active in self.burst.layouts),
                "seconds_to_last_merge": round(merged_at - ended, 1) if merged_at else None,
                "layouts": [[round(at - began, 1), n] for at, n in self.burst.layouts],
                "gap": round(1_000 * self.burst.longest_gap(began), 1),
                "slowest": round(1_000 * max(wait for _, wait in self.burst.waits), 1),
            },
            "others": {
                "before": self._waits(before, began),
                "in_the_burst": self._waits(began, ended),
                "behind_it": self._waits(ended, over),
                "with_another_layout": len(self.others) - untouched,
            },
            "messages": messages,
        }

    async def _open(self) -> float:
        """Open all producers and begin to send."""
        began, gate = time.monotonic(), asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_one(topic: Topic) -> None:
            async with gate:
                await topic.open(self.client)
                topic.send()

        await asyncio.gather(*(open_one(each) for each in self.all))
        consumer = await self.client.stream_consumer(
            self.burst.name, "live", initial_position=st.InitialPosition.EARLIEST
        )
        work = [each.run() for each in self.paces.values()]
        work += [each.note_layouts() for each in (self.burst, *self.again)]
        self._tasks = [asyncio.ensure_future(each) for each in (*work, self._consume(consumer))]
        return time.monotonic() - began

    async def _consume(self, consumer: st.StreamConsumer[bytes]) -> None:
        while True:
            message = await consumer.receive()
            self.live.note(message)
            await consumer.acknowledge_cumulative(message)

    async def _repeat(self) -> list[float]:
        """Give each of the ten its own burst; return how long each waited for its layout, in ms."""

        async def one(topic: Topic, pause_s: float) -> float:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            self.paces[topic.name].rate *= TIMES
            at = await topic.has_active(lambda active: active > 1, WAIT_S)
            self.paces[topic.name].rate /= TIMES
            return 1_000 * ((at or time.monotonic()) - began)

        waits = (one(each, number * AGAIN_EVERY_S) for number, each in enumerate(self.again))
        return await asyncio.gather(*waits)

    def _waits(self, since: float, until: float) -> dict[str, float]:
        waits = sorted(
            1_000 * waited
            for topic in self.others
            for sent_at, waited in topic.waits
            if since <= sent_at < until
        )
        return {
            "messages": len(waits),
            "p50": round(statistics.median(waits), 1),
            "p99": round(quantile(waits, 0.99), 1),
            "max": round(waits[-1], 1),
        }

    async def _read_all(self) -> dict[str, Any]:
        """End the sending; read everything; return what is wrong with it."""
        consuming = self._tasks.pop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(each.producer.flush() for each in self.all))
        sent = sum(each.sent.total() for each in self.all)
        began, read = time.monotonic(), Received()
        consumer = await self.client.namespace_stream_consumer(
            NAMESPACE, "check", initial_position=st.InitialPosition.EARLIEST
        )
        message: st.Message[bytes] | None = None
        while True:
            try:
                message = consumer.receive_nowait() or await consumer.receive(QUIET_MS)
            except st.errors.TimedOut:
                if message is None:
                    break
                # Children come when everything of their parents is acknowledged.
                await consumer.acknowledge_cumulative(message)
                message = None
                continue
            read.note(message)
            if read.count % ACKNOWLEDGED_EVERY == 0:
                # It goes over all topics each time.
                await consumer.acknowledge_cumulative(message)
                await asyncio.sleep(0)
        consuming.cancel()
        return {
            "sent": sent,
            "read_s": round(time.monotonic() - began, 1),
            "failed": sum(len(each.failed) for each in self.all),
            "received": read.count,
            "lost": read.lost(self.all) + self.live.lost([self.burst]),
            "duplicated": read.duplicated + self.live.duplicated,
            "out_of_order": read.out_of_order + self.live.out_of_order,
            "odd": read.odd + self.live.odd,
        }


def set_policies(system: PulsarSystem) -> None:
    """Make the namespace; set its policy, and those of the topics of the repeated bursts."""
    system.create_namespace(NAMESPACE, {})
    with BlockingClient(system.discovery_endpoints, timeout_ms=30_000) as admin:
        admin.set_policies(NAMESPACE, _stored(POLICY))
        for number in range(AGAIN):
            name = f"topic://{NAMESPACE}/again-{number}"
            system.create_scalable(name, 1)
            admin.set_policies(name, _stored(AGAIN_POLICY))


def _stored(policy: dict[str, int]) -> Policies:
    return Policies(stored=((AUTO_SCALE_POLICY, json.dumps(policy)),))


def broken_promises(result: dict[str, Any]) -> list[str]:
    """Return which promises of the issue the measured run breaks."""
    crossing, others, messages = (
        result[each] for each in ("crossing_to_layout", "others", "messages")
    )
    slowest = max(crossing["first"] or float("inf"), crossing["max"])
    p99 = others["in_the_burst"]["p99"] / others["before"]["p99"]
    promises = {
        f"crossing_to_layout is at most {CROSSING_MS_MAX}": slowest <= CROSSING_MS_MAX,
        f"gap is below {GAP_MS_MAX}": result["burst"]["gap"] < GAP_MS_MAX,
        "the burst is merged again": result["burst"]["seconds_to_last_merge"] is not None,
        "no other layout changes": others["with_another_layout"] == 0,
        f"others' p99 is at most {OTHERS_P99_TIMES} times": p99 <= OTHERS_P99_TIMES,
        "all messages once and in order": not any(
            messages[each] for each in ("failed", "lost", "duplicated", "out_of_order")
        ),
    }
    return [promise for promise, is_kept in promises.items() if not is_kept]


async def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    async with st.PulsarClient(url) as client:
        return await Run(client, options.topics, options.others_rate).measure()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--others-rate", type=float, default=300.0, help="a second, of all others")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="nextgen-bench-") as directory,
        running_system(Path(directory) / "cluster", SIZE) as system,
    ):
        set_policies(system)
        result = asyncio.run(measure(system.first_service_url, options))
    broken = broken_promises(result)
    described = {
        "benchmark": "auto_scale_burst",
        "client": "nextgen.client.st, one process",
        "scaled": "thresholds, cool-downs and windows are lowered by policy to what 2 cores carry",
        "policy": POLICY,
        "policy_of_repeated": AGAIN_POLICY,
        "rates": {"burst": BURST_RATE, "repeated": AGAIN_RATE, "others": options.others_rate},
    }
    took = {"took_s": round(time.monotonic() - began, 1), "run": vars(options)}
    print(json.dumps(described | result | {"broken": broken} | took | {"load": os.getloadavg()}))
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
