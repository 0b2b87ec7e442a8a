"""Requests and updates of a stream between brokers, as protobuf messages.

A large update is sent in parts, each a message of its own kind; merged they are the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from brokers.domain.position import Position
from brokers.ports.ledger import Entry, Extent
from brokers.ports.source_feed import SourceAway, SourceChange, SourceState
from brokers.ports.source_stream import (
    FeedCredit,
    FollowSource,
    ShadowReport,
    SourceChanged,
    SourceFed,
    SourceLeft,
    SourceRequest,
    SourceUpdate,
    UnfollowSource,
)
from nextgen.kernel.errors import ConnectionLost, InvalidRequest
from nextgen.kernel.limits.shadow import (
    FEED_ITEM_BYTES_MAX,
    FEED_MESSAGE_BYTES,
    FEED_REQUESTS_PER_MESSAGE_MAX,
)
from protos.nextgen.v1 import broker_service_pb2 as wire

_Value = TypeVar("_Value")

_EXTENTS_PER_PART = 5_000
"""Some 30 bytes each."""

_SHADOWS_PER_PART = 250
"""Names, of a kilobyte at worst."""

_FACTS_BYTES_PER_PART = FEED_MESSAGE_BYTES // 2


def request_to_proto(request: SourceRequest) -> wire.SourceRequest:
    """Return a request as it is sent."""
    match request:
        case FollowSource():
            follow = wire.FollowSource(source=request.source, shadow=request.shadow)
            return wire.SourceRequest(feed_id=request.feed_id, follow=follow)
        case UnfollowSource():
            return wire.SourceRequest(feed_id=request.feed_id, unfollow=request.shadow)
        case ShadowReport():
            at = request.acknowledged
            report = wire.ShadowReport(
                shadow=request.shadow, acknowledged=None if at is None else _to_position(at)
            )
            return wire.SourceRequest(feed_id=request.feed_id, report=report)
        case FeedCredit():
            return wire.SourceRequest(credit_bytes=request.size_bytes)


def requests_from_proto(message: wire.SourceRequests) -> Iterator[SourceRequest]:
    """Yield the requests of a message.

    Raises:
        InvalidRequest: No broker sends such a message.
    """
    if len(message.requests) > FEED_REQUESTS_PER_MESSAGE_MAX:
        raise InvalidRequest(
            f"{len(message.requests)} requests in one message, "
            f"at most {FEED_REQUESTS_PER_MESSAGE_MAX} may be"
        )
    return map(_request, message.requests)


def _request(request: wire.SourceRequest) -> SourceRequest:
    match request.WhichOneof("body"):
        case "follow":
            return FollowSource(request.feed_id, request.follow.source, request.follow.shadow)
        case "unfollow":
            return UnfollowSource(request.feed_id, request.unfollow)
        case "report":
            report = request.report
            at = _position(report.acknowledged) if report.HasField("acknowledged") else None
            return ShadowReport(request.feed_id, report.shadow, at)
        case "credit_bytes":
            return FeedCredit(request.credit_bytes)
    raise InvalidRequest("a request of a kind that this release does not know")


def messages_of(updates: Iterable[SourceUpdate]) -> Iterator[wire.SourceUpdates]:
    """Yield updates, in order, as messages of some ``FEED_MESSAGE_BYTES``."""
    message, size = wire.SourceUpdates(), 0
    for update in updates:
        for part in _parts(update):
            added = part.ByteSize()
            if size and size + added > FEED_MESSAGE_BYTES:
                yield message
                message, size = wire.SourceUpdates(), 0
            message.updates.append(part)
            size += added
    if size:
        yield message


def _parts(update: SourceUpdate) -> Iterator[wire.SourceUpdate]:
    found = list(_bodies(update))
    for number, part in enumerate(found, start=1):
        part.feed_id = update.feed_id
        part.more = number < len(found)
        yield part


def _bodies(update: SourceUpdate) -> Iterator[wire.SourceUpdate]:
    match update:
        case SourceChanged():
            yield from _change_bodies(update.change)
        case SourceFed():
            yield from _state_bodies(update.shadows, update.state)
        case SourceLeft():
            for names in _slices(update.shadows, _SHADOWS_PER_PART):
                left = wire.SourceLeft(
                    shadows=names, reason=update.reason.value, message=update.message
                )
                yield wire.SourceUpdate(left=left)


def _change_bodies(change: SourceChange) -> Iterator[wire.SourceUpdate]:
    first = change.first_ledger_id
    for number, extents in enumerate(_slices(change.extents, _EXTENTS_PER_PART)):
        body = wire.SourceChanged(
            first_ledger_id=first,
            extents=map(_to_extent, extents),
            # Nearly every change is this one part.
            entries=map(_to_entry, () if number else change.entries),
        )
        yield wire.SourceUpdate(changed=body)
    if change.facts is not None:
        for facts in _fact_slices(change.facts):
            body = wire.SourceChanged(first_ledger_id=first, facts_changed=True, facts=facts)
            yield wire.SourceUpdate(changed=body)


def _state_bodies(shadows: Sequence[str], state: SourceState) -> Iterator[wire.SourceUpdate]:
    def part(**fields: object) -> wire.SourceUpdate:
        ids = {"topic_id": state.topic_id, "unit": state.unit, "epoch": state.epoch}
        return wire.SourceUpdate(fed=wire.SourceFed(**ids, **fields))  # type: ignore[arg-type]

    for names in _slices(shadows, _SHADOWS_PER_PART):
        yield part(shadows=names)
    for extents in _slices(state.extents, _EXTENTS_PER_PART):
        yield part(extents=map(_to_extent, extents))
    for facts in _fact_slices(state.facts):
        yield part(facts=facts)


class UpdateReader:
    """Reads the updates of one stream, and joins their parts."""

    def __init__(self) -> None:
        self._begun: wire.SourceUpdate | None = None
        self._size = 0

    def updates(self, message: wire.SourceUpdates) -> Iterator[SourceUpdate]:
        """Yield the updates that are whole with this message.

        Raises:
            ConnectionLost: No source sends such a message.
        """
        for part in message.updates:
            whole = self._joined(part)
            if whole is not None:
                yield _update(whole)

    def _joined(self, part: wire.SourceUpdate) -> wire.SourceUpdate | None:
        begun = self._begun
        if begun is None:
            if not part.more:
                return part
            self._begun, self._size = wire.SourceUpdate(), 0
            begun = self._begun
        elif (begun.feed_id, begun.WhichOneof("body")) != (part.feed_id, part.WhichOneof("body")):
            raise ConnectionLost("an update of a source ends within its parts")
        self._size += part.ByteSize()
        if self._size > FEED_ITEM_BYTES_MAX:
            raise ConnectionLost(f"an update of a source has more than {FEED_ITEM_BYTES_MAX} bytes")
        begun.MergeFrom(part)
        if part.more:
            return None
        self._begun = None
        return begun


def _update(update: wire.SourceUpdate) -> SourceUpdate:
    match update.WhichOneof("body"):
        case "changed":
            return SourceChanged(update.feed_id, _change(update.changed))
        case "fed":
            fed = update.fed
            state = SourceState(
                fed.topic_id, fed.unit, fed.epoch, _extents(fed.extents), dict(fed.facts)
            )
            return SourceFed(update.feed_id, tuple(fed.shadows), state)
        case "left":
            left = update.left
            return SourceLeft(
                update.feed_id, tuple(left.shadows), _reason(left.reason), left.message
            )
    raise ConnectionLost("an update of a kind that this release does not know")


def _change(changed: wire.SourceChanged) -> SourceChange:
    extents = _extents(changed.extents)
    entries = [_entry(each) for each in changed.entries]
    positions = [each.position for each in entries]
    if any(after <= before for before, after in pairwise(positions)):
        raise ConnectionLost("entries of a source are not in order")
    if entries:
        last = extents[-1] if extents else None
        end = None if last is None else Position(last.ledger_id, last.entries - 1)
        if positions[-1] != end:
            raise ConnectionLost("the entries of a source do not end where it ends")
    return SourceChange(
        first_ledger_id=changed.first_ledger_id,
        extents=extents,
        entries=entries,
        facts=dict(changed.facts) if changed.facts_changed else None,
    )


def _reason(reason: str) -> SourceAway:
    try:
        return SourceAway(reason)
    except ValueError:
        # Of a later release: looking for the source again is never wrong.
        return SourceAway.MOVED


def _extents(extents: Iterable[wire.SourceExtent]) -> list[Extent]:
    found = [
        Extent(each.ledger_id, each.entries, each.bytes, each.first_time_ms, each.last_time_ms)
        for each in extents
    ]
    if any(not each.entries or each.ledger_id < 0 for each in found) or any(
        after.ledger_id <= before.ledger_id for before, after in pairwise(found)
    ):
        raise ConnectionLost("ledgers of a source are not in order")
    return found


def _to_extent(extent: Extent) -> wire.SourceExtent:
    return wire.SourceExtent(
        ledger_id=extent.ledger_id,
        entries=extent.entries,
        bytes=extent.size_bytes,
        first_time_ms=extent.first_time_ms,
        last_time_ms=extent.last_time_ms,
    )


def _to_entry(entry: Entry) -> wire.SourceEntry:
    return wire.SourceEntry(
        position=_to_position(entry.position),
        payload=entry.payload,
        message_count=entry.message_count,
        publish_time_ms=entry.publish_time_ms,
        producer_name=entry.producer_name,
        sequence_id=entry.sequence_id,
    )


def _entry(entry: wire.SourceEntry) -> Entry:
    return Entry(
        position=_position(entry.position),
        payload=entry.payload,
        message_count=entry.message_count,
        publish_time_ms=entry.publish_time_ms,
        producer_name=entry.producer_name,
        sequence_id=entry.sequence_id,
    )


def _to_position(position: Position) -> wire.MessagePosition:
    return wire.MessagePosition(ledger_id=position.ledger_id, entry_id=position.entry_id)


def _position(position: wire.MessagePosition) -> Position:
    return Position(position.ledger_id, position.entry_id)


def _slices(values: Sequence[_Value], size: int) -> Iterator[Sequence[_Value]]:
    """Yield slices, one that is empty if there are no values."""
    for begin in range(0, max(len(values), 1), size):
        yield values[begin : begin + size]


def _fact_slices(facts: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    part: dict[str, bytes] = {}
    size = 0
    for key, value in facts.items():
        added = len(key) + len(value)
        if part and size + added > _FACTS_BYTES_PER_PART:
            yield part
            part, size = {}, 0
        part[key] = value
        size += added
    yield part
