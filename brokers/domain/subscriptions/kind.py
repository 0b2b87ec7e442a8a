"""The kinds of subscription, numbered as in Pulsar's SUBSCRIBE."""

from __future__ import annotations

from enum import IntEnum


class SubscriptionKind(IntEnum):
    """How the consumers of one subscription share its messages."""

    EXCLUSIVE = 0
    """One consumer; a second is refused."""
    SHARED = 1
    """Every message goes to one of them, in turn."""
    FAILOVER = 2
    """One of them gets everything, in order; the others wait for it to go."""
    KEY_SHARED = 3
    """Every key stays with one of them, in order."""

    @property
    def is_single_active(self) -> bool:
        """Whether one consumer at a time gets all messages, so that order holds throughout."""
        return self in (SubscriptionKind.EXCLUSIVE, SubscriptionKind.FAILOVER)
