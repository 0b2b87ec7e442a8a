"""Clients, owners and storage in any order: what was acknowledged is stored once and in order, what
was asked is answered, and what has gone leaves nothing behind."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from brokers.domain.position import Position
from brokers.ports.ledger import StorageFailed
from nextgen.kernel.errors import Unavailable
from nextgen.pulsar.keep_alive import KeepAlive
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import (
    TOPIC,
    BrokerWorld,
    FakeBroker,
    FakeClient,
    settle,
    topic_id_of,
)
from tests.support.simulated.virtual_time import run_virtual

UNIT = (topic_id_of(TOPIC), "")
STEPS = 400
SCHEDULES = 25
USUAL_SHARE = 0.88
"""Of the events: the others disturb owners, shards or storage."""

NAMES = ("p", "q", "r")
QUIET_S = 120
"""Longer than anything that waits."""


@dataclass
class Member:
    """A client and what it has asked for."""

    client: FakeClient
    requests: list[int] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """Of producers, by id; no id is used twice."""
    subscribed: dict[int, int | None] = field(default_factory=dict)
    given_up: set[int | None] = field(default_factory=set)
    handles: int = 0

    def ask(self, kind: int, **fields: Any) -> None:
        if self.client.transport.is_reading_paused:
            return
        self.requests.append(self.client.start(kind, **fields))

    def ready(self) -> list[int]:
        """Producers that are let in and, as far as is known here, not closed."""
        closed = {each.producer_id for each in self.client.got(pulsar.BaseCommand.CLOSE_PRODUCER)}
        let_in = {each.request_id for each in self.client.got(pulsar.BaseCommand.PRODUCER_SUCCESS)}
        return [
            number
            for number, request_id in zip(self.names, self.producer_requests, strict=True)
            if request_id in let_in and number not in closed
        ]

    producer_requests: list[int] = field(default_factory=list)


class Schedule:
    """One world and a random order of events in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = BrokerWorld()
        self.brokers = [self.world.broker("a"), self.world.broker("b")]
        for broker in self.brokers:
            # Nobody answers PING here, and is to be there at the end all the same.
            broker.keep_alive = KeepAlive(interval_ms=10**9)
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.sent = dict.fromkeys(NAMES, 0)
        self.usual = [
            *(self.connect, self.produce, self.subscribe, self.send, self.send, self.send),
            *(self.flow, self.acknowledge, self.acknowledge, self.seek, self.unsubscribe),
            *(self.close, self.leave),
        ]
        self.disturbances = [
            *(self.move, self.fence, self.end_session, self.lose_shards, self.fail),
            *(self.hold, self.hold, self.hold, self.release, self.release, self.move),
        ]

    async def run(self) -> None:
        self.world.assign(TOPIC, "a")
        for _ in range(STEPS):
            is_usual = self.rng.random() < USUAL_SHARE
            self.rng.choice(self.usual if is_usual else self.disturbances)()
            await settle(self.rng.randint(0, 6))
            if self.rng.random() < 0.05:
                await asyncio.sleep(self.rng.choice((0.05, 0.3, 6)))
        self.let_all_go_on()
        await asyncio.sleep(QUIET_S)
        self.let_all_go_on()
        await asyncio.sleep(QUIET_S)
        self.check_answers()
        for member in self.members:
            member.client.leave()
        await settle(100)
        for broker in self.brokers:
            assert [topic for topic in broker.topics if topic.has_clients] == []
        self.check_stored()
        await self.world.stop()

    # Events ----------------------------------------------------------------------------------

    def connect(self) -> None:
        if len(self.members) < 5:
            owner = self.world.directory.owners[TOPIC][0]
            is_right = self.rng.random() < 0.9 and owner
            broker = self.world.broker(owner) if is_right else self.rng.choice(self.brokers)
            self.members.append(Member(broker.client()))

    def member(self) -> Member | None:
        for each in [each for each in self.members if not each.client.connection.is_open]:
            self.members.remove(each)
            self.gone.append(each)
        return self.rng.choice(self.members) if self.members else None

    def produce(self) -> None:
        if (member := self.member()) is None:
            return
        member.handles += 1
        name = self.rng.choice(NAMES)
        before = len(member.requests)
        member.ask(
            pulsar.BaseCommand.PRODUCER,
            topic=TOPIC,
            producer_id=member.handles,
            producer_name=name,
            epoch=self.rng.randint(0, 1),
            producer_access_mode=self.rng.choice((0, 0, 0, 0, 0, 1, 3)),
            initial_subscription_name=self.rng.choice(("", "", "first")),
        )
        if len(member.requests) > before:
            member.names[member.handles] = name
            member.producer_requests.append(member.requests[-1])

    def subscribe(self) -> None:
        if (member := self.member()) is None:
            return
        member.handles += 1
        member.ask(
            pulsar.BaseCommand.SUBSCRIBE,
            topic=TOPIC,
            subscription=self.rng.choice(("s", "t", f"u{member.handles % 30}")),
            subType=self.rng.choice((0, 1, 1, 2, 3)),
            consumer_id=member.handles,
            durable=self.rng.random() < 0.9,
            force_topic_creation=True,
        )
        member.subscribed[member.handles] = member.requests[-1] if member.requests else None

    def flow(self) -> None:
        if (member := self.member()) is not None:
            flow = pulsar.BaseCommand.FLOW
            for number in range(member.handles + 1):
                member.client.send_raw(
                    member.client.command(flow, consumer_id=number, messagePermits=20)
                )

    def send(self) -> None:
        member = self.member()
        ready = member.ready() if member is not None else []
        if member is None or not ready:
            return
        number = self.rng.choice(ready)
        name = member.names[number]
        # Now and then one that was sent before: its client has not heard of it.
        back = self.rng.choice((0, 0, 0, 0, 1, 2))
        member.client.send(max(0, self.sent[name] - back), producer_id=number, producer_name=name)
        if not back:
            self.sent[name] += 1

    def acknowledge(self) -> None:
        member = self.member()
        messages = member.client.got(pulsar.BaseCommand.MESSAGE) if member is not None else []
        if member is not None and messages:
            message = self.rng.choice(messages)
            member.client.ack(message, consumer_id=message.consumer_id)

    def seek(self) -> None:
        if (member := self.member()) is not None:
            consumer_id = self.rng.randint(1, 1 + member.handles)
            member.ask(pulsar.BaseCommand.SEEK, consumer_id=consumer_id, message_publish_time=1)

    def unsubscribe(self) -> None:
        if (member := self.member()) is not None and self.rng.random() < 0.3:
            consumer_id = self.rng.randint(0, member.handles)
            is_forced = self.rng.random() < 0.5
            member.ask(pulsar.BaseCommand.UNSUBSCRIBE, consumer_id=consumer_id, force=is_forced)

    def close(self) -> None:
        if (member := self.member()) is None:
            return
        number = self.rng.randint(0, member.handles)
        if number in member.names and number in member.ready():
            index = list(member.names).index(number)
            del member.names[number], member.producer_requests[index]
            member.ask(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=number)
        elif number not in member.names:
            member.ask(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=number)
            # Who gives up before the answer gets none.
            member.given_up.add(member.subscribed.get(number))

    def leave(self) -> None:
        if (member := self.member()) is not None and self.rng.random() < 0.1:
            member.client.leave()
            self.members.remove(member)
            self.gone.append(member)

    def move(self) -> None:
        owner = self.world.directory.owners[TOPIC][0]
        self.world.move(TOPIC, self.rng.choice([each for each in "ab" if each != owner]))

    def fence(self) -> None:
        """Another broker is the owner, and the old one has not been notified."""
        owner = self.world.directory.owners[TOPIC][0]
        self.world.assign(TOPIC, "b" if owner == "a" else "a")

    def end_session(self) -> None:
        broker: FakeBroker = self.rng.choice(self.brokers)
        owner, epoch = self.world.directory.owners[TOPIC]
        if owner == broker.broker_id:
            self.world.directory.owners[TOPIC] = ("", epoch)
        broker.begin_session()

    def lose_shards(self) -> None:
        directory = self.world.directory
        directory.error = Unavailable("no leader") if directory.error is None else None

    def hold(self) -> None:
        broker = self.rng.choice(self.brokers)
        ledger = broker.store.moody.get(TOPIC)
        held = self.rng.choice(("openings", "entries", "facts", "facts"))
        if held == "openings":
            broker.store.released.clear()
        elif ledger is not None and held == "entries":
            ledger.is_holding = True
        elif ledger is not None:
            ledger.hold_facts()

    def fail(self) -> None:
        """Storage refuses whatever is not stored yet, until the topic is opened anew."""
        ledger = self.rng.choice(self.brokers).store.moody.get(TOPIC)
        if ledger is not None:
            ledger.failure = StorageFailed("no space left on device")

    def release(self) -> None:
        broker = self.rng.choice(self.brokers)
        broker.store.released.set()
        for ledger in broker.store.every:
            ledger.release()
            ledger.release_facts()

    def let_all_go_on(self) -> None:
        self.world.directory.error = None
        for broker in self.brokers:
            broker.store.released.set()
            for ledger in broker.store.every:
                ledger.release()
                ledger.release_facts()

    # What must be so -------------------------------------------------------------------------

    def check_answers(self) -> None:
        for member in self.members:
            client = member.client
            if not client.connection.is_open:
                continue
            asked = [number for number in member.requests if number not in member.given_up]
            silent = [number for number in asked if not client._answers(number)]
            assert silent == [], f"{len(silent)} requests have no answer"

    def check_stored(self) -> None:
        stored = {each.position: each for each in self.world.disk.units[UNIT].entries}
        highest = dict.fromkeys(NAMES, -1)
        for position in sorted(stored):
            entry = stored[position]
            assert entry.sequence_id > highest[entry.producer_name], "stored once, in order"
            highest[entry.producer_name] = entry.sequence_id
        acknowledged: set[Position] = set()
        for member in (*self.members, *self.gone):
            for message in member.client.got(pulsar.BaseCommand.MESSAGE):
                place = message.message_id
                assert Position(place.ledgerId, place.entryId) in stored, "sent before it was safe"
            for receipt in member.client.got(pulsar.BaseCommand.SEND_RECEIPT):
                if receipt.message_id.ledgerId == 2**64 - 1:
                    continue
                position = Position(receipt.message_id.ledgerId, receipt.message_id.entryId)
                assert stored[position].sequence_id == receipt.sequence_id
                assert position not in acknowledged, "acknowledged once"
                acknowledged.add(position)


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_whatever_happens_nothing_is_lost_unanswered_or_left_behind(seed: int):
    async def main() -> None:
        await Schedule(seed).run()

    with capture_logs() as logs:
        run_virtual(main)

    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []
