"""What a majority has. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def majority_of(members: int) -> int:
    """Return how many of ``members`` are a majority."""
    return members // 2 + 1


def reached_by_majority(values: Iterable[int]) -> int:
    """Return the greatest number that a majority of ``values`` has reached.

    One value per member, 0 for one that has acknowledged nothing. For durable indexes this
    is the index that may be committed, provided that its entry is of the leader's own term
    (Raft paper, 5.4.2): the caller checks that.
    """
    ordered = sorted(values, reverse=True)
    assert ordered, "a group without members can commit nothing"
    return ordered[majority_of(len(ordered)) - 1]
