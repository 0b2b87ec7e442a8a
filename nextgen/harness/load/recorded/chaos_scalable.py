"""The job that works on scalable topics with the scalable-topics client, and records everything.

Of each topic:

    a producer     of messages with keys
    queue          two members that come and go
    stream         two members that come and go, with and without a word
    checkpoint     a reader that goes back to its last checkpoint now and then
    passing        a subscription that is deleted and created again, a stream and a queue by turns
    an operator    that splits, merges and rebuckets segments all the time

When it is told to stop, it sends no more, and the members stay until every subscription has every
acknowledged message. Then it reads all topics once more from the beginning, closes all clients, and
looks for tasks that they left behind.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client import Client, st
from nextgen.client.st.errors import ScalableTopicError
from nextgen.harness.history.model import Publish
from nextgen.harness.history.record_file import Recorder
from nextgen.harness.load.pulsar.message_stamp import stamped
from nextgen.harness.load.recorded.layout_operator import LayoutOperator
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.harness.load.recorded.scalable_groups import (
    OPERATION_TIMEOUT_MS,
    Group,
    Member,
    PassingMember,
    QueueMember,
    Reader,
    Stage,
    StreamMember,
    producer_name,
)
from nextgen.harness.load.recorded.stuck_segments import describe_stuck, find_stuck
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits.scalable import (
    SEGMENT_HANDOVER_MS_MAX,
    SEGMENT_LOOK_MS,
    SEGMENT_STALL_MS,
)
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout

SEGMENT_BITS = 20
"""A ledger's id is ``epoch << 20 | segment`` (ADR 0023)."""

KEYS = 12
BURST_MAX = 5
"""Messages that are sent at once at most, so that some share batches."""

OPEN_SENDS_MAX = 500
MESSAGE_BYTES = 64
TICK_INTERVAL_MS = 500
OPERATOR_TIMEOUT_MS = 45_000
"""For one change of a layout: one that cannot be made is taken back after 30 s."""

BEGIN_TIMEOUT_MS = 60_000
FLUSH_TIMEOUT_MS = 40_000
"""Time-out for pending receipts after sending stops, on a cluster without faults."""

QUIET_MS = 2 * SEGMENT_LOOK_MS + SEGMENT_STALL_MS + SEGMENT_HANDOVER_MS_MAX
"""After this long without a message that was missing, what is missing counts as missing.

A cluster needs that long for a sealed segment whose consumer lost an acknowledgement (ADR 0155):
it is looked at once, and until nothing changed for long enough. Then its next consumer may wait for
the former one.
"""

_NEXTGEN_ST = "/nextgen/client/st/"


