"""Which broker managers effective writes of a home shard have to wait for.

A manager counts until it was out of touch with the home shard's leader for
``EFFECTIVE_MANAGER_MS`` (docs/flows/policies.md). Its brokers may be behind from then on, until it
is back and has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from nextgen.kernel.limits.placement import EFFECTIVE_MANAGER_MS

LOOKED_S = 0.5
"""What happens between two looks is seen that much too late."""

COUNTED_S = EFFECTIVE_MANAGER_MS / 1000 - LOOKED_S

BACK_S = EFFECTIVE_MANAGER_MS / 1000
"""One that was out of touch counts again after so long: its streams are opened anew, with pauses
between the attempts, and its brokers report or their sessions end."""


class InTouch:
    """Contact between leaders, as ``look`` has seen it. Times are those of ``now_s``.

    ``leader_of`` returns the node that leads a shard, None while none runs; ``reach`` says whether
    two nodes reach each other both ways, without long delays.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        leader_of: Callable[[int], str | None],
        reach: Callable[[str, str], bool],
    ) -> None:
        self._now_s = now_s
        self._leader_of = leader_of
        self._reach = reach
        self._pairs: dict[tuple[int, int], tuple[str, str]] = {}
        """The leaders of two shards that reach each other at present."""
        self._since_s: dict[tuple[int, int], float] = {}
        self._last_s: dict[tuple[int, int], float] = {}

    def look(self, shard_ids: Iterable[int]) -> None:
        """Record which nodes reach each other at this moment."""
        leaders = {shard_id: self._leader_of(shard_id) for shard_id in shard_ids}
        now_s = self._now_s()
        for (manager, one), (home, other) in product(leaders.items(), repeat=2):
            key = (manager, home)
            if one is None or other is None or not self._reach(one, other):
                self._pairs.pop(key, None)
                continue
            if self._pairs.get(key) != (one, other):
                self._pairs[key] = (one, other)
                self._since_s[key] = now_s
            if now_s - self._since_s[key] >= BACK_S:
                self._last_s[key] = now_s

    def counts(self, manager: int, home: int) -> bool:
        """Return whether a shard's broker manager has to be waited for by writes of a home."""
        last_s = self._last_s.get((manager, home))
        return last_s is not None and self._now_s() - last_s < COUNTED_S
