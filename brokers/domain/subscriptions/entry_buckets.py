"""The assignment of a segment's entry buckets to Key_Shared consumers (PIP-486).

A bucket is an interval of bucket hashes, which are the low 16 bits of the hash of a key. Every
consumer states the full list of the segment's buckets, the same as the others; the broker spreads
the buckets evenly. A consumer that joins gets buckets from those with the most, and nothing else
moves; the buckets of one that leaves go to those with the fewest, and nothing else moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.key_hash import KEY_SLOTS, murmur3_32
from brokers.domain.subscriptions.key_ranges import MemberType, Range
from nextgen.kernel.limits.pulsar import STICKY_RANGES_MAX

BUCKET_HASH_MAX = KEY_SLOTS - 1
"""The highest bucket hash."""


def bucket_hash(key: bytes) -> int:
    """Return the bucket hash of a key, 0 to 65,535. Unlike a slot, it may be 0."""
    return murmur3_32(key) & BUCKET_HASH_MAX


class EntryBuckets(Generic[MemberType]):
    """Buckets and their owners. The slots of ``KeyRanges`` are the numbers of buckets, from 0.

    Members have equally many buckets, or one more. Each join and each leave moves the fewest
    buckets that this allows. Equal histories of joins and leaves have equal owners.
    """

    def __init__(self, ranges: Sequence[Range]) -> None:
        """Make buckets without owners. ``ranges``: the first and last hash of each.

        Raises:
            Refusal: ConsumerAssignError: they do not cover each hash once, in ascending order.
        """
        _check_tiling(ranges)
        self.ranges = ranges
        self._starts = [start for start, _ in ranges]
        self._owners: list[MemberType | None] = [None] * len(ranges)
        # The buckets of each member, members in order of joining.
        self._owned: dict[MemberType, list[int]] = {}

    def bucket_of(self, hash_: int) -> int:
        """Return the number of the bucket that has a hash."""
        return bisect_right(self._starts, hash_) - 1

    def add(self, member: MemberType, name: str, ranges: Sequence[Range]) -> None:
        """Add a member, which MUST state the same buckets, and give it its share.

        ``name`` is not used: that a consumer has the same name as an earlier one does not bring
        back its buckets, because others have unacknowledged entries of them by now.
        """
        if tuple(ranges) != tuple(self.ranges):
            raise Refusal(
                ServerError.CONSUMER_ASSIGN,
                f"stale layout: {_brief(ranges)} are not the entry buckets of the other consumers, "
                f"which are {_brief(self.ranges)}",
            )
        self._owned[member] = []
        if len(self._owned) == 1:
            self._give(range(len(self._starts)), member)
            return
        share = len(self._starts) // len(self._owned)
        self._give([self._taken_from_richest() for _ in range(share)], member)

    def remove(self, member: MemberType) -> None:
        """Remove a member; the others get its buckets."""
        buckets = self._owned.pop(member)
        for bucket in buckets:
            self._owners[bucket] = None
        poorest: list[MemberType] = []
        for bucket in buckets if self._owned else ():
            if not poorest:
                fewest = min(map(len, self._owned.values()))
                poorest = [each for each, owned in self._owned.items() if len(owned) == fewest]
                poorest.reverse()
            self._give((bucket,), poorest.pop())

    def owner(self, slot: int) -> MemberType | None:
        """Return the owner of a bucket; None only if there is no member."""
        return self._owners[slot]

    def _taken_from_richest(self) -> int:
        # The first of several, so the one that joined first; its highest bucket.
        return max(self._owned.values(), key=len).pop()

    def _give(self, buckets: Sequence[int], member: MemberType) -> None:
        owned = self._owned[member]
        owned.extend(buckets)
        owned.sort()
        for bucket in buckets:
            self._owners[bucket] = member


def _check_tiling(ranges: Sequence[Range]) -> None:
    if not 0 < len(ranges) <= STICKY_RANGES_MAX:
        raise Refusal(
            ServerError.CONSUMER_ASSIGN, f"a segment has 1 to {STICKY_RANGES_MAX} entry buckets"
        )
    expected = 0
    for start, end in ranges:
        if start != expected or not start <= end <= BUCKET_HASH_MAX:
            raise Refusal(
                ServerError.CONSUMER_ASSIGN,
                f"entry bucket {start}-{end} does not begin at {expected} and end at "
                f"{BUCKET_HASH_MAX} or before",
            )
        expected = end + 1
    if expected != KEY_SLOTS:
        raise Refusal(
            ServerError.CONSUMER_ASSIGN, f"the last entry bucket ends before {BUCKET_HASH_MAX}"
        )


def _brief(ranges: Sequence[Range]) -> str:
    """Return a list of ranges for a message: shortened, because it may have a thousand."""
    shown = ", ".join(f"{start}-{end}" for start, end in ranges[:4])
    return f"{len(ranges)} ({shown}, …)" if len(ranges) > 4 else shown or "none"
