"""What lists of topics by pattern, and their watchers, need from a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nextgen.kernel.routing.names import NamespaceName
from nextgen.kernel.routing.property_filter import EVERY_TOPIC, PropertyFilter
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

    @property
    def names(self) -> Iterator[str]:
        """Yield all names of the change."""
        yield from self.created
        yield from self.deleted


@dataclass(frozen=True, slots=True)
class ListQuestion:
    """Which topics a list is about."""

    namespace: NamespaceName
    pattern: TopicPattern | None = None
    """None: all topics of the namespace."""
    domain: str = ""
    """``persistent``, ``non-persistent`` or empty for both."""
    properties: PropertyFilter = EVERY_TOPIC
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

    @property
    def answer_bytes(self) -> int:
        """About how many bytes the names take in an answer, without reading them."""

    def names(self) -> Sequence[str]:
        """Return the list, sorted. It may have many names: keep it no longer than needed."""

    async def next_change(self) -> TopicListChange:
        """Wait for the next change. Of a watcher that is far behind it is the net difference.

        Raises:
            MetadataError: The list is watched no longer. ``TopicLists.watch`` goes on ``after``
                this place; after ``Overloaded`` there is no memory for that.
        """

    def close(self) -> None:
        """Give the place up. Idempotent; ``next_change`` that waits is cancelled by its caller."""


class TopicLists(Protocol):
    """Lists of topics, and watches of them. Raises ``MetadataError`` kinds only."""

    @property
    def has_room(self) -> bool:
        """Whether there is memory for a watcher of one more list, a short one."""

    async def current(self, question: ListQuestion) -> TopicList:
        """Return the list; its names are None if its hash is ``known_hash``.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: the names exceed the size of one answer.
            Overloaded: Too many lists are in flight.
        """

    async def watch(
        self,
        namespace: NamespaceName,
        pattern: TopicPattern,
        after: WatchedTopicList | None = None,
    ) -> WatchedTopicList:
        """Begin to watch the persistent topics that a pattern describes.

        ``after`` is a place at the same list, which ended: the new one begins where it was, so that
        its first change is the difference. The caller closes both.

        Raises:
            Overloaded: There is no memory left for another watched list.
        """
