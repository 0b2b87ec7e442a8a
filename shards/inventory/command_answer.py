"""From a decision to an answer: proposes the events and makes the answer wait for the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.replication.ports import Commit
from protos.nextgen.v1.shard_service_pb2 import CommandResult
from shards.projections.reading import RecordedOutcome
from shards.state.command_outcomes import PendingOutcome
from shards.state.shard_state import ShardState
from shards.wire.event import DomainEvent
from shards.wire.inventory import rejected_result

E = TypeVar("E", bound=DomainEvent)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result that must not be sent before ``commit``; without one, not before leadership is
    confirmed. ``position`` is set for a result that was committed before this request."""

    result: CommandResult
    events: int = 0
    commit: asyncio.Future[Commit] | None = None
    position: int = 0

    @property
    def is_unproposed(self) -> bool:
        """True if it rests on reads alone."""
        return self.commit is None and not self.position


def answer_gate(state: ShardState, answer: Answer, attempt: int) -> Answer:
    """Return the answer to an order to a gate with the slots of this moment, and with the latest
    attempt that the gate knows."""
    own = state.reads.load_shard()
    for first, last in own.ranges if own is not None else ():
        answer.result.gate_slots.add(first=first, last=last)
    answer.result.gate_attempt = attempt
    return answer


def conclude(
    state: ShardState,
    command_id: bytes,
    decision: Accepted[E] | Rejected,
    accepted: CommandResult,
    *,
    time_ms: int | None = None,
) -> Answer:
    """Propose the decided events, with the command's outcome if it has an id."""
    if isinstance(decision, Rejected):
        return record(state, command_id, (), rejected_result(decision))
    return record(state, command_id, decision.events, accepted, time_ms=time_ms)


def record(
    state: ShardState,
    command_id: bytes,
    events: Sequence[DomainEvent],
    result: CommandResult,
    *,
    time_ms: int | None = None,
) -> Answer:
    """Propose ``events`` and remember ``result`` under the command's id, if it has one.

    If some replica may not know an event, the command is rejected, and the rejection is recorded
    like any other: a late attempt of the same command is not carried out after all.

    Raises:
        Unavailable: The shard is being restored. Nothing was proposed.
    """
    if not events and not command_id:
        return Answer(result)
    if events:
        state.check_not_restoring()
    outcome = result.SerializeToString() if command_id else b""
    try:
        commit = state.proposer.propose(
            events, command_id=command_id, outcome=outcome, time_ms=time_ms
        )
    except Refused as refused:
        rejected = Rejected(RejectionCode(refused.code), str(refused))
        return record(state, command_id, (), rejected_result(rejected))
    return Answer(result, len(events), commit)


def repeated(known: PendingOutcome | RecordedOutcome) -> Answer:
    """Return the first outcome of a command id again."""
    result = CommandResult.FromString(known.outcome)
    if isinstance(known, PendingOutcome):
        return Answer(result, known.events, known.commit)
    return Answer(result, position=known.position)


async def finish(state: ShardState, answer: Answer) -> CommandResult:
    """Wait until ``answer`` may be sent, and return its result with its position.

    Raises:
        NotLeader, ProposalLost: Leadership moved.
    """
    result = answer.result
    if answer.commit is not None:
        commit = await asyncio.shield(answer.commit)
        result.position = commit.first_position + answer.events - 1
    elif answer.position:
        result.position = answer.position
    else:
        await state.proposer.confirm()
        result.position = state.position
    return result
