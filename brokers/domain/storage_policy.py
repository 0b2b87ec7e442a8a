"""How much of a topic is kept, and how much may wait to be consumed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """The same for all topics of a broker."""

    retention_ms: int
    """What every durable subscription has acknowledged is kept so long, and then dropped."""

    retention_bytes: int
    """And only as long as it is among so many newest bytes of the topic."""

    backlog_bytes_max: int
    """What the slowest durable subscription has before it; beyond it nothing is published."""
