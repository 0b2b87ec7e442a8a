"""The open units of a broker, by name and by key, the locks of units, and what is remembered of
units that are not open.

A unit keeps its key when its topic is renamed, so locks and ends of epochs go by the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from brokers.domain.holding import UnitKey
from brokers.service.topics.topic import Topic
from nextgen.kernel.limits.pulsar import TOPIC_FAILURES_REMEMBERED_MAX


class OpenUnits:
    """The open topics of a broker. A topic has the name that it was opened by until it closes."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self._by_key: dict[UnitKey, Topic] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Topic]:
        """Iterate over the open topics; they may be opened and closed meanwhile."""
        return iter(list(self.by_name.values()))

    def get(self, name: str) -> Topic | None:
        """Return the open topic of a canonical name."""
        return self.by_name.get(name)

    def of(self, key: UnitKey) -> Topic | None:
        """Return the open topic of a unit, whatever its name is."""
        return self._by_key.get(key)

    def up_to(self, key: UnitKey, epoch: int) -> list[Topic]:
        """Return the open topic of a unit if it is open in this epoch or an earlier one."""
        topic = self._by_key.get(key)
        return [] if topic is None or topic.unit.epoch > epoch else [topic]

    def of_either(self, name: str, key: UnitKey) -> list[Topic]:
        """Return the open topics that have this name or are this unit, each once."""
        found = dict.fromkeys((self.by_name.get(name), self._by_key.get(key)))
        return [topic for topic in found if topic is not None]

    def add(self, topic: Topic) -> None:
        self.by_name[topic.unit.name] = self._by_key[topic.unit.key] = topic

    def drop(self, topic: Topic) -> None:
        """Remove a topic. Another one of its name or of its unit stays."""
        if self.by_name.get(topic.unit.name) is topic:
            del self.by_name[topic.unit.name]
        if self._by_key.get(topic.unit.key) is topic:
            del self._by_key[topic.unit.key]

    def clear(self) -> None:
        self.by_name.clear()
        self._by_key.clear()


class UnitLocks:
    """A lock per unit, which exists only while it is used."""

    def __init__(self) -> None:
        self._locks: dict[UnitKey, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def held(self, key: UnitKey) -> AsyncIterator[None]:
        """Hold the lock of a unit during the block. Waiters get it in order of arrival."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


def forget_oldest(remembered: dict[Any, Any]) -> None:
    """Keep what is remembered of units within ``TOPIC_FAILURES_REMEMBERED_MAX``."""
    if len(remembered) > TOPIC_FAILURES_REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
