"""Where a subscription that does not exist yet begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokers.domain.position import Position
from brokers.domain.subscriptions.cursor import before
from brokers.ports.ledger import TopicLedger

_EARLIEST_IDS = frozenset({-1, 2**64 - 1})
_LATEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SubscriptionStart:
    """A SUBSCRIBE, as far as it is about a new subscription."""

    is_durable: bool = True
    position: Position | None = None
    """``start_message_id`` as it came. Durable subscriptions take no notice of it."""
    batch_index: int = -1
    """``start_message_id``'s. The entry is sent whole either way; the client skips its part."""
    is_earliest: bool = False
    """``initialPosition`` is Earliest: used where ``position`` is not."""
    rollback_seconds: int = 0
    """If not 0: begin with what was published within these last seconds."""
    properties: Mapping[str, str] = field(default_factory=dict)


def is_earliest(position: Position) -> bool:
    """Return whether a client means the beginning of the topic: -1, signed or not."""
    return position.ledger_id in _EARLIEST_IDS


def is_latest(position: Position) -> bool:
    """Return whether a client means what is published from here on: Java's largest long."""
    return position.ledger_id == _LATEST_ID


async def start_of(start: SubscriptionStart, ledger: TopicLedger, now_ms: int) -> Position:
    """Return the mark-delete position to begin with.

    A start message's own entry is sent: clients drop what they did not ask for themselves,
    depending on whether it is to be included and on the batch index.
    """
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
