"""The states a shard leader has in memory: those in flight, and some that it has read.

Only this leader changes its shard, so what it has once read stays true until it changes it itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from nextgen.kernel.limits.cluster import SHARD_STATES_CACHED_MAX
from shards.domain.states import State, StateKind, States

TouchedKeys = tuple[tuple[StateKind, tuple[str, ...]], ...]


class StateCache:
    """States by kind and key. A pending state stays until the view has it, others may be dropped.

    ``None`` as a state is knowledge too: there is nothing under the key.
    """

    def __init__(self, cached_max: int = SHARD_STATES_CACHED_MAX) -> None:
        self._cached_max = cached_max
        self._pending: dict[StateKind, dict[str, tuple[int, State | None]]] = defaultdict(dict)
        self._settled: States = defaultdict(dict)

    def find(
        self, kind: StateKind, keys: Iterable[str]
    ) -> tuple[dict[str, State | None], list[str]]:
        """Return what is known of ``keys``, and the keys that nothing is known of."""
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
        """Keep what was read from the view."""
        settled = self._settled[kind]
        settled.update(states)
        self._trim(settled)

    def change(self, sequence: int, states: States) -> TouchedKeys:
        """Take over what proposal ``sequence`` changed; returns what to settle it with."""
        for kind, changed in states.items():
            pending, settled = self._pending[kind], self._settled[kind]
            for key, state in changed.items():
                pending[key] = (sequence, state)
                settled.pop(key, None)
        return tuple([(kind, tuple(changed)) for kind, changed in states.items()])

    def settle(self, sequence: int, touched: TouchedKeys, *, keeps: bool = True) -> None:
        """Note that the view has what proposal ``sequence`` changed.

        Unless ``keeps`` it is read from there when it is next asked for.
        """
        for kind, keys in touched:
            pending, settled = self._pending[kind], self._settled[kind]
            for key in keys:
                # A later proposal may have changed it again: that one is still in flight.
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
        excess = len(settled) - self._cached_max
        if excess > 0:
            for key in [key for key, _ in zip(settled, range(excess), strict=False)]:
                del settled[key]
