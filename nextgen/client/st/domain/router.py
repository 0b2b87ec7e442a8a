"""Which segment takes a message."""

from __future__ import annotations

from bisect import bisect_right

from nextgen.client.st.domain.key_hash import classic_partition, segment_hash
from nextgen.client.st.domain.layout import Layout, LayoutSegment
from nextgen.client.st.errors import NoActiveSegment, UncoveredHash


class Router:
    """Routes by one layout.

    A key goes to the active segment whose range has its segment hash. If all active segments are
    classic partitions it goes where a stock client of the classic topic sends it. Messages without
    key take turns over the active segments in the order of their ranges; ``turn`` continues an
    earlier router's turns.
    """

    def __init__(self, layout: Layout, *, turn: int = 0) -> None:
        self.turn = turn
        self._active = layout.active
        self._starts = [each.hash_range.start for each in layout.active]
        self._partitions: tuple[LayoutSegment, ...] = ()
        if layout.is_all_legacy:
            self._partitions = tuple(sorted(layout.active, key=lambda each: each.segment_id))

    def route(self, hash32: int | None) -> LayoutSegment:
        """Return the segment for the unmasked hash of a key, or for a message without key.

        Raises:
            NoActiveSegment: The layout has none.
            UncoveredHash: None has this hash.
        """
        active = self._active
        if not active:
            raise NoActiveSegment("the topic has no active segment")
        if hash32 is None:
            segment = active[self.turn % len(active)]
            self.turn += 1
            return segment
        if self._partitions:
            return self._partitions[classic_partition(hash32, len(self._partitions))]
        hash16 = segment_hash(hash32)
        index = bisect_right(self._starts, hash16) - 1
        if index < 0 or active[index].hash_range.end < hash16:
            raise UncoveredHash(f"no active segment has hash {hash16:#06x}")
        return active[index]
