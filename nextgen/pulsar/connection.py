"""The server's half of a connection: handshake, keep-alive, back-pressure, clean close.

Discovery and brokers derive from ``PulsarConnection`` and add their answers to commands. Input from
a peer can end that peer's connection and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import cast

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.access import ANONYMOUS, CLUSTER, Action, Principal
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.inbound import (
    COMMAND_COUNTED_BYTES_MIN,
    FRAME_BEFORE_CONNECT_BYTES_MAX,
    LOG_FIELD_CHARACTERS_MAX,
)
from nextgen.kernel.limits.pulsar import (
    CLIENT_VERSION_CHARACTERS_MAX,
    PULSAR_WRITE_PAUSE_BYTES,
)
from nextgen.pulsar.admission.client_identity import ClientIdentity
from nextgen.pulsar.admission.command_access import UNASKED, Kept, kept_by
from nextgen.pulsar.admission.door import Admission, refused
from nextgen.pulsar.admission.refusals import refusal_of
from nextgen.pulsar.errors import server_error_of
from nextgen.pulsar.field_count import TooManyFields, check_command_fields
from nextgen.pulsar.frames import (
    FrameReader,
    MalformedFrame,
    RawFrame,
    encode_command,
    parse_command,
    request_id_in,
    request_id_of,
)
from nextgen.pulsar.greeting import NO_REQUEST_ID, PROTOCOL_VERSION, Greeting, shared_flags
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.outgoing import Outgoing
from nextgen.runtime.security.authentication.provider import Certificate
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandPing,
    CommandPong,
    ServerError,
)

_PING = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
_PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))

_logger = structlog.get_logger(__name__)


class PulsarConnection(Outgoing):
    """One client. Subclasses override the hooks: ``connected``, ``handle``, ``handle_raw``,
    ``resumed_writing`` and ``closed``; and declare ``__slots__``, because there are many of them.

    Commands reach ``handle`` in the order of their arrival. Frames sent while one read is handled
    leave in one write; otherwise those of one iteration of the event loop do.

    A ``MetadataError`` that ``handle`` raises is answered with its code; if the command is no
    request, the connection ends. Any other exception is a bug: it is logged, answered with
    UnknownError, and ends the connection, as in Pulsar.
    """

    __slots__ = (
        "_admission",
        "_greeting",
        "_has_heard",
        "_identity",
        "_is_connected",
        "_is_held",
        "_keep_alive",
        "_reader",
        "client_version",
        "feature_flags",
        "frame_began_at",
        "keep_alive_bucket",
        "principal",
        "protocol_version",
        "unfinished_bytes",
    )

    def __init__(self, keep_alive: KeepAlive, greeting: Greeting) -> None:
        super().__init__()
        self._keep_alive = keep_alive
        self._greeting = greeting
        self._reader = FrameReader(first_frame_bytes_max=FRAME_BEFORE_CONNECT_BYTES_MAX)
        self._has_heard = False
        self._is_connected = False
        self._is_held = False
        self._identity: ClientIdentity | None = None
        self._admission: Admission | None = None
        self.principal = ANONYMOUS
        """The identity of the client, settled at CONNECT."""
        self.keep_alive_bucket = 0
        self.unfinished_bytes = 0
        self.frame_began_at = 0.0
        self.protocol_version = 0
        """The protocol version that both sides understand. 0 until the handshake."""
        self.client_version = ""
        """What the client says of itself, cut."""
        self.feature_flags = shared_flags(b"")
        """The client's features. Shared with other connections: MUST NOT be changed."""

    # Hooks ------------------------------------------------------------------------------------

    def connected(self, connect: CommandConnect) -> None:
        """Called after the handshake. CONNECTED leaves before frames that are sent from here."""

    def handle_raw(self, frame: RawFrame) -> bool:
        """Handle a frame before it is parsed; return True if it needs no further handling."""
        return False

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        """Carry ``command`` out. The handshake, PING and PONG do not come here."""

    def resumed_writing(self) -> None:
        """Called when the client has read enough that ``is_writable`` is true again."""

    def closed(self) -> None:
        """Called once when the connection is closed for any reason, also before a handshake."""

    # Services ---------------------------------------------------------------------------------

    @property
    def needed_bytes(self) -> int:
        """Size of the frame that is not complete yet."""
        return self._reader.needed_bytes

    @property
    def is_read(self) -> bool:
        """Whether the server reads from the client at the moment."""
        return self._is_drained and not (self._is_held or self.is_asking)

    @property
    def is_asking(self) -> bool:
        """Whether a command waits until it is known if the client may do what it asks for."""
        return self._admission is not None and self._admission.is_waiting

    @property
    def lookable(self) -> set[bytes] | None:
        """What the client may look up at this moment: see ``Access``. None: everything."""
        return None if self._admission is None else self._admission.access.lookable

    def keep(self, command: BaseCommand) -> Kept:
        """Keep what ``command`` goes on using, while it is handled: see ``command_access``."""
        return kept_by(None if self._admission is None else self._admission.access, command)

    def hold_reading(self) -> None:
        """Read no further commands until ``release_reading``. Those already read are handled."""
        self._is_held = True
        self._pause_or_resume()

    def release_reading(self) -> None:
        self._is_held = False
        self._pause_or_resume()

    def certificate(self) -> Certificate | None:
        """Return the client's certificate if it showed one that the transport has verified."""
        found = self._transport and self._transport.get_extra_info("peercert")
        return cast(Certificate, found) if isinstance(found, dict) and found else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: what uvloop hands over does not derive from asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=PULSAR_WRITE_PAUSE_BYTES)
        self._keep_alive.add(self)
        self._keep_alive.inbound.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._has_heard = True
        try:
            frames = self._reader.feed(data)
        except MalformedFrame as error:
            if not self.is_asking:  # Else it is noticed behind the frames before it.
                self._malformed(None, error)
            return
        if frames:
            self.frame_began_at = 0.0
        if self._admission is not None and self._admission.is_waiting:
            self._admission.wait_behind(frames)
        else:
            self._handle_frames(frames)
        if self._reader.pending_bytes or self.unfinished_bytes or self.is_asking:
            self._count_unfinished()

    def _handle_frames(
        self,
        frames: Iterable[RawFrame],
        frame: RawFrame | None = None,
        admitted: BaseCommand | None = None,
    ) -> None:
        """Handle frames in their order, up to the first that waits for permissions.

        Before them ``admitted``, the command in ``frame``, which may be handled.
        """
        self._is_receiving = True
        remaining = iter(frames)
        try:
            if admitted is not None and frame is not None:
                self._handle_frame(frame, admitted)
            for frame in remaining:
                if not (self._is_connected and self.handle_raw(frame)):
                    self._handle_frame(frame)
                if self._is_closing:
                    return
                if self._admission is not None and self._admission.is_waiting:
                    self._admission.wait_behind(remaining)
                    self._pause_or_resume()
                    return
            if self._reader.error is not None:
                raise self._reader.error
        except MalformedFrame as error:
            self._malformed(frame, error)
        except Exception as error:
            self._failed(frame, error)
        finally:
            self._is_receiving = False
            self._flush()

    def _count_unfinished(self) -> None:
        waiting_bytes = 0 if self._admission is None else self._admission.waiting_bytes
        self._keep_alive.inbound.hold(self, self._reader.pending_bytes + waiting_bytes)

    def eof_received(self) -> bool:
        """The client has half-closed the connection: close it."""
        return False

    def pause_writing(self) -> None:
        self._is_drained = False
        self._pause_or_resume()

    def resume_writing(self) -> None:
        self._is_drained = True
        self._pause_or_resume()
        self._wake()
        if self.is_open:
            self.resumed_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._keep_alive.discard(self)
        self._keep_alive.inbound.closed(self)
        self._is_closing = True
        self._transport = None
        self._outgoing, self._outgoing_bytes = None, 0
        if self._identity is not None:
            self._identity.close()
        if self._admission is not None:
            self._admission.close()
        self._wake()
        self.closed()

    def check_alive(self) -> None:
        """Called once a keep-alive interval: drop a dead client, send PING to a silent one."""
        if self._is_closing:
            self.abort("does not read what was sent last")
        elif not self._is_connected:
            self.abort("no CONNECT in time")
        elif self._has_heard or self._is_held or self.is_asking or self._has_read():
            self._has_heard = False
            self.send(_PING)
            if self._identity is not None:
                self._identity.check_expiry()
        else:
            self.abort("silent for longer than the keep-alive interval")

    # Inside -----------------------------------------------------------------------------------

    def _handle_frame(self, frame: RawFrame, admitted: BaseCommand | None = None) -> None:
        """Handle a frame. ``admitted``: the command in it, if its client may give it."""
        command = admitted
        if command is None:
            if len(frame.command) > COMMAND_COUNTED_BYTES_MIN:
                check_command_fields(frame.command)
            command = parse_command(frame.command)
        kind = command.type
        if not self._is_connected:
            self._greet(command)
        elif kind == BaseCommand.PING:
            self.send(_PONG)
        elif kind == BaseCommand.CONNECT:
            self._close("a second CONNECT")
        elif kind == BaseCommand.AUTH_RESPONSE and self._identity is not None:
            self._identity.refresh(command.authResponse)
        elif kind != BaseCommand.PONG:
            admission = None if admitted is command else self._admission
            if admission is None or kind in UNASKED or admission.admits(command, frame):
                try:
                    self.handle(command, frame.payload)
                except MetadataError as error:
                    self._refused(command, error)

    def _greet(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CONNECT and self._identity is None:
            self._accept(command.connect)
        else:
            self._close(f"{BaseCommand.Type.Name(command.type)} before CONNECT")

    def refuse_command(self, command: BaseCommand, error: Exception) -> None:
        """Answer a command that the client may not give, or that is about a name that is none."""
        code = ServerError.InvalidTopicName
        if isinstance(error, MetadataError):
            code = server_error_of(error)
        answer = refusal_of(command, code, str(error))
        if answer is None:
            self._close(f"{BaseCommand.Type.Name(command.type)}: {error}")
        else:
            self.send_command(answer)

    def go_on(
        self,
        frame: RawFrame,
        command: BaseCommand,
        behind: Iterable[RawFrame],
        error: Exception | None,
    ) -> None:
        """Handle or refuse a command that waited for permissions, then the frames behind it."""
        if not self.is_open:
            return
        if error is None:
            self._handle_frames(behind, frame, command)
        else:
            self.refuse_command(command, error)
            self._handle_frames(behind)
        self._count_unfinished()
        self._pause_or_resume()

    def _accept(self, connect: CommandConnect) -> None:
        if connect.proxy_to_broker_url:
            self.send_error(
                NO_REQUEST_ID,
                ServerError.NotAllowedError,
                "this server is no proxy: connect to the broker itself, not through here to "
                f"{shortened(connect.proxy_to_broker_url, LOG_FIELD_CHARACTERS_MAX)!r}",
            )
            self._close("asks for a proxy")
            return
        authenticator = self._greeting.authenticator
        if authenticator is None:
            self.admit(connect, ANONYMOUS)
        else:
            self._identity = ClientIdentity(self, authenticator)
            self._identity.begin(connect)

    def admit(self, connect: CommandConnect, principal: Principal) -> None:
        """Answer CONNECT: the client is ``principal``."""
        greeting = self._greeting
        if greeting.authorizer is not None:
            self._admission = Admission(self, greeting.authorizer, principal)
            if not self._admission.access.may_now(Action.CONNECT, CLUSTER):
                error = refused(principal, Action.CONNECT, CLUSTER)
                self.refuse_client(error, server_error_of(error))
                return
        self.principal = principal
        self.protocol_version = max(0, min(PROTOCOL_VERSION, connect.protocol_version))
        self.client_version = sys.intern(connect.client_version[:CLIENT_VERSION_CHARACTERS_MAX])
        # Unknown fields could be of any size, and would be kept with the connection.
        connect.feature_flags.DiscardUnknownFields()
        self.feature_flags = shared_flags(connect.feature_flags.SerializeToString())
        self.send_command(
            BaseCommand(
                type=BaseCommand.CONNECTED,
                connected=CommandConnected(
                    server_version=greeting.server_version,
                    protocol_version=self.protocol_version,
                    max_message_size=greeting.message_bytes_max,
                    feature_flags=greeting.feature_flags,
                ),
            )
        )
        self._is_connected = True
        self._keep_alive.inbound.introduced(self)
        self.connected(connect)

    def refuse_client(self, error: MetadataError, code: ServerError) -> None:
        """Answer CONNECT or AUTH_RESPONSE with an error, and close."""
        self.send_error(NO_REQUEST_ID, code, str(error))
        self._close(f"the client was refused: {error}")

    def _refused(self, command: BaseCommand, error: MetadataError) -> None:
        request_id = request_id_of(command)
        if request_id is None:
            self._close(f"{BaseCommand.Type.Name(command.type)}: {error}")
        else:
            self.send_error(request_id, server_error_of(error), str(error))

    def _malformed(self, frame: RawFrame | None, error: MalformedFrame) -> None:
        # A stream that cannot be cut into frames has no request to answer to, and a command with
        # too many fields is not parsed to find one.
        is_answerable = self._reader.error is not error and not isinstance(error, TooManyFields)
        if frame is not None and self._is_connected and is_answerable:
            request_id = request_id_in(frame.command)
            if request_id is not None:
                self.send_error(request_id, ServerError.NotAllowedError, str(error))
        self._close(str(error))

    def _failed(self, frame: RawFrame | None, error: Exception) -> None:
        _logger.error("a Pulsar command failed", peer=self.peer, exc_info=error)
        request_id = None if frame is None else request_id_in(frame.command)
        if request_id is not None:
            self.send_error(request_id, ServerError.UnknownError, "the server failed")
        self._close("a command failed")

    def _close(self, reason: str) -> None:
        if self.is_open:
            _logger.info("Pulsar connection closed", peer=self.peer, reason=reason)
        self.close_after_flush()

    def _pause_or_resume(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.is_read:
            transport.resume_reading()
            # While the server does not read, the client's silence proves nothing.
            self._has_heard = True
        else:
            transport.pause_reading()
