"""The states that a shard's leader has in memory: pending ones, and some that it has read.

Only this leader changes its shard, so a state that it has read stays valid until it changes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from nextgen.kernel.limits.write import NODE_STATES_CACHED_MAX, SHARD_STATES_CACHED_MAX
from shards.domain.states import State, StateKind, States

TouchedKeys = tuple[tuple[StateKind, tuple[str, ...]], ...]


class Unread(Enum):
    """That a state is not in memory, which is not that there is none."""

    UNREAD = 0


UNREAD: Final = Unread.UNREAD


class StateRoom:
    """How many states each of a node's leaders may keep of a kind. Owned by one event loop."""

    def __init__(self) -> None:
        self._leaders: set[Hashable] = set()
        self._part = SHARD_STATES_CACHED_MAX

    def __repr__(self) -> str:
        return f"<StateRoom leaders={len(self._leaders)} part={self._part}>"

    def enter(self, leader: Hashable) -> None:
        """Give a leader its part."""
        self._leaders.add(leader)
        self._divide()

    def leave(self, leader: Hashable) -> None:
        """Divide its part among the others."""
        self._leaders.discard(leader)
        self._divide()

    def part(self) -> int:
        """Return how many states a leader may keep at this moment."""
        return self._part

    def _divide(self) -> None:
        equal = NODE_STATES_CACHED_MAX // max(1, len(self._leaders))
        self._part = min(equal, SHARD_STATES_CACHED_MAX)


def as_many_as_alone() -> int:
    """Return how many states the only leader of a node may keep of a kind."""
    return SHARD_STATES_CACHED_MAX


class StateCache:
    """States by kind and key. A pending state stays until the view has it, others may be dropped.

    A state ``None`` means that nothing is stored under the key. ``cached_max`` returns how many of
    a kind may be kept beyond the pending ones.
    """

    def __init__(self, cached_max: Callable[[], int] = as_many_as_alone) -> None:
        self._cached_max = cached_max
        self._pending: dict[StateKind, dict[str, tuple[int, State | None]]] = defaultdict(dict)
        self._settled: States = defaultdict(dict)

    def get(self, kind: StateKind, key: str) -> State | Unread | None:
        """Return the state in memory of ``key``. Commands ask a dozen times each."""
        entry = self._pending[kind].get(key)
        if entry is not None:
            return entry[1]
        return self._settled[kind].get(key, UNREAD)

    def find(
        self, kind: StateKind, keys: Iterable[str]
    ) -> tuple[dict[str, State | None], list[str]]:
        """Return the states in memory of ``keys``, and the keys that have none."""
        pending, settled = self._pending[kind], self._settled[kind]
        found: dict[str, State | None] = {}
        missing: list[str] = []
        for key in keys:
            if key in pending:
                found[key] = pending[key][1]
            elif key in settled:
                found[key] = settled[key]
            else:
                missing.append(key)
        return found, missing

    def remember(self, kind: StateKind, states: Mapping[str, State | None]) -> None:
        """Keep states that were read from the view."""
        settled = self._settled[kind]
        settled.update(states)
        self._trim(settled)

    def change(self, sequence: int, states: States) -> TouchedKeys:
        """Keep the states after proposal ``sequence``; return the keys to settle it with."""
        for kind, changed in states.items():
            pending, settled = self._pending[kind], self._settled[kind]
            for key, state in changed.items():
                pending[key] = (sequence, state)
                settled.pop(key, None)
        return tuple([(kind, tuple(changed)) for kind, changed in states.items()])

    def settle(self, sequence: int, touched: TouchedKeys, *, keeps: bool = True) -> None:
        """Note that the view has applied proposal ``sequence``.

        Unless ``keeps``, its states leave memory and the next read goes to the view.
        """
        for kind, keys in touched:
            pending, settled = self._pending[kind], self._settled[kind]
            for key in keys:
                # A later proposal may have changed it again and is still in flight.
                if key in pending and pending[key][0] == sequence:
                    state = pending.pop(key)[1]
                    if keeps:
                        settled[key] = state
            self._trim(settled)

    def pending(self, kind: StateKind) -> Iterator[tuple[str, State | None]]:
        """Yield the states of ``kind`` that the view may not have yet."""
        for key, (_, state) in self._pending[kind].items():
            yield key, state

    def pending_of(self, kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
        """Return those of ``keys`` whose state the view may not have yet."""
        pending = self._pending[kind]
        return {key: pending[key][1] for key in keys if key in pending} if pending else {}

    def _trim(self, settled: dict[str, State | None]) -> None:
        excess = len(settled) - self._cached_max()
        if excess > 0:
            for key in [key for key, _ in zip(settled, range(excess), strict=False)]:
                del settled[key]
