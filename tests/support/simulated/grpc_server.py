"""The server's side of gRPC without sockets: see ``tests.support.simulated.grpc``.

It answers as ``grpc.aio.Server`` does: a handler is a task, cancelled when its client is gone;
``read`` then says EOF and ``write`` raises ``grpc.aio.BaseError``; ``abort`` raises ``AbortError``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from grpc._cython import cygrpc

from tests.support.cluster_simulation.network import Connection, Network, Side
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.simulated.grpc import ClientStream, Flow, Inbox, status_of
from tests.support.simulated.process import PROCESS

CANCEL_LATE_S = 0.0005
"""A handler may see the end of its requests so long before it is cancelled."""


@dataclass(frozen=True, slots=True)
class _CallDetails:
    """What interceptors and generic handlers get of a call."""

    method: str
    invocation_metadata: tuple[Any, ...]


class SimulatedServer:
    """As much of ``grpc.aio.Server`` as this project uses."""

    def __init__(
        self, network: Network, interceptors: Sequence[Any], concurrent_calls_max: int | None
    ) -> None:
        process = PROCESS.get()
        assert isinstance(process, SimulatedProcess), "servers belong to processes"
        self.process = process
        self.network = network
        self._interceptors = tuple(interceptors)
        self._calls_max = concurrent_calls_max
        self._generic: list[Any] = []
        self._registered: dict[str, Any] = {}
        self._endpoint = ""
        self._connections: dict[int, _ServerEnd] = {}
        self.calls: dict[ServerCall, None] = {}
        self._is_stopping = False

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._generic.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        for name, handler in handlers.items():
            self._registered[f"/{service}/{name}"] = handler

    def add_insecure_port(self, address: str) -> int:
        if self.network.is_taken(address):
            raise RuntimeError(f"Failed to bind to address {address}")
        self._endpoint = address
        return int(address.rpartition(":")[2])

    async def start(self) -> None:
        self.network.listen(self._endpoint, self)

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls, wait ``grace`` seconds for those that run, then end them."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self.network.stop_listening(self._endpoint, self)
        running = [call.task for call in self.calls if call.task is not None]
        if running and grace:
            await asyncio.wait(running, timeout=grace)
        for call in tuple(self.calls):
            call.reset()
        running = [call.task for call in self.calls if call.task is not None]
        if running:
            await asyncio.wait(running)
        for end in tuple(self._connections.values()):
            end.connection.close(Side.SERVER)
        self._connections.clear()

    def accept(self, connection: Connection) -> _ServerEnd:
        end = self._connections[connection.number] = _ServerEnd(self, connection)
        return end

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)

    def refusal(self) -> Any | None:
        """Return why a call cannot begin now, None if it can."""
        if self._is_stopping:
            return status_of(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        if self._calls_max is not None and len(self.calls) > self._calls_max:
            text = "Concurrent RPC limit exceeded!"
            return status_of(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        return None

    async def handler(self, details: _CallDetails) -> Any:
        """Return the handler of a method, through all interceptors; None if there is none."""

        async def find(asked: Any) -> Any:
            if asked.method in self._registered:
                return self._registered[asked.method]
            for generic in self._generic:
                found = generic.service(asked)
                if found is not None:
                    return found
            return None

        continuation: Callable[[Any], Any] = find
        for interceptor in reversed(self._interceptors):
            continuation = _through(interceptor, continuation)
        return await continuation(details)


def _through(interceptor: Any, inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def ask(details: Any) -> Any:
        return await interceptor.intercept_service(inner, details)

    return ask


class _ServerEnd:
    """One connection, and the calls that came over it."""

    def __init__(self, server: SimulatedServer, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self._calls: dict[ServerCall, None] = {}

    def open_stream(
        self, client: ClientStream, metadata: tuple[Any, ...], remaining_s: float | None
    ) -> None:
        call = ServerCall(self, client, metadata, remaining_s)
        client.opened(call)
        refusal = self.server.refusal()
        if refusal is not None:
            call.send_status(refusal)
            return
        self._calls[call] = None
        call.start()

    def forget(self, call: ServerCall) -> None:
        self._calls.pop(call, None)

    def on_broken(self, _reason: str) -> None:
        self.server.forget(self.connection)
        for call in tuple(self._calls):
            call.reset()


class ServerCall:
    """One call at the server: the ``ServicerContext`` of its handler."""

    def __init__(
        self,
        end: _ServerEnd,
        client: ClientStream,
        metadata: tuple[Any, ...],
        remaining_s: float | None,
    ) -> None:
        self._end = end
        self._server = end.server
        self._loop = end.server.network.loop
        self._client = client
        self._metadata = metadata
        self._deadline_s = None if remaining_s is None else self._loop.time() + remaining_s
        self._inbox = Inbox(self._loop, lambda size: self._send("window", b"", "on_room", size))
        self._flow = Flow(self._loop)
        self._is_reset = False
        self._status: Any = None
        self._trailing: tuple[Any, ...] = ()
        self._code, self._details = grpc.StatusCode.OK, ""
        self._handler: Any = None
        self._callbacks: list[Callable[[Any], None]] = []
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._server.calls[self] = None
        self.task = self._loop.create_task(self._serve())
        self.task.add_done_callback(self._over)

    # As grpc.aio.ServicerContext ----------------------------------------------------------------

    async def read(self) -> Any:
        data = await self._inbox.get()
        if data is None:
            return cygrpc.EOF
        decode = self._handler.request_deserializer
        return decode(data) if decode is not None else data

    async def write(self, message: Any) -> None:
        encode = self._handler.response_serializer
        data = encode(message) if encode is not None else message
        self._check_open()
        await self._flow.take(len(data))
        self._check_open()
        self._send("answer", data, "on_message", data)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        assert code is not grpc.StatusCode.OK, "abort is for errors"
        self._code, self._details = code, details
        self._trailing = tuple(trailing_metadata or self._trailing)
        raise grpc.aio.AbortError("Locally aborted.")

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._trailing = tuple(metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def invocation_metadata(self) -> tuple[Any, ...]:
        return self._metadata

    def peer(self) -> str:
        return f"simulated:{self._end.connection.client.name}"

    def time_remaining(self) -> float | None:
        if self._deadline_s is None:
            return None
        return max(0.0, self._deadline_s - self._loop.time())

    def cancelled(self) -> bool:
        return self._is_reset

    def done(self) -> bool:
        return self._status is not None or self._is_reset

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    # What arrives from the client -----------------------------------------------------------------

    def take(self, data: bytes) -> None:
        if not self.done():
            self._inbox.put(data)

    def half_close(self) -> None:
        self._inbox.put(None)

    def give_room(self, size: int) -> None:
        self._flow.give(size)

    def reset(self) -> None:
        """The client is gone, or does not want the call any more."""
        if self.done():
            return
        self._is_reset = True
        self._inbox.drop_all()
        self._flow.release()
        if self.task is None:
            return
        # gRPC tells the end of the requests and the cancellation one after the other, in no order.
        network = self._server.network
        if network.chance.random() < 0.5:
            self.task.cancel()
        else:
            self._loop.call_later(network.chance.uniform(0, CANCEL_LATE_S), self.task.cancel)

    # Inside ---------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.done():
            raise cygrpc.ExecuteBatchError('Failed "execute_batch": the call is over')

    def _send(self, what: str, data: bytes, method: str, *arguments: Any) -> None:
        connection = self._end.connection
        if connection.is_over_for(Side.SERVER):
            return
        take = getattr(self._client, method)
        name = self._client.method
        connection.send(Side.SERVER, f"{what} {name}", data, take, *arguments)

    def send_status(self, status: Any) -> None:
        if self.done():
            return
        self._status = status
        self._send(f"status {status.code()}", b"", "on_status", status)

    async def _serve(self) -> None:
        try:
            details = _CallDetails(self._client.method, self._metadata)
            self._handler = await self._server.handler(details)
            if self._handler is None:
                self.send_status(status_of(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
                return
            await self._handle(self._handler)
            self.send_status(status_of(self._code, self._details, self._trailing))
        except grpc.aio.AbortError:
            self.send_status(status_of(self._code, self._details, self._trailing))
        except asyncio.CancelledError:
            self.send_status(status_of(grpc.StatusCode.CANCELLED, "RPC cancelled"))
            raise
        except Exception as error:
            gone = self._is_reset and isinstance(error, grpc.aio.BaseError)
            text = f"Unexpected {type(error)}: {error}"
            self.send_status(status_of(grpc.StatusCode.UNKNOWN, text))
            if not gone:
                context = {"message": f"a handler of {self._client.method} broke"}
                self._loop.call_exception_handler({**context, "exception": error})

    async def _handle(self, handler: Any) -> None:
        request: Any = _Requests(self)
        if not handler.request_streaming:
            request = await self.read()
            if request is cygrpc.EOF:
                return
        if not handler.response_streaming:
            behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
            await self.write(await behaviour(request, self))
            return
        behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
        if inspect.isasyncgenfunction(behaviour):
            async for response in behaviour(request, self):
                await self.write(response)
            return
        answers = behaviour(request, self)
        if inspect.isasyncgen(answers):
            async for response in answers:
                await self.write(response)
        else:
            await answers

    def _over(self, task: asyncio.Task[None]) -> None:
        self._server.calls.pop(self, None)
        self._end.forget(self)
        if not task.cancelled():
            task.exception()
        for callback in self._callbacks:
            callback(self)


class _Requests:
    """The iterator over a stream's requests."""

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await self._call.read()
        if message is cygrpc.EOF:
            raise StopAsyncIteration
        return message
