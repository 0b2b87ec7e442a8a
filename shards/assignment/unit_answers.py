"""Lookup answers of one shard: each carries the shard's id and a position of its log."""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected, RejectionCode
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from shards.domain.assignment import Assignment
from shards.state.proposer import Proposer
from shards.wire.lookup import rejected_answer, served_answer


class UnitAnswers:
    """Makes answers about units, for one term.

    The position of an answer is the last committed one, unless the caller names another.
    """

    def __init__(self, shard_id: int, proposer: Proposer) -> None:
        self._shard_id = shard_id
        self._proposer = proposer

    def served(
        self, assignment: Assignment, broker: BrokerRecorded, position: int | None = None
    ) -> LookupAnswer:
        """Return that ``broker`` serves the unit of ``assignment``."""
        if position is None:
            position = self._proposer.position
        return served_answer(assignment, broker, shard_id=self._shard_id, position=position)

    def rejected(self, text: str, code: RejectionCode, message: str) -> LookupAnswer:
        """Return the answer that no broker serves the unit ``text``, and why."""
        return self.refused(text, Rejected(code, message))

    def refused(self, text: str, refusal: Rejected, partitions: int = 0) -> LookupAnswer:
        """Return the answer for ``refusal``; ``partitions`` if it names a partitioned topic."""
        return rejected_answer(
            text,
            refusal,
            shard_id=self._shard_id,
            position=self._proposer.position,
            partitions=partitions,
        )
