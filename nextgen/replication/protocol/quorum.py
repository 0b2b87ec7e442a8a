"""Arithmetic of majorities. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def majority_of(voters: int) -> int:
    """Return how many of ``voters`` are a majority."""
    return voters // 2 + 1


def reached_by_majority(values: Iterable[Number]) -> Number:
    """Return the greatest number that a majority of ``values`` has reached.

    One value per voter, 0 for one that has acknowledged nothing. For durable indexes this
    is the index that may be committed, if ``next_commit_index`` agrees (Raft paper, 5.4.2).
    """
    ordered = sorted(values, reverse=True)
    assert ordered, "a group without voters can commit nothing"
    return ordered[majority_of(len(ordered)) - 1]


def next_commit_index(
    durable_index: int, *, commit_index: int, term: int, term_of: Callable[[int], int]
) -> int:
    """Return the commit index of a leader of ``term`` once a majority has ``durable_index``.

    An entry of an earlier term is never committed by counting: a majority may have it and a
    later leader still replace it. It is committed with the first entry of this term.
    """
    if durable_index <= commit_index or term_of(durable_index) != term:
        return commit_index
    return durable_index
