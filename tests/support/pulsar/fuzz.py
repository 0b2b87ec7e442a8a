"""Drives broken frames into a Pulsar server over sockets, and watches what becomes of others."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass

from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import FrameReader, parse_command
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.pulsar.frames import FrameMutator, connect_frame, lookup_command

CONNECTIONS_AT_ONCE = 8
FRAMES_PER_CONNECTION_MAX = 60
GREETED_SHARE = 0.95
UNREAD_SHARE = 0.1
"""Clients that never read an answer."""

WRITE_S_MAX = 2.0
"""A server that has stopped to read from a client that does not read: on to the next client."""

HEARD_S_MAX = 0.05
"""How long a client that has sent everything waits to hear that a server has ended it. A busy
server is behind a client that goes on: without the wait it looks as if it had taken everything."""

READ_BYTES = 64 * 1024
NEIGHBOUR_TIMEOUT_MS = 30_000


@dataclass
class FuzzCounts:
    """What happened. ``neighbour_answers`` is what a well-behaved client got meanwhile."""

    frames: int = 0
    connections: int = 0
    ended_by_server: int = 0
    answers: int = 0
    neighbour_answers: int = 0


async def fuzz_server(host: str, port: int, *, seed: int, frames: int) -> FuzzCounts:
    """Send about ``frames`` broken frames to a server while a neighbour goes on asking it.

    Raises:
        MetadataError: The neighbour, or a client that came afterwards, was not answered.
        MalformedFrame: The server wrote what is not Pulsar.
    """
    counts = FuzzCounts()
    async with await _opened(host, port) as neighbour:
        asking = asyncio.create_task(_ask(neighbour, counts))
        try:
            async with TaskGroup() as clients:
                for number in range(CONNECTIONS_AT_ONCE):
                    share = frames // CONNECTIONS_AT_ONCE
                    clients.create_task(_fuzz(host, port, seed * 1_000 + number, share, counts))
        finally:
            if asking.done():
                asking.result()
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        await _ask_once(neighbour, counts)
    async with await _opened(host, port) as late:
        await _ask_once(late, counts)
    return counts


async def _opened(host: str, port: int) -> PulsarClientConnection:
    return await PulsarClientConnection.open(host, port, timeout_ms=NEIGHBOUR_TIMEOUT_MS)


async def _ask(client: PulsarClientConnection, counts: FuzzCounts) -> None:
    while True:
        await _ask_once(client, counts)
        await asyncio.sleep(0.01)  # So that the neighbour is not the load.


async def _ask_once(client: PulsarClientConnection, counts: FuzzCounts) -> None:
    asked = lookup_command(request_id=client.next_request_id())
    answer = await client.request(asked, timeout_ms=NEIGHBOUR_TIMEOUT_MS)
    assert answer.type == BaseCommand.LOOKUP_RESPONSE
    counts.neighbour_answers += 1


async def _fuzz(host: str, port: int, seed: int, frames: int, counts: FuzzCounts) -> None:
    """One client after the other, until ``frames`` were sent."""
    # Those who break nearly nothing get further before they are thrown out.
    is_session = seed % 2 == 0
    mutator = FrameMutator(seed, intact_share=0.97 if is_session else 0.25, is_session=is_session)
    rng = random.Random(seed)
    sent = 0
    while sent < frames:
        reader, writer = await asyncio.open_connection(host, port)
        counts.connections += 1
        is_read = rng.random() >= UNREAD_SHARE
        reading = asyncio.create_task(_read(reader, counts)) if is_read else None
        try:
            if rng.random() < GREETED_SHARE:
                writer.write(connect_frame())
            for _ in range(rng.randint(1, FRAMES_PER_CONNECTION_MAX)):
                writer.write(mutator.next_frame())
                sent += 1
                counts.frames += 1
                async with timeout(WRITE_S_MAX):
                    await writer.drain()
                # Otherwise a client never hears of its own end before it has sent everything.
                await asyncio.sleep(0)
                if reading is not None and reading.done():
                    break
            if reading is not None:
                ended, _ = await asyncio.wait([reading], timeout=HEARD_S_MAX)
                counts.ended_by_server += len(ended)
        except (ConnectionError, TimeoutError):
            counts.ended_by_server += 1
        finally:
            writer.transport.abort()
            if reading is not None:
                await reading


async def _read(reader: asyncio.StreamReader, counts: FuzzCounts) -> None:
    """Read answers until the end; each is a command."""
    frames = FrameReader()
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            for frame in frames.feed(data):
                parse_command(frame.command)
                counts.answers += 1
            if frames.error is not None:
                raise frames.error
