"""The kinds of subscription, numbered as in Pulsar's SUBSCRIBE."""

from __future__ import annotations

from enum import IntEnum


class SubscriptionKind(IntEnum):
    """How the consumers of one subscription share its messages."""

    EXCLUSIVE = 0
    """One consumer; a second is refused."""
    SHARED = 1
    """Each message goes to one of the consumers, in turn."""
    FAILOVER = 2
    """One consumer gets all messages, in order; the others take over when it leaves."""
    KEY_SHARED = 3
    """All messages of a key go to one of the consumers, in order."""

    @property
    def is_single_active(self) -> bool:
        """Whether one consumer at a time gets all messages, so that they stay in order."""
        return self in (SubscriptionKind.EXCLUSIVE, SubscriptionKind.FAILOVER)
