"""Which broker gets a topic: the better of two random choices.

Two random candidates, the emptier one wins. That is nearly as even as comparing all of them, and
two controllers that see the same loads do not both run to the same broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live broker session in which this shard holds a lease."""

    broker_id: str
    session_id: str
    units_used: int
    """Units of the lease that carry an assignment, those still on their way included."""

    units_leased: int

    @property
    def has_room(self) -> bool:
        return self.units_used < self.units_leased

    @property
    def used_fraction(self) -> float:
        return self.units_used / self.units_leased if self.units_leased else 1.0


def choose(candidates: Sequence[Candidate], draw: tuple[int, int]) -> int | None:
    """Return the place of the candidate that two random draws favour; None when all are full.

    ``draw`` is two random integers of any size, from outside. Of equals the first drawn wins.
    """
    if not candidates:
        return None
    first, second = _two_places(len(candidates), draw)
    if candidates[first].has_room and candidates[second].has_room:
        return _emptier(candidates, first, second)
    # Rare: a full one was drawn. Draw again among those that are not.
    roomy = [place for place, candidate in enumerate(candidates) if candidate.has_room]
    if not roomy:
        return None
    first, second = _two_places(len(roomy), draw)
    return _emptier(candidates, roomy[first], roomy[second])


def _two_places(count: int, draw: tuple[int, int]) -> tuple[int, int]:
    first = draw[0] % count
    if count == 1:
        return first, first
    # The second is drawn among the others: the same one again would be no choice.
    return first, (first + 1 + draw[1] % (count - 1)) % count


def _emptier(candidates: Sequence[Candidate], first: int, second: int) -> int:
    better = candidates[second].used_fraction < candidates[first].used_fraction
    return second if better else first
