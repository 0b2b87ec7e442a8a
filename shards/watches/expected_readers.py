"""Readers that have metadata of this shard and have not subscribed to it yet; effective writes wait
for them.

    begin ──▶ on its way ──▶ end: it watched that before, or is going to for some time yet
    note  ──▶ was read: is going to be watched, for some time yet

A reader is a broker manager, by its shard, whoever leads that; or a topic controller, by the
subscriber id of its term.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator

from nextgen.client.changes.index import Change

FOR_EVER = float("inf")
"""The end of an expectation while the metadata is on its way: unknown."""


class ExpectedReaders:
    """The expected watches of one home shard, for one term. Times are in monotonic seconds.

    Metadata on its way is bounded by the requests that carry it, and its readers are never
    forgotten. Beyond ``names_max`` names the oldest of the other readers is forgotten.
    """

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._requests: Counter[tuple[Change, str]] = Counter()
        """How often something is on its way to a reader: a topic's partitions go one by one."""
        self._on_the_way: dict[Change, set[str]] = {}
        self._until: OrderedDict[Change, dict[str, float]] = OrderedDict()
        """By name, the one noted longest ago first: until when each reader is expected."""

    def __len__(self) -> int:
        return len(self._on_the_way) + len(self._until)

    def begin(self, changes: Iterable[Change], reader: str) -> None:
        """Note that these objects are being sent to ``reader``."""
        for change in changes:
            self._requests[change, reader] += 1
            self._on_the_way.setdefault(change, set()).add(reader)

    def end(self, changes: Iterable[Change], reader: str, until: float, now: float) -> float:
        """Note that the sending is over: watches of the objects that it does not watch yet are
        expected until ``until``.

        An object that is being sent again counts until that is over as well. Returns as ``note``
        does.
        """
        forgotten = 0.0
        for change in changes:
            self._requests[change, reader] -= 1
            if self._requests[change, reader]:
                continue
            del self._requests[change, reader]
            if not self._arrived(change, reader):
                continue
            if until > now:
                forgotten = max(forgotten, self.note(change, reader, until, now))
            else:
                self.forget(change, reader)
        return forgotten

    def note(self, change: Change, reader: str, until: float, now: float) -> float:
        """Expect its watch of these objects until ``until``. Returns the end of the latest
        expectation that was forgotten to make room, 0 if none was."""
        self._until.setdefault(change, {})[reader] = until
        self._until.move_to_end(change)
        while self._until and _last(self._until[next(iter(self._until))]) <= now:
            self._until.popitem(last=False)
        if len(self._until) <= self._names_max:
            return 0.0
        _, oldest = self._until.popitem(last=False)
        return _last(oldest)

    def forget(self, change: Change, reader: str) -> None:
        """Stop expecting its watch of these objects: it has one."""
        self._arrived(change, reader)
        readers = self._until.get(change)
        if readers is not None and readers.pop(reader, None) is not None and not readers:
            del self._until[change]

    def are_over(self, changes: Iterable[Change], now: float) -> bool:
        """Return whether no reader is expected to watch any of ``changes``."""
        return all(until <= now for until in self.ends(changes))

    def ends(self, changes: Iterable[Change]) -> Iterator[float]:
        """Yield the end of each expectation for ``changes``, ``FOR_EVER`` while they are being
        sent."""
        for change in changes:
            if change in self._on_the_way:
                yield FOR_EVER
            yield from self._until.get(change, {}).values()

    def _arrived(self, change: Change, reader: str) -> bool:
        readers = self._on_the_way.get(change)
        if readers is None or reader not in readers:
            return False
        readers.discard(reader)
        if not readers:
            del self._on_the_way[change]
        return True


def _last(ends: dict[str, float]) -> float:
    return max(ends.values(), default=0.0)
