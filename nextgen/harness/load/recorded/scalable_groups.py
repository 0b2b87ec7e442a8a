"""What the subscriptions of a scalable topic received, and the members that receive it.

A member records a message before it acknowledges it. It leaves and comes back until it is told to
stay, and then stays until it is told to end.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from nextgen.client import st
from nextgen.client.st.errors import ScalableTopicError, TimedOut
from nextgen.harness.history.model import Drained, Received
from nextgen.harness.history.record_file import Recorder
from nextgen.harness.load.pulsar.message_stamp import stamp_of
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.kernel.events.decider import RejectionCode

OPERATION_TIMEOUT_MS = 15_000
RECEIVE_MS = 500
"""Time-out of one receive call: how late a member notices that it is to leave."""

STAY_S = (4.0, 20.0)
"""Shortest and longest time between coming and leaving, where others go on."""

AWAY_S = (0.0, 3.0)
RETRY_S = 0.5
NEGATIVE_SHARE = 0.02
"""Part of a queue's messages that are acknowledged negatively first."""

ABRUPT_SHARE = 0.4
"""Part of the leaves without a word: all connections of the member are cut."""

EARLIEST = st.InitialPosition.EARLIEST
Consumer = Any
"""A consumer of any kind."""


def producer_name(lane: int) -> str:
    """Return the name in the history of the producer of a lane."""
    return f"scalable-{lane}"


class Group:
    """One subscription of one topic, from its creation to its deletion."""

    def __init__(
        self, topic: str, name: str, recorder: Recorder, *, keeps_order: bool = True
    ) -> None:
        self.topic = topic
        self.name = name
        self.seen: set[int] = set()
        self.received = 0
        self._recorder = recorder
        self._keeps_order = keeps_order

    def take(self, member: str, message: st.Message[bytes]) -> None:
        """Record a message that a member received."""
        lane, number = stamp_of(message.data)
        place = message.position
        self._recorder.write(
            Received(
                member,
                self.topic,
                producer_name(lane),
                number,
                place.ledger_id,
                place.entry_id,
                place.batch_index,
                time.monotonic_ns(),
                self.name,
                (message.key or "") if self._keeps_order else "",
                message.segment,
            )
        )
        self.seen.add(number)
        self.received += 1

    def missing(self, acknowledged: set[int]) -> int:
        """Return how many acknowledged messages no member received."""
        return len(acknowledged - self.seen)

    def drained(self) -> None:
        """Record that the members have read everything."""
        self._recorder.write(Drained("", self.topic, self.name))


@dataclass(slots=True)
class Stage:
    """Orders to all members of the groups, and counts of what they report. ``errors``: failures,
    by kind of member and error."""

    staying: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    errors: Counter[str] = field(default_factory=Counter)
    visits: Counter[str] = field(default_factory=Counter)

    def goes_on(self, until: float) -> bool:
        """Return whether a member that may leave at ``until`` is still to receive."""
        if self.ending.is_set():
            return False
        return self.staying.is_set() or time.monotonic() < until


