"""Hands units over from one broker to another while their clients go on.

    prepared ─▶ announced ─▶ committed ─▶ effective ─▶ released, taken over

Nothing is durable before the commit. A new leader finishes every committed move that it finds in
the log (``MoveFinisher``). Units with the same source and target share the messages of each step,
a few at a time, so that a client waits only for the takeover of its own unit.
See docs/flows/handover.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from nextgen.kernel.errors import Definite, MetadataError, Refused
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.placement import (
    HANDOVER_PAUSE_MS_MAX,
    HANDOVERS_IN_FLIGHT_MAX,
    PREPARES_PER_REQUEST_MAX,
)
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from shards.assignment.broker_sync import BrokerSync, Placed
from shards.assignment.placement_policies import Rules
from shards.assignment.shard_units import ShardUnits
from shards.assignment.unit_flight import Flight
from shards.domain import assignment as assignments
from shards.domain.assignment import Assignment, MoveTopic, TopicAssigned
from shards.domain.topic import Topic
from shards.metrics import ShardMetrics
from shards.moves.move_finisher import MoveFinisher, UnfinishedMove
from shards.moves.move_target import MoveTarget, MoveTargets
from shards.ports import Clock
from shards.state.proposer import Proposer

_T = TypeVar("_T")

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A unit and the target chosen for it. Nothing is decided yet."""

    name: TopicName
    topic: Topic
    before: Assignment
    target: MoveTarget
    reason: str
    least_epoch: int

    @property
    def text(self) -> str:
        return self.name.text

    @property
    def next(self) -> Assignment:
        """The assignment after the move."""
        return replace(
            self.before,
            epoch=assignments.next_epoch(self.before, self.least_epoch),
            broker_id=self.target.broker_id,
            session_id=self.target.session_id,
        )


@dataclass(frozen=True, slots=True)
class _Decided:
    flight: Flight
    move: PlannedMove
    event: TopicAssigned


