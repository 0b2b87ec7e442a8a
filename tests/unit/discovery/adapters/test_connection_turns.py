"""Nobody's pipeline keeps the others waiting: turns of connections, and when reading stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from discovery.adapters.servers.loop_turns import LoopTurns
from discovery.adapters.servers.pulsar_connection import ClientServices, DiscoveryConnection
from discovery.domain.fairness import DEFAULT_FAIRNESS, Fairness
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.access import ANONYMOUS, CLUSTER, Action, Resource
from nextgen.kernel.limits.discovery import (
    DISCOVERY_ROUNDS_BETWEEN_TURNS,
    DISCOVERY_SHORT_READ_BYTES,
    DISCOVERY_TURN_BYTES_MAX,
    DISCOVERY_TURN_COMMANDS_MAX,
    DISCOVERY_TURN_MS,
)
from nextgen.kernel.limits.pulsar import (
    DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX,
    FAST_PENDING_BYTES_MAX,
)
from nextgen.pulsar.frames import encode_command
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.metadata_commands import MetadataCommands
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandUnsubscribe, ServerError
from tests.support.authorization import AllowList
from tests.support.pulsar.fast_path import KnowsEverything
from tests.support.pulsar.frames import TOPIC, connect_frame, lookup_command
from tests.support.pulsar.transport import MemoryTransport

WAITING_MAX = DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX


class KnowsNothing:
    def lookup(self, _topic: str, _now: float) -> None:
        return None

    partitions = lookup


class Held:
    """A directory whose answers come when the test says so."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def locate(self, _name: Any, *, create: bool) -> Any:
        await self.released.wait()
        raise Unavailable("no broker is there")


class World:
    """A process' connections, each turn of which takes longer than a turn may."""

    def __init__(self, known: Any, fairness: Fairness = DEFAULT_FAIRNESS) -> None:
        counters = DiscoveryCounters()
        self.directory = Held()
        self.dispatcher = CommandDispatcher(MetadataCommands(self.directory), counters)  # type: ignore[arg-type]
        self.services = ClientServices(known, self.dispatcher, counters, fairness)
        self.now = 0.0
        self.services.turns = LoopTurns(self._later)

    def _later(self) -> float:
        self.now += DISCOVERY_TURN_MS / 1_000
        return self.now

    def connect(self) -> MemoryTransport:
        transport = MemoryTransport(DiscoveryConnection(KeepAlive(), self.services))
        transport.receive(connect_frame())
        transport.writes.clear()
        return transport


@pytest.fixture
async def cached():
    return World(KnowsEverything())


@pytest.fixture
async def uncached():
    world = World(KnowsNothing())
    yield world
    await world.dispatcher.drain(0)


def lookups(count: int, first: int = 1) -> bytes:
    frames = (lookup_command(request_id=number) for number in range(first, first + count))
    return b"".join(encode_command(command) for command in frames)


def answered(transport: MemoryTransport) -> list[int]:
    return [
        command.lookupTopicResponse.request_id
        for command in transport.commands()
        if command.type == BaseCommand.LOOKUP_RESPONSE
    ]


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def reads_of(size: int) -> tuple[bytes, int]:
    """Return whole LOOKUP frames of ``size`` bytes at most, and how many they are."""
    one = len(lookups(1, first=1_000))
    count = size // one
    return lookups(count, first=1_000), count


