"""Generations of a group's numbers: each promotion of a last survivor begins one (ADR 0049), and
each restore from a backup, for epochs alone (ADR 0092).

A promotion raises the Raft term to the next multiple of ``2**GENERATION_BITS``, far above any that
the lost replicas can have reached. Epochs begin at that multiple too, so they repeat no number that
the lost replicas may have given out. No further record is needed: every later leader knows the
floor by its term.
"""

from __future__ import annotations

GENERATION_BITS = 32
"""Bits for the terms of a generation: at a thousand elections a second they last for fifty days."""

POSITIONS_SKIPPED = 1 << GENERATION_BITS
"""Positions that a promotion skips: more than the survivor can lag behind. At 100,000 events a
second they cover a lag of twelve hours."""

GENERATIONS_MAX = 1 << 10
"""Promotions of one group: a broker's ledger ids hold an epoch of 43 bits."""

EPOCHS_MAX = GENERATIONS_MAX << GENERATION_BITS
"""Every epoch is below."""

_TERMS_COUNTED = 1 << 20
"""Terms of a generation in ``term_number``: at an election a minute they last for two years."""


def term_number(term: int) -> int:
    """Return a number below 2**31 that grows with ``term``, and is ``term`` in generation 0.

    Terms of a generation beyond ``_TERMS_COUNTED`` reach into the numbers of the next one.
    """
    generation, within = divmod(term, 1 << GENERATION_BITS)
    return generation * _TERMS_COUNTED + within


def first_term_of_next_generation(term: int) -> int:
    """Return the term that a survivor which is in ``term`` is promoted to."""
    generation = (term >> GENERATION_BITS) + 1
    assert generation < GENERATIONS_MAX, "a group is promoted by hand, not by a loop"
    return generation << GENERATION_BITS


def least_epoch(term: int) -> int:
    """Return the lowest epoch that a leader of ``term`` may hand out."""
    return max(1, term >> GENERATION_BITS << GENERATION_BITS)


def generation_of(epoch: int) -> int:
    """Return the generation that an epoch belongs to."""
    return epoch >> GENERATION_BITS


def last_epoch_of_generation(epoch: int) -> int:
    """Return the last epoch of the generation that ``epoch`` belongs to."""
    return next_generation_epoch(epoch) - 1


def next_generation_epoch(epoch: int) -> int:
    """Return the first epoch of the generation behind that of ``epoch``: a restored cluster begins
    there, above every epoch that the cluster of the backup gave out (ADR 0092)."""
    return ((epoch >> GENERATION_BITS) + 1) << GENERATION_BITS


def begins_generation(epoch: int, *, behind: int) -> bool:
    """Return whether ``epoch`` is the first of a generation later than that of ``behind``."""
    is_first = epoch & ((1 << GENERATION_BITS) - 1) == 0
    return is_first and epoch >> GENERATION_BITS > behind >> GENERATION_BITS
