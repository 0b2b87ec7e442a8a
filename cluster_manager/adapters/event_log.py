"""``ReadEvents`` and ``PinLog`` of ``ShardService`` for shard 0, by which tools read group 0's log.

The other methods of ``ShardService`` answer UNIMPLEMENTED here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from nextgen.client.log.event_bytes import EventFilter
from nextgen.client.log.pins import answer_pin_log
from nextgen.client.log.wire import filled_events
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    PositionAhead,
    PositionCompacted,
)
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, Entry, ReplicatedLog
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb

SERVICE_NAME = "nextgen.v1.ShardService"

BATCH_EVENTS_MAX = 500
"""Events in one answer."""

BATCH_BYTES_MAX = 1024 * 1024
"""Bytes of entries read at once. With their log indexes they stay below one gRPC message."""

Context = grpc.aio.ServicerContext[Any, Any]


class EventLogServicer:
    """Reads committed events from this replica, leader or not."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with ``server``. gRPC answers unregistered methods with UNIMPLEMENTED."""
        read_events = grpc.unary_stream_rpc_method_handler(
            self.ReadEvents,
            request_deserializer=shard_pb.ReadEventsRequest.FromString,
            response_serializer=shard_pb.EventBatch.SerializeToString,
        )
        pin_log = grpc.unary_unary_rpc_method_handler(
            self.PinLog,
            request_deserializer=shard_pb.PinLogRequest.FromString,
            response_serializer=shard_pb.PinLogResponse.SerializeToString,
        )
        handlers = {"ReadEvents": read_events, "PinLog": pin_log}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),)
        )

    async def PinLog(
        self, request: shard_pb.PinLogRequest, _context: Context
    ) -> shard_pb.PinLogResponse:
        """Pin the log for a named reader, and list the readers; see ``answer_pin_log``."""
        try:
            _check_shard(request.shard_id)
            return await answer_pin_log(self._log, request)
        except MetadataError as error:
            return shard_pb.PinLogResponse(error=to_detail(error))

    async def ReadEvents(
        self, request: shard_pb.ReadEventsRequest, context: Context
    ) -> AsyncIterator[shard_pb.EventBatch]:
        """Send events from ``from_position`` on; with ``follow`` until the caller disconnects."""
        try:
            _check_shard(request.shard_id)
            await self._check_position(request.from_position)
            wanted = EventFilter(request.types, request.key_prefix)
            async for batch in self._batches(request, wanted):
                yield batch
        except MetadataError as error:
            refusal = shard_pb.EventBatch(error=to_detail(error))
            if isinstance(error, PositionCompacted):
                refusal.oldest_position = error.oldest
            elif isinstance(error, PositionAhead):
                refusal.commit_position = error.last
            yield refusal

    async def _check_position(self, position: int) -> None:
        """Refuse a position beyond the next one. Only a confirmed leader's refusal is final."""
        if position <= self._log.commit_position + 1:
            return
        if self._log.is_leader:
            await self._log.read_index()
        last = self._log.commit_position
        if position > last + 1:
            raise PositionAhead(position, last, is_final=self._log.is_leader)

    async def _batches(
        self, request: shard_pb.ReadEventsRequest, wanted: EventFilter
    ) -> AsyncIterator[shard_pb.EventBatch]:
        committed = asyncio.Event()

        def on_commit(_entries: Sequence[Entry]) -> None:
            committed.set()

        position, left = max(1, request.from_position), request.events_max or None
        pin = self._log.pin("events", position)
        unsubscribe = self._log.on_commit(on_commit)
        try:
            while left is None or left > 0:
                committed.clear()
                entries = self._log.read(
                    position, events_max=BATCH_EVENTS_MAX, bytes_max=BATCH_BYTES_MAX
                )
                events, position = _selected(entries, position, wanted, left)
                pin.advance(position)
                if left is not None:
                    left -= len(events)
                if events or entries:
                    yield self._batch(events, position)
                elif request.follow:
                    await committed.wait()
                else:
                    yield self._batch((), position)
                    return
        finally:
            unsubscribe()
            pin.release()

    def _batch(self, events: Sequence[events_pb.Event], next_position: int) -> shard_pb.EventBatch:
        return shard_pb.EventBatch(
            events=events,
            next_position=next_position,
            commit_position=self._log.commit_position,
        )


def _check_shard(shard_id: int) -> None:
    if shard_id != CLUSTER_MANAGER_GROUP_ID:
        raise InvalidRequest(f"the cluster manager has the log of shard 0, not {shard_id}")


def _selected(
    entries: Sequence[Entry], position: int, wanted: EventFilter, left: int | None
) -> tuple[list[events_pb.Event], int]:
    """Return at most ``left`` wanted events from ``position`` on, and the next position to read."""
    selected: list[events_pb.Event] = []
    for entry in entries:
        for event in filled_events(entry, shard_id=0):
            if event.position < position:
                continue
            if left is not None and len(selected) >= left:
                return selected, position
            position = event.position + 1
            if wanted.matches(event):
                selected.append(event)
    return selected, position
