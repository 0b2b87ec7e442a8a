"""Moves assigned units to other brokers while clients go on using them.

    plan (who may take it) ─▶ handed over, see ``Handover`` ─▶ answered

A move that cannot be finished is not begun: what is refused has changed nothing. The old owner
serves until the last step and then knows where the unit went, so there is no moment at which an
answer in anybody's hands leads nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nextgen.kernel.errors import Definite, InvalidRequest, MetadataError, ProposalLost
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX, REQUEST_TIMEOUT_MS_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove
from shards.assignment.broker_sync import BrokerSync
from shards.assignment.topic_controller import TopicController
from shards.domain.assignment import MOVE_REASONS, Assignment
from shards.metrics import ShardMetrics
from shards.moves.handover import Handover, PlannedMove
from shards.moves.move_finisher import MoveFinisher
from shards.moves.move_target import MoveTargets, Said
from shards.ports import Clock
from shards.state.shard_state import ShardState
from shards.wire.lookup import served_answer

_ANSWER_MARGIN_MS = 20
"""A batch answers what it has so long before its deadline, rather than failing as a whole."""


class TopicMover:
    """Moves of one shard's units, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        controller: TopicController,
        sync: BrokerSync,
        finisher: MoveFinisher,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._controller = controller
        self._targets = MoveTargets(controller.placer, controller.policies)
        self._handover = Handover(
            shard_id, state, controller, sync, self._targets, finisher, clock, metrics
        )
        self._under_way: dict[str, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        return f"<TopicMover shard={self._shard_id} under_way={len(self._under_way)}>"

    @property
    def units_under_way(self) -> int:
        """Units whose move was begun and is not answered."""
        return len(self._under_way)

    async def move(
        self,
        moves: Sequence[TopicMove],
        timeout_ms: int = REQUEST_TIMEOUT_MS_MAX,
        asked_by: str = "",
    ) -> list[LookupAnswer]:
        """Return, in order, the new answer of each unit or why it stayed.

        Answers when the old owners were told to let go. A unit whose move is not over when the time
        nearly is gets a retryable answer that says ``under_way``; its move goes on, also when the
        caller goes away. One that something else keeps on its way until then gets a retryable
        answer, and this move of it is not begun.
        ``asked_by`` counts for moves that do not say it themselves.

        Raises:
            InvalidRequest: Too many moves, or one that nobody may ask for.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        _check(moves, asked_by)
        deadline = asyncio.get_running_loop().time() + (timeout_ms - _ANSWER_MARGIN_MS) / 1000
        answers: dict[str, LookupAnswer] = {}
        names = self._controller.parse((move.topic for move in moves), answers)
        said = await self._targets.rules_of(list(names.values()))
        for text in await self._settle(names, deadline):
            answers[text] = self._not_begun(text)
            del names[text]
        self._controller.check_open()
        planned = self._plan(names, {move.topic: move for move in moves}, asked_by, said, answers)
        if planned:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._under_way.update((move.text, done) for move in planned)
            self._controller.run(self._carry_out(planned, answers, done))
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait((done,), timeout=left)
            if done.done():
                done.result()
        else:
            await self._state.proposer.confirm()
        return [answers.get(move.topic) or self._unfinished(move.topic) for move in moves]

    async def _settle(self, names: dict[str, TopicName], deadline: float) -> list[str]:
        """Wait for units that are on their way: their outcome decides where they move from.

        Returns those that still are when the time is nearly over.
        """
        while waits := {
            future for text in names for future in self._on_their_way(text) if future is not None
        }:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return [text for text in names if any(self._on_their_way(text))]
            await asyncio.wait(waits, timeout=left)
        return []

    def _on_their_way(self, text: str) -> tuple[asyncio.Future[Any] | None, ...]:
        return self._controller.flights.get(text), self._under_way.get(text)

    def _plan(
        self,
        names: dict[str, TopicName],
        moves: dict[str, TopicMove],
        asked_by: str,
        said: Said,
        answers: dict[str, LookupAnswer],
    ) -> list[PlannedMove]:
        room = self._targets.room()
        planned: list[PlannedMove] = []
        loaded = self._controller.load(list(names.values()))
        for (text, name), (topic, assignment) in zip(names.items(), loaded, strict=True):
            if topic is None or assignment is None or not assignment.is_assigned:
                why = f"{text} is not assigned, there is nothing to move"
                answers[text] = self._controller.rejected(text, RejectionCode.NOT_FOUND, why)
                continue
            wanted = moves[text]
            if 0 < wanted.expected_epoch < assignment.epoch:
                # The answer to an earlier attempt was lost; moving again would be one too many.
                answers[text] = self._stayed(assignment)
                continue
            if wanted.expected_epoch > assignment.epoch:
                why = f"{text} is at epoch {assignment.epoch}, not {wanted.expected_epoch}"
                answers[text] = self._controller.rejected(text, RejectionCode.STALE_EPOCH, why)
                continue
            who = wanted.asked_by or asked_by
            target = room.choose(name, topic, assignment, said, wanted.target_broker_id, who)
            if target is None:
                answers[text] = self._stayed(assignment)
            elif isinstance(target, Rejected):
                answers[text] = self._controller.rejected(text, target.code, target.message)
            else:
                planned.append(
                    PlannedMove(
                        name,
                        topic,
                        assignment,
                        target,
                        MOVE_REASONS[who],
                        self._state.term.least_epoch,
                    )
                )
        room.end()
        return planned

    def _stayed(self, assignment: Assignment) -> LookupAnswer:
        broker = self._controller.known_broker(assignment)
        if broker is None:
            why = f"broker {assignment.broker_id} is not known here yet"
            return self._controller.rejected(assignment.name, RejectionCode.NO_BROKER, why)
        return served_answer(
            assignment, broker, shard_id=self._shard_id, position=self._state.position
        )

    def _unfinished(self, text: str) -> LookupAnswer:
        why = "the move is under way"
        answer = self._controller.rejected(text, RejectionCode.NO_BROKER, why)
        answer.under_way = True
        return answer

    def _not_begun(self, text: str) -> LookupAnswer:
        """Return the answer for a unit that something else keeps on its way."""
        is_moving = text in self._under_way
        what = "another move of it is under way" if is_moving else "it is being assigned"
        why = f"{what}, this move was not begun"
        answer = self._controller.rejected(text, RejectionCode.NO_BROKER, why)
        # Maybe an earlier attempt of the same caller, whose answer was lost.
        answer.under_way = is_moving
        return answer

    async def _carry_out(
        self,
        planned: Sequence[PlannedMove],
        answers: dict[str, LookupAnswer],
        done: asyncio.Future[None],
    ) -> None:
        try:
            await self._handover.carry_out(planned, answers)
            done.set_result(None)
        except Definite as error:
            if any(_has_moved(answers.get(move.text)) for move in planned):
                # Said of the whole it would be taken for nothing done, and all of it be repeated.
                self._refuse_rest(planned, answers, error)
                done.set_result(None)
            else:
                _fail(done, error)
        except MetadataError as error:
            _fail(done, error)
        finally:
            for move in planned:
                del self._under_way[move.text]
            # Cancelled with the term, or broken: what was decided stands, the rest is not known.
            _fail(done, ProposalLost(f"shard {self._shard_id}: leadership moved during a move"))

    def _refuse_rest(
        self,
        planned: Sequence[PlannedMove],
        answers: dict[str, LookupAnswer],
        error: MetadataError,
    ) -> None:
        for move in planned:
            if move.text not in answers:
                why = f"{move.text} was not moved: {error}"
                code = RejectionCode.NO_BROKER
                answers[move.text] = self._controller.rejected(move.text, code, why)


def _has_moved(answer: LookupAnswer | None) -> bool:
    return answer is not None and not answer.rejection_code


def _check(moves: Sequence[TopicMove], asked_by: str) -> None:
    if len(moves) > ASSIGNMENTS_PER_REQUEST_MAX:
        raise InvalidRequest(
            f"{len(moves)} moves, at most {ASSIGNMENTS_PER_REQUEST_MAX} are allowed"
        )
    for who in (asked_by, *(move.asked_by for move in moves)):
        if who not in MOVE_REASONS:
            raise InvalidRequest(f"{who[:80]!a} asks for no moves")


def _fail(done: asyncio.Future[None], error: MetadataError) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # Looked at, should the caller be gone.
