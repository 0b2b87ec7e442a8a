from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from nextgen.kernel.errors import Overloaded, Refused
from nextgen.kernel.limits.cluster import ERROR_MESSAGE_CHARACTERS_MAX
from nextgen.kernel.limits.pulsar import (
    PULSAR_FEATURE_SETS_MAX,
    PULSAR_KEEP_ALIVE_MS,
    PULSAR_MESSAGE_BYTES_MAX,
    PULSAR_WRITE_BUFFER_BYTES_MAX,
    PULSAR_WRITE_PAUSE_BYTES,
)
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import RawFrame, encode_command, encode_frame
from nextgen.pulsar.greeting import NO_REQUEST_ID, Greeting, shared_flags
from nextgen.pulsar.inbound import InboundBudget
from nextgen.pulsar.keep_alive import KeepAlive
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandFlow,
    CommandPing,
    CommandPong,
    CommandSend,
    FeatureFlags,
    ServerError,
)
from tests.support.pulsar.frames import connect_frame, lookup_command
from tests.support.pulsar.transport import MemoryTransport
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

KEEP_ALIVE_S = PULSAR_KEEP_ALIVE_MS / 1000 + 0.01
"""One interval, and what the timer that ends with it does."""
PING = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
LOOKUP = encode_command(lookup_command(request_id=3))


class RecordingConnection(PulsarConnection):
    """Answers LOOKUP with an error of the test's choice and remembers what it saw."""

    def __init__(self, keep_alive: KeepAlive, greeting: Greeting | None = None) -> None:
        super().__init__(keep_alive, greeting or Greeting())
        self.events: list[str] = []
        self.handled: list[tuple[int, bytes]] = []
        self.fails_with: Exception | None = None
        self.takes_raw = False

    def connected(self, connect: CommandConnect) -> None:
        self.events.append(f"connected {connect.client_version}")

    def handle_raw(self, frame: RawFrame) -> bool:
        self.events.append("raw")
        return self.takes_raw

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        self.handled.append((command.type, payload))
        if self.fails_with is not None:
            raise self.fails_with
        if command.type == BaseCommand.LOOKUP:
            self.send_error(command.lookupTopic.request_id, ServerError.MetadataError, "later")

    def resumed_writing(self) -> None:
        self.events.append("resumed")

    def closed(self) -> None:
        self.events.append("closed")


def opened(
    *,
    greeted: bool = True,
    is_read: bool = True,
    greeting: Greeting | None = None,
    inbound: InboundBudget | None = None,
) -> tuple[RecordingConnection, MemoryTransport]:
    connection = RecordingConnection(KeepAlive(inbound=inbound), greeting)
    transport = MemoryTransport(connection, is_read=is_read)
    if greeted:
        transport.receive(connect_frame())
        transport.drain()
        transport.writes.clear()
        connection.events.clear()
    return connection, transport


def types_of(commands: list[BaseCommand]) -> list[str]:
    return [BaseCommand.Type.Name(command.type) for command in commands]


# Handshake ---------------------------------------------------------------------------------


async def test_connect_is_answered_with_the_server_version() -> None:
    connection, transport = opened(greeted=False)

    transport.receive(connect_frame(client_version="me", protocol_version=20))

    (answer,) = transport.commands()
    assert answer.type == BaseCommand.CONNECTED
    assert answer.connected.server_version
    assert answer.connected.protocol_version == 20
    assert answer.connected.max_message_size == PULSAR_MESSAGE_BYTES_MAX
    flags = answer.connected.feature_flags
    assert flags.supports_get_partitioned_metadata_without_auto_creation
    assert not flags.supports_scalable_topics
    assert connection.events == ["connected me"]


@pytest.mark.parametrize(("theirs", "ours"), [(0, 0), (12, 12), (21, 21), (22, 21), (-5, 0)])
async def test_the_version_is_what_both_sides_understand(theirs: int, ours: int) -> None:
    connection, transport = opened(greeted=False)

    transport.receive(connect_frame(protocol_version=theirs))

    assert transport.commands()[0].connected.protocol_version == ours
    assert connection.protocol_version == ours


async def test_what_a_server_says_of_itself_is_its_owners_choice() -> None:
    greeting = Greeting("Version 9", FeatureFlags(supports_topic_watchers=True), 1_000)
    _, transport = opened(greeted=False, greeting=greeting)

    transport.receive(connect_frame())

    said = transport.commands()[0].connected
    assert (said.server_version, said.max_message_size) == ("Version 9", 1_000)
    assert said.feature_flags == FeatureFlags(supports_topic_watchers=True)


