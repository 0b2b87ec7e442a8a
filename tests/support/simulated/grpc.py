"""gRPC without sockets: the real Python half of ``grpc.aio`` over a simulated core.

    SimulatedChannel   ``grpc.aio.Channel`` whose core is ``_Core`` (client side)
    SimulatedServer    as much of ``grpc.aio.Server`` as servers of this project use; its calls
                       are in ``sim_grpc_server``

Channels, multi-callables and call objects are gRPC's own classes, so cancelling, reading behind the
end and writing into a finished call do what they do in production. What is simulated is what gRPC
has in C: connections, streams with flow control, deadlines, statuses.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _channel

from tests.support.cluster_simulation.network import Connection, Network, Side
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.simulated.process import PROCESS

WINDOW_BYTES = 65_535
"""Unread bytes of a stream's direction before its writer waits: HTTP/2's initial window."""

BACKOFF_MS = (50, 200)
"""A channel that was refused tries again after so long, as ``client.transport.channel`` has it."""

CONNECT_FAILED = "failed to connect to all addresses; last error: Connection refused"

_OK = grpc.StatusCode.OK
_IDLE, _CONNECTING, _READY, _FAILED, _SHUTDOWN = 0, 1, 2, 3, 4


def status_of(code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, Any]] = ()) -> Any:
    return cygrpc.AioRpcStatus(code.value[0], details, tuple(trailing), details)


class SimulatedChannel(_channel.Channel):
    """A channel of the process that runs at the moment."""

    def __init__(self, network: Network, target: str) -> None:
        self._unary_unary_interceptors = []
        self._unary_stream_interceptors = []
        self._stream_unary_interceptors = []
        self._stream_stream_interceptors = []
        self._loop = network.loop
        process = PROCESS.get()
        assert isinstance(process, SimulatedProcess), "channels belong to processes"
        self._channel = _Core(network, process, target)
        self._active_calls = _InOrder()  # type: ignore[assignment]


class _InOrder:
    """Calls in the order in which they began: a set by address would differ in each run."""

    def __init__(self) -> None:
        self._calls: dict[int, Any] = {}

    def add(self, call: Any) -> None:
        self._calls[id(call)] = call

    def discard(self, call: Any) -> None:
        self._calls.pop(id(call), None)

    def __iter__(self) -> Any:
        return iter(tuple(self._calls.values()))

    def clear(self) -> None:
        self._calls.clear()


class _Core:
    """What a channel has in C: one connection at a time, and the calls on it."""

    def __init__(self, network: Network, process: SimulatedProcess, target: str) -> None:
        self.network = network
        self.process = process
        self.target = target
        self.connection: Connection | None = None
        self._state = _IDLE
        self._attempts = 0
        self._retry_at_s = 0.0
        self._watchers: list[asyncio.Future[bool]] = []
        self._connecting: list[asyncio.Future[None]] = []
        self.calls: dict[ClientStream, None] = {}

    # As cygrpc.AioChannel ---------------------------------------------------------------------

    def call(
        self, method: bytes, deadline: float | None, _credentials: Any, _wait: Any, _handle: Any
    ) -> ClientStream:
        assert self._state != _SHUTDOWN, "the channel is closed"
        remaining_s = None if deadline is None else deadline - time.time()
        return ClientStream(self, method.decode(), remaining_s)

    def get_registered_call_handle(self, _method: bytes) -> int:
        return 0

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        if try_to_connect:
            self._connect_if_idle()
        return self._state

    async def watch_connectivity_state(self, last: int, _deadline: float | None) -> bool:
        while self._state == last:
            watcher = self.network.loop.create_future()
            self._watchers.append(watcher)
            await watcher
        return True

    def closing(self) -> None:
        """Calls that begin from here on are a mistake."""

    def closed(self) -> bool:
        return self._state == _SHUTDOWN or self.network.is_over

    def close(self) -> None:
        if self._state == _SHUTDOWN:
            return
        connection, self.connection = self.connection, None
        self._move_to(_SHUTDOWN)
        if connection is not None and not self.process.is_dead:
            connection.close(Side.CLIENT)
        self._end_calls("Channel closed!")

    # Connection -------------------------------------------------------------------------------

    async def connected(self, call: ClientStream) -> Connection | None:
        """Return the connection, made if there is none; None if it was refused or ``call`` is over.

        A call ends at its deadline, too, while its channel connects.
        """
        if self.connection is None:
            self._connect_if_idle()
            if self._state == _FAILED:
                return None
            waiter = self.network.loop.create_future()
            self._connecting.append(waiter)
            call.add_done_callback(lambda: waiter.done() or waiter.set_result(None))
            await waiter
        return self.connection

    def _connect_if_idle(self) -> None:
        is_due = self._state == _IDLE or (
            self._state == _FAILED and self.network.now_s >= self._retry_at_s
        )
        if not is_due:
            return
        self._attempts += 1
        attempt = self._attempts
        self._move_to(_CONNECTING)

        def on_done(connection: Connection | None) -> _Core | None:
            if self._state != _CONNECTING or attempt != self._attempts:
                if connection is not None:
                    connection.close(Side.CLIENT)
                return None
            self.connection = connection
            if connection is None:
                pause_ms = self.network.chance.uniform(*BACKOFF_MS)
                self._retry_at_s = self.network.now_s + pause_ms / 1000
            self._move_to(_FAILED if connection is None else _READY)
            return self

        self.network.connect(self.process, self.target, on_done, lambda: self._state == _CONNECTING)

    def on_broken(self, reason: str) -> None:
        self.connection = None
        if self._state != _SHUTDOWN:
            self._move_to(_IDLE)
        self._end_calls(reason)

    def _end_calls(self, reason: str) -> None:
        for call in tuple(self.calls):
            call.end(status_of(grpc.StatusCode.UNAVAILABLE, reason))

    def _move_to(self, state: int) -> None:
        self._state = state
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(True)
        if state == _CONNECTING:
            return
        connecting, self._connecting = self._connecting, []
        for waiter in connecting:
            if not waiter.done():
                waiter.set_result(None)


class Flow:
    """How much one side of a stream may still send."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._room = WINDOW_BYTES
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def take(self, size: int) -> None:
        """Return once there is room. A message larger than the window is sent alone."""
        while self._room <= 0:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        self._room -= size

    def give(self, size: int) -> None:
        self._room += size
        self.release()

    def release(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Inbox:
    """Messages of a stream that were not read yet; reading gives the sender room again."""

    def __init__(self, loop: Any, give_room: Callable[[int], None]) -> None:
        self._loop = loop
        self._give_room = give_room
        self._messages: deque[bytes | None] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._read_bytes = 0

    def put(self, message: bytes | None) -> None:
        """Add a message; None marks the end."""
        self._messages.append(message)
        self._wake()

    def drop_all(self) -> None:
        self._messages.clear()
        self.put(None)

    async def get(self) -> bytes | None:
        while not self._messages:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        message = self._messages[0]
        if message is None:
            self._wake()
            return None
        self._messages.popleft()
        self._read_bytes += len(message)
        if self._read_bytes >= WINDOW_BYTES // 2:
            size, self._read_bytes = self._read_bytes, 0
            self._give_room(size)
        return message

    @property
    def holds_messages(self) -> bool:
        return bool(self._messages) and self._messages[0] is not None

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class ClientStream:
    """One call in C, client side: what ``grpc.aio``'s call objects call ``_cython_call``."""

    def __init__(self, core: _Core, method: str, remaining_s: float | None) -> None:
        self._core = core
        self._loop = core.network.loop
        self.method = method
        self._deadline_s = None if remaining_s is None else self._loop.time() + remaining_s
        self._status: Any = None
        self._pending_status: Any = None
        self._initial_metadata: tuple[Any, ...] | None = None
        self._is_locally_cancelled = False
        self._waiters: list[asyncio.Future[None]] = []
        self._began: asyncio.Future[None] = self._loop.create_future()
        self._callbacks: list[Callable[[], None]] = []
        self._inbox = Inbox(self._loop, lambda size: self._send("window", b"", "give_room", size))
        self._flow = Flow(self._loop)
        self._connection: Connection | None = None
        self._peer: Any = None
        self._metadata: tuple[Any, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        if remaining_s is not None:
            self._timer = self._loop.call_later(max(0.0, remaining_s), self._too_late)
        core.calls[self] = None

    # As cygrpc._AioCall -----------------------------------------------------------------------

    def done(self) -> bool:
        return self._status is not None

    def cancelled(self) -> bool:
        return self.done() and self._status.code() == grpc.StatusCode.CANCELLED.value[0]

    def is_locally_cancelled(self) -> bool:
        return self._is_locally_cancelled

    def is_ok(self) -> bool:
        return self.done() and self._status.code() == _OK.value[0]

    def time_remaining(self) -> float | None:
        if self._deadline_s is None:
            return None
        return max(0.0, self._deadline_s - self._loop.time())

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        callback() if self.done() else self._callbacks.append(callback)

    def cancel(self, details: str) -> None:
        if self.done() or self._core.network.is_over:
            return
        self._is_locally_cancelled = True
        self._reset_peer()
        self.end(status_of(grpc.StatusCode.CANCELLED, details))

    def set_internal_error(self, text: str) -> None:
        self.end(status_of(grpc.StatusCode.INTERNAL, f"Internal error from Core: {text}"))

    async def status(self) -> Any:
        while self._status is None:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        return self._status

    async def initial_metadata(self) -> tuple[Any, ...]:
        await self._began
        return self._initial_metadata or ()

    async def unary_unary(self, request: bytes, metadata: Any, _context: Any) -> bytes | None:
        if not await self._begin(metadata):
            return None
        self._send("message", request, "take", request)
        self._send("half close", b"", "half_close")
        response = await self._inbox.get()
        while self._status is None and response is not None:
            if await self._inbox.get() is None:
                break
        await self.status()
        return response

    async def initiate_unary_stream(self, request: bytes, metadata: Any, _context: Any) -> None:
        if await self._begin(metadata):
            self._send("message", request, "take", request)
            self._send("half close", b"", "half_close")
            await self._began

    async def initiate_stream_stream(
        self, metadata: Any, observer: Callable[[], None], _context: Any
    ) -> None:
        await self._begin(metadata)
        observer()
        await self._began

    async def stream_unary(
        self, metadata: Any, observer: Callable[[], None], _context: Any
    ) -> bytes | None:
        await self._begin(metadata)
        observer()
        response = await self._inbox.get()
        await self.status()
        return response

    async def receive_serialized_message(self) -> Any:
        message = await self._inbox.get()
        if message is None:
            self._settle()
            return cygrpc.EOF
        if not self._inbox.holds_messages:
            self._settle()
        return message

    async def send_serialized_message(self, message: bytes) -> None:
        await self._flow.take(len(message))
        if self.done() or self._pending_status is not None:
            self._settle()
            raise cygrpc.ExecuteBatchError('Failed "execute_batch": the call is over')
        self._send("message", message, "take", message)

    async def send_receive_close(self) -> None:
        self._send("half close", b"", "half_close")

    # Inside -----------------------------------------------------------------------------------

    async def _begin(self, metadata: Any) -> bool:
        self._metadata = tuple(metadata)
        connection = await self._core.connected(self)
        if self.done():
            return False
        if connection is None:
            self.end(status_of(grpc.StatusCode.UNAVAILABLE, CONNECT_FAILED))
            return False
        self._connection = connection
        server_end = connection.ends[Side.SERVER]
        connection.send(
            Side.CLIENT,
            f"call {self.method}",
            b"",
            server_end.open_stream,  # type: ignore[attr-defined]
            self,
            self._metadata,
            self.time_remaining(),
        )
        return True

    def _send(self, what: str, data: bytes, method: str, *arguments: Any) -> None:
        connection = self._connection
        if connection is None or connection.is_over_for(Side.CLIENT):
            return

        def arrive() -> None:
            if self._peer is not None:
                getattr(self._peer, method)(*arguments)

        connection.send(Side.CLIENT, f"{what} {self.method}", data, arrive)

    def _reset_peer(self) -> None:
        self._send("reset stream", b"", "reset")

    def _too_late(self) -> None:
        self._reset_peer()
        self.end(status_of(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def end(self, status: Any) -> None:
        """The call is over; what was not read is gone."""
        if self.done():
            return
        self._status = status
        self._core.calls.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._note_begun()
        self._inbox.drop_all()
        self._flow.release()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _note_begun(self) -> None:
        if self._initial_metadata is None:
            self._initial_metadata = ()
        if not self._began.done():
            self._began.set_result(None)

    def _settle(self) -> None:
        """The server's status holds once everything before it was read."""
        if self._pending_status is not None and not self._inbox.holds_messages:
            self.end(self._pending_status)

    # What the server side has arrive here -------------------------------------------------------

    def opened(self, peer: Any) -> None:
        """The server side of the stream exists (known there by its arrival, not by a message)."""
        self._peer = peer

    def on_message(self, message: bytes) -> None:
        if not self.done():
            self._note_begun()
            self._inbox.put(message)

    def on_status(self, status: Any) -> None:
        if self.done():
            return
        self._pending_status = status
        self._note_begun()
        self._inbox.put(None)
        self._flow.release()
        self._settle()

    def on_room(self, size: int) -> None:
        self._flow.give(size)
