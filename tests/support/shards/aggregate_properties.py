"""The four promises of every aggregate: retry, replay, snapshot, total.

A test hands in the aggregate's module and any commands; what is reached by them is what the
promises are checked in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.kernel.events.decider import Accepted, Rejected, fold
from shards.domain.states import StateKind
from shards.projections.rows import MAPPINGS


@dataclass(frozen=True)
class AggregateUnderTest:
    """An aggregate, where its states are kept, and under which key."""

    decide: Callable[[Any, Any], Accepted[Any] | Rejected]
    evolve: Callable[[Any, Any], Any]
    kind: StateKind
    key_of: Callable[[Any], str]

    def run(self, commands: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return the state after ``commands``, and the events that led there."""
        state: Any = None
        events: list[Any] = []
        for command in commands:
            decision = self.decide(state, command)
            if isinstance(decision, Accepted):
                state = fold(self.evolve, state, decision.events)
                events += decision.events
        return state, events


def check_all_promises(
    aggregate: AggregateUnderTest, history: Sequence[Any], command: Any, cut: int
) -> None:
    """Check the four promises after ``history`` for ``command``; ``cut`` splits the events."""
    state, events = aggregate.run(history)
    decision = aggregate.decide(state, command)  # Total: neither this nor evolve may raise.
    assert isinstance(decision, Accepted | Rejected)
    _check_retry(aggregate, state, command, decision)
    _check_replay(aggregate, state, events, cut)
    _check_snapshot(aggregate, state)


def _check_retry(
    aggregate: AggregateUnderTest, state: Any, command: Any, decision: Accepted[Any] | Rejected
) -> None:
    if isinstance(decision, Accepted):
        after = fold(aggregate.evolve, state, decision.events)
        assert aggregate.decide(after, command) == Accepted(())


def _check_replay(
    aggregate: AggregateUnderTest, state: Any, events: Sequence[Any], cut: int
) -> None:
    place = cut % (len(events) + 1)
    halfway = fold(aggregate.evolve, None, events[:place])
    assert fold(aggregate.evolve, halfway, events[place:]) == state


def _check_snapshot(aggregate: AggregateUnderTest, state: Any) -> None:
    if state is not None:
        mapping = MAPPINGS[aggregate.kind]
        assert mapping.from_row(mapping.to_row(aggregate.key_of(state), state)) == state
