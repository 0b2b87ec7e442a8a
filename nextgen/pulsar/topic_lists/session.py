"""WATCH_TOPIC_LIST, ..._CLOSE and what is answered and sent: the watchers of one connection.

    WATCH ─▶ place at a shared list ─▶ SUCCESS: hash, and the names unless the client has them
                    │ next change                 ▲ WATCH with the same id: reconcile
                    ▼                             │
             the client has read all ─▶ UPDATE ─▶ next change ...

Nothing is sent before SUCCESS. One update of a watcher is in flight: the next change waits in the
place, whose queue is bounded, until the connection has room. A client that reads nothing is dropped
by the keep-alive, and its watchers with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nextgen.kernel.errors import MetadataError, Overloaded, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.listing import (
    TOPIC_LIST_FREE_BYTES,
    TOPIC_WATCH_RETRY_MS,
    TOPIC_WATCHER_BYTES,
    TOPIC_WATCHER_REQUESTS_MAX,
    TOPIC_WATCHERS_BYTES_MAX,
)
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.routing.names import InvalidName, NamespaceName, parse_namespace
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.errors import server_error_of
from nextgen.pulsar.topic_lists.hash import HASH_CHARACTERS
from nextgen.pulsar.topic_lists.parts import parts_of, size_of
from nextgen.pulsar.topic_lists.pattern import (
    InvalidPattern,
    TopicPattern,
    UnsupportedPattern,
    compile_pattern,
    java_length,
    without_scheme,
)
from nextgen.pulsar.topic_lists.permits import MemoryPermits
from nextgen.pulsar.topic_lists.ports import TopicListChange, TopicLists, WatchedTopicList
from nextgen.pulsar.topic_lists.settings import DEFAULT_TOPIC_LISTS, TopicListSettings
from nextgen.tasks.background import start
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandSuccess,
    CommandWatchTopicList,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
    ServerError,
)

WATCHES = frozenset({BaseCommand.WATCH_TOPIC_LIST, BaseCommand.WATCH_TOPIC_LIST_CLOSE})
"""The commands that a session handles."""


class Client(Protocol):
    """A connection to a client: a ``PulsarConnection``."""

    async def until_writable(self) -> None: ...

    def send_command(self, command: BaseCommand) -> None: ...

    def send_error(self, request_id: int, error: ServerError, message: str) -> None: ...

    def keep(self, command: BaseCommand) -> Kept: ...


@dataclass(slots=True)
class TopicWatches:
    """What the sessions of one process share."""

    lists: TopicLists
    settings: TopicListSettings = DEFAULT_TOPIC_LISTS
    permits: MemoryPermits = field(default_factory=MemoryPermits)
    bytes_max: int = TOPIC_WATCHERS_BYTES_MAX
    watchers: int = 0
    """Watchers of all connections."""
    updates: int = 0
    refused: int = 0
    """Requests that were answered with an error."""
    sent_elsewhere: int = 0
    """Lookups of patterns that were answered with another node, for want of memory."""

    @property
    def has_room(self) -> bool:
        """Whether there is memory for one more watcher, and for a list of its own."""
        return self.has_watcher_room and self.lists.has_room

    @property
    def has_watcher_room(self) -> bool:
        return (self.watchers + 1) * TOPIC_WATCHER_BYTES <= self.bytes_max

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return {
            "topic_list_updates": self.updates,
            "topic_list_requests_refused": self.refused + self.permits.refused,
            "topic_list_lookups_elsewhere": self.sent_elsewhere,
        }

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {
            "topic_watchers": self.watchers,
            "topic_lists_bytes_in_flight": self.permits.bytes_held,
            "topic_lists_waiting": self.permits.waiting,
        }


class Stopped(Exception):
    """A watcher cannot begin or go on. ``code`` is for the client."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Watcher:
    """One watcher id of a connection."""

    __slots__ = (
        "answering",
        "hash",
        "kept",
        "namespace",
        "pattern",
        "place",
        "task",
        "unsent",
        "waiting",
    )

    def __init__(self, namespace: NamespaceName, pattern: TopicPattern, kept: Kept) -> None:
        self.kept = kept
        self.namespace = namespace
        self.pattern = pattern
        self.place: WatchedTopicList | None = None
        self.task: asyncio.Task[None] | None = None
        self.answering: asyncio.Task[None] | None = None
        self.waiting: list[tuple[int, str]] = []
        """Requests that are not answered: their ids, and the hashes that the client has."""
        self.hash = ""
        """The hash that was sent last."""
        self.unsent = False
        """Whether the place has moved further than what was sent."""


