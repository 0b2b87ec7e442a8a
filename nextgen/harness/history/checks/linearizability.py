"""Searches for a sequential order of operations that gives their answers.

Theory. An operation takes effect at one moment between its invocation and its return (Herlihy and
Wing, "Linearizability", 1990). The search is Wing and Gong's (1993): pick an operation that no
unplaced, returned operation must precede, apply it to the sequential model, and continue; step back
if none fits.
As Lowe ("Testing for linearizability", 2017) shows, it is enough to visit each pair (set of
operations placed, state) once. Objects are judged one by one: a history is linearizable exactly if
it is for each object (Herlihy and Wing, theorem 1), which keeps the sets small.

Three rules of our own, none of which excludes an order that matters:

- An operation whose outcome is unknown is *open*: it may be placed anywhere after its invocation,
  or never. It is tried only where its effect changes something.
- An operation that fits and leaves the state as it is, is placed at once and for good: if any valid
order has it later, a valid order has it here.
- Candidates are tried in the order of their ``hint``: with the log's positions as hints, the first
order is usually valid. Hints change the duration of the search, not its answer.

The placed operations are a bit mask relative to the first one that is not placed, so a visit takes
memory in proportion to the overlapping operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)

NEVER_NS = 1 << 62
"""Return time of an operation without an answer: after every other time."""


@dataclass(frozen=True, slots=True)
class Call(Generic[S]):
    """One operation as the search sees it.

    ``apply`` returns the state after it, or None if it cannot have been answered like that in
    this state; of an open one also None where it would change nothing.
    """

    name: str
    invoked_ns: int
    returned_ns: int
    apply: Callable[[S], S | None]
    is_open: bool = False
    hint: int = 0


class Answer(StrEnum):
    """``UNDECIDED``: the search ran out of steps."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not_linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S]):
    """The result of a search. ``order``: the calls that the deepest attempt placed, in order;
    ``stuck``: the call that had to come next there but did not fit ``state``."""

    answer: Answer
    steps: int
    order: tuple[str, ...] = ()
    stuck: str = ""
    state: S | None = None


def linearize(calls: Sequence[Call[S]], initial: S, *, steps_max: int) -> Outcome[S]:
    """Search an order for ``calls``, all of one object, that begins in state ``initial``."""
    return _Search(calls, initial, steps_max).run()


@dataclass(slots=True)
class _Frame(Generic[S]):
    """One point of the search: the placed calls, the state, and the untried next calls.

    ``mask`` has a bit for each closed call from ``first`` on, and ``first`` is not placed.
    """

    first: int
    mask: int
    opened: int
    state: S
    placed: Call[S] | None
    untried: Iterator[int]
    """Numbers of closed calls; of open ones -1 - number."""


class _Search(Generic[S]):
    def __init__(self, calls: Sequence[Call[S]], initial: S, steps_max: int) -> None:
        closed = [call for call in calls if not call.is_open]
        self._closed = sorted(closed, key=lambda call: (call.invoked_ns, call.returned_ns))
        self._open = [call for call in calls if call.is_open]
        self._steps_max = steps_max
        self._steps = 0
        self._visited: set[tuple[int, int, int, S]] = set()
        self._initial = initial
        self._deepest = -1
        self._best: Outcome[S] | None = None

    def run(self) -> Outcome[S]:
        stack = [self._frame(0, 0, 0, self._initial, None)]
        while stack:
            frame = stack[-1]
            if frame.first == len(self._closed):
                order = tuple(each.placed.name for each in stack if each.placed is not None)
                return Outcome(Answer.LINEARIZABLE, self._steps, order)
            following = self._next(frame)
            if self._steps > self._steps_max:
                return self._failed(Answer.UNDECIDED)
            if following is not None:
                stack.append(following)
                continue
            if len(stack) > self._deepest:
                self._note_deepest(stack)
            stack.pop()
        return self._failed(Answer.NOT_LINEARIZABLE)

    def _next(self, frame: _Frame[S]) -> _Frame[S] | None:
        """Place one more call behind ``frame``, None if all were tried."""
        for number in frame.untried:
            self._steps += 1
            call = self._closed[number] if number >= 0 else self._open[-1 - number]
            after = call.apply(frame.state)
            if after is None:
                continue
            first, mask, opened = frame.first, frame.mask, frame.opened
            if number >= 0:
                mask |= 1 << (number - first)
                while mask & 1:
                    mask >>= 1
                    first += 1
                if after == frame.state:
                    frame.untried = iter(())
            else:
                opened |= 1 << (-1 - number)
            visit = (first, mask, opened, after)
            if visit not in self._visited:
                self._visited.add(visit)
                return self._frame(first, mask, opened, after, call)
        return None

    def _frame(
        self, first: int, mask: int, opened: int, state: S, placed: Call[S] | None
    ) -> _Frame[S]:
        found, earliest_return = self._minimal(first, mask)
        for number, call in enumerate(self._open):
            if call.invoked_ns <= earliest_return and not opened >> number & 1:
                found.append(-1 - number)
        found.sort(key=self._rank)
        return _Frame(first, mask, opened, state, placed, iter(found))

    def _minimal(self, first: int, mask: int) -> tuple[list[int], int]:
        """Return the closed calls that no unplaced one precedes, and when the first returned."""
        found: list[int] = []
        earliest_return = NEVER_NS
        closed = self._closed
        for number in range(first, len(closed)):
            call = closed[number]
            if call.invoked_ns > earliest_return:
                break
            if not mask & 1:
                found.append(number)
                earliest_return = min(earliest_return, call.returned_ns)
            mask >>= 1
        return found, earliest_return

    def _rank(self, number: int) -> tuple[int, bool, int]:
        if number >= 0:
            call = self._closed[number]
            return call.hint, False, call.returned_ns
        call = self._open[-1 - number]
        return call.hint, True, call.invoked_ns

    def _note_deepest(self, stack: Sequence[_Frame[S]]) -> None:
        self._deepest = len(stack)
        frame = stack[-1]
        unplaced, _ = self._minimal(frame.first, frame.mask)
        stuck = min((self._closed[number] for number in unplaced), key=lambda c: c.returned_ns)
        order = tuple(each.placed.name for each in stack if each.placed is not None)
        self._best = Outcome(Answer.NOT_LINEARIZABLE, self._steps, order, stuck.name, frame.state)

    def _failed(self, answer: Answer) -> Outcome[S]:
        best = self._best
        if best is None:
            return Outcome(answer, self._steps)
        return Outcome(answer, self._steps, best.order, best.stuck, best.state)
