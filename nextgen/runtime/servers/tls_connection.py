"""The server's end of one TLS connection, as a thin layer over a transport without TLS.

asyncio's and uvloop's own layers cost a small request more than its cryptography: each read ends
with an exception that is raised only to be caught, and asks for 256 KiB that are not needed. Here
OpenSSL is asked only when there is something to read, and what a protocol writes is encrypted and
handed on at once, so that limits, pauses and the size of the write buffer are those of the
transport below (ADR 0154).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

TLS_RECORD_BYTES = 16_384
"""Bytes that one record of TLS carries at most, by its specification."""

Buffer = bytes | bytearray | memoryview


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """The protocol of a transport below, and the transport of a protocol above.

    ``factory`` makes the protocol above, which learns of the connection once the handshake is done,
    and never of one whose handshake failed. A close by either side ends both directions, as with
    every TLS transport of asyncio.
    """

    __slots__ = (
        "__weakref__",
        "_below",
        "_decrypt",
        "_encrypt",
        "_factory",
        "_from_peer",
        "_is_closing",
        "_is_paused",
        "_protocol",
        "_tls",
        "_to_peer",
        "on_shaken",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        factory: Callable[[], asyncio.Protocol],
        on_shaken: Callable[[TlsConnection, bool], None],
    ) -> None:
        """``on_shaken`` is called once: whether the handshake was done before the end."""
        self._from_peer, self._to_peer = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._from_peer, self._to_peer, server_side=True)
        self._decrypt, self._encrypt = self._tls.read, self._tls.write
        self._below: asyncio.Transport = cast(asyncio.Transport, None)  # Until connection_made.
        self._factory = factory
        self.on_shaken = on_shaken
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<TlsConnection {self._tls.version()} {'closing' if self._is_closing else 'open'}>"

    # For the transport below ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: what uvloop hands over does not derive from asyncio's class.
        self._below = cast(asyncio.Transport, transport)
        if self._is_closing:
            self._below.abort()

    def data_received(self, data: bytes) -> None:
        self._from_peer.write(data)
        if self._protocol is not None:
            self._deliver()
        elif not self._is_closing:
            self._shake_hands()

    def eof_received(self) -> bool:
        """The peer has closed its direction, by an end of TLS or without: close the other."""
        if self._protocol is not None and not self._is_closing:
            self._protocol.eof_received()
        self.close()
        return False

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        if self._protocol is None:
            self.on_shaken(self, False)
        else:
            self._protocol.connection_lost(error)

    # For the protocol above -------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if self._is_closing or not data:
            return
        try:
            self._encrypt(data)
        except ssl.SSLError:
            self.abort()
            return
        self._below.write(self._to_peer.read())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        # Joined, because each write makes a record of its own.
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close once everything written is sent, and the peer's TLS is told that it is the end."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._protocol is not None:
            # It raises while the peer's end has not come. Nobody waits for that: ours is written.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
        self._flush()
        self._below.close()

    def abort(self) -> None:
        """Close at once, even before the transport below is there; nothing unsent is sent."""
        self._is_closing = True
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError("TLS is closed in both directions at once")

    def pause_reading(self) -> None:
        self._is_paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._is_closing or not self._is_paused:
            return
        self._is_paused = False
        self._below.resume_reading()
        # What came in one read with the handshake, and was not asked for then.
        if self._from_peer.pending:
            asyncio.get_running_loop().call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not (self._is_closing or self._is_paused)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.Protocol, self._protocol)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return self._tls.getpeercert()
        if name == "cipher":
            return self._tls.cipher()
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._below.get_extra_info(name, default)

    # Inside -----------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            self.close()  # With OpenSSL's alert, which says why.
            return
        self._flush()
        self._protocol = self._factory()
        self.on_shaken(self, True)
        self._protocol.connection_made(self)
        if self._from_peer.pending:
            self._deliver()

    def _deliver(self) -> None:
        """Hand what has come to the protocol above, whole records only."""
        protocol = self._protocol
        if self._is_paused or self._is_closing or protocol is None:
            return
        tls, decrypt, pending = self._tls, self._decrypt, self._from_peer
        parts = []
        is_ended = False
        try:
            # No text is longer than its cipher text, so this much holds a record, and no more.
            while size := pending.pending or tls.pending():
                part = decrypt(min(size, TLS_RECORD_BYTES))
                if not part:
                    is_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass  # The rest is the beginning of a record.
        except ssl.SSLError:
            self.close()  # Before the records that came with it: all or nothing of a read.
            return
        if self._to_peer.pending:
            self._flush()  # Answers of TLS itself, as to an update of keys.
        if parts:
            protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if is_ended:
            self.eof_received()

    def _flush(self) -> None:
        if self._to_peer.pending:
            self._below.write(self._to_peer.read())
