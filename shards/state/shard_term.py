"""One term of leadership of one shard, shared by all parts of the leader's state."""

from __future__ import annotations

from nextgen.kernel.errors import NotLeader
from nextgen.kernel.events.generations import least_epoch


class ShardTerm:
    """A term's number, its shard, and whether it is over.

    A term ends once: when a proposal was lost, or when the replica lost its role. Every part of the
    state refuses to answer afterwards.
    """

    __slots__ = ("is_over", "least_epoch", "number", "shard_id")

    def __init__(self, shard_id: int, number: int) -> None:
        self.shard_id = shard_id
        self.number = number
        self.least_epoch = least_epoch(number)
        """The least epoch that the term allows; see ``ShardState.least_epoch``."""
        self.is_over = False

    def __repr__(self) -> str:
        return f"<ShardTerm shard={self.shard_id} number={self.number} over={self.is_over}>"

    def end(self) -> None:
        """End the term: no object that still holds it can decide in the next one."""
        self.is_over = True

    def check(self) -> None:
        """Check that this replica leads, as far as it knows.

        Raises:
            NotLeader: The term is over.
        """
        if self.is_over:
            raise NotLeader(self.shard_id)