async def test_what_the_client_can_do_is_known_after_its_greeting() -> None:
    connection, transport = opened(greeted=False)
    assert not connection.feature_flags.supports_broker_entry_metadata

    transport.receive(connect_frame(feature_flags={"supports_broker_entry_metadata": True}))

    assert connection.feature_flags.supports_broker_entry_metadata


async def test_the_sets_of_flags_that_are_shared_are_bounded() -> None:
    names = list(FeatureFlags.DESCRIPTOR.fields_by_name)
    for number in range(PULSAR_FEATURE_SETS_MAX + 1):
        flags = {name: True for bit, name in enumerate(names) if number >> bit & 1}
        connection, transport = opened(greeted=False)
        transport.receive(connect_frame(feature_flags=flags))
        assert connection.feature_flags == FeatureFlags(**flags)

    assert shared_flags.cache_info().currsize == PULSAR_FEATURE_SETS_MAX


async def test_flags_of_the_future_are_neither_understood_nor_kept() -> None:
    connection, transport = opened(greeted=False)
    known = FeatureFlags(supports_auth_refresh=True)
    flags = FeatureFlags.FromString(known.SerializeToString() + b"\xba\x3e\x05abcde")

    transport.receive(connect_frame(feature_flags=flags))

    assert connection.feature_flags.SerializeToString() == known.SerializeToString()


async def test_any_authentication_is_accepted_because_none_is_configured() -> None:
    connection, transport = opened(greeted=False)

    transport.receive(connect_frame(auth_method_name="token", auth_data=b"secret"))

    assert types_of(transport.commands()) == ["CONNECTED"]
    assert connection.is_open


@pytest.mark.parametrize(
    "first", [LOOKUP, PING, b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", b"\xff" * 9]
)
async def test_a_peer_that_does_not_greet_first_is_closed_without_an_answer(first: bytes) -> None:
    connection, transport = opened(greeted=False)

    transport.receive(first)
    await asyncio.sleep(0)

    assert transport.is_closed
    assert transport.writes == []
    assert connection.handled == []
    assert connection.events == ["closed"]


async def test_a_second_greeting_closes_the_connection() -> None:
    connection, transport = opened()

    transport.receive(connect_frame() + LOOKUP)

    assert transport.is_closed
    assert connection.handled == []


async def test_a_connect_through_a_proxy_gets_an_error_and_is_closed() -> None:
    connection, transport = opened(greeted=False)

    transport.receive(connect_frame(proxy_to_broker_url="pulsar://b:6650"))

    (answer,) = transport.commands()
    assert answer.error.request_id == NO_REQUEST_ID == 2**64 - 1
    assert answer.error.error == ServerError.NotAllowedError
    assert "no proxy" in answer.error.message
    assert transport.is_closed
    assert connection.events == []


# Commands ----------------------------------------------------------------------------------


async def test_commands_are_handled_in_order_with_their_payloads() -> None:
    connection, transport = opened()
    send = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=2))

    transport.receive(LOOKUP + encode_frame(send, b"body") + LOOKUP)

    assert connection.handled == [
        (BaseCommand.LOOKUP, b""),
        (BaseCommand.SEND, b"body"),
        (BaseCommand.LOOKUP, b""),
    ]


async def test_the_answers_to_what_came_together_leave_together() -> None:
    _, transport = opened()

    transport.receive(LOOKUP * 100 + PING)

    assert len(transport.writes) == 1
    assert types_of(transport.commands()) == ["ERROR"] * 100 + ["PONG"]


async def test_what_is_sent_in_one_turn_of_the_loop_leaves_together() -> None:
    connection, transport = opened()

    connection.send(PING)
    connection.send([PING[:3], memoryview(PING)[3:]])
    assert transport.writes == []
    await asyncio.sleep(0)

    assert transport.writes == [PING + PING]


async def test_what_handle_raw_takes_is_not_parsed() -> None:
    connection, transport = opened()
    connection.takes_raw = True

    transport.receive(b"\0\0\0\x06\0\0\0\x02\xff\xff" + PING)

    assert connection.events == ["raw", "raw"]
    assert transport.writes == []
    assert connection.is_open


async def test_nothing_comes_to_handle_raw_before_the_handshake() -> None:
    connection, transport = opened(greeted=False)
    connection.takes_raw = True

    transport.receive(connect_frame())

    assert connection.events == ["connected test"]


