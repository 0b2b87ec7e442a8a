"""The envelope: what every event in a log carries besides itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Envelope(Generic[E]):
    """One event where it stands in the log of one shard. Never changes once committed."""

    shard_id: int
    """Whose log this is; 0 is the cluster manager's."""

    position: int
    """Dense number of the event in its shard, from 1."""

    term: int
    """Raft term of the leader that decided the event."""

    time_ms: int
    """Unix milliseconds at which the leader stamped the command. For people and reports:
    it may go backwards at a change of leader, so nothing is ordered by it."""

    schema_version: int
    """Version of the event's schema when it was written; readers upcast older ones."""

    causation_id: bytes
    """Id of the command that caused the event; empty when no client asked for it."""

    event: E

    @property
    def event_id(self) -> str:
        """The event's name across all shards, for ever: ``shard:position``."""
        return f"{self.shard_id}:{self.position}"
