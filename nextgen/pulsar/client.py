"""A client's connection: requests by id, pushes to a callback.

Not a Pulsar client: it neither looks topics up nor reconnects. Our tools and tests use it as it is,
the scalable-topics client derives from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ssl import SSLContext
from typing import Self, cast

from nextgen.kernel.errors import ConnectionLost, DeadlineExceeded, Overloaded, Unavailable
from nextgen.kernel.limits.cluster import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS_DEFAULT
from nextgen.kernel.limits.pulsar import PULSAR_REQUESTS_IN_FLIGHT_MAX
from nextgen.pulsar.frames import (
    FIELD_OF_TYPE,
    TYPES_WITH_REQUEST_ID,
    FrameReader,
    MalformedFrame,
    RawFrame,
    encode_command,
    parse_command,
    request_id_of,
)
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandPong,
    FeatureFlags,
)

CLIENT_VERSION = "Pulsar NextGen tools"

Push = Callable[[BaseCommand, bytes], None]
"""Called with each command, and its payload, that answers no request."""

_PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


class GreetingRefused(ConnectionLost):
    """The server answered CONNECT by an ERROR. ``code`` is a value of Pulsar's ``ServerError``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"ERROR instead of CONNECTED: {message}")
        self.code = code
        self.message = message


class PulsarClientConnection(asyncio.Protocol):
    """One connection to a server. Make it with ``open``; ``close`` it, or use it in ``async with``.

    Requests may overlap; each is answered by the first command with its id. PING is answered
    here. Everything else goes to ``on_push``, in order.
    """

    def __init__(self, on_push: Push) -> None:
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[BaseCommand]] = {}
        self._last_request_id = 0
        self._greeted: asyncio.Future[CommandConnected] = self._loop.create_future()
        self.server = CommandConnected()
        """The server's CONNECTED."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed, by either side."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        on_push: Push | None = None,
        connect: CommandConnect | None = None,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        ssl: SSLContext | None = None,
    ) -> Self:
        """Connect and greet; ``connect`` replaces the usual greeting.

        Raises:
            Unavailable: No server answers there, or the answer is not CONNECTED.
        """
        loop = asyncio.get_running_loop()
        self: Self | None = None
        try:
            async with timeout(timeout_ms / 1000):
                _, self = await loop.create_connection(
                    lambda: cls(on_push or _ignore), host, port, ssl=ssl
                )
                self.send_command(
                    BaseCommand(type=BaseCommand.CONNECT, connect=connect or usual_greeting())
                )
                self.server = await self._greeted
        except (OSError, TimeoutError, ConnectionLost) as error:
            if self is not None:
                self.close()
            raise Unavailable(f"no Pulsar server at {host}:{port}: {error}") from error
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.closed

    def next_request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id

    async def request(
        self, command: BaseCommand, *, timeout_ms: int | None = REQUEST_TIMEOUT_MS_DEFAULT
    ) -> BaseCommand:
        """Send ``command`` and return its answer, which may be an ERROR.

        If the request id is not set, it is assigned here. Without a time-out it waits as long as
        the connection is there.

        Raises:
            Overloaded: Too many requests are pending; nothing was sent.
            ConnectionLost: The connection ended before the answer.
            DeadlineExceeded: No answer in time.
        """
        if command.type not in TYPES_WITH_REQUEST_ID:
            raise ValueError(f"{BaseCommand.Type.Name(command.type)} has no request id")
        if len(self._waiting) >= PULSAR_REQUESTS_IN_FLIGHT_MAX:
            raise Overloaded(f"{len(self._waiting)} requests wait for an answer")
        inner = getattr(command, FIELD_OF_TYPE[command.type])
        if not inner.HasField("request_id"):
            inner.request_id = self.next_request_id()
        request_id = int(inner.request_id)
        answer: asyncio.Future[BaseCommand] = self._loop.create_future()
        self._waiting[request_id] = answer
        try:
            self.send_command(command)
            async with timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await answer
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {timeout_ms} ms") from error
        finally:
            self._waiting.pop(request_id, None)

    def send(self, data: bytes) -> None:
        """Write whole frames, or any bytes that a test wants the server to receive.

        Raises:
            ConnectionLost: There is no connection any more.
        """
        if self._transport is None:
            raise ConnectionLost("the server has closed the connection")
        self._transport.write(data)

    def send_command(self, command: BaseCommand) -> None:
        self.send(encode_command(command))

    def close(self) -> None:
        """Close once all sent frames are written."""
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
            if self._reader.error is not None:
                raise self._reader.error
        except MalformedFrame as error:
            self._end(ConnectionLost(f"the server sent what is no Pulsar: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionLost("the server has closed the connection"))
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    # Hooks ------------------------------------------------------------------------------------

    def unreadable(self, frame: RawFrame) -> bool:
        """Called with a frame whose command this release cannot read, after the greeting.

        Return True to go on without it. Otherwise the connection ends.
        """
        return False

    # Inside -----------------------------------------------------------------------------------

    def _take(self, frame: RawFrame) -> None:
        try:
            command = parse_command(frame.command)
        except MalformedFrame:
            if not self._greeted.done() or not self.unreadable(frame):
                raise
            return
        self._received(command, frame.payload)

    def _received(self, command: BaseCommand, payload: bytes) -> None:
        if command.type == BaseCommand.PING:
            self.send(_PONG)
            return
        if not self._greeted.done():
            self._greet(command)
            return
        request_id = request_id_of(command)
        waiting = None if request_id is None else self._waiting.pop(request_id, None)
        if waiting is None:
            self._on_push(command, payload)
        elif not waiting.done():
            waiting.set_result(command)

    def _greet(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CONNECTED:
            self._greeted.set_result(command.connected)
            return
        if command.type == BaseCommand.ERROR:
            self._end(GreetingRefused(command.error.error, command.error.message))
            return
        kind = BaseCommand.Type.Name(command.type)
        self._end(ConnectionLost(f"{kind} instead of CONNECTED"))

    def _end(self, error: ConnectionLost) -> None:
        """Fail all pending requests, and close."""
        if not self._greeted.done():
            self._greeted.set_exception(error)
            # The caller of ``open`` may have given up already.
            self._greeted.exception()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)
        self.close()


def usual_greeting(token: str = "") -> CommandConnect:
    """Return the CONNECT of our tools, with a proof of their role if there is one."""
    return CommandConnect(
        auth_method_name="token" if token else None,
        auth_data=token.encode() if token else None,
        client_version=CLIENT_VERSION,
        protocol_version=21,
        feature_flags=FeatureFlags(supports_broker_entry_metadata=True),
    )


def _ignore(command: BaseCommand, payload: bytes) -> None:
    """The callback of connections that want no pushes."""
