"""The parts that lookups and moves of one shard share.

    UnitReads     names ──▶ topics and assignments
    UnitAnswers   assignments and refusals ──▶ lookup answers
    UnitOwners    assignments ──▶ broker sessions
    Flights       units in flight, each with one answer for all its callers
    UnitTasks     the work behind them, until the term ends

``TopicController`` assigns units with these parts, and the modules of ``shards/moves`` move them;
neither calls the other for them.
"""

from __future__ import annotations

from shards.assignment.unit_answers import UnitAnswers
from shards.assignment.unit_flight import Flights
from shards.assignment.unit_owners import UnitOwners
from shards.assignment.unit_reads import UnitReads
from shards.assignment.unit_tasks import UnitTasks
from shards.ports import BrokerDirectory
from shards.state.shard_state import ShardState


class ShardUnits:
    """The parts, for one term. Close ``tasks`` at its end."""

    def __init__(self, state: ShardState, directory: BrokerDirectory) -> None:
        self.answers = UnitAnswers(state.shard_id, state.proposer)
        self.reads = UnitReads(state.reads, state.names, self.answers)
        self.owners = UnitOwners(directory)
        self.flights = Flights()
        self.tasks = UnitTasks(state.shard_id, self.flights)

    def __repr__(self) -> str:
        return f"<ShardUnits in_flight={len(self.flights)}>"
