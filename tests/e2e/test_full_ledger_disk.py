"""A full ledger disk stops acknowledgements and nothing else, and is over when there is space.

The brokers' ledgers are on a disk of their own, small enough to be filled. Where mounting is not
permitted these tests are skipped.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pulsar
import pytest
from pulsar import MessageId

from nextgen.cli.local.plan import LEDGERS_FOLDER, MINIMAL
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandPing
from tests.support.callers.stock_client import (
    PulsarSystem,
    numbered,
    read,
    read_all,
    running_system,
    send_all,
    texts,
)
from tests.support.processes.small_disks import MIB, MountRefused, SmallDisk, small_disks

BROKER = "broker-1"
DISK_MIB = 16
ROOM_BYTES = 2 * MIB
PADDING = b"." * 60_000
SENDS_MAX = 2 * ROOM_BYTES // len(PADDING)
SEND_TIMEOUT_MS = 4_000
PATIENT_MS = 120_000
RECOVERED_S_MAX = 60
"""The stock client doubles its pauses between attempts: what it waits for after a few seconds of
refusals is its own pause, not the broker."""

ANSWER_S_MAX = 30


@dataclass
class Numbers:
    """What was sent under a running number, and what of it was acknowledged."""

    tried: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    _next: Iterator[int] = field(default_factory=itertools.count)

    def send(self, producer: pulsar.Producer, *, padding: bytes = PADDING) -> None:
        """Send the next number; counts it as acknowledged if this returns."""
        number = next(self._next)
        self.tried.append(number)
        producer.send(b"%d " % number + padding)
        self.acknowledged.append(number)

    def send_more_than_fits(self, producer: pulsar.Producer) -> None:
        for _ in range(SENDS_MAX):
            self.send(producer)

    def send_when_possible(self, producer: pulsar.Producer) -> None:
        """Send until one is acknowledged, each time under a number of its own."""
        deadline = time.monotonic() + RECOVERED_S_MAX
        while True:
            try:
                return self.send(producer)
            except pulsar.Timeout:
                assert time.monotonic() < deadline, "there is space, and nothing is acknowledged"

    def check_stored(self, system: PulsarSystem, topic: str) -> None:
        """Everything acknowledged is there, in order; nothing is there twice."""
        with system.client() as client:
            messages = read_all(client.create_reader(topic, MessageId.earliest))
        found = [int(message.data().split()[0]) for message in messages]
        assert found == sorted(set(found))
        assert set(self.acknowledged) <= set(found) <= set(self.tried)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    path = tmp_path_factory.mktemp("cluster") / LEDGERS_FOLDER
    try:
        with small_disks(path, size_mib=DISK_MIB) as disks:
            yield disks[0]
    except MountRefused as refused:
        pytest.skip(f"no small disks: {refused}")


@pytest.fixture(scope="module")
def system(disk: SmallDisk) -> Iterator[PulsarSystem]:
    """A cluster of its own: the disk of this one runs full."""
    with running_system(disk.path.parent, MINIMAL) as running:
        yield running


def log_lines(disk: SmallDisk) -> list[dict[str, object]]:
    """Return the lines that are whole: the broker may be about to write the next."""
    text = (disk.path.parent / "logs" / f"{BROKER}.log").read_text()
    return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]


def check_log(disk: SmallDisk, topic: str) -> None:
    """The log says why the topic was closed, and of nothing that was not foreseen."""
    lines = log_lines(disk)
    reasons = [
        str(line["reason"])
        for line in lines
        if line["event"] == "topic closes" and topic in str(line["topic"])
    ]
    assert reasons
    assert all("No space left on device" in reason for reason in reasons)
    assert [line for line in lines if line["level"] in ("error", "critical")] == []


async def check_pings(system: PulsarSystem) -> None:
    """The broker takes a new connection and answers PING there."""
    host, _, port = system.broker_addresses[BROKER].partition(":")
    pushed: asyncio.Queue[BaseCommand] = asyncio.Queue()
    connection = await PulsarClientConnection.open(
        host,
        int(port),
        on_push=lambda command, _: pushed.put_nowait(command),
        timeout_ms=ANSWER_S_MAX * 1_000,
    )
    async with connection, timeout(ANSWER_S_MAX):
        connection.send_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
        assert (await pushed.get()).type == BaseCommand.PONG


def check_others_are_served(system: PulsarSystem, quiet: str) -> None:
    """What needs no room goes on: pings, look-ups, reading, topics that keep nothing."""
    asyncio.run(check_pings(system))
    assert system.owner(quiet) == BROKER
    with system.client() as client:
        assert client.get_topic_partitions(quiet) == [quiet]
        assert texts(read(client.create_reader(quiet, MessageId.earliest), 3)) == numbered(3)
        unkept = quiet.replace("persistent", "non-persistent")
        reader = client.create_reader(unkept, MessageId.latest)
        send_all(client.create_producer(unkept), numbered(3))
        assert texts(read(reader, 3)) == numbered(3)


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(
    system: PulsarSystem, disk: SmallDisk, client: pulsar.Client, topic: str
):
    """1. A producer sends until the disk is full: an error, and no acknowledgement.
    2. The same broker process serves all that needs no room.
    3. There is space again: this producer goes on, and another.
    4. What was acknowledged is there once and in order, also after the broker was killed.
    """
    quiet = f"{topic}-quiet"
    quiet_producer = client.create_producer(quiet)
    send_all(quiet_producer, numbered(3))
    producer = client.create_producer(
        topic, send_timeout_millis=SEND_TIMEOUT_MS, batching_enabled=False
    )
    numbers = Numbers()
    numbers.send(producer)
    process_id = system.process_id(BROKER)

    disk.fill(leave_bytes=ROOM_BYTES)
    with pytest.raises(pulsar.Timeout):
        numbers.send_more_than_fits(producer)
    assert len(numbers.acknowledged) > 1, "there was room for some"
    disk.fill()
    with pytest.raises(pulsar.Timeout):
        numbers.send(producer, padding=b"")
    check_others_are_served(system, quiet)

    disk.free()
    numbers.send_when_possible(producer)
    numbers.send_when_possible(client.create_producer(topic))
    send_all(quiet_producer, numbered(1, first=3))
    assert system.process_id(BROKER) == process_id
    numbers.check_stored(system, topic)
    check_log(disk, topic)
    system.kill(BROKER)
    system.start(BROKER)
    numbers.check_stored(system, topic)


def refused(producer: pulsar.Producer) -> None:
    """Send in vain: what was sent before has met the full disk when this is over."""
    with pytest.raises(pulsar.Timeout):
        Numbers().send(producer)


@pytest.mark.slow
def test_a_patient_producer_waits_until_there_is_space(
    system: PulsarSystem, disk: SmallDisk, client: pulsar.Client, topic: str
):
    """What is sent to a full disk is sent again by the client until it is stored, and only then
    acknowledged; the application does nothing for it."""
    count = 20
    outcomes: list[pulsar.Result] = []
    done = threading.Event()

    def settled(result: pulsar.Result, _: MessageId) -> None:
        outcomes.append(result)
        if len(outcomes) == count:
            done.set()

    producer = client.create_producer(topic, send_timeout_millis=PATIENT_MS, batching_enabled=False)
    impatient = client.create_producer(f"{topic}-other", send_timeout_millis=SEND_TIMEOUT_MS)
    numbers = Numbers()
    numbers.send(producer)
    disk.fill()

    for number in range(1, count + 1):
        numbers.tried.append(number)
        producer.send_async(b"%d " % number + PADDING, settled)
    refused(impatient)
    stored_in_reserve = len(outcomes)
    assert stored_in_reserve < count, "a file has room reserved for a few"
    refused(impatient)
    assert len(outcomes) == stored_in_reserve
    disk.free()
    assert done.wait(RECOVERED_S_MAX)

    assert outcomes == [pulsar.Result.Ok] * count
    numbers.acknowledged = list(numbers.tried)
    numbers.check_stored(system, topic)
    check_log(disk, topic)