async def test_a_pong_is_taken_note_of_in_silence() -> None:
    connection, transport = opened()

    transport.receive(PONG)

    assert transport.writes == []
    assert connection.handled == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Overloaded("too much"), ServerError.MetadataError),
        (Refused("NOT_FOUND", "no such topic"), ServerError.TopicNotFound),
    ],
)
async def test_a_command_that_is_refused_is_answered_with_the_code(
    error: Exception, code: ServerError
) -> None:
    connection, transport = opened()
    connection.fails_with = error

    transport.receive(LOOKUP)

    (answer,) = transport.commands()
    assert (answer.error.request_id, answer.error.error) == (3, code)
    assert answer.error.message == str(error)
    assert connection.is_open


async def test_a_handler_that_fails_costs_its_own_connection_only() -> None:
    connection, transport = opened()
    other, other_transport = opened()
    connection.fails_with = ZeroDivisionError("a bug")

    with capture_logs() as logs:
        transport.receive(LOOKUP + LOOKUP)
    other_transport.receive(LOOKUP)

    (answer,) = transport.commands()
    assert (answer.error.request_id, answer.error.error) == (3, ServerError.UnknownError)
    assert "a bug" not in answer.error.message
    assert transport.is_closed
    assert len(connection.handled) == 1
    assert any(isinstance(log.get("exc_info"), ZeroDivisionError) for log in logs)
    assert other.is_open
    assert types_of(other_transport.commands()) == ["ERROR"]


async def test_a_failure_without_a_request_to_answer_closes_the_connection() -> None:
    connection, transport = opened()
    connection.fails_with = Overloaded("too much")

    flow = CommandFlow(consumer_id=1, messagePermits=1)
    with capture_logs() as logs:
        transport.receive(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))

    assert transport.writes == []
    assert transport.is_closed
    assert [(log["log_level"], log["reason"]) for log in logs] == [("info", "FLOW: too much")]


async def test_the_message_of_an_error_is_cut_at_its_limit() -> None:
    connection, transport = opened()
    for size in (ERROR_MESSAGE_CHARACTERS_MAX, ERROR_MESSAGE_CHARACTERS_MAX + 1):
        connection.send_error(1, ServerError.UnknownError, "x" * size)
    await asyncio.sleep(0)

    assert [len(made.error.message) for made in transport.commands()] == [
        ERROR_MESSAGE_CHARACTERS_MAX
    ] * 2


# Malformed ---------------------------------------------------------------------------------


async def test_what_is_no_command_closes_the_connection_and_is_logged_at_info() -> None:
    connection, transport = opened()

    with capture_logs() as logs:
        transport.receive(b"\0\0\0\x06\0\0\0\x02\xff\xff" + LOOKUP)

    assert transport.is_closed
    assert transport.writes == []
    assert connection.handled == []
    assert [(log["log_level"], log["peer"]) for log in logs] == [("info", "127.0.0.1:1234")]


async def test_a_request_without_a_topic_is_refused_by_the_missing_field() -> None:
    _, transport = opened()
    body = b"\x08\x17\xba\x01\x02\x10\x05"

    transport.receive(b"\0\0\0\x0b\0\0\0\x07" + body)

    (answer,) = transport.commands()
    assert (answer.error.request_id, answer.error.error) == (5, ServerError.NotAllowedError)
    assert "topic" in answer.error.message
    assert transport.is_closed


async def test_what_came_before_a_broken_frame_is_answered() -> None:
    connection, transport = opened()

    transport.receive(LOOKUP + b"\0\0\0\x01" + LOOKUP)

    assert types_of(transport.commands()) == ["ERROR"]
    assert transport.commands()[0].error.error == ServerError.MetadataError
    assert len(connection.handled) == 1
    assert transport.is_closed


# Back-pressure -----------------------------------------------------------------------------


async def test_nothing_more_is_read_from_a_client_that_does_not_read() -> None:
    connection, transport = opened(is_read=False)

    connection.send(bytes(PULSAR_WRITE_PAUSE_BYTES))
    await asyncio.sleep(0)
    assert connection.is_writable
    assert not transport.is_reading_paused

    connection.send(b"x")
    await asyncio.sleep(0)
    assert not connection.is_writable
    assert transport.is_reading_paused
    assert connection.events == []

    transport.drain()
    assert connection.is_writable
    assert not transport.is_reading_paused
    assert connection.events == ["resumed"]


async def test_a_client_that_sends_too_much_is_refused_at_once() -> None:
    connection, _ = opened(is_read=False)

    connection.send(bytes(PULSAR_WRITE_PAUSE_BYTES + 1))

    assert not connection.is_writable


