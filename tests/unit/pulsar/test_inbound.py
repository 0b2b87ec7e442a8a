"""What a client may send before it is known, and before what it sends is complete."""

from __future__ import annotations

import asyncio
import struct

from structlog.testing import capture_logs

from discovery.adapters.servers.pulsar_connection import ClientServices, DiscoveryConnection
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from nextgen.kernel.limits.inbound import (
    COMMAND_FIELDS_MAX,
    CONNECTIONS_BEFORE_CONNECT_MAX,
    FRAME_BEFORE_CONNECT_BYTES_MAX,
    FRAME_BYTES_PER_S_MIN,
    FRAME_MS_MAX,
    LOG_FIELD_CHARACTERS_MAX,
    UNFINISHED_FRAMES_BYTES_MAX,
    UNFINISHED_FRAMES_CHECK_MS,
)
from nextgen.kernel.limits.pulsar import PULSAR_FRAME_BYTES_MAX, PULSAR_MESSAGE_BYTES_MAX
from nextgen.pulsar.frames import MalformedFrame, encode_command, encode_frame, parse_command
from nextgen.pulsar.inbound import InboundBudget
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.metadata_commands import MetadataCommands
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandProducer, CommandSend
from tests.support.pulsar.fast_path import KnowsEverything
from tests.support.pulsar.frames import connect_frame, lookup_command
from tests.support.pulsar.transport import MemoryTransport
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual
from tests.unit.pulsar.test_connection import PONG, opened

LOOKUP = encode_command(lookup_command(request_id=3))
CHECK_S = UNFINISHED_FRAMES_CHECK_MS / 1_000


class Peer:
    """A connection as the budget sees it, without memory."""

    def __init__(self) -> None:
        self.unfinished_bytes = 0
        self.frame_began_at = 0.0
        self.needed_bytes = PULSAR_FRAME_BYTES_MAX
        self.is_read = True
        self.why = ""

    def abort(self, reason: str) -> None:
        self.why = reason


def size_alone(size: int) -> bytes:
    """Return the beginning of a frame of ``size`` bytes."""
    return struct.pack(">II", size - 4, size - 8)


def connect_frame_of(size: int) -> bytes:
    """Return a greeting of ``size`` bytes."""
    without = len(connect_frame(auth_data=bytes(60_000)))
    return connect_frame(auth_data=bytes(60_000 + size - without))


# Before CONNECT ------------------------------------------------------------------------------


async def test_frame_before_connect_bytes_max_is_accepted_and_one_more_refused() -> None:
    connection, transport = opened(greeted=False)
    transport.receive(connect_frame_of(FRAME_BEFORE_CONNECT_BYTES_MAX))
    assert connection.events == ["connected test"]

    connection, transport = opened(greeted=False)
    too_long = connect_frame_of(FRAME_BEFORE_CONNECT_BYTES_MAX + 1)
    with capture_logs() as logs:
        transport.receive(too_long[:4])
    assert (transport.is_closed, connection.events) == (True, [])
    assert f"announces {len(too_long)} bytes" in logs[0]["reason"]


async def test_frames_behind_connect_may_be_large_though_they_come_with_it() -> None:
    payload = bytes(PULSAR_MESSAGE_BYTES_MAX)
    send = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=1))
    stream = connect_frame() + encode_frame(send, payload)

    for cut in (len(connect_frame()), len(connect_frame()) + 4, 100_000, len(stream)):
        connection, transport = opened(greeted=False)
        transport.receive(stream[:cut])
        transport.receive(stream[cut:])
        assert connection.handled == [(BaseCommand.SEND, payload)]


async def test_a_large_frame_before_connect_is_not_read() -> None:
    """The 5 MB PRODUCER that ended brokers' sessions: its first four bytes end its connection."""
    _, transport = opened(greeted=False)
    body = b"\x08\x05" + b"\x32\x00" * 2_500_000

    with capture_logs() as logs:
        transport.receive(struct.pack(">II", 4 + len(body), len(body)) + body)

    assert transport.is_closed
    assert transport.writes == []
    assert len(logs) == 1


# Commands that are expensive to parse --------------------------------------------------------


