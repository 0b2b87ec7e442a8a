"""Moves assigned units to other brokers while clients go on looking them up.

    decide (one record) ─▶ target syncs ─▶ no cache answers the old owner ─▶ old owner lets go

The old owner serves until the last step and then knows where the unit went, so there is no
moment at which an answer in anybody's hands leads nowhere. What follows the first step is safe to
lose: the next lookup brings the unit to its new owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from nextgen.kernel.decider import Rejected, RejectionCode
from nextgen.kernel.errors import InvalidRequest, MetadataError, ProposalLost
from nextgen.kernel.limits import ASSIGNMENTS_PER_REQUEST_MAX
from nextgen.kernel.names import TopicName
from nextgen.replication.ports import Commit
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove
from shards.broker_sync import BrokerSync, Placed
from shards.domain import assignment as assignments
from shards.domain.assignment import Assignment, MoveTopic, TopicAssigned
from shards.domain.placement import Candidate, choose
from shards.domain.topic import Topic
from shards.lease_keeper import LeaseKeeper
from shards.metrics import ShardMetrics
from shards.move_finisher import MoveFinisher, UnfinishedMove
from shards.ports import Clock
from shards.shard_state import ShardState
from shards.topic_controller import TopicController
from shards.unit_flight import Flight
from shards.wire_lookup import served_answer

_logger = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Move:
    """One unit between its decision and its answer."""

    flight: Flight
    topic: Topic
    before: Assignment
    event: TopicAssigned


class TopicMover:
    """Moves of one shard's units, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        controller: TopicController,
        sync: BrokerSync,
        leases: LeaseKeeper,
        finisher: MoveFinisher,
        clock: Clock,
        draw: Callable[[], tuple[int, int]],
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._controller = controller
        self._sync = sync
        self._leases = leases
        self._finisher = finisher
        self._clock = clock
        self._draw = draw
        self._metrics = metrics

    async def move(self, moves: Sequence[TopicMove]) -> list[LookupAnswer]:
        """Return, in order, the new answer of each unit or why it stayed.

        Answers when the old owners were told to let go. Goes on when the caller goes away.

        Raises:
            InvalidRequest: Too many moves.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        if len(moves) > ASSIGNMENTS_PER_REQUEST_MAX:
            raise InvalidRequest(
                f"{len(moves)} moves, at most {ASSIGNMENTS_PER_REQUEST_MAX} are allowed"
            )
        answers: dict[str, LookupAnswer] = {}
        names = self._controller.parse((move.topic for move in moves), answers)
        await self._settle_flights(names)
        self._controller.check_open()
        decided = self._decide(names, {move.topic: move for move in moves}, answers)
        if decided:
            commit = self._state.propose([move.event for move in decided])
            # Whoever looks these up from here on waits until the new owner has them.
            self._controller.flights.register(move.flight for move in decided)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._controller.run(self._carry_out(commit, decided, answers, done))
            await asyncio.shield(done)
        else:
            await self._state.confirm()
        return [answers[move.topic] for move in moves]

    async def _settle_flights(self, names: dict[str, TopicName]) -> None:
        """Wait for units that are on their way: their outcome decides where they move from."""
        while flights := {
            flight for text in names if (flight := self._controller.flights.get(text)) is not None
        }:
            await asyncio.wait(flights)

    def _decide(
        self,
        names: dict[str, TopicName],
        moves: dict[str, TopicMove],
        answers: dict[str, LookupAnswer],
    ) -> list[_Move]:
        candidates = [
            candidate
            for candidate in self._leases.candidates()
            if not self._sync.has_ended(candidate.broker_id, candidate.session_id)
        ]
        decided: list[_Move] = []
        texts = list(names)
        loaded = self._controller.load([names[text] for text in texts])
        for text, (topic, assignment) in zip(texts, loaded, strict=True):
            if topic is None or assignment is None or not assignment.is_assigned:
                why = f"{text} is not assigned, there is nothing to move"
                answers[text] = self._controller.rejected(text, RejectionCode.NOT_FOUND, why)
                continue
            wanted = moves[text]
            if 0 < wanted.expected_epoch < assignment.epoch:
                # The answer to an earlier attempt was lost; moving again would be one too many.
                answers[text] = self._stayed(assignment)
                continue
            place = self._target(candidates, assignment, wanted.target_broker_id)
            if isinstance(place, Rejected):
                answers[text] = self._controller.rejected(text, place.code, place.message)
                continue
            chosen = candidates[place]
            event = self._decide_one(assignment, chosen)
            if event is None:
                answers[text] = self._stayed(assignment)
                continue
            candidates[place] = replace(chosen, units_used=chosen.units_used + 1)
            flight = self._controller.flights.make(names[text], self._clock.monotonic())
            decided.append(_Move(flight, topic, assignment, event))
        self._leases.note_use(candidates)
        return decided

    def _target(
        self, candidates: Sequence[Candidate], assignment: Assignment, target: str
    ) -> int | Rejected:
        """Return the place of the candidate that the unit is to go to."""
        if not target:
            others = [
                place
                for place, candidate in enumerate(candidates)
                if candidate.session_id != assignment.session_id
            ]
            chosen = choose([candidates[place] for place in others], self._draw())
            if chosen is None:
                return Rejected(RejectionCode.NO_CAPACITY, "no other broker has capacity left")
            return others[chosen]
        for place, candidate in enumerate(candidates):
            if candidate.broker_id == target:
                if candidate.has_room or candidate.session_id == assignment.session_id:
                    return place
                return Rejected(RejectionCode.NO_CAPACITY, f"broker {target} has no capacity left")
        return Rejected(RejectionCode.NO_BROKER, f"broker {target} is not alive or has no lease")

    @staticmethod
    def _decide_one(assignment: Assignment, chosen: Candidate) -> TopicAssigned | None:
        decision = assignments.decide(
            assignment,
            MoveTopic(
                assignment.topic_id,
                assignment.unit,
                assignment.name,
                chosen.broker_id,
                chosen.session_id,
                expected_epoch=assignment.epoch,
            ),
        )
        assert not isinstance(decision, Rejected), f"a move was refused: {decision}"
        if not decision.events:
            return None
        event = decision.events[0]
        assert isinstance(event, TopicAssigned), f"a move decided {event}"
        return event

    def _stayed(self, assignment: Assignment) -> LookupAnswer:
        broker = self._controller.known_broker(assignment)
        if broker is None:
            why = f"broker {assignment.broker_id} is not known here yet"
            return self._controller.rejected(assignment.name, RejectionCode.NO_BROKER, why)
        return served_answer(
            assignment, broker, shard_id=self._shard_id, position=self._state.position
        )

    async def _carry_out(
        self,
        commit: asyncio.Future[Commit],
        moves: Sequence[_Move],
        answers: dict[str, LookupAnswer],
        done: asyncio.Future[None],
    ) -> None:
        try:
            first = (await commit).first_position
            self._metrics.moves.inc(len(moves))
            unfinished = await self._hand_over(moves, first, answers)
            self._finisher.finish_later(unfinished)
            done.set_result(None)
        except MetadataError as error:
            self._controller.flights.fail([move.flight for move in moves], error)
            _fail(done, error)
        finally:
            # Cancelled with the term, or broken: what was decided stands, the rest is not known.
            _fail(done, ProposalLost(f"shard {self._shard_id}: leadership moved during a move"))

    async def _hand_over(
        self, moves: Sequence[_Move], first: int, answers: dict[str, LookupAnswer]
    ) -> list[UnfinishedMove]:
        """Bring the units to their targets and away from their old owners, as far as it goes."""
        by_target: dict[str, list[tuple[Flight, UnfinishedMove]]] = {}
        for offset, move in enumerate(moves):
            assignment = assignments.evolve(move.before, move.event)
            assert assignment is not None, "a moved unit has an assignment"
            unfinished = UnfinishedMove(
                Placed(move.topic, assignment, first + offset), (move.before,)
            )
            by_target.setdefault(assignment.session_id, []).append((move.flight, unfinished))
        groups = list(by_target.values())
        arrived = await asyncio.gather(*(self._hand_over_group(group, answers) for group in groups))
        there = [
            move for group, here in zip(groups, arrived, strict=True) if here for _, move in group
        ]
        missing = [
            move
            for group, here in zip(groups, arrived, strict=True)
            if not here
            for _, move in group
        ]
        try:
            await self._finisher.release(there)
        except MetadataError as error:
            self._controller.check_open()
            _logger.info("old owners not told yet", shard=self._shard_id, why=str(error))
            return [*there, *missing]
        return missing

    async def _hand_over_group(
        self, units: Sequence[tuple[Flight, UnfinishedMove]], answers: dict[str, LookupAnswer]
    ) -> bool:
        """Bring units to one target, answer for them, and say whether it has them."""
        error = await self._finisher.hand_over([move for _, move in units])
        broker = await self._controller.broker_of(units[0][1].placed.assignment)
        for flight, move in units:
            placed = move.placed
            if error is None and broker is not None:
                answer = served_answer(
                    placed.assignment, broker, shard_id=self._shard_id, position=placed.position
                )
            else:
                why = f"broker {placed.assignment.broker_id} did not take it yet: {error}"
                answer = self._controller.rejected(flight.text, RejectionCode.NO_BROKER, why)
            answers[flight.text] = answer
            self._controller.flights.land(flight, answer)
        return error is None


def _fail(done: asyncio.Future[None], error: MetadataError) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # Looked at, should the caller be gone.
