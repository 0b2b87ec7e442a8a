"""Topic lists in memory, which a test changes, and a client that records what it receives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.access import ANONYMOUS
from nextgen.kernel.routing.names import NamespaceName
from nextgen.pulsar.admission.command_access import Kept, kept_by
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.pattern import TopicPattern
from nextgen.pulsar.topic_lists.ports import (
    ListQuestion,
    TopicList,
    TopicListChange,
    WatchedTopicList,
)
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandError, ServerError
from tests.support.authorization import AllowList


class FakePlace:
    """A watcher's place. Its queue holds ``queue_max`` changes and then becomes one difference."""

    def __init__(
        self,
        lists: FakeTopicLists,
        namespace: str,
        pattern: TopicPattern,
        after: FakePlace | None = None,
    ) -> None:
        self._lists = lists
        self.namespace = namespace
        self.pattern = pattern
        self._names = self._present() if after is None else after._names
        self._is_behind = after is not None
        self._queue: deque[TopicListChange] = deque()
        self._arrived = asyncio.Event()
        self.error: MetadataError | None = None
        self.is_closed = False

    @property
    def hash(self) -> str:
        return topics_hash(self._names)

    def describes(self, name: str) -> bool:
        return f"://{self.namespace}/" in name and self.pattern.matches(name)

    @property
    def answer_bytes(self) -> int:
        return sum(len(name) + 3 for name in self._names)

    def names(self) -> Sequence[str]:
        return sorted(self._names)

    def _present(self) -> set[str]:
        return {name for name in self._lists.names if self.describes(name)}

    async def next_change(self) -> TopicListChange:
        while True:
            if self.error is not None:
                raise self.error
            if self._is_behind:
                self._is_behind = False
                present = self._present()
                created, deleted = sorted(present - self._names), sorted(self._names - present)
                if created or deleted:
                    self._queue.append(TopicListChange(topics_hash(present), created, deleted))
            if self._queue:
                break
            self._arrived.clear()
            await self._arrived.wait()
        change = self._queue.popleft()
        self._names = (self._names | set(change.created)) - set(change.deleted)
        return change

    def close(self) -> None:
        self.is_closed = True

    def put(self, change: TopicListChange) -> None:
        if len(self._queue) >= self._lists.queue_max:
            self._queue.clear()
            self._is_behind = True
        if not self._is_behind:
            self._queue.append(change)
        self._arrived.set()

    def fail(self, error: MetadataError) -> None:
        self.error = error
        self._arrived.set()


class FakeTopicLists:
    """See ``TopicLists``. ``create`` and ``delete`` change the truth and every place."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = set(names)
        self.places: list[FakePlace] = []
        self.queue_max = 100
        self.has_room = True
        self.error: MetadataError | None = None
        self.opened = asyncio.Event()
        self.opened.set()

    async def current(self, question: ListQuestion) -> TopicList:
        names = sorted(
            name
            for name in self.names
            if f"://{question.namespace.text}/" in name
            and (question.pattern is None or question.pattern.matches(name))
        )
        found = topics_hash(names)
        return TopicList(found, None if found == question.known_hash else names)

    async def watch(
        self,
        namespace: NamespaceName,
        pattern: TopicPattern,
        after: WatchedTopicList | None = None,
    ) -> FakePlace:
        await self.opened.wait()
        if self.error is not None:
            raise self.error
        assert after is None or isinstance(after, FakePlace)
        place = FakePlace(self, namespace.text, pattern, after)
        self.places.append(place)
        return place

    def create(self, *names: str) -> None:
        self.names |= set(names)
        self._changed(names, ())

    def delete(self, *names: str) -> None:
        self.names -= set(names)
        self._changed((), names)

    def _changed(self, created: Sequence[str], deleted: Sequence[str]) -> None:
        for place in self.places:
            new = [name for name in created if place.describes(name)]
            gone = [name for name in deleted if place.describes(name)]
            if (new or gone) and not place.is_closed:
                whole = [name for name in self.names if place.describes(name)]
                place.put(TopicListChange(topics_hash(whole), new, gone))


class FakeListClient:
    """A connection that records what it receives."""

    def __init__(self) -> None:
        self.sent: list[BaseCommand] = []
        self.access = AllowList().session(ANONYMOUS, lambda _reason: None)
        """What it keeps; nothing is revoked."""
        self.stops_behind_updates = False
        """Whether it reads nothing after an update, until ``read``."""
        self._has_room = asyncio.Event()
        self._has_room.set()

    def stop_reading(self) -> None:
        self._has_room.clear()

    def read(self) -> None:
        self._has_room.set()

    def keep(self, command: BaseCommand) -> Kept:
        return kept_by(self.access, command)

    async def until_writable(self) -> None:
        await self._has_room.wait()

    def send_command(self, command: BaseCommand) -> None:
        self.sent.append(command)
        if self.stops_behind_updates and command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            self.stop_reading()

    def send_error(self, request_id: int, error: ServerError, message: str) -> None:
        failed = CommandError(request_id=request_id, error=error, message=message)
        self.send_command(BaseCommand(type=BaseCommand.ERROR, error=failed))

    def take(self) -> list[BaseCommand]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent
