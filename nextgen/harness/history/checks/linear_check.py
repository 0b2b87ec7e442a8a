"""Linearizability of all objects of a history, one search for each.

The log shortens the search. Operations without an answer that are not in the log never happened and
are left out; those that are in the log get their id; and all writes get the log's order as a hint.
An order that is found with it is an order of the history. If none is found, the answers contradict
each other or the log, which is as bad: a client saw something that was never committed. If the
match with the log is ambiguous, because several commands without an answer and without an id made
the same request, or because the log was cut, the search is repeated without the log, and that
result counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nextgen.audit.verdict import Finding, FindingKind, named
from nextgen.harness.history.checks.effects import Effects, names_in
from nextgen.harness.history.checks.linearizability import Answer, Call, Outcome, linearize
from nextgen.harness.history.checks.object_model import (
    ABSENT,
    MODELLED,
    ModelContext,
    State,
    call_of,
    describe,
)
from nextgen.harness.history.model import Operation, OperationKind

HISTORY_STEPS_PER_KEY_MAX = 1_000_000
"""Steps of the search for a linearization of one key; a few seconds. Then it is undecided."""

HISTORY_STEPS_MAX = 30_000_000
"""Steps of the search over all keys of a history; about a minute. The rest is undecided."""

CHECK = "linearizability"


@dataclass(slots=True)
class Budget:
    """Remaining steps of a whole history, and the largest number for one key."""

    left: int = HISTORY_STEPS_MAX
    per_key_max: int = HISTORY_STEPS_PER_KEY_MAX

    def next_max(self) -> int:
        return min(self.left, self.per_key_max)


def check_linearizability(
    operations: Sequence[Operation], effects: Effects | None, budget: Budget | None = None
) -> Iterator[Finding]:
    """Judge every object. ``effects`` None: there is no log."""
    budget = budget or Budget()
    names = names_in(operations) if effects is None else effects.names
    by_key: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.kind in MODELLED:
            by_key.setdefault(names.first_of(operation.key), []).append(operation)
    for key, of_key in by_key.items():
        outcome = _judge(key, of_key, effects, budget)
        if outcome.answer is not Answer.LINEARIZABLE:
            yield _finding(key, of_key, outcome)


def _judge(
    key: str, operations: Sequence[Operation], effects: Effects | None, budget: Budget
) -> Outcome[State]:
    if effects is not None:
        outcome = _search(_with_log(operations, effects), budget)
        is_guess = not effects.is_log_complete or key in effects.guessed_keys
        if outcome.answer is Answer.LINEARIZABLE or not is_guess:
            return outcome
    return _search(_calls(operations, ModelContext(_taken_ids(operations), {}, {})), budget)


def _with_log(operations: Sequence[Operation], effects: Effects) -> list[Call[State]]:
    known = effects.events
    kept = [op for op in operations if not op.is_unknown or op.name in known]
    bound = {
        op.name: known[op.name].id
        for op in kept
        if op.is_unknown and op.kind is OperationKind.CREATE
    }
    hints = {op.name: known[op.name].order for op in kept if op.name in known}
    return _calls(kept, ModelContext(_taken_ids(operations), bound, hints))


def _calls(operations: Sequence[Operation], context: ModelContext) -> list[Call[State]]:
    calls = (call_of(operation, context) for operation in operations)
    return [call for call in calls if call is not None]


def _search(calls: Sequence[Call[State]], budget: Budget) -> Outcome[State]:
    outcome = linearize(calls, ABSENT, steps_max=budget.next_max())
    budget.left = max(0, budget.left - outcome.steps)
    return outcome


def _taken_ids(operations: Sequence[Operation]) -> frozenset[str]:
    return frozenset(
        str(op.value.get("id")) for op in operations if op.kind is OperationKind.CREATE and op.is_ok
    )


def _finding(key: str, operations: Sequence[Operation], outcome: Outcome[State]) -> Finding:
    stuck = next((op for op in operations if op.name == outcome.stuck), None)
    names = [name for name in (outcome.stuck, *reversed(outcome.order)) if name]
    at_ns = stuck.returned_ns if stuck is not None else None
    if outcome.answer is Answer.UNDECIDED:
        message = f"no order of {len(operations)} operations was found in {outcome.steps} steps"
        return Finding(
            FindingKind.UNDECIDED, CHECK, message, key, operations=named(names), at_ns=at_ns
        )
    message = f"{len(operations)} operations of {key} have no order"
    if stuck is not None:
        message += (
            f": {_told(stuck)} does not fit; the closest attempt had placed "
            f"{len(outcome.order)} and was at: {describe(outcome.state)}"
        )
    return Finding(FindingKind.VIOLATION, CHECK, message, key, operations=named(names), at_ns=at_ns)


def _told(operation: Operation) -> str:
    asked = f" {dict(operation.argument)}" if operation.argument else ""
    answered = f" {dict(operation.value)}" if operation.is_ok else ""
    return f"{operation.kind}{asked} = {operation.outcome}{answered} ({operation.name})"
