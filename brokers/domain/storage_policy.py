"""A topic's policy: retention, backlog, deduplication, schema compatibility, limits of clients.

``effective`` overrides the broker's own configuration by the policies of tenants, namespaces and
topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from brokers.domain.position import Position
from nextgen.kernel.governance.client_limits import NO_LIMITS, TopicLimits, limits_of
from nextgen.kernel.governance.policies import (
    FOR_EVER,
    NO_RULES,
    BacklogAction,
    Policies,
    SchemaCompatibility,
)

NO_BOUND = 0
"""No limit: for a backlog, any size; for a time to live, messages do not expire."""

_EVICTED_TO_PERCENT = 90
"""Part of its quota to which a backlog is cut, so that not every check cuts it again. The same as
in Pulsar."""

_LAST_ENTRY = 2**62
"""At or above the last entry of any ledger."""


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """The policy of one topic. A broker's own applies where no object sets a value."""

    retention_ms: int
    """Time to keep messages that every durable subscription has acknowledged; or ``FOR_EVER``."""

    retention_bytes: int
    """Such messages are kept only among this many newest bytes of the topic; ``FOR_EVER``: all."""

    backlog_bytes_max: int
    """Bytes of backlog of the slowest durable subscription at most; or ``NO_BOUND``."""

    backlog_action: BacklogAction = BacklogAction.PRODUCER_EXCEPTION
    """The action when the backlog is larger."""

    message_ttl_ms: int = NO_BOUND
    """Older messages count as acknowledged by every durable subscription; or ``NO_BOUND``."""

    deduplicates: bool = True
    """Whether a message that its producer repeats, by its sequence id, is stored once."""

    schema_compatibility: SchemaCompatibility = SchemaCompatibility.FULL
    """How the next version of the topic's schema must be compatible with earlier ones."""

    accepts_schemas: bool = True
    """Whether clients may add versions to the topic's schema. Operators always may."""

    shadow_topics: tuple[str, ...] = ()
    """The shadows that the topic feeds, by their canonical names without a partition."""

    keeps_for_shadows: bool = False
    """Whether entries are kept until each of them has acknowledged them."""

    backlog_reset_entries: int = NO_BOUND
    """Of a shadow: entries of a subscription's backlog at which it continues at the end."""

    limits: TopicLimits = NO_LIMITS
    """What clients may use of the topic."""

    is_bound: bool = False
    """Whether placement rules restrict the topic's brokers. Load reports say so; nothing else reads
    it."""

    @property
    def keeps_by_time(self) -> bool:
        """Whether retention of acknowledged messages is limited by age."""
        return self.retention_ms != FOR_EVER

    @property
    def keeps_by_size(self) -> bool:
        """Whether retention of acknowledged messages is limited by size."""
        return self.retention_bytes != FOR_EVER

    def allows_backlog(self, backlog_bytes: int) -> bool:
        """Return whether a subscription may have a backlog of this size."""
        return self.backlog_bytes_max == NO_BOUND or backlog_bytes <= self.backlog_bytes_max


def effective(policies: Policies, own: StoragePolicy) -> StoragePolicy:
    """Return a topic's effective policy: ``policies``, completed from the broker's ``own``.

    ``policies`` is the merge of the policies of the topic, its namespace and its tenant.
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
        accepts_schemas=(
            own.accepts_schemas
            if policies.schema_auto_update is None
            else policies.schema_auto_update
        ),
        shadow_topics=policies.shadow_topics,
        keeps_for_shadows=(
            own.keeps_for_shadows
            if policies.shadow_backlog_keep is None
            else policies.shadow_backlog_keep
        ),
        backlog_reset_entries=_value_or(
            policies.shadow_backlog_reset_entries, own.backlog_reset_entries
        ),
        limits=limits_of(policies.stored, own.limits) if policies.stored else own.limits,
        is_bound=policies.placement != NO_RULES,
    )


def entries_kept_at_eviction(policy: StoragePolicy, entry_count: int, byte_count: int) -> int:
    """Return how many newest entries a cut backlog keeps, by the average size of entries.

    ``entry_count`` entries have ``byte_count`` bytes; both are above 0.
    """
    return policy.backlog_bytes_max * _EVICTED_TO_PERCENT * entry_count // (100 * byte_count)


def position_before_newest(
    count: int,
    first: Position,
    last: Position,
    entries_between: Callable[[Position, Position], int],
) -> Position:
    """Return the lowest position with at most ``count`` entries between it and ``last``.

    ``first`` and ``last`` are positions of kept entries; ``entries_between`` is the ledger's.
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
    """Return the lowest number from ``low`` to ``high`` for which ``holds``, else ``high``.

    ``holds`` MUST be monotonic: if it is true for a number, it is true for all above.
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