async def chaos_scalable(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Work until stopped, drain, and return the numbers and what went wrong."""
    with Recorder(Path(job["history"])) as recorder:
        async with (
            Client(job["targets"], timeout_ms=OPERATION_TIMEOUT_MS) as client,
            DiscoveryClient(job["targets"], timeout_ms=OPERATOR_TIMEOUT_MS) as operators,
        ):
            work = _Work(job, reporter, recorder, client, operators)
            result = await work.run()
    result["failures"] += [f"{name} was left by a closed client" for name in left_tasks()]
    return result


def left_tasks() -> list[str]:
    """Return the names of the tasks of scalable-topics clients that have not ended."""
    return sorted(
        task.get_name()
        for task in asyncio.all_tasks()
        if _NEXTGEN_ST in getattr(getattr(task.get_coro(), "cr_code", None), "co_filename", "")
    )


class _Topic:
    def __init__(self, work: _Work, lane: int, name: str) -> None:
        self.name = name
        self.lane = lane
        self.acknowledged: set[int] = set()
        self.segment_of: dict[int, str] = {}
        """Of acknowledged messages."""
        groups = ("queue", "stream", "checkpoint")
        self.groups = {each: work.group(name, each, each != "queue") for each in groups}
        self.operator = LayoutOperator(
            name,
            work.client,
            work.calls(f"operator-{lane}"),
            work.reporter.stopping,
            interval_ms=work.job["layout_interval_ms"],
            seed=str(work.job["seed"]),
        )
        self.passing = PassingMember(
            "passing",
            work.group(name, "passing/0", True),
            work.job["service_url"],
            work.stage,
            str(work.job["seed"]),
            calls=work.calls(f"passing-{lane}"),
            new_group=lambda group, keeps_order: work.group(name, group, keeps_order),
        )
        self.members: list[Member] = [
            *(work.member(QueueMember, f"queue-{each}", self.groups["queue"]) for each in "ab"),
            *(work.member(StreamMember, f"stream-{each}", self.groups["stream"]) for each in "ab"),
            work.member(Reader, "reader", self.groups["checkpoint"]),
            self.passing,
        ]

    def all_groups(self) -> list[Group]:
        return [*self.groups.values(), self.passing.group]

    def missing(self) -> int:
        return sum(each.missing(self.acknowledged) for each in self.all_groups())


class _Lane:
    """The producer of one topic."""

    def __init__(self, topic: _Topic, producer: st.Producer[bytes], work: _Work) -> None:
        self.sent = 0
        self.open = 0
        self._topic = topic
        self._producer = producer
        self._recorder = work.recorder
        self._errors = work.stage.errors
        self._chooser = random.Random(f"{work.job['seed']} lane {topic.lane}")

    async def send_burst(self) -> None:
        if self.open >= OPEN_SENDS_MAX:
            return
        for _ in range(self._chooser.randint(1, BURST_MAX)):
            await self._send()

    async def _send(self) -> None:
        topic, sequence = self._topic, self.sent
        self.sent += 1
        sent = Publish(topic.name, producer_name(topic.lane), sequence, time.monotonic_ns())
        self._recorder.write(sent)
        key = f"key-{self._chooser.randrange(KEYS)}"
        try:
            future = await self._producer.submit(
                stamped(topic.lane, sequence, MESSAGE_BYTES), key=key
            )
        except ScalableTopicError as error:
            self._errors[f"producer: {type(error).__name__}"] += 1
            return
        self.open += 1
        future.add_done_callback(lambda done: self._answered(sent, done))

    def _answered(self, sent: Publish, done: asyncio.Future[st.MessageId]) -> None:
        self.open -= 1
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._errors[f"producer: {type(error).__name__}"] += 1
            return  # It may be stored or not.
        stored = done.result()
        self._topic.acknowledged.add(sent.sequence)
        self._topic.segment_of[sent.sequence] = stored.segment
        self._recorder.write(acknowledged(sent, stored, time.monotonic_ns()))


def acknowledged(sent: Publish, stored: st.MessageId, acked_ns: int) -> Publish:
    """Return the record of a message that was acknowledged.

    No place is known of one that the broker had stored before: the client says 0, which no ledger
    is called.
    """
    place = stored.position
    acked = replace(sent, acked_ns=acked_ns, segment=stored.segment)
    if not place.ledger_id:
        return acked
    return replace(
        acked,
        ledger=place.ledger_id,
        entry=place.entry_id,
        batch_index=place.batch_index,
        epoch=place.ledger_id >> SEGMENT_BITS,
    )


class _Work:
    def __init__(
        self,
        job: dict[str, Any],
        reporter: Reporter,
        recorder: Recorder,
        client: Client,
        operators: DiscoveryClient,
    ) -> None:
        self.job = job
        self.reporter = reporter
        self.recorder = recorder
        self.client = client
        self.stage = Stage()
        self._operators = operators
        self._calls: list[RecordedCalls] = []
        self._topics = [_Topic(self, lane, name) for lane, name in enumerate(job["topics"])]
        self._lanes: list[_Lane] = []
        self._failures: list[str] = []

    async def run(self) -> dict[str, Any]:
        # Without a limit in time: a message is acknowledged or open for ever.
        async with st.PulsarClient(
            self.job["service_url"], operation_timeout_ms=OPERATION_TIMEOUT_MS
        ) as producers:
            for topic in self._topics:
                producer: st.Producer[bytes] = await producers.create_producer(
                    topic.name, send_timeout_ms=0
                )
                self._lanes.append(_Lane(topic, producer, self))
            async with TaskGroup() as tasks:
                for topic in self._topics:
                    for member in topic.members:
                        tasks.create_task(member.run())
                await self._wait_begun()
                self.reporter.send({"event": "begun"})
                operators = [tasks.create_task(each.operator.run()) for each in self._topics]
                await self._send_steadily()
                await asyncio.wait(operators)
                await self._flush()
                self.stage.staying.set()
                await self._drain()
                await self._read_again()
                self.stage.ending.set()
        return self._result()

    def calls(self, name: str) -> RecordedCalls:
        self._calls.append(RecordedCalls(name, self._operators, self.recorder))
        return self._calls[-1]

    def group(self, topic: str, name: str, keeps_order: bool) -> Group:
        return Group(topic, name, self.recorder, keeps_order=keeps_order)

    def member(self, kind: type[Member], name: str, group: Group) -> Member:
        url: str = self.job["service_url"]
        return kind(name, group, url, self.stage, str(self.job["seed"]))

    async def _wait_begun(self) -> None:
        members = [member for topic in self._topics for member in topic.members]
        try:
            async with timeout(BEGIN_TIMEOUT_MS / 1000):
                for member in members:
                    await member.begun.wait()
        except TimeoutError:
            late = [each.name for each in members if not each.begun.is_set()]
            raise Unavailable(f"{', '.join(late)} did not begin: {self.stage.errors}") from None

    async def _send_steadily(self) -> None:
        interval_s = self.job["interval_ms"] / 1000
        told_at = 0.0
        while not self.reporter.stopping.is_set():
            for lane in self._lanes:
                await lane.send_burst()
            now = time.monotonic()
            if (now - told_at) * 1000 >= TICK_INTERVAL_MS:
                told_at = now
                self.reporter.send({"tick": self._counts()})
            await asyncio.sleep(interval_s)

    async def _flush(self) -> None:
        deadline = time.monotonic() + FLUSH_TIMEOUT_MS / 1000
        while any(lane.open for lane in self._lanes) and time.monotonic() < deadline:  # noqa: ASYNC110 - receipts wake nobody
            await asyncio.sleep(0.1)
        left = sum(lane.open for lane in self._lanes)
        if left:
            self._failures.append(f"{left} messages were neither stored nor refused")

    async def _drain(self) -> None:
        """Wait until every group has every acknowledged message, as long as they get more."""
        await self._wait_missing(lambda: sum(topic.missing() for topic in self._topics))
        for topic in self._topics:
            for group in topic.all_groups():
                group.drained()
                if missing := group.missing(topic.acknowledged):
                    why = await self._why(topic, group)
                    self._failures.append(
                        f"{group.name} of {topic.name} misses {missing} messages: {why}"
                    )

    async def _why(self, topic: _Topic, group: Group) -> str:
        """Describe the segments that keep a group waiting."""
        missing = Counter(
            segment for each, segment in topic.segment_of.items() if each not in group.seen
        )
        try:
            layout = await self.client.get_scalable_topic(topic.name)
            if layout is None:
                return "the topic is not there"
            stuck = find_stuck(layout, group.name.partition("/")[0], missing)
            names = [each.name for each in stuck.told]
            found = await self.client.lookup(names) if names else []
        except MetadataError as error:
            return f"its layout is not known: {error}"
        return describe_stuck(stuck, {each.topic: each.broker_id for each in found})

    async def _read_again(self) -> None:
        for topic in self._topics:
            group = self.group(topic.name, "again", keeps_order=True)
            member = _OnceMore("again", group, self.job["service_url"], self.stage, "")
            reading = asyncio.create_task(member.run())
            try:
                await self._wait_missing(lambda: group.missing(topic.acknowledged))  # noqa: B023
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            group.drained()

    async def _wait_missing(self, missing: Any) -> None:
        least, since = missing(), time.monotonic()
        while least and (time.monotonic() - since) * 1000 < QUIET_MS:
            await asyncio.sleep(0.1)
            now = missing()
            if now < least:
                least, since = now, time.monotonic()

    def _counts(self) -> dict[str, int]:
        return {
            "asked": sum(each.asked for each in self._calls),
            "acked": sum(each.acknowledged for each in self._calls),
            "sent": sum(each.sent for each in self._lanes),
            "published": sum(len(each.acknowledged) for each in self._topics),
        }

    def _result(self) -> dict[str, Any]:
        changes: Counter[str] = Counter()
        for topic in self._topics:
            changes.update(topic.operator.done)
        groups = [group for topic in self._topics for group in topic.all_groups()]
        return self._counts() | {
            "received": sum(each.received for each in groups),
            "changes": dict(changes),
            "visits": dict(self.stage.visits),
            "errors": dict(self.stage.errors),
            "failures": self._failures,
            "not_understood": next(
                (each.not_understood for each in self._calls if each.not_understood), ""
            ),
        }


class _OnceMore(Member):
    """Reads a topic from its first message on."""

    kind = "again"

    async def visit(self) -> None:
        async with self.client() as client:
            reader: st.CheckpointConsumer[bytes] = await client.reader(self.group.topic)

            async def done(_: st.Message[bytes]) -> None:
                return

            await self.receive(reader, done)
