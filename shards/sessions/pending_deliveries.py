"""Changes of one home shard that brokers have not synced yet, and the position up to which every
change is in effect.

A change of an object is a pending delivery to each session whose broker holds the object. It is
pending from when it enters the session's sequence, or waits for room there, until the broker has
synced it or the session has ended. A change that a snapshot brought counts as position 0: while
its delivery is pending, no position of the shard is in effect.
"""

from __future__ import annotations

from shards.sessions.session_metadata import DeliverySequence

_PRUNED_AT_MIN = 1_024
"""With fewer deliveries a search for finished ones is not worth its cost."""


class PendingDelivery:
    """One delivery of one change. ``sequence`` is None while it has no place in the sequence."""

    __slots__ = ("position", "sequence", "session")

    def __init__(self, position: int, session: DeliverySequence, sequence: int | None) -> None:
        self.position = position
        self.session = session
        self.sequence = sequence

    @property
    def is_done(self) -> bool:
        """Whether the broker has synced it, or its session has ended."""
        if self.session.ended is not None:
            return True
        return self.sequence is not None and self.sequence <= self.session.acked


class PendingDeliveries:
    """The pending deliveries of one home shard's changes, for one term."""

    def __init__(self) -> None:
        self._pending: list[PendingDelivery] = []
        self._pruned_at = _PRUNED_AT_MIN

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self, position: int, session: DeliverySequence, sequence: int | None
    ) -> PendingDelivery:
        """Note that the change at ``position`` has to reach a session's broker."""
        delivery = PendingDelivery(position, session, sequence)
        self._pending.append(delivery)
        if len(self._pending) >= self._pruned_at:
            self._prune()
            self._pruned_at = max(_PRUNED_AT_MIN, 2 * len(self._pending))
        return delivery

    def in_effect(self, position: int) -> int:
        """Return the position up to which every change is in effect at the brokers, at most
        ``position``."""
        self._prune()
        return min((delivery.position - 1 for delivery in self._pending), default=position)

    def _prune(self) -> None:
        self._pending = [delivery for delivery in self._pending if not delivery.is_done]