class TopicListSession:
    """The watchers of one connection. ``close`` it with the connection."""

    __slots__ = ("_client", "_shared", "_watchers")

    def __init__(self, client: Client, shared: TopicWatches) -> None:
        self._client = client
        self._shared = shared
        self._watchers: dict[int, _Watcher] = {}

    def handle(self, command: BaseCommand) -> None:
        """Carry out one of ``WATCHES``."""
        if command.type == BaseCommand.WATCH_TOPIC_LIST:
            request = command.watchTopicList
            try:
                self._watch(command, request)
            except Stopped as error:
                self._shared.refused += 1
                self._client.send_error(request.request_id, error.code, str(error))
        else:
            closing = command.watchTopicListClose
            self._drop(closing.watcher_id, ServerError.MetadataError, "the watcher was closed")
            success = CommandSuccess(request_id=closing.request_id)
            self._client.send_command(BaseCommand(type=BaseCommand.SUCCESS, success=success))

    def close(self) -> None:
        """Drop all watchers, without a word to the client."""
        for watcher in self._watchers.values():
            self._end(watcher)
        self._watchers.clear()

    # Requests ---------------------------------------------------------------------------------

    def _watch(self, command: BaseCommand, request: CommandWatchTopicList) -> None:
        namespace, pattern = self._wanted(request)
        known = request.topics_hash if len(request.topics_hash) == HASH_CHARACTERS else ""
        watcher_id = request.watcher_id
        watcher = self._watchers.get(watcher_id)
        if watcher is not None and (watcher.namespace, watcher.pattern) != (namespace, pattern):
            self._drop(watcher_id, ServerError.MetadataError, "a later watcher took its id")
            watcher = None
        if watcher is None:
            if not self._shared.has_watcher_room:
                message = f"{self._shared.watchers} topic lists are watched at this node"
                raise Stopped(ServerError.TooManyRequests, message)
            watcher = _Watcher(namespace, pattern, self._client.keep(command))
            self._watchers[watcher_id] = watcher
            self._shared.watchers += 1
            watcher.waiting.append((request.request_id, known))
            watcher.task = start("topic_list_watcher", self._serve(watcher_id, watcher))
            return
        if watcher.place is not None and known == watcher.place.hash and not watcher.waiting:
            self._succeed(watcher_id, watcher, request.request_id, ())
            return
        if len(watcher.waiting) >= TOPIC_WATCHER_REQUESTS_MAX:
            message = f"{len(watcher.waiting)} requests of watcher {watcher_id} wait"
            raise Stopped(ServerError.TooManyRequests, message)
        watcher.waiting.append((request.request_id, known))
        if watcher.place is not None and watcher.answering is None:
            watcher.answering = start("topic_list_answer", self._answer(watcher_id, watcher))

    def _wanted(self, request: CommandWatchTopicList) -> tuple[NamespaceName, TopicPattern]:
        """Return what a request is about.

        Raises:
            Stopped: Nobody may watch that.
        """
        settings = self._shared.settings
        if not settings.are_watchers_on:
            message = "topic lists cannot be watched here: request them"
            raise Stopped(ServerError.NotAllowedError, message)
        try:
            namespace = parse_namespace(request.namespace)
            text = without_scheme(request.topics_pattern)
            if java_length(text) > settings.pattern_characters_max:
                raise Stopped(
                    ServerError.NotAllowedError,
                    f"the pattern has {java_length(text)} characters, at most "
                    f"{settings.pattern_characters_max} are allowed",
                )
            return namespace, compile_pattern(text)
        except (InvalidName, InvalidPattern) as error:
            raise Stopped(ServerError.InvalidTopicName, str(error)) from error
        except UnsupportedPattern as error:
            raise Stopped(ServerError.NotAllowedError, str(error)) from error

    def _drop(self, watcher_id: int, code: ServerError, why: str) -> None:
        """Forget a watcher, if it is there; its waiting requests are refused."""
        watcher = self._watchers.pop(watcher_id, None)
        if watcher is not None:
            self._end(watcher)
            self._refuse(watcher, code, why)

    def _end(self, watcher: _Watcher) -> None:
        self._shared.watchers -= 1
        watcher.kept.release()
        for task in (watcher.task, watcher.answering):
            if task is not None:
                task.cancel()
        if watcher.place is not None:
            watcher.place.close()
            watcher.place = None

    def _refuse(self, watcher: _Watcher, code: ServerError, why: str) -> None:
        for request_id, _ in watcher.waiting:
            self._shared.refused += 1
            self._client.send_error(request_id, code, why)
        watcher.waiting.clear()

    # Service ----------------------------------------------------------------------------------

    async def _serve(self, watcher_id: int, watcher: _Watcher) -> None:
        """Open a place, answer, and send updates until the watcher is dropped."""
        watcher.answering = watcher.task
        try:
            watcher.place = await self._shared.lists.watch(watcher.namespace, watcher.pattern)
        except MetadataError as error:
            self._drop(watcher_id, _code_of(error), str(error))
            return
        await self._answer(watcher_id, watcher)
        while watcher.place is not None:
            try:
                change = await self._next_change(watcher)
            except Overloaded as error:
                # The client's next request with this id is refused, or answered with the list.
                self._drop(watcher_id, _code_of(error), str(error))
                return
            watcher.unsent = True
            await self._client.until_writable()
            await self._update(watcher_id, watcher, change)

    async def _next_change(self, watcher: _Watcher) -> TopicListChange:
        """Return the next change, from another place if the one that there is ended.

        Raises:
            Overloaded: There is no memory for the list any longer.
        """
        while True:
            assert watcher.place is not None, "a watcher that is served has a place"
            try:
                return await watcher.place.next_change()
            except Overloaded:
                raise
            except MetadataError:
                await self._reopen(watcher)

    async def _reopen(self, watcher: _Watcher) -> None:
        """Go on at another place after the one that ended, however long that takes."""
        ended = watcher.place
        while watcher.place is ended:
            await asyncio.sleep(TOPIC_WATCH_RETRY_MS / 1_000)
            try:
                watcher.place = await self._shared.lists.watch(
                    watcher.namespace, watcher.pattern, ended
                )
            except Overloaded:
                raise
            except MetadataError:
                continue
        if ended is not None:
            ended.close()

    async def _update(self, watcher_id: int, watcher: _Watcher, change: TopicListChange) -> None:
        """Send a change, unless the client gets it by another answer."""
        size_bytes = min(size_of(change.names, TOPIC_LIST_BYTES_MAX), TOPIC_LIST_BYTES_MAX)
        if size_bytes <= TOPIC_LIST_FREE_BYTES:
            await self._send(watcher_id, watcher, change)
            return
        while watcher.unsent:
            try:
                async with self._shared.permits.hold(size_bytes):
                    await self._send(watcher_id, watcher, change)
                    await self._client.until_writable()
            except Overloaded:
                await asyncio.sleep(TOPIC_WATCH_RETRY_MS / 1_000)

    async def _answer(self, watcher_id: int, watcher: _Watcher) -> None:
        """Answer the waiting requests, each with the list as it is then."""
        while watcher.waiting and watcher.place is not None:
            request_id, known = watcher.waiting[0]
            if known == watcher.place.hash:
                del watcher.waiting[0]
                self._succeed(watcher_id, watcher, request_id, ())
                continue
            try:
                _check_size(watcher, watcher.place.answer_bytes)
                async with self._shared.permits.hold(watcher.place.answer_bytes):
                    names = watcher.place.names()
                    _check_size(watcher, size_of(names, TOPIC_LIST_BYTES_MAX))
                    del watcher.waiting[0]
                    self._succeed(watcher_id, watcher, request_id, names)
                    await self._client.until_writable()
            except (Overloaded, Refused) as error:
                # No other request would find more room. The watcher stays if it has a list.
                if watcher.hash:
                    self._refuse(watcher, _code_of(error), str(error))
                else:
                    self._drop(watcher_id, _code_of(error), str(error))
        watcher.answering = None

    def _succeed(
        self, watcher_id: int, watcher: _Watcher, request_id: int, names: Sequence[str]
    ) -> None:
        assert watcher.place is not None, "the answer has its hash"
        watcher.hash = watcher.place.hash
        watcher.unsent = False
        self._client.send_command(
            BaseCommand(
                type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
                watchTopicListSuccess=CommandWatchTopicListSuccess(
                    request_id=request_id,
                    watcher_id=watcher_id,
                    topic=names,
                    topics_hash=watcher.hash,
                ),
            )
        )

    async def _send(self, watcher_id: int, watcher: _Watcher, change: TopicListChange) -> None:
        for number, update in enumerate(updates_of(watcher_id, change)):
            if number:
                await self._client.until_writable()
            if not watcher.unsent:
                return
            self._shared.updates += 1
            self._client.send_command(
                BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update)
            )
        watcher.unsent = False
        watcher.hash = change.hash


