"""Whether the answers of all shards to an order are about all slots.

Slots may move while the shards are asked one by one: a slot that was nowhere asked about could have
children of the parent that the order is about. An order that covers all slots has met every one at
a shard that had it, and whose gate does not open to a child any more.
"""

from __future__ import annotations

from collections.abc import Collection

from nextgen.kernel.limits.cluster import SLOT_COUNT
from shards.domain.slots.events import united
from shards.ports import GateAnswer

GATE_ROUNDS_MAX = 4
"""Attempts of one run to meet all slots; a slot is between two shards for a few milliseconds."""

GATE_PAUSE_MS = 50
"""Between two of them."""


def covers_all(answers: Collection[GateAnswer]) -> bool:
    """Return whether the shards together had every slot when they carried the order out.

    While a shard is led by a release that names no slots, none has ever moved.
    """
    if not all(each.attempt for each in answers):
        return True
    met = united((), tuple([slots for each in answers for slots in each.slots]))
    return met == ((0, SLOT_COUNT - 1),)


def latest_attempt(answers: Collection[GateAnswer]) -> int:
    """Return the latest attempt that any of the gates knows."""
    return max([each.attempt for each in answers], default=0)
