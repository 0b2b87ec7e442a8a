"""The writing half of a connection: frames leave together, and whoever reads nothing is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import structlog

from nextgen.kernel.limits.cluster import ERROR_MESSAGE_CHARACTERS_MAX
from nextgen.kernel.limits.pulsar import PULSAR_WRITE_BUFFER_BYTES_MAX, PULSAR_WRITE_PAUSE_BYTES
from nextgen.pulsar.frames import encode_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandError, ServerError

Buffer = bytes | bytearray | memoryview

_logger = structlog.get_logger(__name__)


class Outgoing(asyncio.Protocol):
    """Queues frames, and writes those of one read, or one iteration of the event loop, at once."""

    __slots__ = (
        "_drained_bytes",
        "_is_closing",
        "_is_drained",
        "_is_receiving",
        "_outgoing",
        "_outgoing_bytes",
        "_room",
        "_transport",
        "_written_bytes",
    )

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        # Not there while idle: most connections are.
        self._outgoing: list[Buffer] | None = None
        self._outgoing_bytes = 0
        self._written_bytes = 0
        self._drained_bytes = 0
        self._is_closing = False
        self._is_drained = True
        self._is_receiving = False
        """Whether a read is being handled, behind which everything leaves together."""
        self._room: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str:
        """The client's address, for diagnostics."""
        address = self._transport and self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown"

    @property
    def is_open(self) -> bool:
        """Whether sent frames can still reach the client."""
        return self._transport is not None and not self._is_closing

    @property
    def is_writable(self) -> bool:
        """Whether the client keeps up. Wait for ``resumed_writing`` before sending in bulk."""
        return self._is_drained and self.is_open

    async def until_writable(self) -> None:
        """Return once the client keeps up, or the connection is closed."""
        while self.is_open and not self._is_drained:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            # Others wait for the same: one that is cancelled must not end it for them.
            await asyncio.shield(self._room)

    def send(self, data: Buffer | Sequence[Buffer]) -> None:
        """Queue whole frames. A list of buffers is written as it is, without being joined.

        Ignored when the connection is closing. A client with too many unread bytes is dropped,
        together with them.
        """
        outgoing = self._outgoing
        if outgoing is None:
            if self._transport is None or self._is_closing:
                return
            outgoing = self._outgoing = []
            if not self._is_receiving:
                asyncio.get_running_loop().call_soon(self._flush)
        # Nearly always bytes, for which this is the fastest test.
        if type(data) is bytes or isinstance(data, bytearray | memoryview):
            outgoing.append(data)
            self._outgoing_bytes += len(data)
        else:
            buffers = cast(Sequence[Buffer], data)
            outgoing.extend(buffers)
            self._outgoing_bytes += sum(map(len, buffers))
        if self._outgoing_bytes > PULSAR_WRITE_PAUSE_BYTES:
            # Written to the transport, so that it applies back-pressure.
            self._flush()

    def send_command(self, command: BaseCommand) -> None:
        self.send(encode_command(command))

    def send_error(self, request_id: int, error: ServerError, message: str) -> None:
        self.send_command(
            BaseCommand(
                type=BaseCommand.ERROR,
                error=CommandError(
                    request_id=request_id,
                    error=error,
                    message=message[:ERROR_MESSAGE_CHARACTERS_MAX],
                ),
            )
        )

    def close_after_flush(self) -> None:
        """Read nothing more, and close once the client has read all sent frames.

        A client that does not read is dropped within a keep-alive interval.
        """
        if self._transport is None or self._is_closing:
            return
        self._flush()
        self._is_closing = True
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; unsent frames are dropped."""
        if self._transport is None:
            return
        if not self._is_closing:
            _logger.info("Pulsar connection dropped", peer=self.peer, reason=reason)
        self._is_closing = True
        self._outgoing, self._outgoing_bytes = None, 0
        self._transport.abort()

    # asyncio.Protocol --------------------------------------------------------------------------

    # Inside -----------------------------------------------------------------------------------

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, None
        size, self._outgoing_bytes = self._outgoing_bytes, 0
        transport = self._transport
        if outgoing is None or transport is None or self._is_closing:
            return
        if transport.get_write_buffer_size() + size > PULSAR_WRITE_BUFFER_BYTES_MAX:
            self.abort("does not read what is sent")
            return
        self._written_bytes += size
        if len(outgoing) == 1:
            transport.write(outgoing[0])
        else:
            transport.writelines(outgoing)

    def _wake(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _has_read(self) -> bool:
        """Whether a client that does not keep up has read anything since the last check.

        The server does not read from it meanwhile, so this is its only sign of life.
        """
        if self._is_drained or self._transport is None:
            return False
        drained = self._written_bytes - self._transport.get_write_buffer_size()
        has_read = drained > self._drained_bytes
        self._drained_bytes = drained
        return has_read
