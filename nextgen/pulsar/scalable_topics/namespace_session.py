"""WATCH_SCALABLE_TOPICS, ..._CLOSE and the updates: the namespace watches of one connection.

    WATCH ─▶ a place at the shared list ─▶ UPDATE: all names, unless the client has this very list
                    │ next changes, gathered for 50 ms   ▲
                    ▼                                    │ what came and what went
             the client has read all ────────────────────╯

A list has the scalable topics of a namespace that have all of some properties. It is watched until
the client closes the watch or its connection: stock clients take no notice of an error once they
have the names, so what fails later is repeated here until it succeeds. A client that reads nothing
costs one update and, at its place, a bounded number of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from nextgen.kernel.errors import MetadataError, Overloaded, Refused
from nextgen.kernel.limits.listing import TOPIC_LIST_FREE_BYTES, TOPIC_WATCH_RETRY_MS
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    NAMESPACE_CHANGES_GATHERED_MS,
    NAMESPACE_NAMES_PER_TURN,
    NAMESPACE_WATCH_ATTEMPTS_MAX,
    NAMESPACE_WATCH_BYTES,
    NAMESPACE_WATCHES_BYTES_MAX,
    NAMESPACE_WATCHES_PER_CONNECTION_MAX,
)
from nextgen.kernel.routing.names import InvalidName, NamespaceName, parse_namespace
from nextgen.kernel.routing.property_filter import InvalidFilter, PropertyFilter, property_filter
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.admission.refusals import shown
from nextgen.pulsar.errors import server_error_of
from nextgen.pulsar.scalable_topics.ports import ScalableTopicLists, WatchedNames
from nextgen.pulsar.topic_lists.hash import HASH_CHARACTERS
from nextgen.pulsar.topic_lists.parts import NAME_BYTES_OVERHEAD, parts_of, size_of
from nextgen.pulsar.topic_lists.permits import MemoryPermits
from nextgen.pulsar.topic_lists.session import Client
from nextgen.tasks.background import start
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandWatchScalableTopics,
    CommandWatchScalableTopicsUpdate,
    ScalableTopicsDiff,
    ScalableTopicsSnapshot,
    ServerError,
)

NAMESPACE_WATCH_COMMANDS = frozenset(
    {BaseCommand.WATCH_SCALABLE_TOPICS, BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE}
)
"""The commands that a session handles."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class NamespaceWatches:
    """What the sessions of one process share. ``permits`` are those of all topic lists."""

    lists: ScalableTopicLists
    permits: MemoryPermits = field(default_factory=MemoryPermits)
    bytes_max: int = NAMESPACE_WATCHES_BYTES_MAX
    watches: int = 0
    """Watches of all connections."""
    used_bytes: int = 0
    """What they count for."""
    updates: int = 0
    refused: int = 0

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return {"namespace_updates": self.updates, "namespace_watches_refused": self.refused}

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {"namespace_watches": self.watches}


class _Stopped(Exception):
    """A watch cannot begin. ``code`` is for the client."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a client watches, and the hash of the list that it has; None: it has none."""

    watch_id: int
    namespace: NamespaceName
    properties: PropertyFilter
    known_hash: str | None

    @property
    def size_bytes(self) -> int:
        return NAMESPACE_WATCH_BYTES + self.properties.size_bytes


