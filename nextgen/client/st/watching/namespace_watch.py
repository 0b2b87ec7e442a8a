"""The watch of a namespace's scalable topics, on whatever connection there is.

    any server ─▶ WATCH, with the hash of what is known ─▶ a list, unless it is that ─▶ changes
        ▲                                                                                  │
        ╰──────────────── 100 ms to 30 s after the connection or the watch ended ◀─────────╯

A server that has the same list says nothing: the watch counts as begun when it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.connection.link import Link
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.domain.topic_names import NamesChange, TopicNames
from nextgen.client.st.errors import ConnectionFailed, NotSupported, ScalableTopicError, TimedOut
from nextgen.client.st.wire import error_of
from nextgen.kernel.routing.names import NamespaceName
from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar


class NamespaceWatch:
    """``await start()`` returns with the first list; it and all changes go to the listener, which
    is called from the event loop, and not after ``close``."""

    def __init__(
        self,
        brokers: Brokers,
        namespace: NamespaceName,
        properties: PropertyFilter,
        *,
        answer_timeout_ms: int,
        on_change: Callable[[NamesChange], None],
    ) -> None:
        self.namespace = namespace
        self._brokers = brokers
        self._properties = properties
        self._answer_timeout_ms = answer_timeout_ms
        self._on_change = on_change
        self._names = TopicNames(namespace)
        self._has_list = False
        self._backoff = Backoff()
        self._moved = asyncio.Event()
        self._ended: ScalableTopicError | None = None
        """Why nothing more comes from the server that has the watch, or had it."""
        self._place: tuple[Link, int] | None = None
        """The connection that has the watch, and its id there."""
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<NamespaceWatch {self.namespace.text}, {len(self._names)} topics>"

    async def start(self) -> None:
        """Return when the listener has the first list.

        Raises:
            NotSupported: The server does not have scalable topics.
            ScalableTopicError: Any other reason why there is no list.
        """
        try:
            await self._open()
            await self._first_answer()
        except BaseException:
            self._give_up()
            raise
        self._task = start("st-namespace-watch", self._follow())

    def close(self) -> None:
        """End the watch. Harmless when it has ended already."""
        self._on_change = _ignore
        if self._task is not None:
            self._task.cancel()
        self._give_up()

    async def wait_closed(self) -> None:
        """Wait for what ``close`` left running."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    # Receiver ---------------------------------------------------------------------------------

    def received(self, link: Link, command: pulsar.BaseCommand, payload: bytes) -> None:
        update = command.watchScalableTopicsUpdate
        if update.HasField("error"):
            self._end(error_of(update.error, update.message))
            return
        if update.HasField("snapshot"):
            change = self._names.replace(update.snapshot.topics)
        elif self._has_list:
            change = self._names.apply(update.diff.removed, update.diff.added)
        else:
            self._end(ConnectionFailed("the server sent a change before the list"))
            return
        self._has_list = True
        self._backoff.reset()
        self._on_change(change)
        self._moved.set()

    def link_lost(self, link: Link) -> None:
        self._end(ConnectionFailed("the connection with the watch of a namespace broke"))

    # Inside -----------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Send the watch to some server."""
        link = await self._brokers.any()
        if not link.has_scalable_topics:
            raise NotSupported("the server has no scalable topics")
        watch_id = link.next_id()
        self._ended = None
        self._moved.clear()
        link.topic_watches[watch_id] = self
        self._place = link, watch_id
        request = pulsar.CommandWatchScalableTopics(
            watch_id=watch_id, namespace=self.namespace.text
        )
        for key, value in self._properties.pairs:
            request.property_filters.add(key=key, value=value)
        if self._has_list:
            request.current_hash = self._names.hash
        link.tell(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.WATCH_SCALABLE_TOPICS, watchScalableTopics=request
            )
        )
        if not link.is_open:
            self.link_lost(link)

    async def _first_answer(self) -> None:
        try:
            async with timeout(self._answer_timeout_ms / 1_000):
                await self._moved.wait()
        except TimeoutError as error:
            raise TimedOut(
                f"no list of {self.namespace.text} within {self._answer_timeout_ms} ms"
            ) from error
        if self._ended is not None:
            raise self._ended

    async def _follow(self) -> None:
        """Keep a watch at some server, until this task is cancelled."""
        while True:
            while self._ended is None:
                self._moved.clear()
                await self._moved.wait()
            self._give_up()
            await asyncio.sleep(self._backoff.next_ms() / 1_000)
            try:
                await self._open()
            except ScalableTopicError as error:
                self._ended = error

    def _give_up(self) -> None:
        """Close the watch where it is."""
        if self._place is None:
            return
        (link, watch_id), self._place = self._place, None
        del link.topic_watches[watch_id]
        close = pulsar.CommandWatchScalableTopicsClose(watch_id=watch_id)
        link.tell(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE, watchScalableTopicsClose=close
            )
        )

    def _end(self, error: ScalableTopicError) -> None:
        self._ended = error
        self._moved.set()


def _ignore(change: NamesChange) -> None:
    """The listener of a watch that was closed."""