def updates_of(watcher_id: int, change: TopicListChange) -> Iterator[CommandWatchTopicUpdate]:
    """Yield the updates that carry a change: one, unless that would exceed a frame.

    The hash is in the last one. An empty hash before it tells clients that more follows: they
    compare none.
    """
    parts = parts_of(change, TOPIC_LIST_BYTES_MAX)
    part = next(parts, None)
    while part is not None:
        # A change may have a million names: it is divided as far as it is sent.
        following = next(parts, None)
        created, deleted = part
        yield CommandWatchTopicUpdate(
            watcher_id=watcher_id,
            new_topics=created,
            deleted_topics=deleted,
            topics_hash=change.hash if following is None else "",
        )
        part = following


def _check_size(watcher: _Watcher, size_bytes: int) -> None:
    """Check that the list of a watcher fits into one answer.

    Raises:
        Refused: It does not.
    """
    if size_bytes > TOPIC_LIST_BYTES_MAX:
        raise Refused(
            RejectionCode.LIMIT_EXCEEDED,
            f"namespace {watcher.namespace.text} has more topics of this pattern than fit into "
            f"one answer of {TOPIC_LIST_BYTES_MAX} bytes",
        )


def _code_of(error: MetadataError) -> ServerError:
    """Return the code for a list that cannot be watched. Only clients that retry send WATCH."""
    if isinstance(error, Overloaded):
        return ServerError.TooManyRequests
    if isinstance(error, Refused) and error.code == RejectionCode.LIMIT_EXCEEDED:
        return ServerError.NotAllowedError
    return server_error_of(error)
