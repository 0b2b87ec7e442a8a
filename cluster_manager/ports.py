"""The ports of the cluster manager, except the replicated log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cluster_manager.domain.cluster import ClusterState


class Clock(Protocol):
    """Two clocks, never mixed: one for records and people, one for waiting."""

    def unix_ms(self) -> int:
        """Return Unix time. It may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Return the time since an arbitrary moment. It never goes backwards."""
        ...

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` on the loop at that moment; the returned function cancels it."""
        ...


class View(Protocol):
    """The stored fold of group 0's log."""

    def load(self) -> tuple[ClusterState, int]:
        """Return the state and the index of the last entry in it. Blocks for a short time."""
        ...


class Grantor(Protocol):
    """Requests grants of capacity from broker managers."""

    async def grant(self, *, broker_id: str, session_id: str, units: int) -> int:
        """Return how many units of the session are granted in all, at most ``units`` wanted.

        Durable at the broker manager when this returns. Takes at most
        ``CAPACITY_GRANT_MS_MAX``.

        Raises:
            MetadataError: The broker manager cannot be reached, or the session is not live there.
        """
        ...
