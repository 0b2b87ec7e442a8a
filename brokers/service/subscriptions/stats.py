"""The statistics of a subscription, for operators and for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokers.domain.position import Position
from brokers.domain.subscriptions.kind import SubscriptionKind


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """The statistics of a subscription for ``nextgen topics stats``."""

    name: str
    kind: SubscriptionKind
    is_durable: bool
    consumers: int
    backlog_entries: int
    """Number of unacknowledged entries, sent ones included."""
    unacked_messages: int
    """Number of sent, unacknowledged messages; 0 for Exclusive and Failover, as in Pulsar."""
    delayed_entries: int
    mark_delete: Position
    messages_out: int
    bytes_out: int
    properties: Mapping[str, str] = field(default_factory=dict)