async def test_a_command_with_too_many_fields_closes_the_connection_unparsed() -> None:
    connection, transport = opened()
    inner = CommandProducer(topic="t", producer_id=1, request_id=2).SerializeToString()
    inner += b"\x32\x00" * COMMAND_FIELDS_MAX
    size = bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7 & 0x7F | 0x80, len(inner) >> 14])
    body = b"\x08\x05\x2a" + size + inner
    assert BaseCommand.FromString(body).producer.request_id == 2

    with capture_logs() as logs:
        transport.receive(struct.pack(">II", 4 + len(body), len(body)) + body)

    assert transport.is_closed
    assert (connection.handled, transport.writes) == ([], [])
    assert f"more than {COMMAND_FIELDS_MAX} fields" in logs[0]["reason"]


async def test_a_reason_names_the_first_of_many_fields_that_lack_something() -> None:
    inner = CommandProducer(topic="t", producer_id=1, request_id=2).SerializeToString()
    body = b"\x08\x05\x2a" + bytes([len(inner) + 100]) + inner + b"\x32\x00" * 50
    connection, transport = opened()

    transport.receive(struct.pack(">II", 4 + len(body), len(body)) + body)

    (answer,) = transport.commands()
    assert answer.error.message == "PRODUCER lacks metadata.key, value"
    assert (answer.error.request_id, connection.handled) == (2, [])


def test_log_field_characters_max_are_kept_of_a_reason_and_one_more_is_cut() -> None:
    at_limit = "x" * LOG_FIELD_CHARACTERS_MAX

    assert str(MalformedFrame(at_limit)) == at_limit
    assert str(MalformedFrame(at_limit + "x")) == at_limit[:-3] + "..."


async def test_the_address_of_a_proxy_is_answered_in_part() -> None:
    _, transport = opened(greeted=False)

    transport.receive(connect_frame(proxy_to_broker_url="pulsar://" + "x" * 50_000))

    (answer,) = transport.commands()
    assert "pulsar://xxx" in answer.error.message
    assert len(answer.error.message) < 2 * LOG_FIELD_CHARACTERS_MAX


def test_a_command_that_fits_before_connect_is_parsed_as_ever() -> None:
    frame = encode_command(lookup_command("x" * 60_000))

    assert parse_command(frame[8:]).lookupTopic.topic == "x" * 60_000


# Frames that are not complete ----------------------------------------------------------------


