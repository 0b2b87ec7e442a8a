"""What a client may send before it is known, and before what it sends is complete."""

from __future__ import annotations

import struct

from structlog.testing import capture_logs

from nextgen.kernel.inbound_limits import (
    COMMAND_FIELDS_MAX,
    FRAME_BEFORE_CONNECT_BYTES_MAX,
    LOG_FIELD_CHARACTERS_MAX,
)
from nextgen.kernel.pulsar_limits import PULSAR_MESSAGE_BYTES_MAX
from nextgen.pulsar.frames import MalformedFrame, encode_command, encode_frame, parse_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandProducer, CommandSend
from tests.support.pulsar_frames import connect_frame, lookup_command
from tests.unit.pulsar.test_connection import opened


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
