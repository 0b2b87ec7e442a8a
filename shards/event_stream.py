"""The event log of one shard as a stream, from any replica."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from nextgen.client.log_wire import filled_events
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits import EVENTS_BATCH_BYTES_MAX, EVENTS_PER_BATCH_MAX
from nextgen.replication.ports import LogPin
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import EventBatch, ReadEventsRequest
from shards.replica import Replica

_TYPES = frozenset(payload.name for payload in Event.DESCRIPTOR.oneofs_by_name["payload"].fields)


async def stream_events(replica: Replica, request: ReadEventsRequest) -> AsyncIterator[EventBatch]:
    """Yield events from ``request.from_position`` on, in order, each position at most once.

    Ends at the present unless ``follow``, and after ``events_max`` matching events. A batch may
    be empty: ``next_position`` says how far the log was read.

    Raises:
        PositionCompacted: The position is no longer in the log, or was cut off while the
            reader was slower than ``PINNED_LOG_BYTES_MAX`` allows.
        Overloaded: Too many read already.
        InvalidRequest: A type does not exist.
    """
    types = _checked_types(request.types)
    position = max(1, request.from_position)
    # A reader that is slow must not have the log cut off before it.
    pin = replica.log.pin("events", position)
    try:
        async for batch in _stream(replica, request, types, position, pin):
            yield batch
    finally:
        pin.release()


async def _stream(
    replica: Replica,
    request: ReadEventsRequest,
    types: frozenset[str],
    position: int,
    pin: LogPin,
) -> AsyncIterator[EventBatch]:
    left = request.events_max or None
    while left is None or left > 0:
        entries = replica.log.read(
            position, events_max=EVENTS_PER_BATCH_MAX, bytes_max=EVENTS_BATCH_BYTES_MAX
        )
        if not entries:
            if not request.follow:
                return
            await replica.wait_commit()
            continue
        events = [
            event
            for entry in entries
            for event in filled_events(entry, replica.shard_id)
            if event.position >= position and (not types or event.WhichOneof("payload") in types)
        ]
        position = entries[-1].next_position
        pin.advance(position)
        if left is not None:
            del events[left:]
            left -= len(events)
        for batch in _batches(events, position):
            yield batch


def _batches(events: Sequence[Event], next_position: int) -> Iterator[EventBatch]:
    """Yield ``events`` in messages of a bounded size; the last one ends at ``next_position``."""
    batch = EventBatch()
    size = 0
    for event in events:
        event_size = event.ByteSize()
        is_full = len(batch.events) == EVENTS_PER_BATCH_MAX
        if batch.events and (is_full or size + event_size > EVENTS_BATCH_BYTES_MAX):
            batch.next_position = event.position
            yield batch
            batch, size = EventBatch(), 0
        batch.events.append(event)
        size += event_size
    batch.next_position = next_position
    yield batch


def _checked_types(types: Sequence[str]) -> frozenset[str]:
    unknown = set(types) - _TYPES
    if unknown:
        raise InvalidRequest(f"there is no event type {min(unknown)!r}")
    return frozenset(types)
