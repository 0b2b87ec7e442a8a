"""Up to where the shadows of a topic have acknowledged, which may keep the topic's entries.

Shadows report it. While the topic's policy keeps entries for them, the reports are kept in its
ledger's state, so that the next owner keeps the entries too.
"""

from __future__ import annotations

from collections.abc import Collection

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.topic_facts import SHADOW_PREFIX
from brokers.ports.ledger import TopicLedger

KEEPS_NOTHING = Position(2**63 - 1, 2**63 - 1)
"""Behind every entry: nothing is kept for a shadow without durable subscriptions."""


class AcknowledgedByShadows:
    """The positions of one topic's shadows, by their canonical names without a partition.

    Raises:
        ValueError: What the ledger has is no position.
    """

    def __init__(self, ledger: TopicLedger) -> None:
        self._ledger = ledger
        self._stored = {
            key.removeprefix(SHADOW_PREFIX): _position(value)
            for key, value in ledger.state.items()
            if key.startswith(SHADOW_PREFIX)
        }
        self._reported = dict(self._stored)

    def of(self, shadow: str) -> Position | None:
        """Return a shadow's position; ``KEEPS_NOTHING``; or None if it is not known."""
        return self._reported.get(shadow)

    def report(self, shadow: str, acknowledged: Position | None) -> None:
        """Note a shadow's position; None: it has no durable subscription."""
        self._reported[shadow] = KEEPS_NOTHING if acknowledged is None else acknowledged

    def by_all(self, shadows: Collection[str]) -> Position:
        """Return up to where all these have acknowledged. One that never reported has nothing."""
        positions = (self._reported.get(each, BEFORE_ALL) for each in shadows)
        return min(positions, default=KEEPS_NOTHING)

    def store(self, shadows: Collection[str]) -> None:
        """Keep the positions of these shadows in the ledger's state, and forget all others."""
        wanted = {each: at for each in shadows if (at := self._reported.get(each)) is not None}
        for shadow in self._stored.keys() - wanted.keys():
            self._ledger.put_state(SHADOW_PREFIX + shadow, None)
        for shadow, position in wanted.items():
            if self._stored.get(shadow) != position:
                self._ledger.put_state(SHADOW_PREFIX + shadow, _stored(position))
        self._stored = wanted

    def forget_all_but(self, shadows: Collection[str]) -> None:
        """Forget what was reported by shadows that are fed no more."""
        for shadow in self._reported.keys() - set(shadows):
            del self._reported[shadow]


def _stored(position: Position) -> bytes:
    return b"" if position == KEEPS_NOTHING else f"{position}".encode()


def _position(stored: bytes) -> Position:
    if not stored:
        return KEEPS_NOTHING
    ledger_id, entry_id = stored.decode().split(":")
    return Position(int(ledger_id), int(entry_id))
