"""The stream to a broker manager, over gRPC.

gRPC ends a call when a pending read or write on it is cancelled. A caller that is cancelled while
it waits must still be able to send its goodbye. So the connection reads and writes in tasks of its
own, and no other task touches the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

import grpc
import grpc.aio

from brokers.domain.holding import Assignment, Holding
from brokers.ports.session import (
    Clock,
    DrainedUnit,
    FromManager,
    Greeting,
    ManagerConnection,
    SegmentTraffic,
    StreamEnded,
)
from brokers.wire import drained_to_proto, from_manager, held_pages, segment_traffic_to_proto
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.broker_load import load_to_proto
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.broker_load import BrokerLoad
from nextgen.kernel.limits.cluster import BROKER_ARRIVALS_MAX, BROKER_GOODBYE_MS_MAX
from nextgen.kernel.limits.scalable import DRAINED_UNITS_PER_MESSAGE_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.telemetry import lookup_steps, tracing
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerSessionServiceStub

_Call = grpc.aio.StreamStreamCall[wire.BrokerMessage, wire.ManagerMessage]


class GrpcManagerDialer:
    """Connects to broker managers. Only the resume point differs between hellos."""

    def __init__(self, hello: wire.BrokerHello, clock: Clock) -> None:
        self._hello = hello
        self._clock = clock

    def dial(
        self, endpoint: str, session_id: str, last_sequence: int, units_held: int
    ) -> ManagerConnection:
        hello = wire.BrokerHello()
        hello.CopyFrom(self._hello)
        hello.session_id = session_id
        hello.last_sequence = last_sequence
        hello.units_held = units_held
        return GrpcManagerConnection(endpoint, hello, self._clock)


class GrpcManagerConnection:
    """One stream on a channel of its own, so that closing it leaves nothing behind."""

    def __init__(self, endpoint: str, hello: wire.BrokerHello, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._channel = open_channel(endpoint, NodeRole.SHARD_NODE)
        self._call: _Call | None = None
        self._has_begun = asyncio.Event()
        self._hello: wire.BrokerHello | None = hello
        self._sync_to_send: int | None = None
        self._heartbeat_to_send: wire.BrokerHeartbeat | None = None
        self._held_to_send: Iterator[wire.HeldMetadata] | None = None
        self._drain_to_send: wire.DrainWish | None = None
        self._idle_to_send: wire.IdleUnits | None = None
        self._drained_to_send: dict[DrainedUnit, None] = {}
        self._loads_to_send: wire.SegmentLoadReports | None = None
        self._is_leaving = False
        self._to_send = asyncio.Event()
        self._to_send.set()
        self._arrived: asyncio.Queue[FromManager] = asyncio.Queue(BROKER_ARRIVALS_MAX)
        self._traced: deque[tuple[int, str, float]] = deque(maxlen=BROKER_ARRIVALS_MAX)
        """Sequence, trace and arrival time of deliveries that are not applied yet, if traced."""
        self._hello_at = 0.0
        self._began = ""
        """Trace of the session that began here, until its first heartbeat."""
        self._reader = start("session_reader", self._read(), on_failure=self._broke)
        self._writer = start("session_writer", self._write(), on_failure=self._broke)

    def __repr__(self) -> str:
        return f"<GrpcManagerConnection to {self._endpoint}>"

    async def receive(self) -> FromManager:
        return await self._arrived.get()

    def report_sync(self, sequence: int) -> None:
        if self._traced:
            self._record_applied(sequence)
        self._sync_to_send = sequence
        self._to_send.set()

    def _record_applied(self, sequence: int) -> None:
        synced: dict[str, None] = {}
        while self._traced and self._traced[0][0] <= sequence:
            applied, trace_id, arrived_at = self._traced.popleft()
            tracing.record("broker.apply", arrived_at, time.monotonic(), trace_id, sequence=applied)
            synced[trace_id] = None
        for trace_id in synced:
            lookup_steps.step(20, trace_id, position=sequence)

    def heartbeat(self, load: BrokerLoad | None) -> None:
        overtaken = self._heartbeat_to_send
        self._heartbeat_to_send = wire.BrokerHeartbeat(sent_at_ms=self._clock())
        if load is not None:
            self._heartbeat_to_send.load.CopyFrom(load_to_proto(load))
        elif overtaken is not None and overtaken.HasField("load"):
            # ``LoadReports`` returns each load once: a replaced heartbeat must not lose it.
            self._heartbeat_to_send.load.CopyFrom(overtaken.load)
        self._to_send.set()

    def report_held(self, holding: Holding) -> None:
        self._held_to_send = held_pages(holding)
        self._to_send.set()

    def report_idle(self, units: Sequence[Assignment]) -> None:
        self._idle_to_send = wire.IdleUnits(units=map(_idle_unit, units))
        self._to_send.set()

    def report_drained(self, units: Sequence[DrainedUnit]) -> None:
        self._drained_to_send.update(dict.fromkeys(units))
        self._to_send.set()

    def report_loads(self, segments: Sequence[SegmentTraffic]) -> None:
        self._loads_to_send = wire.SegmentLoadReports(
            segments=map(segment_traffic_to_proto, segments)
        )
        self._to_send.set()

    def ask_drain(self, units_per_second: int) -> None:
        self._drain_to_send = wire.DrainWish(units_per_second=units_per_second)
        self._to_send.set()

    async def say_goodbye(self) -> None:
        self._is_leaving = True
        self._to_send.set()
        with contextlib.suppress(TimeoutError):
            async with timeout(BROKER_GOODBYE_MS_MAX / 1000):
                # The manager ends the stream when it gets the goodbye. Take what it sends before
                # that, or the reader would wait for room in the queue.
                while not isinstance(await self._arrived.get(), StreamEnded):
                    continue

    def close(self) -> None:
        self._reader.cancel()
        self._writer.cancel()
        if self._call is not None:
            self._call.cancel()
        start("session_close", close_channel(self._channel), _closing_channels)

    def _broke(self, error: BaseException) -> None:
        """End the connection, so that the agent reconnects and the manager resumes behind the last
        applied delivery."""
        if self._arrived.full():
            self._arrived.get_nowait()
        self._arrived.put_nowait(StreamEnded(f"the connection broke: {error!r}"))

    async def _read(self) -> None:
        try:
            await wait_connected(self._channel, self._endpoint)
        except Unavailable as error:
            await self._arrived.put(StreamEnded(str(error)))
            return
        call = self._call = BrokerSessionServiceStub(self._channel).Connect()
        self._has_begun.set()
        while True:
            arrived = await self._next_arrival(call)
            await self._arrived.put(arrived)
            if isinstance(arrived, StreamEnded):
                return

    async def _next_arrival(self, call: _Call) -> FromManager:
        try:
            message = await call.read()
        except grpc.RpcError as error:
            return StreamEnded(str(error_of_rpc(error)))
        if not isinstance(message, wire.ManagerMessage):
            return StreamEnded(f"{self._endpoint} ended the stream")
        if tracing.active is not None:
            self._note_traced(message)
        arrived = from_manager(message, self._clock())
        if isinstance(arrived, Greeting) and not arrived.established.resumed:
            self._began = lookup_steps.session_parent(arrived.established.session_id)
            lookup_steps.step(1, self._began, self._hello_at)
            lookup_steps.step(2, self._began)
        return arrived

    def _note_traced(self, message: wire.ManagerMessage) -> None:
        arrived_at = time.monotonic()
        self._traced.extend(
            (delivery.sequence, delivery.trace_id, arrived_at)
            for delivery in message.deliveries.deliveries
            if delivery.trace_id
        )

    async def _write(self) -> None:
        """Send pending reports. A newer report replaces one that was not sent yet."""
        await self._has_begun.wait()
        call = self._call
        assert call is not None, "the stream has begun"
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while not self._is_leaving:
                await self._to_send.wait()
                self._to_send.clear()
                while (message := self._next_message()) is not None:
                    await call.write(message)
            await call.write(wire.BrokerMessage(goodbye=wire.BrokerGoodbye()))
            await call.done_writing()

    def _next_message(self) -> wire.BrokerMessage | None:
        if self._hello is not None:
            hello, self._hello = self._hello, None
            self._hello_at = time.monotonic()
            return wire.BrokerMessage(hello=hello)
        if self._sync_to_send is not None:
            sequence, self._sync_to_send = self._sync_to_send, None
            return wire.BrokerMessage(sync=wire.SyncPosition(sequence=sequence))
        if self._heartbeat_to_send is not None:
            heartbeat, self._heartbeat_to_send = self._heartbeat_to_send, None
            if self._began:
                # Keep the first heartbeat, which carries the load.
                began, self._began = self._began, ""
                lookup_steps.step(3, began)
                lookup_steps.step(4, began)
            return wire.BrokerMessage(heartbeat=heartbeat)
        if self._drain_to_send is not None:
            drain, self._drain_to_send = self._drain_to_send, None
            return wire.BrokerMessage(drain=drain)
        if self._idle_to_send is not None:
            idle, self._idle_to_send = self._idle_to_send, None
            return wire.BrokerMessage(idle=idle)
        if self._drained_to_send:
            return wire.BrokerMessage(drained=self._next_drained())
        if self._loads_to_send is not None:
            loads, self._loads_to_send = self._loads_to_send, None
            return wire.BrokerMessage(loads=loads)
        page = next(self._held_to_send, None) if self._held_to_send is not None else None
        return None if page is None else wire.BrokerMessage(held=page)

    def _next_drained(self) -> wire.DrainedUnits:
        page = list(islice(self._drained_to_send, DRAINED_UNITS_PER_MESSAGE_MAX))
        for unit in page:
            del self._drained_to_send[unit]
        return wire.DrainedUnits(units=map(drained_to_proto, page))


def _idle_unit(unit: Assignment) -> wire.IdleUnit:
    return wire.IdleUnit(
        topic_id=unit.topic.topic_id, unit=unit.unit, name=unit.name, epoch=unit.epoch
    )


_closing_channels: set[asyncio.Task[None]] = set()
"""References that keep a closing channel from being garbage-collected half way."""
