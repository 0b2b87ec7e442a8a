"""Broken frames against a connection in memory: at worst it ends, and only itself."""

from __future__ import annotations

import asyncio
import random

import pytest
from structlog.testing import capture_logs

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.pulsar import PULSAR_WRITE_BUFFER_BYTES_MAX
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import (
    FrameReader,
    MalformedFrame,
    RawFrame,
    encode_command,
    parse_command,
    request_id_of,
)
from nextgen.pulsar.greeting import Greeting
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.lookups import answer_burst
from nextgen.pulsar.payload import ChecksumMismatch, open_payload
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandSendError,
    ServerError,
)
from tests.support.pulsar.fast_path import KnowsEverything, framed
from tests.support.pulsar.frames import FrameMutator, connect_frame, lookup_command
from tests.support.pulsar.transport import MemoryTransport

FRAMES = [30_000, pytest.param(120_000, marks=pytest.mark.slow)]
FRAMES_PER_CONNECTION_MAX = 50
GREETING = Greeting()


class AnsweringConnection(PulsarConnection):
    """Answers as discovery and brokers do, with nothing behind it."""

    __slots__ = ()

    def handle_raw(self, frame: RawFrame) -> bool:
        answers: list[bytes] = []
        behind, _ = answer_burst(framed(frame.command), 0, KnowsEverything(), 0.0, answers)
        self.send(b"".join(answers))
        return behind > 0

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        if command.type == BaseCommand.SEND:
            self._published(command, payload)
        elif request_id_of(command) is not None:
            raise Overloaded("not while this is tested")

    def _published(self, command: BaseCommand, payload: bytes) -> None:
        try:
            open_payload(payload)
        except ChecksumMismatch as error:
            refusal = CommandSendError(
                producer_id=command.send.producer_id,
                sequence_id=command.send.sequence_id,
                error=ServerError.ChecksumError,
                message=str(error),
            )
            self.send_command(BaseCommand(type=BaseCommand.SEND_ERROR, send_error=refusal))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--seed")
    return 4_711 if given is None else int(given)


@pytest.mark.parametrize("frames", FRAMES)
async def test_no_frame_breaks_a_connection(seed: int, frames: int) -> None:
    mutator = FrameMutator(seed)
    rng = random.Random(seed)
    keep_alive = KeepAlive()
    neighbour = MemoryTransport(AnsweringConnection(keep_alive, GREETING))
    neighbour.receive(connect_frame())
    sent = connections = ended = 0

    with capture_logs() as logs:
        while sent < frames:
            transport = MemoryTransport(
                AnsweringConnection(keep_alive, GREETING), is_read=rng.random() < 0.9
            )
            connections += 1
            if rng.random() < 0.95:
                transport.receive(connect_frame())
            for _ in range(rng.randint(1, FRAMES_PER_CONNECTION_MAX)):
                transport.receive(mutator.next_frame())
                sent += 1
                if transport.is_closed:
                    ended += 1
                    break
            assert transport.get_write_buffer_size() <= PULSAR_WRITE_BUFFER_BYTES_MAX
            what_it_wrote_is_well_formed(transport)
            transport.abort()
            await asyncio.sleep(0)

    assert [log for log in logs if log["log_level"] not in {"info", "debug"}] == []
    neighbour.writes.clear()
    neighbour.receive(encode_command(lookup_command(request_id=9)))
    assert neighbour.commands()[0].lookupTopicResponse.request_id == 9
    assert len(keep_alive) == 1
    print(f"seed {seed}: {sent} frames, {connections} connections, {ended} ended by the server")
    assert ended > connections // 4
    keep_alive.close()


def what_it_wrote_is_well_formed(transport: MemoryTransport) -> None:
    """What is written to a peer is Pulsar, whatever the peer sent."""
    reader = FrameReader()
    try:
        for frame in reader.feed(b"".join(transport.writes)):
            parse_command(frame.command)
    except MalformedFrame as error:
        raise AssertionError(f"the server wrote a broken frame: {error}") from error
    assert reader.error is None
    assert reader.pending_bytes == 0