class Handover:
    """Carries out planned moves of one shard, for one term."""

    def __init__(
        self,
        shard_id: int,
        proposer: Proposer,
        units: ShardUnits,
        sync: BrokerSync,
        targets: MoveTargets,
        finisher: MoveFinisher,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._proposer = proposer
        self._units = units
        self._flights = units.flights
        self._sync = sync
        self._targets = targets
        self._finisher = finisher
        self._clock = clock
        self._metrics = metrics

    async def carry_out(
        self, moves: Sequence[PlannedMove], answers: dict[str, LookupAnswer]
    ) -> None:
        """Move units; ``answers`` gets the answer of each as soon as it is known.

        Raises:
            MetadataError: This replica does not lead any more. The outcome of the units without an
                answer is unknown.
        """
        pairs: dict[tuple[str, str], list[PlannedMove]] = {}
        for move in moves:
            pairs.setdefault((move.before.session_id, move.target.session_id), []).append(move)
        ended = await asyncio.gather(
            *(self._between(pair, answers) for pair in pairs.values()), return_exceptions=True
        )
        errors = [error for error in ended if error is not None]
        if errors:
            # An indefinite error comes first: the caller must not believe that nothing happened.
            raise next((error for error in errors if not isinstance(error, Definite)), errors[0])

    async def _between(
        self, moves: Sequence[PlannedMove], answers: dict[str, LookupAnswer]
    ) -> None:
        """Move the units of one pair of brokers."""
        for chunk in _chunks(moves, PREPARES_PER_REQUEST_MAX):
            error = await self._sync.prepare([Placed(move.topic, move.next, 0) for move in chunk])
            if error is not None:
                self._units.tasks.check_open()
                self._refuse(chunk, error, answers)
                continue
            await self._sync.announce([(move.before, move.next) for move in chunk])
            for few in _chunks(chunk, HANDOVERS_IN_FLIGHT_MAX):
                began_at = self._clock.monotonic()
                await self._hand_over(few, answers)
                if few[-1] is not moves[-1]:
                    took_s = self._clock.monotonic() - began_at
                    # The target is still opening these units and does not report when it is done.
                    # A disk or processor that slowed these steps slows the target as well.
                    await asyncio.sleep(min(took_s, HANDOVER_PAUSE_MS_MAX / 1000))

    def _refuse(
        self,
        moves: Sequence[PlannedMove],
        error: MetadataError,
        answers: dict[str, LookupAnswer],
    ) -> None:
        # A broker manager refuses a unit only for lack of room.
        is_full = isinstance(error, Refused)
        code = RejectionCode.NO_CAPACITY if is_full else RejectionCode.NO_BROKER
        for move in moves:
            why = f"broker {move.target.broker_id} is not ready for {move.text}: {error}"
            answers[move.text] = self._rejected(move.text, why, code)

    async def _hand_over(
        self, moves: Sequence[PlannedMove], answers: dict[str, LookupAnswer]
    ) -> None:
        """Commit some moves, send the units to their target, release them at their old owner."""
        async with self._targets.deciding(move.name for move in moves) as policies:
            self._units.tasks.check_open()
            decided = self._decide(moves, policies, answers)
            flights = [one.flight for one in decided]
            commit = self._proposer.propose([one.event for one in decided]) if decided else None
            # From here on, a lookup of these units waits until the target has them.
            self._flights.register(flights)
        if commit is None:
            await self._proposer.confirm()
            return
        try:
            first = (await commit).first_position
            self._metrics.moves.inc(len(decided))
            unfinished = [
                UnfinishedMove(
                    Placed(one.move.topic, one.move.next, first + offset),
                    first + offset,
                    (one.move.before,),
                )
                for offset, one in enumerate(decided)
            ]
            error = await self._finisher.hand_over(unfinished)
            await self._answer(decided, first, error, answers)
        except MetadataError as lost:
            self._flights.fail(flights, lost)
            raise
        if error is not None or not await self._is_released(unfinished):
            self._finisher.finish_later(unfinished)

    def _decide(
        self, moves: Sequence[PlannedMove], policies: Rules, answers: dict[str, LookupAnswer]
    ) -> list[_Decided]:
        """Check again what each move was planned on. The caller proposes it without an await."""
        decided: list[_Decided] = []
        room = self._targets.room()
        loaded = self._units.reads.load([move.name for move in moves])
        for move, (topic, assignment) in zip(moves, loaded, strict=True):
            if topic is None or assignment != move.before:
                why = f"{move.text} has changed while its move was prepared"
                answers[move.text] = self._rejected(move.text, why, RejectionCode.STALE_EPOCH)
                continue
            refusal = room.take(move.name, topic, move.before, policies, move.target)
            if refusal is not None:
                answers[move.text] = self._rejected(move.text, refusal.message, refusal.code)
                continue
            flight = self._flights.make(move.name, self._clock.monotonic())
            decided.append(_Decided(flight, move, _event(move)))
        return decided

    async def _answer(
        self,
        decided: Sequence[_Decided],
        first: int,
        error: MetadataError | None,
        answers: dict[str, LookupAnswer],
    ) -> None:
        broker = await self._units.owners.find(decided[0].move.next)
        for offset, one in enumerate(decided):
            move = one.move
            if error is None and broker is not None:
                answer = found = self._units.answers.served(move.next, broker, first + offset)
            else:
                # A lookup gets a retryable answer; the mover's answer adds that this is decided.
                why = f"broker {move.target.broker_id} did not take it yet: {error}"
                found = self._rejected(move.text, why)
                answer = self._rejected(move.text, why)
                answer.under_way = True
            self._flights.land(one.flight, found)
            answers[move.text] = answer

    async def _is_released(self, moves: Sequence[UnfinishedMove]) -> bool:
        try:
            await self._finisher.release(moves)
        except MetadataError as error:
            self._units.tasks.check_open()
            _logger.info("old owners not released yet", shard=self._shard_id, why=str(error))
            return False
        return True

    def _rejected(
        self, text: str, why: str, code: RejectionCode = RejectionCode.NO_BROKER
    ) -> LookupAnswer:
        return self._units.answers.rejected(text, code, why)


def _event(move: PlannedMove) -> TopicAssigned:
    before = move.before
    decision = assignments.decide(
        before,
        MoveTopic(
            before.topic_id,
            before.unit,
            before.name,
            move.target.broker_id,
            move.target.session_id,
            expected_epoch=before.epoch,
            reason=move.reason,
            decision=move.target.decision,
            least_epoch=move.least_epoch,
        ),
    )
    assert not isinstance(decision, Rejected), f"a move was refused: {decision}"
    (event,) = decision.events
    assert isinstance(event, TopicAssigned), f"a move decided {event}"
    return event


def _chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
