"""What a topic keeps, how much may wait to be consumed, and what producers may bring.

``effective`` lays what tenants, namespaces and topics say over what the broker's own
configuration says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from brokers.domain.position import Position
from nextgen.kernel.governance.policies import (
    FOR_EVER,
    BacklogAction,
    Policies,
    SchemaCompatibility,
)

NO_BOUND = 0
"""Of a backlog: it may be as large as it likes. Of a time to live: messages do not expire."""

_EVICTED_TO_PERCENT = 90
"""Of its quota, a backlog that is cut keeps so much, so that not every look cuts it again: as
Pulsar does."""

_LAST_ENTRY = 2**62
"""Not lower than the last entry of any ledger."""


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """Of one topic; a broker's own is what counts where nobody says anything."""

    retention_ms: int
    """What every durable subscription has acknowledged is kept so long, and then dropped;
    ``FOR_EVER``."""

    retention_bytes: int
    """And only as long as it is among so many newest bytes of the topic; ``FOR_EVER``: all."""

    backlog_bytes_max: int
    """What the slowest durable subscription may have before it; ``NO_BOUND``."""

    backlog_action: BacklogAction = BacklogAction.PRODUCER_EXCEPTION
    """What is done when it has more."""

    message_ttl_ms: int = NO_BOUND
    """What is older counts as acknowledged by every durable subscription; ``NO_BOUND``."""

    deduplicates: bool = True
    """Whether a message that comes again, by its producer's count, is stored once."""

    schema_compatibility: SchemaCompatibility = SchemaCompatibility.FULL
    """How the next version of the topic's schema must go with those before it."""

    @property
    def keeps_by_time(self) -> bool:
        """Whether what is acknowledged becomes too old to be kept."""
        return self.retention_ms != FOR_EVER

    @property
    def keeps_by_size(self) -> bool:
        """Whether what is acknowledged becomes too much to be kept."""
        return self.retention_bytes != FOR_EVER

    def allows_backlog(self, backlog_bytes: int) -> bool:
        """Return whether a subscription may have so much before it."""
        return self.backlog_bytes_max == NO_BOUND or backlog_bytes <= self.backlog_bytes_max


def effective(policies: Policies, own: StoragePolicy) -> StoragePolicy:
    """Return the policy in force for a topic: ``policies``, completed from the broker's ``own``.

    ``policies`` is the merge of what the topic, its namespace and its tenant set.
    """
    retention, quota = policies.retention, policies.backlog_quota
    return StoragePolicy(
        retention_ms=_value_or(retention.time_ms, own.retention_ms),
        retention_bytes=_value_or(retention.size_bytes, own.retention_bytes),
        backlog_bytes_max=_value_or(quota.size_bytes, own.backlog_bytes_max),
        backlog_action=quota.action or own.backlog_action,
        message_ttl_ms=_value_or(policies.message_ttl_ms, own.message_ttl_ms),
        deduplicates=own.deduplicates if policies.deduplication is None else policies.deduplication,
        schema_compatibility=policies.schema_compatibility or own.schema_compatibility,
    )


def entries_kept_at_eviction(policy: StoragePolicy, entry_count: int, byte_count: int) -> int:
    """Return how many newest entries a backlog that is cut keeps, by the average of what is kept.

    ``entry_count`` entries have ``byte_count`` bytes; both are above 0.
    """
    return policy.backlog_bytes_max * _EVICTED_TO_PERCENT * entry_count // (100 * byte_count)


def position_before_newest(
    count: int,
    first: Position,
    last: Position,
    entries_between: Callable[[Position, Position], int],
) -> Position:
    """Return the lowest position that at most ``count`` of the entries up to ``last`` are behind.

    ``first`` and ``last`` are those of the kept entries; ``entries_between`` is the ledger's.
    """

    def is_high_enough(ledger_id: int, entry_id: int) -> bool:
        return entries_between(Position(ledger_id, entry_id), last) <= count

    ledger_id = _lowest(
        first.ledger_id, last.ledger_id, lambda each: is_high_enough(each, _LAST_ENTRY)
    )
    begin = Position(ledger_id, -1)
    entries = entries_between(begin, Position(ledger_id, _LAST_ENTRY))
    highest = entries + max(first.entry_id, 0)
    entry_id = _lowest(-1, highest, lambda each: is_high_enough(ledger_id, each))
    return Position(ledger_id, entry_id)


def _lowest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the lowest number of ``low`` to ``high`` that ``holds`` is true of, else ``high``.

    Where it is true of one it is true of all above.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _value_or(value: int | None, default: int) -> int:
    return default if value is None else value