async def test_unfinished_frames_bytes_max_are_held_and_one_more_drops_the_costliest() -> None:
    budget = InboundBudget()
    peers = [Peer() for _ in range(64)]
    for peer in peers:
        budget.hold(peer, UNFINISHED_FRAMES_BYTES_MAX // len(peers))
    assert budget.unfinished_bytes == UNFINISHED_FRAMES_BYTES_MAX
    assert [peer for peer in peers if peer.why] == []
    peers[7].frame_began_at -= 1.0

    budget.hold(peers[9], peers[9].unfinished_bytes + 1)

    assert peers[7].why.startswith("incomplete frames take too much memory")
    assert budget.unfinished_bytes <= UNFINISHED_FRAMES_BYTES_MAX
    assert sum(bool(peer.why) for peer in peers) <= len(peers) // 8 + 1
    assert budget.dropped_connections == sum(bool(peer.why) for peer in peers)
    budget.close()


async def test_small_and_young_frames_stay_when_there_is_too_much() -> None:
    budget = InboundBudget(unfinished_bytes_max=1_000)
    small, young, costly = Peer(), Peer(), Peer()
    for peer, size, age_s in ((small, 1, 100.0), (young, 500, 0.1), (costly, 499, 50.0)):
        budget.hold(peer, size)
        peer.frame_began_at -= age_s

    budget.hold(young, 501)

    assert [bool(peer.why) for peer in (small, young, costly)] == [False, False, True]
    assert budget.unfinished_bytes == 502
    budget.close()


async def test_bytes_of_complete_frames_and_of_closed_connections_are_free_again() -> None:
    budget = InboundBudget()
    connection, transport = opened(inbound=budget)
    transport.receive(LOOKUP[:9])
    assert budget.unfinished_bytes == 9
    transport.receive(LOOKUP[9:] + LOOKUP[:5])
    assert budget.unfinished_bytes == 5
    transport.receive(LOOKUP[5:])
    assert (budget.unfinished_bytes, len(connection.handled)) == (0, 2)

    transport.receive(LOOKUP[:20])
    transport.abort()
    await asyncio.sleep(0)
    assert budget.unfinished_bytes == 0
    budget.close()


@run_by(run_virtual)
async def test_frame_ms_max_and_frame_bytes_per_s_min_are_what_a_frame_may_take() -> None:
    size = 20 * FRAME_BYTES_PER_S_MIN
    allowed_s = FRAME_MS_MAX / 1_000 + 20
    budget = InboundBudget()
    _, transport = opened(inbound=budget)
    transport.receive(size_alone(size))
    for _ in range(int(allowed_s) - 1):
        await asyncio.sleep(1)
        transport.receive(b"x")
    assert not transport.is_lost

    await asyncio.sleep(1 + CHECK_S)

    assert transport.was_aborted
    assert budget.dropped_connections == 1


@run_by(run_virtual)
async def test_a_client_whose_reads_end_inside_frames_for_minutes_stays() -> None:
    connection, transport = opened(inbound=InboundBudget())
    stream = LOOKUP
    for _ in range(200):
        transport.receive(stream + LOOKUP[:7])
        stream = LOOKUP[7:]
        await asyncio.sleep(1)
    assert not transport.is_lost
    assert len(connection.handled) == 200


@run_by(run_virtual)
async def test_time_in_which_we_do_not_read_is_not_the_clients() -> None:
    connection, transport = opened(inbound=InboundBudget())
    transport.receive(LOOKUP[:7])
    await asyncio.sleep(FRAME_MS_MAX / 1_000 - 1)
    connection.hold_reading()
    await asyncio.sleep(10 * FRAME_MS_MAX / 1_000)
    connection.release_reading()
    for at in range(7, 7 + int(FRAME_MS_MAX / 1_000) - 1):
        await asyncio.sleep(1)
        transport.receive(LOOKUP[at : at + 1])
    assert not transport.is_lost

    await asyncio.sleep(1 + CHECK_S)
    assert transport.was_aborted


@run_by(run_virtual)
async def test_discovery_tells_a_slow_frame_from_reads_that_end_inside_frames() -> None:
    """The fast path answers whole frames before the general codec sees the rest."""
    counters = DiscoveryCounters()
    dispatcher = CommandDispatcher(MetadataCommands(None), counters)  # type: ignore[arg-type]
    services = ClientServices(KnowsEverything(), dispatcher, counters)  # type: ignore[arg-type]
    busy, slow = (MemoryTransport(DiscoveryConnection(KeepAlive(), services)) for _ in range(2))
    for transport in (busy, slow):
        transport.receive(connect_frame())
    slow.receive(LOOKUP[:1])
    stream = LOOKUP
    for second in range(int(FRAME_MS_MAX / 1_000 + CHECK_S) + 1):
        busy.receive(stream + LOOKUP[:7])
        stream = LOOKUP[7:]
        slow.receive(LOOKUP[1 + second : 2 + second])
        await asyncio.sleep(1)

    assert not busy.is_lost
    assert slow.was_aborted


# Connections without CONNECT -----------------------------------------------------------------


async def test_connections_before_connect_max_are_kept_and_one_more_drops_the_oldest() -> None:
    budget = InboundBudget()
    peers = [Peer() for _ in range(CONNECTIONS_BEFORE_CONNECT_MAX + 3)]
    for peer in peers[:CONNECTIONS_BEFORE_CONNECT_MAX]:
        budget.opened(peer)
    assert [peer for peer in peers if peer.why] == []

    budget.opened(peers[-3])
    assert [peer for peer in peers if peer.why] == [peers[0]]
    assert budget.dropped_connections == 1

    budget.introduced(peers[1])
    budget.closed(peers[2])
    budget.opened(peers[-2])
    budget.opened(peers[-1])
    assert [peer for peer in peers if peer.why] == [peers[0]]


async def test_a_client_that_has_sent_connect_does_not_count_among_those_that_have_not() -> None:
    budget = InboundBudget(before_connect_max=1)
    _, first = opened(inbound=budget)
    _, second = opened(inbound=budget, greeted=False)
    _, third = opened(inbound=budget, greeted=False)

    assert [first.was_aborted, second.was_aborted, third.was_aborted] == [False, True, False]
    third.receive(connect_frame())
    third.receive(PONG)
    assert not third.is_closed
