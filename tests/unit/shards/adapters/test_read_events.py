"""``ReadEvents`` over real gRPC: a reader that stops reading holds back itself, and only itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from nextgen.kernel.limits.stream import EVENTS_PAGE_BYTES_MAX
from nextgen.replication.ports import AppliedPoint, Entry, Record
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.event_bytes_pb2 import EventBatchBytes
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub
from shards.adapters.shard_servicer import SERVICE_NAME
from shards.node.event_stream import stream_events
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog

EVENTS = 20_000
EVENT_BYTES = 2_000
WINDOW_BYTES_MAX = 16 * 1024 * 1024
"""What gRPC may keep on both sides of a stream, at most: a stream's window grows."""

STILL_TURNS = 50
COMMITS = 200
CHUNK = 500


class NoView(DictStateMachine):
    """Folds nothing: what is read here is the log."""

    def apply(self, entries: Sequence[Entry]) -> None:
        last = entries[-1]
        self._point = AppliedPoint(last.index, last.term, last.next_position - 1)


class OneReplica:
    """A replica of one log, as far as a stream of events needs it."""

    shard_id = 1

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.handed_out_bytes = 0
        self._committed = asyncio.Event()
        log.on_commit(self._on_commit)

    async def wait_commit(self) -> None:
        await self._committed.wait()

    async def read_events(
        self, request: pb.ReadEventsRequest, _context: Any
    ) -> AsyncIterator[EventBatchBytes]:
        async for batch in stream_events(self, request):  # type: ignore[arg-type]
            self.handed_out_bytes += batch.ByteSize()
            assert batch.ByteSize() <= 2 * EVENTS_PAGE_BYTES_MAX
            yield batch

    async def fill(self) -> None:
        for first in range(0, EVENTS, CHUNK):
            chunk = range(first, first + CHUNK)
            await asyncio.gather(*(self.log.propose(record(each)) for each in chunk))

    def _on_commit(self, _entries: Sequence[Entry]) -> None:
        committed, self._committed = self._committed, asyncio.Event()
        committed.set()


def record(number: int) -> Record:
    event = events_pb.Event(topic_created={"name": f"t-{number}", "topic_id": "x" * EVENT_BYTES})
    decided = events_pb.DecidedCommand(time_ms=1, events=[event])
    return Record(decided.SerializeToString(), 1)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[OneReplica, ShardServiceStub]]:
    replica = OneReplica(MemoryLog(NoView()))
    server = grpc.aio.server()
    handler = grpc.unary_stream_rpc_method_handler(
        replica.read_events,
        request_deserializer=pb.ReadEventsRequest.FromString,
        response_serializer=EventBatchBytes.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE_NAME, {"ReadEvents": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield replica, ShardServiceStub(channel)
    await server.stop(None)


async def standing_still(replica: OneReplica) -> int:
    """Return what was handed out once nothing more is."""
    unchanged, before = 0, -1
    while unchanged < STILL_TURNS:
        await asyncio.sleep(0.02)
        unchanged = unchanged + 1 if replica.handed_out_bytes == before else 0
        before = replica.handed_out_bytes
    return before


async def test_a_reader_that_stops_reading_is_sent_a_window_and_no_more() -> None:
    async with serving() as (replica, stub):
        await replica.fill()
        stalled = stub.ReadEvents(pb.ReadEventsRequest(shard_id=1, follow=True))
        first = await stalled.read()
        assert first.events[0].position == 1

        handed_out = await standing_still(replica)

        # Commits go on, and nothing of them is kept for the reader: its pin keeps the log.
        for number in range(COMMITS):
            await replica.log.propose(record(number))
        assert replica.handed_out_bytes == handed_out
        assert handed_out < WINDOW_BYTES_MAX < EVENTS * EVENT_BYTES / 2
        assert replica.log.status.log_pins == 1

        # It goes on where it stopped, without a gap.
        expected = first.next_position
        while expected <= EVENTS + COMMITS:
            batch = await stalled.read()
            for event in batch.events:
                assert event.position == expected
                expected += 1
        stalled.cancel()


async def test_another_reader_is_not_held_back() -> None:
    async with serving() as (replica, stub):
        await replica.fill()
        stalled = stub.ReadEvents(pb.ReadEventsRequest(shard_id=1))
        await stalled.read()
        await standing_still(replica)

        async with timeout(30):
            seen = 0
            async for batch in stub.ReadEvents(pb.ReadEventsRequest(shard_id=1)):
                seen += len(batch.events)

        assert seen == EVENTS
        stalled.cancel()