class Member:
    """Visits a topic again and again. ``visit`` is one time from coming to leaving."""

    kind = "member"

    def __init__(self, name: str, group: Group, service_url: str, stage: Stage, seed: str) -> None:
        self.name = name
        self.group = group
        self.stage = stage
        self.service_url = service_url
        self.chooser = random.Random(f"{seed} {name} {group.topic}")
        self.begun = asyncio.Event()

    async def run(self) -> None:
        """Return once the stage ends."""
        while not self.stage.ending.is_set():
            try:
                await self.visit()
                self.stage.visits[self.kind] += 1
                pause_s = 0.0 if self.stage.staying.is_set() else self.chooser.uniform(*AWAY_S)
            except ScalableTopicError as error:
                self.stage.errors[f"{self.kind}: {type(error).__name__}"] += 1
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)

    async def visit(self) -> None:
        """Come, receive, and leave.

        Raises:
            ScalableTopicError: It could not come, or had to leave.
        """
        raise NotImplementedError

    def client(self) -> st.PulsarClient:
        return st.PulsarClient(self.service_url, operation_timeout_ms=OPERATION_TIMEOUT_MS)

    async def receive(
        self,
        consumer: Consumer,
        then: Callable[[st.Message[bytes]], Awaitable[None]],
        when_idle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Receive for a while; ``then`` is called with each message once it is recorded."""
        self.begun.set()
        until = time.monotonic() + self.chooser.uniform(*STAY_S)
        while self.stage.goes_on(until):
            try:
                message = await consumer.receive(RECEIVE_MS)
            except TimedOut:
                if when_idle is not None:
                    await when_idle()
                continue
            self.group.take(self.name, message)
            await then(message)


class QueueMember(Member):
    """Shares a queue with others."""

    kind = "queue"

    async def visit(self) -> None:
        async with self.client() as client:
            consumer: st.QueueConsumer[bytes] = await client.queue_consumer(
                self.group.topic,
                self.group.name.partition("/")[0],
                consumer_name=self.name,
                initial_position=EARLIEST,
                negative_ack_delay_ms=200,
            )

            async def done(message: st.Message[bytes]) -> None:
                is_first = not message.redelivery_count
                if is_first and self.chooser.random() < NEGATIVE_SHARE:
                    await consumer.negative_acknowledge(message)
                else:
                    await consumer.acknowledge(message)

            await self.receive(consumer, done)


class StreamMember(Member):
    """Shares the segments of a stream with others, and leaves in either way."""

    kind = "stream"

    async def visit(self) -> None:
        client = self.client()
        last: st.Message[bytes] | None = None
        try:
            consumer: st.StreamConsumer[bytes] = await client.stream_consumer(
                self.group.topic,
                self.group.name.partition("/")[0],
                consumer_name=self.name,
                initial_position=EARLIEST,
            )

            async def done(message: st.Message[bytes]) -> None:
                nonlocal last
                last = message
                if self.chooser.random() < 0.5:
                    await acknowledge()

            async def acknowledge() -> None:
                nonlocal last
                if last is not None:
                    await consumer.acknowledge_cumulative(last)
                    last = None

            await self.receive(consumer, done, acknowledge)
            if self.stage.staying.is_set():
                await acknowledge()
        finally:
            is_abrupt = self.chooser.random() < ABRUPT_SHARE
            await (client.shutdown() if is_abrupt else client.close())


class Reader(Member):
    """Reads everything, and goes back to its last checkpoint now and then."""

    kind = "checkpoint"

    def __init__(self, name: str, group: Group, service_url: str, stage: Stage, seed: str) -> None:
        super().__init__(name, group, service_url, stage, seed)
        self._checkpoint: bytes | None = None

    async def visit(self) -> None:
        async with self.client() as client:
            reader: st.CheckpointConsumer[bytes] = await client.checkpoint_consumer(
                self.group.topic,
                checkpoint=self._checkpoint,
                initial_position=EARLIEST,
                consumer_name=self.name,
            )

            async def done(_: st.Message[bytes]) -> None:
                if self.chooser.random() < 0.1:
                    self._checkpoint = reader.checkpoint().to_bytes()

            await self.receive(reader, done)


class PassingMember(Member):
    """Uses a subscription for a while, which it creates and deletes by the operator's calls.

    ``group`` is the subscription as it was created last.
    """

    kind = "passing"

    def __init__(
        self,
        name: str,
        group: Group,
        service_url: str,
        stage: Stage,
        seed: str,
        *,
        calls: RecordedCalls,
        new_group: Callable[[str, bool], Group],
    ) -> None:
        super().__init__(name, group, service_url, stage, seed)
        self._calls = calls
        self._new_group = new_group
        self._round = 0
        self._exists = False

    async def visit(self) -> None:
        if not self._exists:
            self._round += 1
            await self._create("stream" if self._round % 2 else "queue")
        member = (StreamMember if self._round % 2 else QueueMember)(
            self.name, self.group, self.service_url, self.stage, f"round {self._round}"
        )
        self.begun.set()
        await member.visit()
        if not (self.stage.staying.is_set() or self.stage.ending.is_set()):
            await self._delete()

    async def _create(self, type_: str) -> None:
        subscription = self.name
        self.group = self._new_group(f"{subscription}/{self._round}", type_ == "stream")
        while not self.stage.ending.is_set():
            created = await self._calls.create_subscription(self.group.topic, subscription, type_)
            if created.is_ok:
                self._exists = True
                return
            await asyncio.sleep(RETRY_S)

    async def _delete(self) -> None:
        while not self.stage.ending.is_set():
            deleted = await self._calls.delete_subscription(self.group.topic, self.name)
            if deleted.is_ok or deleted.refusal == RejectionCode.NOT_FOUND:
                self._exists = False
                return
            await asyncio.sleep(RETRY_S)
