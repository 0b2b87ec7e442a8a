"""Moves assigned units to other brokers while clients go on using them.

    plan (choose the target) ─▶ handed over, see ``Handover`` ─▶ answered

A move that cannot be finished is not begun, so a refusal has changed nothing. The old owner serves
until the last step and then redirects clients to the new one, so a cached answer always leads to
an owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nextgen.kernel.errors import Definite, InvalidRequest, MetadataError, ProposalLost
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX, REQUEST_TIMEOUT_MS_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove
from shards.assignment.shard_units import ShardUnits
from shards.assignment.unit_flight import fail_future
from shards.domain.assignment import MOVE_REASONS, Assignment
from shards.domain.lookup import check_listed, check_served
from shards.domain.placement.choice import BalanceSeen
from shards.domain.topic import Topic
from shards.moves.handover import Handover, PlannedMove
from shards.moves.move_target import MoveTarget, MoveTargets, PoliciesFound
from shards.state.shard_state import ShardState

_ANSWER_MARGIN_MS = 20
"""A batch returns its partial answers this long before its deadline, rather than failing."""


class _UnderWay(NamedTuple):
    topic_id: str
    done: asyncio.Future[None]


class TopicMover:
    """Moves of one shard's units, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        units: ShardUnits,
        targets: MoveTargets,
        handover: Handover,
    ) -> None:
        self._shard_id = shard_id
        self._proposer = state.proposer
        self._reads = state.reads
        self._least_epoch = state.term.least_epoch
        self._units = units
        self._answers = units.answers
        self._targets = targets
        self._handover = handover
        self._under_way: dict[str, _UnderWay] = {}
        self._is_held: Callable[[str], bool] = lambda _topic_id: False
        self._held_until_s = 0.0

    def __repr__(self) -> str:
        return f"<TopicMover shard={self._shard_id} under_way={len(self._under_way)}>"

    @property
    def units_under_way(self) -> int:
        """Units whose move was begun and has no answer yet."""
        return len(self._under_way)

    def hold(self, is_held: Callable[[str], bool], until_s: float) -> None:
        """Begin no move of units of which ``is_held`` is true, by their topic's id, until a time of
        the loop: their slots are about to go to another shard."""
        self._is_held, self._held_until_s = is_held, until_s

    def is_moving(self, is_of: Callable[[str], bool]) -> bool:
        """Return whether a unit of which ``is_of`` is true, by its topic's id, is in a move that is
        not over."""
        return any(is_of(each.topic_id) for each in self._under_way.values())

    async def move(
        self,
        moves: Sequence[TopicMove],
        timeout_ms: int = REQUEST_TIMEOUT_MS_MAX,
        asked_by: str = "",
    ) -> list[LookupAnswer]:
        """Return, in order, the new answer of each unit or why it stayed.

        Answers when the old owners have released the units. A unit whose move is not over shortly
        before the deadline gets a retryable answer with ``under_way``; its move goes on, also when
        the caller is cancelled. A unit that is in flight or in another move until then gets a
        retryable answer, and this move of it is not begun.
        ``asked_by`` is the default of moves without one.

        Raises:
            InvalidRequest: Too many moves, or one with an unknown ``asked_by``.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        _check(moves, asked_by)
        deadline = asyncio.get_running_loop().time() + (timeout_ms - _ANSWER_MARGIN_MS) / 1000
        answers: dict[str, LookupAnswer] = {}
        names = self._units.reads.parse((move.topic for move in moves), answers)
        policies = await self._targets.policies_of(list(names.values()))
        for text in await self._settle(names, deadline):
            answers[text] = self._not_begun(text)
            del names[text]
        self._units.tasks.check_open()
        planned = self._plan(
            names, {move.topic: move for move in moves}, asked_by, policies, answers
        )
        if planned:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._under_way.update(
                (move.text, _UnderWay(move.topic.topic_id, done)) for move in planned
            )
            self._units.tasks.run(self._carry_out(planned, answers, done))
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait((done,), timeout=left)
            if done.done():
                done.result()
        else:
            await self._proposer.confirm()
        return [answers.get(move.topic) or self._unfinished(move.topic) for move in moves]

    async def _settle(self, names: dict[str, TopicName], deadline: float) -> list[str]:
        """Wait for units that are in flight or in a move: their outcome is where they move from.

        Returns the units that are not settled shortly before the deadline.
        """
        while waits := {
            future for text in names for future in self._in_progress(text) if future is not None
        }:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return [text for text in names if any(self._in_progress(text))]
            await asyncio.wait(waits, timeout=left)
        return []

    def _in_progress(self, text: str) -> tuple[asyncio.Future[Any] | None, ...]:
        under_way = self._under_way.get(text)
        return self._units.flights.get(text), None if under_way is None else under_way.done

    def _check_served(self, name: TopicName, topic: Topic | None) -> Rejected | None:
        """Return why a unit stays. A segment that left the layout is removed where it is."""
        refused = check_served(name, topic)
        if refused is not None or name.segment is None:
            return refused
        return check_listed(name, self._reads.load_scalable(name.base_text), may_be_planned=True)

    def _plan(
        self,
        names: dict[str, TopicName],
        moves: dict[str, TopicMove],
        asked_by: str,
        policies: PoliciesFound,
        answers: dict[str, LookupAnswer],
    ) -> list[PlannedMove]:
        room = self._targets.room()
        is_holding = asyncio.get_running_loop().time() < self._held_until_s
        planned: list[PlannedMove] = []
        loaded = self._units.reads.load(list(names.values()))
        for (text, name), (topic, assignment) in zip(names.items(), loaded, strict=True):
            if is_holding and topic is not None and self._is_held(topic.topic_id):
                why = f"{text} is about to be served by another shard"
                answers[text] = self._answers.rejected(text, RejectionCode.NO_BROKER, why)
                continue
            refused = self._check_served(name, topic)
            if refused is not None:
                partitions = topic.partitions if topic is not None else 0
                answers[text] = self._answers.refused(text, refused, partitions)
                continue
            if topic is None or assignment is None or not assignment.is_assigned:
                why = f"{text} is not assigned, there is nothing to move"
                answers[text] = self._answers.rejected(text, RejectionCode.NOT_FOUND, why)
                continue
            wanted = moves[text]
            if 0 < wanted.expected_epoch < assignment.epoch:
                # An earlier attempt moved it and its answer was lost: do not move it again.
                answers[text] = self._stayed(assignment)
                continue
            if wanted.expected_epoch > assignment.epoch:
                why = f"{text} is at epoch {assignment.epoch}, not {wanted.expected_epoch}"
                answers[text] = self._answers.rejected(text, RejectionCode.STALE_EPOCH, why)
                continue
            origin = wanted.asked_by or asked_by
            target = room.choose(name, topic, assignment, policies, wanted.target_broker_id, origin)
            if target is None:
                answers[text] = self._stayed(assignment)
            elif isinstance(target, Rejected):
                answers[text] = self._answers.rejected(text, target.code, target.message)
            else:
                planned.append(
                    PlannedMove(
                        name,
                        topic,
                        assignment,
                        _with_balance(target, wanted),
                        MOVE_REASONS[origin],
                        self._least_epoch,
                    )
                )
        room.end()
        return planned

    def _stayed(self, assignment: Assignment) -> LookupAnswer:
        broker = self._units.owners.known(assignment)
        if broker is None:
            why = f"broker {assignment.broker_id} is not known here yet"
            return self._answers.rejected(assignment.name, RejectionCode.NO_BROKER, why)
        return self._answers.served(assignment, broker)

    def _unfinished(self, text: str) -> LookupAnswer:
        why = "the move is under way"
        answer = self._answers.rejected(text, RejectionCode.NO_BROKER, why)
        answer.under_way = True
        return answer

    def _not_begun(self, text: str) -> LookupAnswer:
        """Return the answer for a unit that another operation keeps in progress."""
        is_moving = text in self._under_way
        what = "another move of it is under way" if is_moving else "it is being assigned"
        why = f"{what}, this move was not begun"
        answer = self._answers.rejected(text, RejectionCode.NO_BROKER, why)
        # The other move may be an earlier attempt of this caller whose answer was lost.
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
                # An error of the whole request would have the caller repeat moves that are done.
                self._refuse_rest(planned, answers, error)
                done.set_result(None)
            else:
                fail_future(done, error)
        except MetadataError as error:
            fail_future(done, error)
        finally:
            for move in planned:
                del self._under_way[move.text]
            # Cancelled with the term, or failed by a bug: decided moves stand, others are unknown.
            fail_future(
                done, ProposalLost(f"shard {self._shard_id}: leadership moved during a move")
            )

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
                answers[move.text] = self._answers.rejected(move.text, code, why)


def _has_moved(answer: LookupAnswer | None) -> bool:
    return answer is not None and not answer.rejection_code


def _with_balance(target: MoveTarget, wanted: TopicMove) -> MoveTarget:
    """Return the target with the imbalance that the move was asked for, if it is for balance."""
    if not wanted.HasField("balance"):
        return target
    seen = wanted.balance
    numbers = BalanceSeen(seen.from_permille, seen.to_permille, seen.unit_permille)
    return replace(target, decision=replace(target.decision, balance=numbers))


def _check(moves: Sequence[TopicMove], asked_by: str) -> None:
    if len(moves) > ASSIGNMENTS_PER_REQUEST_MAX:
        raise InvalidRequest(
            f"{len(moves)} moves, at most {ASSIGNMENTS_PER_REQUEST_MAX} are allowed"
        )
    for origin in (asked_by, *(move.asked_by for move in moves)):
        if origin not in MOVE_REASONS:
            raise InvalidRequest(f"{origin[:80]!a} is no origin of moves")
