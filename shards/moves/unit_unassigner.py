"""Ends assignments without a successor: of idle units, and of units that an operator unloads.

    decide (one record) ─▶ no cache names the owner ─▶ the owner releases the unit

The next lookup assigns the unit again, even before the release is done. A release names the epoch
that ended, so it does not touch an assignment that the same owner has got since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError, ProposalLost
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX
from nextgen.kernel.routing.names import TopicName
from nextgen.replication.ports import Commit
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import UnassignOutcome
from shards.assignment.shard_units import ShardUnits
from shards.assignment.unit_flight import fail_future
from shards.domain import assignment as assignments
from shards.domain.assignment import (
    REASON_IDLE,
    REASON_UNLOADED,
    Assignment,
    TopicUnassigned,
    UnassignTopic,
)
from shards.domain.lookup import check_served
from shards.metrics import ShardMetrics
from shards.moves.move_finisher import MoveFinisher, UnfinishedMove
from shards.state.proposer import Proposer

_REASONS = frozenset({REASON_IDLE, REASON_UNLOADED})

_logger = structlog.get_logger(__name__)


class UnitUnassigner:
    """Unassignments of one shard's units, for one term."""

    def __init__(
        self,
        shard_id: int,
        proposer: Proposer,
        units: ShardUnits,
        finisher: MoveFinisher,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._proposer = proposer
        self._units = units
        self._finisher = finisher
        self._metrics = metrics
        self.on_unassigned: Callable[[Sequence[str]], None] = lambda _: None
        """Called with the names of the units that were unassigned."""

    async def unassign(self, units: Sequence[UnitAssignment], reason: str) -> list[UnassignOutcome]:
        """Return, in order, whether each unit was taken from its broker, or why not.

        A unit given with an epoch or a session stays if it has another by now; an idle unit also
        stays while it is looked up. What is to be unloaded and has no broker counts as taken: an
        operator's command may be repeated. Answers when the owners have released the units. The
        work goes on when the caller is cancelled.

        Raises:
            InvalidRequest: Too many units, or an unknown reason.
            StaleShardMap: A unit has its slot in another shard.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        if not 0 < len(units) <= ASSIGNMENTS_PER_REQUEST_MAX:
            raise InvalidRequest(
                f"{len(units)} units, 1 to {ASSIGNMENTS_PER_REQUEST_MAX} are allowed"
            )
        if reason not in _REASONS:
            raise InvalidRequest(f"{reason[:80]!a} is no reason to take a unit from its broker")
        answers: dict[str, LookupAnswer] = {}
        names = self._units.reads.parse((unit.name for unit in units), answers)
        refused = {text: answer.message for text, answer in answers.items()}
        if reason == REASON_UNLOADED:
            await self._settle(names)
        self._units.tasks.check_open()
        ended = self._decide(names, {unit.name: unit for unit in units}, reason, refused)
        if ended:
            commit = self._proposer.propose([event for _, event in ended])
            self.on_unassigned([before.name for before, _ in ended])
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            units_ended = [before for before, _ in ended]
            self._units.tasks.run(self._carry_out(commit, units_ended, reason, done))
            await asyncio.shield(done)
        else:
            await self._proposer.confirm()
        return [
            UnassignOutcome(
                name=unit.name,
                unassigned=unit.name not in refused,
                message=refused.get(unit.name, ""),
            )
            for unit in units
        ]

    def release(
        self, commit: asyncio.Future[Commit], ended: Sequence[Assignment], reason: str
    ) -> None:
        """Have the owners release units, in the background. ``commit`` is a proposal that begins
        with the ends of these assignments, in this order."""
        self.on_unassigned([before.name for before in ended])
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        self._units.tasks.run(self._carry_out(commit, ended, reason, done))

    async def _settle(self, names: dict[str, TopicName]) -> None:
        """Wait for units in flight: their outcome is the assignment to end."""
        while flights := {
            flight for text in names if (flight := self._units.flights.get(text)) is not None
        }:
            await asyncio.wait(flights)

    def _decide(
        self,
        names: dict[str, TopicName],
        units: dict[str, UnitAssignment],
        reason: str,
        refused: dict[str, str],
    ) -> list[tuple[Assignment, TopicUnassigned]]:
        """Return the assignments that end, with their events; ``refused`` gets why a unit stays."""
        ended: list[tuple[Assignment, TopicUnassigned]] = []
        loaded = self._units.reads.load(list(names.values()))
        for (text, name), (topic, assignment) in zip(names.items(), loaded, strict=True):
            if assignment is None or not assignment.is_assigned:
                if reason == REASON_IDLE:
                    refused[text] = f"{text} is not assigned"
                elif (rejected := check_served(name, topic)) is not None:
                    refused[text] = rejected.message
            elif (why := _is_another(units[text], assignment)) or (
                why := self._is_looked_up(text, reason)
            ):
                refused[text] = why
            else:
                ended.append((assignment, _unassigned(assignment, reason)))
        return ended

    def _is_looked_up(self, text: str, reason: str) -> str:
        if reason == REASON_IDLE and self._units.flights.get(text) is not None:
            return f"{text} is being looked up"
        return ""

    async def _carry_out(
        self,
        commit: asyncio.Future[Commit],
        ended: Sequence[Assignment],
        reason: str,
        done: asyncio.Future[None],
    ) -> None:
        try:
            first = (await commit).first_position
            self._metrics.note_unassigned(reason, len(ended))
            released = [
                UnfinishedMove(None, first + offset, (before,))
                for offset, before in enumerate(ended)
            ]
            try:
                await self._finisher.release(released)
            except MetadataError as error:
                self._units.tasks.check_open()
                _logger.info(
                    "owners have not released units yet", shard=self._shard_id, why=str(error)
                )
                self._finisher.finish_later(released)
            done.set_result(None)
        except MetadataError as error:
            fail_future(done, error)
        finally:
            # Cancelled with the term, or failed by a bug: decided unassignments stand.
            fail_future(done, ProposalLost(f"shard {self._shard_id}: leadership moved meanwhile"))


def _retrieve(done: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: no task awaits this future."""
    if not done.cancelled():
        done.exception()


def _is_another(unit: UnitAssignment, assignment: Assignment) -> str:
    """Return why ``assignment`` is not the one that ``unit`` names; "" if it is."""
    if unit.topic_id and unit.topic_id != assignment.topic_id:
        return f"{unit.name} is another topic of that name"
    if unit.epoch and unit.epoch != assignment.epoch:
        return f"{unit.name} is at epoch {assignment.epoch}, {unit.epoch} was to end"
    if unit.session_id and unit.session_id != assignment.session_id:
        return f"{unit.name} belongs to session {assignment.session_id}"
    return ""


def _unassigned(assignment: Assignment, reason: str) -> TopicUnassigned:
    command = UnassignTopic(assignment.topic_id, assignment.unit, reason)
    decision = assignments.decide(assignment, command)
    assert not isinstance(decision, Rejected), f"an unassignment was refused: {decision}"
    (event,) = decision.events
    assert isinstance(event, TopicUnassigned), f"an unassignment decided {event}"
    return event
