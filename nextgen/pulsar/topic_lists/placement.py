"""Where clients go that watch topic lists, or the layout of a scalable topic.

They look the *pattern*, or the scalable topic, up as if it were a topic that a broker serves. The
answer to that lookup is the server on which they then watch (ADR 0097, ADR 0105).
"""

from __future__ import annotations

from collections.abc import Callable

from nextgen.kernel.routing.names import Domain
from nextgen.pulsar.topic_lists.session import TopicWatches

_SPECIAL = frozenset("*+?[](){}|^$\\")


def looks_like_pattern(topic: str) -> bool:
    """Return whether a topic's name has a character that is special in patterns.

    A topic may be named like that. The point alone is in too many names to mean anything.
    """
    return not _SPECIAL.isdisjoint(topic)


_SCALABLE = f"{Domain.TOPIC}://"


class WatcherPlaces:
    """Answers the lookups of names that no broker serves: those of patterns and of scalable topics
    with this very node, others with a broker."""

    def __init__(
        self,
        own_url: str,
        watches: TopicWatches | None,
        any_broker_url: Callable[[str], str | None],
        has_layout_room: Callable[[], bool] | None = None,
    ) -> None:
        """``own_url``: where clients reach this node; empty if it does not speak Pulsar.

        ``has_layout_room``: whether another layout can be watched here; None: none can.
        """
        self._own_url = own_url
        self._watches = watches
        self._any_broker_url = any_broker_url
        self._has_layout_room = has_layout_room

    def url(self, topic: str) -> str | None:
        """Return where the client of such a topic goes; None if no broker lives.

        Without memory for another watcher this is a broker, for patterns and scalable topics too:
        brokers have watchers as well.
        """
        if self._own_url and self._is_watched_here(topic):
            return self._own_url
        return self._any_broker_url(topic)

    def _is_watched_here(self, topic: str) -> bool:
        if topic.startswith(_SCALABLE):
            return self._has_layout_room is not None and self._has_layout_room()
        watches = self._watches
        if watches is None or not looks_like_pattern(topic):
            return False
        if not watches.has_room:
            watches.sent_elsewhere += 1
            return False
        return True
