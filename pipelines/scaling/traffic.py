"""The traffic of one scalable topic over the range of hashes, whatever its segments are.

    recorded loads of segments ─▶ cells: ranges of hashes, each with its rates ─▶ rates of any range

A load is spread evenly over its segment's range, as far as nothing finer is known. Where smaller
segments were on record before, it keeps the proportions that those had.
"""

from __future__ import annotations

from bisect import bisect_right

from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.ranges import HASHES
from nextgen.kernel.scalable.segment_load import in_order

_FourRates = tuple[float, float, float, float]
_NOTHING: _FourRates = (0.0, 0.0, 0.0, 0.0)


class Traffic:
    """``_starts`` are the first hashes of the cells, ascending from 0; they cover all hashes."""

    def __init__(self) -> None:
        self._starts = [0]
        self._rates: list[_FourRates] = [_NOTHING]
        self._found: dict[tuple[int, int], Rates] = {}
        """By range, until the traffic changes: every scenario asks for the same ones."""

    def record(self, start: int, end: int, rates: Rates) -> None:
        """Note the load of a segment from hash ``start`` to ``end``, both included."""
        self._found.clear()
        given = in_order(rates)
        first = self._cut(start)
        last = self._cut(end + 1)
        if last - first == 1:
            self._rates[first] = given
            return
        before = [sum(column) for column in zip(*self._rates[first:last], strict=True)]
        for place in range(first, last):
            share = self._size(place) / (end - start + 1)
            now = self._rates[place]
            self._rates[place] = (
                given[0] * (now[0] / before[0] if before[0] else share),
                given[1] * (now[1] / before[1] if before[1] else share),
                given[2] * (now[2] / before[2] if before[2] else share),
                given[3] * (now[3] / before[3] if before[3] else share),
            )

    def of(self, start: int, end: int) -> Rates:
        """Return the rates of the hashes from ``start`` to ``end``, both included."""
        found = self._found.get((start, end))
        if found is None:
            found = self._found[start, end] = self._sum(start, end)
        return found

    def _sum(self, start: int, end: int) -> Rates:
        starts = self._starts
        place = bisect_right(starts, start) - 1
        if starts[place] == start and self._end(place) == end:
            return Rates(*self._rates[place])
        one = two = three = four = 0.0
        while place < len(starts) and starts[place] <= end:
            cell_start, cell_end = starts[place], self._end(place)
            inside = min(end, cell_end) - max(start, cell_start) + 1
            share = inside / (cell_end - cell_start + 1)
            rates = self._rates[place]
            one += rates[0] * share
            two += rates[1] * share
            three += rates[2] * share
            four += rates[3] * share
            place += 1
        return Rates(one, two, three, four)

    def _cut(self, start: int) -> int:
        """Return the place of the cell that begins at ``start``, after cutting one if need be."""
        if start == HASHES:
            return len(self._starts)
        place = bisect_right(self._starts, start) - 1
        if self._starts[place] == start:
            return place
        share = (start - self._starts[place]) / self._size(place)
        whole = self._rates[place]
        self._rates[place] = (
            whole[0] * share,
            whole[1] * share,
            whole[2] * share,
            whole[3] * share,
        )
        rest = 1 - share
        self._rates.insert(
            place + 1, (whole[0] * rest, whole[1] * rest, whole[2] * rest, whole[3] * rest)
        )
        self._starts.insert(place + 1, start)
        return place + 1

    def _end(self, place: int) -> int:
        return self._starts[place + 1] - 1 if place + 1 < len(self._starts) else HASHES - 1

    def _size(self, place: int) -> int:
        return self._end(place) - self._starts[place] + 1
