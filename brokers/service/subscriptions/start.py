"""The start position of a new subscription."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokers.domain.position import Position
from brokers.domain.subscriptions.cursor import before
from brokers.ports.ledger import LedgerReader, TopicLedger

_EARLIEST_IDS = frozenset({-1, 2**64 - 1})
_LATEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SubscriptionStart:
    """The part of a SUBSCRIBE about a new subscription."""

    is_durable: bool = True
    position: Position | None = None
    """``start_message_id``, unchanged. Durable subscriptions ignore it."""
    batch_index: int = -1
    """Batch index of ``start_message_id``. The entry is always sent whole; the client skips a
    part."""
    is_earliest: bool = False
    """Whether ``initialPosition`` is Earliest. It is used if ``position`` is not."""
    mark_delete: Position | None = None
    """The initial mark-delete position that an operator chose; it comes before all the others."""
    rollback_seconds: int = 0
    """If not 0: begin with messages that were published within this many last seconds."""
    properties: Mapping[str, str] = field(default_factory=dict)


def is_earliest(position: Position) -> bool:
    """Return whether the position means the beginning of the topic: -1, signed or not."""
    return position.ledger_id in _EARLIEST_IDS


def is_latest(position: Position) -> bool:
    """Return whether the position means the end of the topic: Java's largest long."""
    return position.ledger_id == _LATEST_ID


async def start_of(start: SubscriptionStart, ledger: TopicLedger, now_ms: int) -> Position:
    """Return the initial mark-delete position.

    The entry of the start message is sent: clients drop messages of it by their inclusive flag and
    the batch index.
    """
    if start.mark_delete is not None:
        return min(start.mark_delete, ledger.last)
    if start.rollback_seconds > 0:
        return await ledger.before_time(now_ms - start.rollback_seconds * 1_000)
    position = None if start.is_durable else start.position
    if position is None:
        return before(ledger.first) if start.is_earliest else ledger.last
    if is_latest(position):
        return ledger.last
    if is_earliest(position):
        return before(ledger.first)
    return min(before(position), ledger.last)


def sought(position: Position, ledger: LedgerReader) -> tuple[Position, Position | None]:
    """Return the mark-delete position that makes ``position`` the next entry, and that entry.

    There is no next entry if ``position`` means an end of the topic.
    """
    if is_latest(position):
        return ledger.last, None
    if is_earliest(position):
        return before(ledger.first), None
    # A client may send any number, but a position below ``BEFORE_ALL`` cannot be stored.
    position = Position(max(position.ledger_id, -1), max(position.entry_id, 0))
    return min(before(position), ledger.last), position
