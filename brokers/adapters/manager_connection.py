"""The stream to a broker manager, over gRPC.

gRPC ends a call when a pending read or write on it is cancelled. Whoever uses the connection may
be cancelled while it waits, and must still be able to say goodbye: so reading and writing are
tasks of the connection itself, and nobody else touches the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator

import grpc
import grpc.aio

from brokers.domain.holding import Holding
from brokers.ports.session import Clock, FromManager, Load, ManagerConnection, StreamEnded
from brokers.wire import from_manager, held_pages
from nextgen.client.channel import close_channel, open_channel
from nextgen.client.errors_wire import error_of_rpc
from nextgen.kernel.limits import BROKER_ARRIVALS_MAX, BROKER_GOODBYE_MS_MAX
from nextgen.runtime import tracing
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerSessionServiceStub
from protos.nextgen.v1.events_pb2 import LoadReport

_Call = grpc.aio.StreamStreamCall[wire.BrokerMessage, wire.ManagerMessage]


class GrpcManagerDialer:
    """Dials broker managers with a hello that is the same but for the resume point."""

    def __init__(self, hello: wire.BrokerHello, clock: Clock) -> None:
        self._hello = hello
        self._clock = clock

    def dial(self, endpoint: str, session_id: str, last_sequence: int) -> ManagerConnection:
        hello = wire.BrokerHello()
        hello.CopyFrom(self._hello)
        hello.session_id = session_id
        hello.last_sequence = last_sequence
        return GrpcManagerConnection(endpoint, hello, self._clock)


class GrpcManagerConnection:
    """One stream on a channel of its own, so that closing it leaves nothing behind."""

    def __init__(self, endpoint: str, hello: wire.BrokerHello, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._channel = open_channel(endpoint)
        self._call: _Call = BrokerSessionServiceStub(self._channel).Connect()
        self._hello: wire.BrokerHello | None = hello
        self._sync_to_send: int | None = None
        self._heartbeat_to_send: wire.BrokerHeartbeat | None = None
        self._held_to_send: Iterator[wire.HeldMetadata] | None = None
        self._is_leaving = False
        self._to_send = asyncio.Event()
        self._to_send.set()
        self._arrived: asyncio.Queue[FromManager] = asyncio.Queue(BROKER_ARRIVALS_MAX)
        self._traced: deque[tuple[int, str, float]] = deque(maxlen=BROKER_ARRIVALS_MAX)
        """Sequence, trace and arrival of deliveries that are not applied yet, while traced."""
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())

    def __repr__(self) -> str:
        return f"<GrpcManagerConnection to {self._endpoint}>"

    async def receive(self) -> FromManager:
        return await self._arrived.get()

    def report_sync(self, sequence: int) -> None:
        while self._traced and self._traced[0][0] <= sequence:
            applied, trace_id, arrived_at = self._traced.popleft()
            tracing.record("broker.apply", arrived_at, time.monotonic(), trace_id, sequence=applied)
        self._sync_to_send = sequence
        self._to_send.set()

    def report_load(self, units: int, load: Load) -> None:
        self._heartbeat_to_send = wire.BrokerHeartbeat(
            sent_at_ms=self._clock(),
            load=LoadReport(
                topics=units,
                cpu_fraction=load.cpu_fraction,
                memory_bytes=load.memory_bytes,
                messages_in_per_second=load.rates.messages_in,
                messages_out_per_second=load.rates.messages_out,
                bytes_in_per_second=load.rates.bytes_in,
                bytes_out_per_second=load.rates.bytes_out,
                connections=load.connections,
            ),
        )
        self._to_send.set()

    def report_held(self, holding: Holding) -> None:
        self._held_to_send = held_pages(holding)
        self._to_send.set()

    async def say_goodbye(self) -> None:
        self._is_leaving = True
        self._to_send.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BROKER_GOODBYE_MS_MAX / 1000):
                # The manager ends the stream once it has heard. What it sends before has to be
                # taken, or the reader would wait for room.
                while not isinstance(await self._arrived.get(), StreamEnded):
                    continue

    def close(self) -> None:
        self._reader.cancel()
        self._writer.cancel()
        self._call.cancel()
        closing = asyncio.create_task(close_channel(self._channel))
        _closing_channels.add(closing)
        closing.add_done_callback(_closing_channels.discard)

    async def _read(self) -> None:
        while True:
            arrived = await self._next_arrival()
            await self._arrived.put(arrived)
            if isinstance(arrived, StreamEnded):
                return

    async def _next_arrival(self) -> FromManager:
        try:
            message = await self._call.read()
        except grpc.RpcError as error:
            return StreamEnded(str(error_of_rpc(error)))
        if not isinstance(message, wire.ManagerMessage):
            return StreamEnded(f"{self._endpoint} ended the stream")
        if tracing.active is not None:
            self._note_traced(message)
        return from_manager(message, self._clock())

    def _note_traced(self, message: wire.ManagerMessage) -> None:
        arrived_at = time.monotonic()
        self._traced.extend(
            (delivery.sequence, delivery.trace_id, arrived_at)
            for delivery in message.deliveries.deliveries
            if delivery.trace_id
        )

    async def _write(self) -> None:
        """Send what is due; a report that is overtaken while another is sent is never sent."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while not self._is_leaving:
                await self._to_send.wait()
                self._to_send.clear()
                while (message := self._next_message()) is not None:
                    await self._call.write(message)
            await self._call.write(wire.BrokerMessage(goodbye=wire.BrokerGoodbye()))
            await self._call.done_writing()

    def _next_message(self) -> wire.BrokerMessage | None:
        if self._hello is not None:
            hello, self._hello = self._hello, None
            return wire.BrokerMessage(hello=hello)
        if self._sync_to_send is not None:
            sequence, self._sync_to_send = self._sync_to_send, None
            return wire.BrokerMessage(sync=wire.SyncPosition(sequence=sequence))
        if self._heartbeat_to_send is not None:
            heartbeat, self._heartbeat_to_send = self._heartbeat_to_send, None
            return wire.BrokerMessage(heartbeat=heartbeat)
        page = next(self._held_to_send, None) if self._held_to_send is not None else None
        return None if page is None else wire.BrokerMessage(held=page)


_closing_channels: set[asyncio.Task[None]] = set()
"""Kept so that a channel that is being closed is not collected half way."""
