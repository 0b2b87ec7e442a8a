"""A transport in memory: what a connection writes, and a peer that reads on demand."""

from __future__ import annotations

import asyncio
from typing import Any

from nextgen.pulsar.frames import FrameReader, parse_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand


class MemoryTransport(asyncio.Transport):
    """Behaves as a socket's transport does towards its protocol.

    While ``is_read`` is False what is written stays in the buffer, as with a peer that does not
    read; ``drain`` reads it. ``writes`` holds what each write or writelines handed over.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        *,
        is_read: bool = True,
        peer: tuple[str, int] = ("127.0.0.1", 1234),
    ) -> None:
        super().__init__()
        self.peer = peer
        self.protocol = protocol
        self.is_read = is_read
        self.writes: list[bytes] = []
        self.is_reading_paused = False
        self.was_aborted = False
        self.is_lost = False
        self._is_closing = False
        self._buffered_bytes = 0
        self._high = 64 * 1024
        self._is_protocol_paused = False
        protocol.connection_made(self)

    # For the test ------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Hand ``data`` to the protocol as the loop would."""
        if not (self._is_closing or self.is_reading_paused):
            self.protocol.data_received(data)

    def drain(self, size: int | None = None) -> None:
        """The peer reads ``size`` bytes of what waits for it, or all."""
        self._buffered_bytes -= self._buffered_bytes if size is None else size
        if self._is_protocol_paused and self._buffered_bytes <= self._high // 4:
            self._is_protocol_paused = False
            self.protocol.resume_writing()
        if self._is_closing and not self._buffered_bytes:
            self._lose()

    def commands(self) -> list[BaseCommand]:
        """Return all commands written so far."""
        reader = FrameReader()
        return [parse_command(frame.command) for frame in reader.feed(b"".join(self.writes))]

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    # asyncio.Transport ---------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing and self.was_aborted:
            return
        self.writes.append(bytes(data))
        if not self.is_read:
            self._buffered_bytes += len(data)
        if self._buffered_bytes > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or self._high

    def get_write_buffer_size(self) -> int:
        return self._buffered_bytes

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        if not self._buffered_bytes:
            self._lose()

    def abort(self) -> None:
        self.was_aborted = True
        self._is_closing = True
        self._buffered_bytes = 0
        self._lose()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.peer if name == "peername" else default

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
