"""What lists of topics by pattern, and their watchers, need from a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from nextgen.kernel.routing.names import NamespaceName
from nextgen.pulsar.topic_lists.pattern import TopicPattern


@dataclass(frozen=True, slots=True)
class TopicList:
    """The topics of a namespace that a pattern describes, at one moment."""

    hash: str
    """See ``topics_hash``."""
    names: Sequence[str] | None
    """Full canonical names, partitions included, sorted; None: the hash is the caller's known one,
    and nothing was read."""


@dataclass(frozen=True, slots=True)
class TopicListChange:
    """A change of a watched list, and the hash of the whole list behind it."""

    hash: str
    created: Sequence[str] = ()
    deleted: Sequence[str] = ()


class Refresh(Enum):
    """More changed than a watcher may keep: read ``names`` and ``hash`` again."""

    REFRESH = auto()


@dataclass(frozen=True, slots=True)
class ListQuestion:
    """Which topics a list is about."""

    namespace: NamespaceName
    pattern: TopicPattern | None = None
    """None: all topics of the namespace."""
    domain: str = ""
    """``persistent``, ``non-persistent`` or empty for both."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties that a topic must have, with these values."""
    known_hash: str = ""
    """The hash of the list that the caller has; empty if it has none."""


class WatchedTopicList(Protocol):
    """One watcher's place at a list, which watchers of the same namespace and pattern share.

    ``hash`` and ``names`` are of one moment, that of the latest change that ``next_change``
    returned, and at first that of ``TopicLists.watch``; no change behind it is lost, none comes
    twice.
    """

    @property
    def hash(self) -> str: ...

    def names(self) -> Sequence[str]:
        """Return the list, sorted. It may have many names: keep it no longer than needed."""

    async def next_change(self) -> TopicListChange | Refresh:
        """Wait for the next change. With ``REFRESH`` the place has moved to the present.

        Raises:
            MetadataError: The list is watched no longer. The watcher has to be made anew.
        """

    def close(self) -> None:
        """Give the place up. Idempotent; ``next_change`` that waits is cancelled by its caller."""


class TopicLists(Protocol):
    """Lists of topics, and watches of them. Raises ``MetadataError`` kinds only."""

    async def current(self, question: ListQuestion) -> TopicList:
        """Return the list; its names are None if its hash is ``known_hash``.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: the names exceed the size of one answer.
            Overloaded: Too many lists are in flight.
        """

    async def watch(self, namespace: NamespaceName, pattern: TopicPattern) -> WatchedTopicList:
        """Begin to watch the persistent topics that a pattern describes.

        Raises:
            Overloaded: There is no memory left for another watched list.
        """
