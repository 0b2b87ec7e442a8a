"""Words of scalable topics that are stored: their texts never change."""

from __future__ import annotations

from enum import StrEnum


class ChangeKind(StrEnum):
    """How a layout changes."""

    SPLIT = "split"
    MERGE = "merge"
    REBUCKET = "rebucket"
    RESTORE = "restore"
    """After a restore: every segment of the backup ends, and others take the messages."""
    MIGRATE = "migrate"
    """A classic topic's partitions are sealed; as many segments of its own follow them."""

    PRUNE = "prune"


class SubscriptionType(StrEnum):
    """How a subscription's consumers share the segments."""

    STREAM = "stream"
    """In order of each key: a segment follows its parents once they are drained."""

    QUEUE = "queue"
    """Every consumer has every segment; none is registered."""

    CHECKPOINT = "checkpoint"
    """Consumers keep their positions themselves, so there are no cursors."""


class SubscriptionPhase(StrEnum):
    """The phase of a subscription: whether its cursors are complete, or which change is pending."""

    CREATING = "creating"
    SEEKING = "seeking"
    LIVE = "live"
    DELETING = "deleting"
