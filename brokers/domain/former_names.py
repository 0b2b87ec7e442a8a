"""The former names of held topics, each until the grace of its rename ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OldName:
    """A name that a topic had before a rename, without a partition.

    ``until_ms`` is Unix time by the shards' clocks: from then on the name may be another topic's.
    """

    name: str
    until_ms: int


class FormerNames:
    """The topics of former names. False while there are none, as at nearly every broker."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic_id: str, names: Iterable[OldName]) -> None:
        """Note the former names of a topic. One name is of the topic that had it last."""
        for each in names:
            entry = (each.until_ms, topic_id)
            self._topics[each.name] = max(entry, self._topics.get(each.name, entry))

    def drop(self, topic_id: str, names: Iterable[OldName]) -> None:
        """Forget former names, as far as they are this topic's."""
        for each in names:
            if self._topics.get(each.name, (0, ""))[1] == topic_id:
                del self._topics[each.name]

    def topic_id(self, name: str, unix_ms: int) -> str:
        """Return the id of the topic that answers to a former name at this time, "" if none."""
        until_ms, topic_id = self._topics.get(name, (0, ""))
        return topic_id if unix_ms < until_ms else ""
