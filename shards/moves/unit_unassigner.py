"""Ends assignments without a successor: units that nobody uses, or that are to be opened anew.

    decide (one record) ─▶ no cache names the owner ─▶ the owner lets go

The next lookup assigns the unit again, also while this is under way: the owner knows by the epoch
that what it is told to let go of is not what it has been given since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError, ProposalLost
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX
from nextgen.kernel.routing.names import TopicName
from nextgen.replication.ports import Commit
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import UnassignOutcome
from shards.assignment.topic_controller import TopicController
from shards.domain import assignment as assignments
from shards.domain.assignment import (
    REASON_IDLE,
    REASON_UNLOADED,
    Assignment,
    TopicUnassigned,
    UnassignTopic,
)
from shards.moves.move_finisher import MoveFinisher, UnfinishedMove
from shards.state.shard_state import ShardState

_REASONS = frozenset({REASON_IDLE, REASON_UNLOADED})

_logger = structlog.get_logger(__name__)


class UnitUnassigner:
    """Unassignments of one shard's units, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        controller: TopicController,
        finisher: MoveFinisher,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._controller = controller
        self._finisher = finisher

    async def unassign(self, units: Sequence[UnitAssignment], reason: str) -> list[UnassignOutcome]:
        """Return, in order, whether each unit was taken from its broker, or why not.

        A unit that is given with its epoch and session is left alone if another holds; one that is
        idle also if somebody is looking it up. Answers when the owners were told to let go. Goes on
        when the caller goes away.

        Raises:
            InvalidRequest: Too many units, or a reason that is none.
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
        names = self._controller.parse((unit.name for unit in units), answers)
        refused = {text: answer.message for text, answer in answers.items()}
        if reason == REASON_UNLOADED:
            await self._settle(names)
        self._controller.check_open()
        ended = self._decide(names, {unit.name: unit for unit in units}, reason, refused)
        if ended:
            commit = self._state.proposer.propose([event for _, event in ended])
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._controller.run(self._carry_out(commit, [before for before, _ in ended], done))
            await asyncio.shield(done)
        else:
            await self._state.proposer.confirm()
        return [
            UnassignOutcome(
                name=unit.name,
                unassigned=unit.name not in refused,
                message=refused.get(unit.name, ""),
            )
            for unit in units
        ]

    async def _settle(self, names: dict[str, TopicName]) -> None:
        """Wait for units that are on their way: their outcome decides what is to be ended."""
        while flights := {
            flight for text in names if (flight := self._controller.flights.get(text)) is not None
        }:
            await asyncio.wait(flights)

    def _decide(
        self,
        names: dict[str, TopicName],
        units: dict[str, UnitAssignment],
        reason: str,
        refused: dict[str, str],
    ) -> list[tuple[Assignment, TopicUnassigned]]:
        """Return what ends, each with its event; ``refused`` gets why a unit stays."""
        ended: list[tuple[Assignment, TopicUnassigned]] = []
        loaded = self._controller.load(list(names.values()))
        for text, (_, assignment) in zip(names, loaded, strict=True):
            if assignment is None or not assignment.is_assigned:
                refused[text] = f"{text} is not assigned"
            elif (why := _is_another(units[text], assignment)) or (
                why := self._is_looked_up(text, reason)
            ):
                refused[text] = why
            else:
                ended.append((assignment, _unassigned(assignment, reason)))
        return ended

    def _is_looked_up(self, text: str, reason: str) -> str:
        if reason == REASON_IDLE and self._controller.flights.get(text) is not None:
            return f"{text} is being looked up"
        return ""

    async def _carry_out(
        self,
        commit: asyncio.Future[Commit],
        ended: Sequence[Assignment],
        done: asyncio.Future[None],
    ) -> None:
        try:
            first = (await commit).first_position
            released = [
                UnfinishedMove(None, first + offset, (before,))
                for offset, before in enumerate(ended)
            ]
            try:
                await self._finisher.release(released)
            except MetadataError as error:
                self._controller.check_open()
                _logger.info("owners not told yet", shard=self._shard_id, why=str(error))
                self._finisher.finish_later(released)
            done.set_result(None)
        except MetadataError as error:
            _fail(done, error)
        finally:
            # Cancelled with the term, or broken: what was decided stands, the rest is not known.
            _fail(done, ProposalLost(f"shard {self._shard_id}: leadership moved meanwhile"))


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


def _fail(done: asyncio.Future[None], error: MetadataError) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # Looked at, should the caller be gone.