class NamespaceSession:
    """The namespace watches of one connection. ``close`` it with the connection."""

    __slots__ = ("_client", "_sending", "_shared", "_watches")

    def __init__(self, client: Client, shared: NamespaceWatches) -> None:
        self._client = client
        self._shared = shared
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        """Held by the watch that sends: all together have one update in the connection."""

    def handle(self, command: BaseCommand) -> None:
        """Carry out one of ``NAMESPACE_WATCH_COMMANDS``."""
        if command.type == BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE:
            self._drop(command.watchScalableTopicsClose.watch_id)
            return
        request = command.watchScalableTopics
        # A client that uses an id again has given the earlier watch up.
        self._drop(request.watch_id)
        try:
            self._begin(command, _wanted(request))
        except _Stopped as error:
            self._refuse(request.watch_id, error.code, str(error))

    def close(self) -> None:
        """Drop all watches, without a word to the client."""
        for watch_id in list(self._watches):
            self._drop(watch_id)

    def _begin(self, command: BaseCommand, wanted: _Wanted) -> None:
        shared = self._shared
        if len(self._watches) >= NAMESPACE_WATCHES_PER_CONNECTION_MAX:
            raise _Stopped(
                ServerError.TooManyRequests,
                f"this connection watches {len(self._watches)} namespaces",
            )
        if shared.used_bytes + wanted.size_bytes > shared.bytes_max:
            raise _Stopped(
                ServerError.TooManyRequests,
                f"{shared.watches} watches of namespaces take all memory for them at this node",
            )
        shared.watches += 1
        shared.used_bytes += wanted.size_bytes
        task = self._watches[wanted.watch_id] = start("namespace_watch", self._serve(wanted))
        kept = self._client.keep(command)
        task.add_done_callback(lambda done: self._ended(wanted, kept, done))

    def _drop(self, watch_id: int) -> None:
        task = self._watches.pop(watch_id, None)
        if task is not None:
            task.cancel()

    def _ended(self, wanted: _Wanted, kept: Kept, task: asyncio.Task[None]) -> None:
        kept.release()
        self._shared.watches -= 1
        self._shared.used_bytes -= wanted.size_bytes
        if self._watches.get(wanted.watch_id) is task:
            del self._watches[wanted.watch_id]

    def _refuse(self, watch_id: int, code: ServerError, message: str) -> None:
        self._shared.refused += 1
        self._put(
            CommandWatchScalableTopicsUpdate(watch_id=watch_id, error=code, message=shown(message))
        )

    def _put(self, update: CommandWatchScalableTopicsUpdate) -> None:
        self._client.send_command(
            BaseCommand(
                type=BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE, watchScalableTopicsUpdate=update
            )
        )

    # Service ----------------------------------------------------------------------------------

    async def _serve(self, wanted: _Wanted) -> None:
        """Answer, and send updates until the watch is dropped."""
        place: WatchedNames | None = None
        try:
            place = await self._opened(wanted)
            sent = wanted.known_hash
            while True:
                if place.hash != sent:
                    sent = await self._send_all(wanted.watch_id, place)
                await place.wait_change()
                await asyncio.sleep(NAMESPACE_CHANGES_GATHERED_MS / 1_000)
                try:
                    sent = await self._send_changes(wanted.watch_id, place)
                except MetadataError as error:
                    place = await self._opened_again(wanted, place, error)
        except MetadataError as error:
            self._refuse(wanted.watch_id, _code_of(error), str(error))
        except Exception as error:
            # The client must get an answer even if this is a bug.
            _logger.exception("a namespace watch failed", namespace=wanted.namespace.text)
            self._refuse(wanted.watch_id, ServerError.UnknownError, repr(error))
        finally:
            if place is not None:
                place.close()

    async def _opened(self, wanted: _Wanted) -> WatchedNames:
        """Return a place. A failure that passes is tried again: for a while for a client without
        a list, which gets the error; for as long as it takes for one that has a list."""
        attempts = 1
        while True:
            try:
                return await self._shared.lists.watch_scalable(wanted.namespace, wanted.properties)
            except Refused:
                raise
            except MetadataError:
                if wanted.known_hash is None and attempts == NAMESPACE_WATCH_ATTEMPTS_MAX:
                    raise
            attempts += 1
            await asyncio.sleep(TOPIC_WATCH_RETRY_MS / 1_000)

    async def _opened_again(
        self, wanted: _Wanted, ended: WatchedNames, error: MetadataError
    ) -> WatchedNames:
        """Return another place after the one that ended, however long that takes.

        It goes on where that one was, unless there is no memory for both.
        """
        after: WatchedNames | None = ended
        while True:
            if isinstance(error, Overloaded):
                ended.close()
                after = None
            await asyncio.sleep(TOPIC_WATCH_RETRY_MS / 1_000)
            try:
                place = await self._shared.lists.watch_scalable(
                    wanted.namespace, wanted.properties, after
                )
            except MetadataError as failed:
                error = failed
                continue
            ended.close()
            return place

    async def _send_all(self, watch_id: int, place: WatchedNames) -> str:
        """Send the list as it is; return its hash. What exceeds a frame is sent as added."""
        async with self._turn():
            names = place.renew()
            all_bytes = names.text_bytes + NAME_BYTES_OVERHEAD * len(names)
            size_bytes = min(all_bytes, TOPIC_LIST_BYTES_MAX)
            update = CommandWatchScalableTopicsUpdate(watch_id=watch_id)
            async for part in _frames(names):
                if update.WhichOneof("event") is None:
                    update.snapshot.CopyFrom(ScalableTopicsSnapshot(topics=part))
                else:
                    update.diff.CopyFrom(ScalableTopicsDiff(added=part))
                await self._send(update, size_bytes)
        return names.hash

    async def _send_changes(self, watch_id: int, place: WatchedNames) -> str:
        """Send what changed; return the hash of the list behind it.

        Raises:
            MetadataError: The list is watched no longer.
        """
        async with self._turn():
            change = await place.take_changes()
            for created, deleted in parts_of(change, TOPIC_LIST_BYTES_MAX):
                if created or deleted:
                    diff = ScalableTopicsDiff(added=created, removed=deleted)
                    update = CommandWatchScalableTopicsUpdate(watch_id=watch_id, diff=diff)
                    await self._send(update, size_of((*created, *deleted), TOPIC_LIST_BYTES_MAX))
        return change.hash

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        """Let one watch send at a time, once the client has read what was sent before."""
        async with self._sending:
            await self._client.until_writable()
            yield

    async def _send(self, update: CommandWatchScalableTopicsUpdate, size_bytes: int) -> None:
        """Send an update, once there is memory for it; return once the client has read it."""
        self._shared.updates += 1
        if size_bytes <= TOPIC_LIST_FREE_BYTES:
            self._put(update)
            await self._client.until_writable()
            return
        while True:
            try:
                async with self._shared.permits.hold(size_bytes):
                    self._put(update)
                    await self._client.until_writable()
                    return
            except Overloaded:
                await asyncio.sleep(TOPIC_WATCH_RETRY_MS / 1_000)