async def test_discovery_turn_bytes_max_are_answered_at_once_and_one_more_has_to_wait(cached):
    data, count = reads_of(DISCOVERY_TURN_BYTES_MAX)
    padded = lookups(1, first=1_000)[:-1]  # What follows is not complete in this read.
    exact, longer = cached.connect(), cached.connect()

    exact.receive((data + padded)[:DISCOVERY_TURN_BYTES_MAX])
    assert len(answered(exact)) == count
    assert not exact.is_reading_paused

    await rounds(DISCOVERY_ROUNDS_BETWEEN_TURNS)
    longer.receive(data + lookups(2, first=5_000))
    assert len(answered(longer)) <= count
    assert longer.is_reading_paused

    await rounds(2 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    assert answered(longer) == [*range(1_000, 1_000 + count), 5_000, 5_001]
    assert not longer.is_reading_paused


async def test_behind_fast_pending_bytes_max_the_fast_path_goes_on_and_behind_one_more_in_a_turn(
    cached,
):
    """A frame that it has seen so much of is taken by the codec, and what is behind it waits."""
    long = encode_command(lookup_command("persistent://a/b/" + "x" * FAST_PENDING_BYTES_MAX))
    at_once = {}
    for seen in (FAST_PENDING_BYTES_MAX, FAST_PENDING_BYTES_MAX + 1):
        client = cached.connect()
        client.receive(long[:seen])
        client.receive(long[seen:] + lookups(1, first=7))
        at_once[seen] = answered(client)
        await rounds(DISCOVERY_ROUNDS_BETWEEN_TURNS)
        assert 7 in answered(client)

    assert 7 in at_once[FAST_PENDING_BYTES_MAX]
    assert 7 not in at_once[FAST_PENDING_BYTES_MAX + 1]


async def test_an_operator_sets_what_a_connection_is_answered_in_a_turn():
    of_bytes = World(KnowsEverything(), Fairness(turn_bytes_max=DISCOVERY_SHORT_READ_BYTES))
    data, _ = reads_of(DISCOVERY_TURN_BYTES_MAX)
    reader = of_bytes.connect()
    reader.receive(data)
    assert len(answered(reader)) == reads_of(DISCOVERY_SHORT_READ_BYTES)[1]

    of_commands = World(KnowsNothing(), Fairness(turn_commands_max=3))
    of_commands.connect().receive(lookups(9))
    assert of_commands.dispatcher.waiting == 3
    await of_commands.dispatcher.drain(0)


async def test_connections_with_long_reads_are_answered_in_turn(cached):
    first, second = cached.connect(), cached.connect()
    data, _ = reads_of(4 * DISCOVERY_TURN_BYTES_MAX)

    first.receive(data)
    second.receive(data)
    progress = []
    for _ in range(6):
        await rounds(DISCOVERY_ROUNDS_BETWEEN_TURNS)
        progress.append(len(answered(first)) - len(answered(second)))

    _, turn = reads_of(DISCOVERY_TURN_BYTES_MAX)
    assert max(map(abs, progress)) <= 2 * turn, "the first has begun, and each has its turn"
    assert len(answered(second)) > turn


async def test_a_short_read_waits_for_no_connection_with_a_long_one(cached):
    hog, modest = cached.connect(), cached.connect()
    hog.receive(reads_of(8 * DISCOVERY_TURN_BYTES_MAX)[0])
    data, count = reads_of(DISCOVERY_SHORT_READ_BYTES)

    modest.receive(data)

    assert len(answered(modest)) == count
    assert hog.is_reading_paused


async def test_everything_else_has_its_rounds_between_two_turns(cached):
    hog = cached.connect()
    hog.receive(reads_of(8 * DISCOVERY_TURN_BYTES_MAX)[0])
    seen = []
    for _ in range(2 * DISCOVERY_ROUNDS_BETWEEN_TURNS):
        await rounds(1)
        seen.append(len(answered(hog)))

    assert len(set(seen)) == 3, seen


async def test_discovery_turn_commands_max_begin_at_once_and_one_more_has_to_wait(uncached):
    client = uncached.connect()

    client.receive(lookups(DISCOVERY_TURN_COMMANDS_MAX))
    assert uncached.dispatcher.waiting == DISCOVERY_TURN_COMMANDS_MAX
    assert not client.is_reading_paused

    client.receive(lookups(DISCOVERY_TURN_COMMANDS_MAX + 2, first=100))
    assert uncached.dispatcher.waiting == 2 * DISCOVERY_TURN_COMMANDS_MAX
    assert client.is_reading_paused

    await rounds(2 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    assert uncached.dispatcher.waiting == 2 * DISCOVERY_TURN_COMMANDS_MAX + 2
    assert not client.is_reading_paused


async def test_discovery_connection_commands_waiting_max_wait_and_one_more_is_not_read(
    uncached,
):
    uncached.services.turn_commands_max = 2 * WAITING_MAX
    uncached.services.turn_bytes_max = 1_000 * WAITING_MAX
    client, other = uncached.connect(), uncached.connect()
    client.receive(lookups(WAITING_MAX - 1))
    assert not client.is_reading_paused

    client.receive(lookups(2, first=WAITING_MAX))
    await rounds(10 * DISCOVERY_ROUNDS_BETWEEN_TURNS)

    assert uncached.dispatcher.waiting == WAITING_MAX, (
        "the one beyond it is not begun, and not refused"
    )
    assert client.is_reading_paused
    other.receive(lookups(1))
    assert uncached.dispatcher.waiting == WAITING_MAX + 1

    uncached.directory.released.set()
    await rounds(20 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    assert sorted(answered(client)) == list(range(1, WAITING_MAX + 2))
    assert not client.is_reading_paused


@pytest.mark.parametrize("cut", [1, 5, 7, 30, 61])
async def test_what_was_cut_at_a_turn_is_answered_whole_and_once(cached, cut):
    client = cached.connect()
    data, count = reads_of(3 * DISCOVERY_TURN_BYTES_MAX)

    client.receive(data[:cut])
    client.receive(data[cut:])
    await rounds(20 * DISCOVERY_ROUNDS_BETWEEN_TURNS)

    assert answered(client) == list(range(1_000, 1_000 + count))


async def test_what_comes_with_the_handshake_has_turns_too(uncached):
    client = MemoryTransport(DiscoveryConnection(KeepAlive(), uncached.services))

    client.receive(connect_frame() + lookups(3 * DISCOVERY_TURN_COMMANDS_MAX))
    assert uncached.dispatcher.waiting <= DISCOVERY_TURN_COMMANDS_MAX

    await rounds(10 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    assert uncached.dispatcher.waiting == 3 * DISCOVERY_TURN_COMMANDS_MAX


async def test_a_client_that_does_not_read_has_no_further_turns(cached):
    client = cached.connect()
    client.receive(reads_of(4 * DISCOVERY_TURN_BYTES_MAX)[0])
    client.protocol.pause_writing()
    await rounds(3 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    before = len(answered(client))
    await rounds(10 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    assert len(answered(client)) == before

    client.protocol.resume_writing()
    await rounds(10 * DISCOVERY_ROUNDS_BETWEEN_TURNS)
    assert len(answered(client)) > before


async def test_a_connection_that_closed_has_no_further_turns(cached):
    client = cached.connect()
    client.receive(reads_of(4 * DISCOVERY_TURN_BYTES_MAX)[0])
    before = len(answered(client))

    client.protocol.abort("the test wants it")
    await rounds(10 * DISCOVERY_ROUNDS_BETWEEN_TURNS)

    assert len(answered(client)) == before


def request_id_of_answer(command: BaseCommand) -> int:
    return command.lookupTopicResponse.request_id or command.error.request_id


def authorizing(world: World) -> AllowList:
    """Return what decides about the clients of ``world`` from now on."""
    allow = AllowList()
    allow.allow(ANONYMOUS.name, Action.CONNECT, CLUSTER)
    world.services.greeting = replace(world.services.greeting, authorizer=allow)
    return allow


async def test_a_lookup_of_what_may_be_looked_up_is_not_asked_for(cached):
    allow = authorizing(cached)
    allow.allow(ANONYMOUS.name, Action.LOOK_UP, Resource.namespace("public/default"))
    transport = cached.connect()
    allow.sessions[0].refresh()
    asked = len(allow.asked)

    transport.receive(lookups(3))

    assert answered(transport) == [1, 2, 3]
    assert len(allow.asked) == asked


async def test_a_lookup_of_anything_else_is_asked_for_although_the_cache_has_it(cached):
    allow = authorizing(cached)
    transport = cached.connect()
    transport.receive(lookups(2))

    assert [each.lookupTopicResponse.error for each in transport.commands()] == [
        ServerError.AuthorizationError
    ] * 2
    assert allow.asked[1:] == [(ANONYMOUS.name, Action.LOOK_UP, Resource.topic(TOPIC), "")] * 2


async def test_a_permission_taken_back_ends_lookups_from_the_cache_at_once(cached):
    allow = authorizing(cached)
    namespace = Resource.namespace("public/default")
    allow.allow(ANONYMOUS.name, Action.LOOK_UP, namespace)
    transport = cached.connect()
    allow.sessions[0].refresh()
    transport.receive(lookups(1))
    allow.revoke(ANONYMOUS.name, Action.LOOK_UP, namespace)
    transport.receive(lookups(1, first=2))

    first, second = transport.commands()
    assert not first.lookupTopicResponse.HasField("error")
    assert second.lookupTopicResponse.error == ServerError.AuthorizationError


async def test_a_long_read_waits_behind_a_command_whose_permission_is_not_known(cached):
    allow = authorizing(cached)
    slow = Resource.topic("persistent://public/slow/topic")
    allow.allow(ANONYMOUS.name, Action.LOOK_UP, Resource.namespace("public/default"), slow)
    transport = cached.connect()
    allow.unknown.add(slow)
    allow.sessions[0].refresh()
    allow.known.clear()
    first = encode_command(lookup_command(request_id=1, topic=slow.name))
    unknown_watch = encode_command(
        BaseCommand(
            type=BaseCommand.UNSUBSCRIBE,
            unsubscribe=CommandUnsubscribe(consumer_id=1, request_id=2),
        )
    )
    transport.receive(first + unknown_watch + lookups(2, first=3))

    assert transport.is_reading_paused
    assert transport.commands() == []

    allow.known.set()
    await rounds(10)

    # The first waits for a shard now.
    assert [request_id_of_answer(each) for each in transport.commands()] == [2, 3, 4]
    assert not transport.is_reading_paused
