"""What an adoption needs of the three sides: Pulsar, its brokers' sidecars, and this cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """A topic that is open at a broker. ``bundle_owner``: as ``StockBroker.broker``, "" none."""

    topic: str
    is_owned: bool
    """It belongs to this broker, as the namespace is placed now."""
    bundle_owner: str


@dataclass(frozen=True, slots=True)
class OpenTopics:
    """The topics of the namespace that are open at one broker."""

    by_topic: bool
    """The broker has heard that the namespace is handed over."""
    topics: tuple[OpenTopic, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whose a topic is, or, with an empty ``broker_id``, why it is nobody's."""

    topic: str
    broker_id: str
    code: str = ""
    message: str = ""


class Placement(Protocol):
    """The stock cluster's metadata."""

    async def set_by_topic(self, namespace: str, *, by_topic: bool) -> None:
        """Set or remove the property that hands the namespace over.

        Raises:
            MetadataError: It is not known whether that was done, or it was refused.
        """
        ...


class Brokers(Protocol):
    """The stock brokers, by their ids here."""

    async def open_topics(self, broker_id: str, namespace: str) -> OpenTopics: ...

    async def claim(self, broker_id: str, topics: Sequence[str]) -> list[Outcome]:
        """Assign topics that nobody has to this broker; return whose each is, in order."""
        ...

    async def close_foreign(self, broker_id: str, topics: Sequence[str]) -> int:
        """Have topics of others closed and their clients sent there; return how many failed."""
        ...


class Cluster(Protocol):
    """This cluster."""

    async def move(self, moves: Mapping[str, str]) -> list[Outcome]:
        """Move assigned topics to brokers; return whose each is, or why it stayed, in order."""
        ...

    async def assigned(self, namespace: str) -> list[str]:
        """Return the topics and partitions of a namespace that a broker has."""
        ...

    async def unload(self, topics: Sequence[str]) -> None:
        """Take topics from their brokers. Some may stay: look again."""
        ...

    async def create(self, topics: Sequence[str]) -> None:
        """Create topics without partitions, those that are absent."""
        ...
