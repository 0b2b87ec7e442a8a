"""When this process acknowledged messages, by unit and epoch, for the auditor.

    check for a fence ─▶ none ─▶ acknowledged: "as of the moment before the check"

That moment proves ownership: a later owner without a fence at the check had not begun yet. So
intervals of two epochs of one unit never overlap, however late a receipt is sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from nextgen.kernel.limits.placement import ACKNOWLEDGEMENTS_KEPT_MAX

IntervalKey = tuple[str, str, int]
"""Topic id, unit, epoch."""


class Acknowledged:
    """One unit's interval under one epoch. Noting allocates nothing; 0 entries: none yet."""

    __slots__ = ("entries", "first_ns", "key", "last_ns", "topic")

    def __init__(self, key: IntervalKey, topic: str) -> None:
        self.key = key
        self.topic = topic
        self.entries = 0
        self.first_ns = 0
        self.last_ns = 0

    def __repr__(self) -> str:
        return f"<Acknowledged {self.topic} epoch={self.key[2]} entries={self.entries}>"

    def note(self, looked_at_ns: int, entries: int) -> None:
        """Note that entries were acknowledged as of a Unix time."""
        if not self.entries:
            self.first_ns = looked_at_ns
        if looked_at_ns > self.last_ns:
            self.last_ns = looked_at_ns
        self.entries += entries


class Acknowledgements:
    """The intervals of all units that are open, and of those that were closed last.

    Open ones are bounded by the broker's capacity, the others by ``ACKNOWLEDGEMENTS_KEPT_MAX``.
    """

    def __init__(self) -> None:
        self._open: dict[IntervalKey, Acknowledged] = {}
        self._closed: OrderedDict[IntervalKey, Acknowledged] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Acknowledgements open={len(self._open)} closed={len(self._closed)}>"

    def __len__(self) -> int:
        return len(self._open) + len(self._closed)

    def __iter__(self) -> Iterator[Acknowledged]:
        """Iterate over intervals with entries; units may be opened and closed meanwhile."""
        for kept in (self._closed, self._open):
            for interval in tuple(kept.values()):
                if interval.entries:
                    yield interval

    def opened(self, key: IntervalKey, topic: str) -> Acknowledged:
        """Return the interval of a unit's epoch. Opening an epoch again continues its interval."""
        interval = self._closed.pop(key, None) or Acknowledged(key, topic)
        return self._open.setdefault(key, interval)

    def closed(self, key: IntervalKey) -> None:
        """Mark the interval as closed; it is kept for a while. Harmless if it is not open."""
        interval = self._open.pop(key, None)
        if interval is None or not interval.entries:
            return
        self._closed[key] = interval
        if len(self._closed) > ACKNOWLEDGEMENTS_KEPT_MAX:
            self._closed.popitem(last=False)
