"""The partition counts of topics, cached for a short time.

The leased watch names a topic whose number has grown, and its count is dropped then. No stream
reports the deletion of an unassigned topic, so cached counts expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

NEVER = float("-inf")


class PartitionCounts:
    """Counts by topic name. Times are seconds of any clock that never goes back.

    At most ``counts_max`` are kept; the older half goes first.
    """

    def __init__(self, *, counts_max: int) -> None:
        assert counts_max >= 2, "there are two generations"
        self._generation_max = counts_max // 2
        self._young: dict[str, tuple[int, float]] = {}
        self._old: dict[str, tuple[int, float]] = {}
        self.changes = 0
        """Calls of ``forget`` so far. A count that was read before one may be out of date."""
        self._remembered_until = NEVER
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<PartitionCounts counts={len(self)}>"

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, name: str, now: float) -> int | None:
        """Return the count if it is still valid at ``now``."""
        known = self._young.get(name) or self._old.get(name)
        return known[0] if known is not None and now < known[1] else None

    def put(self, name: str, count: int, *, now: float, until: float) -> None:
        """Remember a count up to ``until``.

        The caller has compared ``changes`` with what it was before the count was read.
        """
        if len(self._young) >= self._generation_max and name not in self._young:
            self._old, self._young = self._young, {}
        self._old.pop(name, None)
        self._young[name] = (count, until)
        is_first = self._remembered_until <= now
        self._remembered_until = max(self._remembered_until, until)
        if is_first:
            for listener in self._listeners:
                listener()

    def remembers(self, now: float) -> bool:
        """Return whether a count may be valid at ``now``: a topic that grew is to be named soon."""
        return self._remembered_until > now

    def on_remembered(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever ``remembers`` becomes True."""
        self._listeners.append(listener)

    def forget(self, names: Iterable[str]) -> None:
        """Drop the counts of topics that came into being or have grown."""
        self.changes += 1
        if not self._young and not self._old:
            # As often: of each topic that is created not even the name is decoded.
            return
        for name in names:
            self._young.pop(name, None)
            self._old.pop(name, None)

    def clear(self) -> None:
        """Drop all counts: changes were missed."""
        self.changes += 1
        self._young.clear()
        self._old.clear()
