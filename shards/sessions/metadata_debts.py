"""What one home shard said and brokers have not synced: how far that has taken effect.

A change that is told at a position is owed to each session that has the object, from when it is
put into the session's sequence, or has to wait for room there, until the broker has synced it or
the session has ended. One that is told by a snapshot may be as old as the log: until it is paid,
nothing that was said has taken effect.
"""

from __future__ import annotations

from shards.sessions.session_metadata import DeliverySequence

_PRUNED_AT_MIN = 1_024
"""Debts below which it is not worth looking which of them are paid."""


class Debt:
    """One delivery of one change. ``sequence`` is None while it has no place in the sequence."""

    __slots__ = ("position", "sequence", "session")

    def __init__(self, position: int, session: DeliverySequence, sequence: int | None) -> None:
        self.position = position
        self.session = session
        self.sequence = sequence

    @property
    def is_paid(self) -> bool:
        if self.session.ended is not None:
            return True
        return self.sequence is not None and self.sequence <= self.session.acked


class MetadataDebts:
    """What is owed by what one home shard said, for one term."""

    def __init__(self) -> None:
        self._debts: list[Debt] = []
        self._pruned_at = _PRUNED_AT_MIN

    def __len__(self) -> int:
        return len(self._debts)

    def owe(self, position: int, session: DeliverySequence, sequence: int | None) -> Debt:
        """Note that what was said at ``position`` has to reach a session's broker."""
        debt = Debt(position, session, sequence)
        self._debts.append(debt)
        if len(self._debts) >= self._pruned_at:
            self._prune()
            self._pruned_at = max(_PRUNED_AT_MIN, 2 * len(self._debts))
        return debt

    def in_effect(self, position: int) -> int:
        """Return up to where everything has taken effect, of what was said up to ``position``."""
        self._prune()
        return min((debt.position - 1 for debt in self._debts), default=position)

    def _prune(self) -> None:
        self._debts = [debt for debt in self._debts if not debt.is_paid]