async def test_a_client_that_never_reads_is_dropped_at_the_limit() -> None:
    connection, transport = opened(is_read=False)
    part = bytes(1024 * 1024)

    for _ in range(PULSAR_WRITE_BUFFER_BYTES_MAX // len(part)):
        connection.send(part)
        await asyncio.sleep(0)
    assert transport.get_write_buffer_size() == PULSAR_WRITE_BUFFER_BYTES_MAX
    assert connection.is_open

    connection.send(b"x")
    await asyncio.sleep(0)
    assert transport.was_aborted
    connection.send(b"x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert connection.events[-1] == "closed"


async def test_a_client_that_asks_and_never_reads_is_bounded() -> None:
    connection, transport = opened(is_read=False)
    highest = 0
    for _ in range(2_000):
        transport.receive(LOOKUP * 1_000)
        highest = max(highest, transport.get_write_buffer_size())

    assert transport.is_reading_paused
    assert highest < PULSAR_WRITE_PAUSE_BYTES * 1.2
    assert connection.is_open


async def test_reading_can_be_held_and_goes_on_only_when_all_is_well() -> None:
    connection, transport = opened(is_read=False)

    connection.hold_reading()
    assert transport.is_reading_paused
    connection.send(bytes(PULSAR_WRITE_PAUSE_BYTES + 1))
    connection.release_reading()
    assert transport.is_reading_paused
    transport.drain()
    assert not transport.is_reading_paused


# Endings -----------------------------------------------------------------------------------


async def test_a_clean_close_lets_the_client_read_what_was_sent() -> None:
    connection, transport = opened(is_read=False)

    connection.send(PING)
    connection.close_after_flush()
    await asyncio.sleep(0)
    assert connection.events == []
    connection.send(PING)

    transport.drain()
    await asyncio.sleep(0)
    assert transport.writes == [PING]
    assert connection.events == ["closed"]


async def test_a_drop_is_told_once_and_drops_what_waits() -> None:
    connection, transport = opened()

    connection.send(PING)
    with capture_logs() as logs:
        connection.abort("enough")
        connection.abort("again")
    await asyncio.sleep(0)
    connection.abort("after the end")
    connection.close_after_flush()

    assert transport.writes == []
    assert connection.events == ["closed"]
    assert [log["reason"] for log in logs] == ["enough"]
    assert logs[0]["peer"] == "127.0.0.1:1234"
    assert connection.peer == "unknown"


# Signs of life, in virtual time ------------------------------------------------------------------


@run_by(run_virtual)
async def test_a_client_without_handshake_is_dropped_within_an_interval() -> None:
    connection, transport = opened(greeted=False)
    transport.receive(connect_frame()[:10])
    await asyncio.sleep(KEEP_ALIVE_S - 1.51)
    assert not transport.is_lost
    await asyncio.sleep(1.51)
    assert transport.was_aborted
    assert connection.events == ["closed"]


@run_by(run_virtual)
async def test_a_client_that_answers_stays_and_one_that_does_not_goes() -> None:
    connection, transport = opened()
    for _ in range(5):
        await asyncio.sleep(KEEP_ALIVE_S)
        assert types_of(transport.commands()) == ["PING"]
        transport.writes.clear()
        transport.receive(PONG)
    await asyncio.sleep(2 * KEEP_ALIVE_S)
    assert transport.was_aborted
    assert connection.events[-1] == "closed"


@run_by(run_virtual)
async def test_any_bytes_are_a_sign_of_life() -> None:
    _, transport = opened(inbound=InboundBudget(frame_ms_max=10**9))
    for byte in LOOKUP[:-1]:
        await asyncio.sleep(KEEP_ALIVE_S * 0.9)
        transport.receive(bytes((byte,)))
    assert not transport.is_lost


@run_by(run_virtual)
async def test_a_client_that_reads_slowly_stays_and_one_that_stopped_reading_goes() -> None:
    _, transport = opened(is_read=False)
    connection = transport.protocol
    assert isinstance(connection, RecordingConnection)
    connection.send(bytes(8 * PULSAR_WRITE_PAUSE_BYTES))
    for _ in range(5):
        await asyncio.sleep(KEEP_ALIVE_S)
        assert transport.is_reading_paused
        transport.drain(1_000)
    assert not transport.is_lost
    await asyncio.sleep(3 * KEEP_ALIVE_S)
    assert transport.was_aborted


@run_by(run_virtual)
async def test_a_client_whose_reading_we_hold_is_not_dropped_for_silence() -> None:
    connection, transport = opened()
    connection.hold_reading()
    await asyncio.sleep(5 * KEEP_ALIVE_S)
    assert not transport.is_lost


@run_by(run_virtual)
async def test_a_closed_client_that_does_not_read_is_dropped_within_an_interval() -> None:
    connection, transport = opened(is_read=False)
    connection.send(PING)
    connection.close_after_flush()
    await asyncio.sleep(KEEP_ALIVE_S)
    assert transport.was_aborted
    assert connection.events == ["closed"]
