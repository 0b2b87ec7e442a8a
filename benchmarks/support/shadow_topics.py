"""Sources with shadows at other brokers, and clients that read and write them over raw frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from nextgen.client import Client, NewTopic
from nextgen.harness.perf.bench import Bench
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.pulsar.client import PulsarClientConnection, Push
from nextgen.pulsar.frames import encode_frame
from nextgen.pulsar.payload import message_payload, open_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

SETUP_TIMEOUT_MS = 60_000
MOVE_ATTEMPTS_MAX = 50
MOVE_PAUSE_S = 0.2
SUBSCRIBE_ATTEMPTS_MAX = 50


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A source and its shadows. ``owners`` are broker ids by topic."""

    source: str
    shadows: tuple[str, ...]
    owners: dict[str, str]
    topic_ids: dict[str, str]


async def make_shadows(bench: Bench, stem: str, count: int) -> Shadowed:
    """Create a source with so many shadows, all of them at brokers that do not have the source."""
    source = f"persistent://{bench.namespace}/{stem}"
    shadows = tuple(f"{source}-shadow-{number}" for number in range(count))
    async with Client(list(bench.targets), timeout_ms=SETUP_TIMEOUT_MS, effective=True) as client:
        new = [NewTopic(name, 0, {SHADOW_SOURCE_PROPERTY: source}) for name in shadows]
        await _create(client, [NewTopic(source)])
        for start in range(0, count, TOPICS_PER_CREATE_MAX):
            await _create(client, new[start : start + TOPICS_PER_CREATE_MAX])
        if shadows:
            await client.set_shadows(source, shadows)
        owners, ids = await _apart(bench, client, source, shadows)
    return Shadowed(source, shadows, owners, ids)


async def _create(client: Client, topics: Sequence[NewTopic]) -> None:
    refused = [each for each in await client.create_topics(topics) if not each.is_created]
    if refused:
        raise SystemExit(f"a topic was refused: {refused[0]}")


async def _apart(
    bench: Bench, client: Client, source: str, shadows: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Move shadows away from the source's broker; return the owners and the topics' ids."""
    assert bench.cluster is not None
    brokers = [node.node_id for node in bench.cluster.plan.of_kind("broker")]
    names = [source, *shadows]
    for _ in range(MOVE_ATTEMPTS_MAX):
        found = await client.lookup(names, fresh=True)
        owners = {each.topic: each.broker_id for each in found if not each.rejection_code}
        others = cycle(each for each in brokers if each != owners.get(source))
        wrong = [name for name in shadows if owners.get(name, owners[source]) == owners[source]]
        if len(owners) == len(names) and not wrong:
            return owners, {each.topic: each.topic_id for each in found}
        await client.move_topics({name: next(others) for name in wrong})
        await asyncio.sleep(MOVE_PAUSE_S)
    raise SystemExit(f"{len(wrong)} shadows stayed with their source")


class Brokers:
    """Connections to the brokers of a cluster of our own, one for each broker and purpose."""

    def __init__(self, bench: Bench) -> None:
        assert bench.cluster is not None
        self._addresses = {
            node.node_id: (node.host, node.pulsar_port)
            for node in bench.cluster.plan.of_kind("broker")
        }
        self._connections: list[PulsarClientConnection] = []

    async def connect(self, broker_id: str, on_push: Push | None = None) -> PulsarClientConnection:
        host, port = self._addresses[broker_id]
        connection = await PulsarClientConnection.open(host, port, on_push=on_push)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


async def subscribe(
    connection: PulsarClientConnection,
    topic: str,
    subscription: str,
    consumer_id: int,
    *,
    permits: int,
) -> None:
    """Make a durable Shared subscription at the end of a topic, with a consumer."""
    command = pulsar.BaseCommand(
        type=pulsar.BaseCommand.SUBSCRIBE,
        subscribe=pulsar.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=pulsar.CommandSubscribe.Shared,
            consumer_id=consumer_id,
        ),
    )
    for _ in range(SUBSCRIBE_ATTEMPTS_MAX):
        command.subscribe.ClearField("request_id")
        answer = await connection.request(command, timeout_ms=SETUP_TIMEOUT_MS)
        if answer.type == pulsar.BaseCommand.SUCCESS:
            break
        # Clients ask again: the shadow is being opened, or its cursors wait for the disk.
        if answer.error.error != pulsar.ServiceNotReady:
            raise SystemExit(f"{topic} {subscription}: {answer}")
        await asyncio.sleep(MOVE_PAUSE_S)
    else:
        raise SystemExit(f"{topic} {subscription}: {answer}")
    connection.send_command(
        pulsar.BaseCommand(
            type=pulsar.BaseCommand.FLOW,
            flow=pulsar.CommandFlow(consumer_id=consumer_id, messagePermits=permits),
        )
    )


class Publisher:
    """Sends messages of one size to a topic, and notes when each was acknowledged."""

    def __init__(self, connection: PulsarClientConnection, body_bytes: int) -> None:
        self.connection = connection
        self.sent_at: list[float] = []
        self.receipt_s: dict[int, float] = {}
        self._body = b"x" * body_bytes
        self._wanted = 0
        self._all = asyncio.Event()

    @classmethod
    async def open(cls, brokers: Brokers, broker_id: str, topic: str, body_bytes: int) -> Publisher:
        publisher: Publisher | None = None

        def push(command: pulsar.BaseCommand, _payload: bytes) -> None:
            assert publisher is not None
            publisher.took(command)

        connection = await brokers.connect(broker_id, push)
        publisher = cls(connection, body_bytes)
        answer = await connection.request(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.PRODUCER,
                producer=pulsar.CommandProducer(topic=topic, producer_id=0),
            )
        )
        if answer.type != pulsar.BaseCommand.PRODUCER_SUCCESS:
            raise SystemExit(f"{topic}: {answer}")
        return publisher

    def send(self) -> None:
        number = len(self.sent_at)
        metadata = pulsar.MessageMetadata(
            producer_name="benchmark", sequence_id=number, publish_time=int(time.time() * 1_000)
        )
        command = pulsar.BaseCommand(
            type=pulsar.BaseCommand.SEND,
            send=pulsar.CommandSend(producer_id=0, sequence_id=number, num_messages=1),
        )
        frame = encode_frame(command, message_payload(metadata, self._body))
        self.sent_at.append(time.perf_counter())
        self.connection.send(frame)

    def took(self, command: pulsar.BaseCommand) -> None:
        if command.type != pulsar.BaseCommand.SEND_RECEIPT:
            raise SystemExit(f"instead of a receipt: {command}")
        number = command.send_receipt.sequence_id
        self.receipt_s[number] = time.perf_counter() - self.sent_at[number]
        self._look()

    async def publish(self, count: int, per_second: float) -> None:
        """Send at a rate; return when all are acknowledged."""
        began, first = time.perf_counter(), len(self.sent_at)
        for number in range(count):
            due = began + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.send()
        self._wanted = first + count
        self._all.clear()
        self._look()
        await self._all.wait()

    def _look(self) -> None:
        if len(self.receipt_s) >= self._wanted:
            self._all.set()


def arrivals(note: Callable[[int, float], None]) -> Push:
    """Return a callback that notes the sequence id and the time of each message, and drops it."""

    def push(command: pulsar.BaseCommand, payload: bytes) -> None:
        if command.type == pulsar.BaseCommand.MESSAGE:
            note(open_payload(payload).metadata.sequence_id, time.perf_counter())

    return push


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(seconds)
    picks = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": len(ordered) - 1}
    return {name: round(ordered[index] * 1_000, 2) for name, index in picks.items()}
