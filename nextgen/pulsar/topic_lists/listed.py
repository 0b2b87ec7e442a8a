"""Topic lists that are read anew for each question, and matching in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.listing import PATTERN_MATCHING_TURN_MS
from nextgen.kernel.routing.names import NamespaceName
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.pattern import TopicPattern
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicList, WatchedTopicList

_NAMES_BETWEEN_LOOKS = 16
"""Names matched between two looks at the clock."""


class Listing(Protocol):
    """Lists names: a ``TopicDirectory``."""

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]: ...


class ListedTopics:
    """The ``TopicLists`` that keeps nothing: each list is read from the shards."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    @property
    def has_room(self) -> bool:
        """See ``TopicLists.has_room``: nothing is watched here."""
        return False

    async def current(self, question: ListQuestion) -> TopicList:
        """See ``TopicLists.current``."""
        names = await self._listing.topics_of_namespace(question)
        current = topics_hash(names)
        return TopicList(current, None if current == question.known_hash else names)

    async def watch(
        self,
        namespace: NamespaceName,
        pattern: TopicPattern,
        after: WatchedTopicList | None = None,
    ) -> WatchedTopicList:
        """See ``TopicLists.watch``."""
        raise Unavailable(f"topics of {namespace.text} cannot be watched at this node")


async def matching_topics(
    pattern: TopicPattern | None, topics: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return the topics, given as name and partitions, that ``pattern`` describes; None: all.

    Other work of the event loop gets its turn, since a pattern of a client may be a slow one.
    """
    if pattern is None or pattern.matches_everything:
        return list(topics)
    found = []
    until = time.perf_counter() + PATTERN_MATCHING_TURN_MS / 1_000
    for number, topic in enumerate(topics):
        if pattern.matches(topic[0]):
            found.append(topic)
        if number % _NAMES_BETWEEN_LOOKS == 0 and time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + PATTERN_MATCHING_TURN_MS / 1_000
    return found