async def _frames(names: Iterable[str]) -> AsyncIterator[list[str]]:
    """Yield names in parts that fit into a frame, one part at least; other work has its turns."""
    part: list[str] = []
    size_bytes = 0
    for number, name in enumerate(names):
        name_bytes = len(name.encode()) + NAME_BYTES_OVERHEAD
        if part and size_bytes + name_bytes > TOPIC_LIST_BYTES_MAX:
            yield part
            part, size_bytes = [], 0
        part.append(name)
        size_bytes += name_bytes
        if number % NAMESPACE_NAMES_PER_TURN == 0:
            await asyncio.sleep(0)
    yield part


def _wanted(request: CommandWatchScalableTopics) -> _Wanted:
    """Return what a request is about.

    Raises:
        _Stopped: Nobody may watch that.
    """
    try:
        namespace = parse_namespace(request.namespace)
        properties = property_filter((each.key, each.value) for each in request.property_filters)
    except InvalidName as error:
        raise _Stopped(ServerError.InvalidTopicName, str(error)) from error
    except InvalidFilter as error:
        raise _Stopped(ServerError.NotAllowedError, str(error)) from error
    known = request.current_hash if len(request.current_hash) == HASH_CHARACTERS else None
    return _Wanted(request.watch_id, namespace, properties, known)


def _code_of(error: MetadataError) -> ServerError:
    if isinstance(error, Overloaded):
        return ServerError.TooManyRequests
    code = server_error_of(error)
    return ServerError.ServiceNotReady if code == ServerError.MetadataError else code
