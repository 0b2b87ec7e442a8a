"""SCALABLE_TOPIC_LOOKUP, ..._CLOSE and the updates: the layout watches of one connection.

    LOOKUP ─▶ a place at the shared layout ─▶ UPDATE: the layout, or why there is none
                     │ next change                ▲
                     ▼                            │
              the client has read all ────────────╯   topic deleted ─▶ UPDATE: TopicNotFound

Every update has the whole graph of segments, with their owners. One is in flight: what changes
meanwhile comes with the next one. Subscriptions and consumers are no part of it.
A topic of the domain persistent is answered with its scalable twin, if there is one, and else with
a layout made of its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.scalable import (
    LAYOUT_WATCH_ATTEMPTS_MAX,
    LAYOUT_WATCH_RETRY_MS,
    LAYOUT_WATCHES_MAX,
    LAYOUT_WATCHES_PER_CONNECTION_MAX,
)
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic, scalable_name
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.admission.refusals import shown
from nextgen.pulsar.errors import server_error_of
from nextgen.pulsar.scalable_topics.dag import classic_dag, dag_of
from nextgen.pulsar.scalable_topics.ports import ScalableTopics, WatchedLayout
from nextgen.pulsar.topic_lists.session import Client
from nextgen.tasks.background import start
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandScalableTopicLookup,
    CommandScalableTopicUpdate,
    ScalableTopicDAG,
    ServerError,
)

LAYOUT_WATCH_COMMANDS = frozenset(
    {BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.SCALABLE_TOPIC_CLOSE}
)
"""The commands that a session handles."""

Partitions = Callable[[TopicName], Awaitable[int]]
"""Returns the partitions of a classic topic, 0 of one without. Raises ``MetadataError``."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class LayoutWatches:
    """What the sessions of one process share.

    ``own_url`` is where clients reach this node: consumers of scalable topics register there.
    """

    topics: ScalableTopics
    partitions: Partitions
    own_url: str
    watches_max: int = LAYOUT_WATCHES_MAX
    watches: int = 0
    """Watches of all connections."""
    updates: int = 0
    refused: int = 0

    @property
    def has_room(self) -> bool:
        """Whether another layout can be watched here."""
        return self.watches < self.watches_max

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return {"layout_updates": self.updates, "layout_watches_refused": self.refused}

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {"layout_watches": self.watches}


class _Stopped(Exception):
    """A watch cannot begin. ``code`` is for the client."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


class LayoutSession:
    """The layout watches of one connection. ``close`` it with the connection."""

    __slots__ = ("_client", "_shared", "_watches")

    def __init__(self, client: Client, shared: LayoutWatches) -> None:
        self._client = client
        self._shared = shared
        self._watches: dict[int, asyncio.Task[None]] = {}

    def handle(self, command: BaseCommand) -> None:
        """Carry out one of ``LAYOUT_WATCH_COMMANDS``."""
        if command.type == BaseCommand.SCALABLE_TOPIC_CLOSE:
            self._drop(command.scalableTopicClose.session_id)
            return
        request = command.scalableTopicLookup
        # A client that uses an id again has given the earlier watch up.
        self._drop(request.session_id)
        try:
            self._begin(command, request)
        except _Stopped as error:
            self._refuse(request.session_id, error.code, str(error))

    def close(self) -> None:
        """Drop all watches, without a word to the client."""
        for session_id in list(self._watches):
            self._drop(session_id)

    def _begin(self, command: BaseCommand, request: CommandScalableTopicLookup) -> None:
        name = _watched_name(request.topic)
        shared = self._shared
        if len(self._watches) >= LAYOUT_WATCHES_PER_CONNECTION_MAX:
            raise _Stopped(
                ServerError.TooManyRequests,
                f"this connection watches {len(self._watches)} layouts",
            )
        if not shared.has_room:
            raise _Stopped(
                ServerError.TooManyRequests, f"{shared.watches} layouts are watched at this node"
            )
        shared.watches += 1
        session_id = request.session_id
        work = self._serve(session_id, name, request.create_if_missing)
        task = self._watches[session_id] = start("layout_watch", work)
        kept = self._client.keep(command)
        task.add_done_callback(lambda done: self._ended(session_id, kept, done))

    def _drop(self, session_id: int) -> None:
        task = self._watches.pop(session_id, None)
        if task is not None:
            task.cancel()

    def _ended(self, session_id: int, kept: Kept, task: asyncio.Task[None]) -> None:
        kept.release()
        self._shared.watches -= 1
        if self._watches.get(session_id) is task:
            del self._watches[session_id]

    def _refuse(self, session_id: int, code: ServerError, message: str) -> None:
        self._shared.refused += 1
        self._send(
            CommandScalableTopicUpdate(session_id=session_id, error=code, message=shown(message))
        )

    def _send(self, update: CommandScalableTopicUpdate) -> None:
        self._client.send_command(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_UPDATE, scalableTopicUpdate=update)
        )

    # Service ----------------------------------------------------------------------------------

    async def _serve(self, session_id: int, name: TopicName, create: bool) -> None:
        """Answer, and send updates until the topic is deleted or the watch is dropped."""
        place: WatchedLayout | None = None
        try:
            place = await self._opened(name, create)
            await self._follow(session_id, name, place)
        except MetadataError as error:
            self._refuse(session_id, server_error_of(error), str(error))
        except Exception as error:
            # The client must get an answer even if this is a bug.
            _logger.exception("a layout watch failed", topic=name.text)
            self._refuse(session_id, ServerError.UnknownError, repr(error))
        finally:
            if place is not None:
                place.close()

    async def _opened(self, name: TopicName, create: bool) -> WatchedLayout:
        """Return a place; a failure that passes is tried again for a while."""
        is_scalable = name.domain is Domain.TOPIC
        attempts = 1
        while True:
            try:
                return await self._shared.topics.watch(
                    scalable_name(name),
                    create=create and is_scalable,
                    may_be_absent=not is_scalable,
                )
            except Refused:
                raise
            except MetadataError:
                if attempts == LAYOUT_WATCH_ATTEMPTS_MAX:
                    raise
            attempts += 1
            await asyncio.sleep(LAYOUT_WATCH_RETRY_MS / 1_000)

    async def _follow(self, session_id: int, name: TopicName, place: WatchedLayout) -> None:
        resolved = scalable_name(name).text
        while True:
            known = place.layout()
            if known is not None:
                dag = dag_of(known, self._shared.own_url)
            elif name.domain is Domain.TOPIC:
                raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} was deleted")
            else:
                dag = await self._classic(name)
            self._shared.updates += 1
            self._send(
                CommandScalableTopicUpdate(
                    session_id=session_id, dag=dag, resolved_topic_name=resolved
                )
            )
            await self._client.until_writable()
            await place.next_graph_change()

    async def _classic(self, name: TopicName) -> ScalableTopicDAG:
        try:
            partitions = await self._shared.partitions(name)
        except Refused as error:
            if error.code != RejectionCode.NOT_FOUND:
                raise
            # Its first producer or consumer may create it.
            partitions = 0
        return classic_dag(name, partitions)


def _watched_name(topic: str) -> TopicName:
    """Return the name of a request.

    Raises:
        _Stopped: No layout of that name can be watched.
    """
    try:
        name = parse_topic(topic)
    except InvalidName as error:
        raise _Stopped(ServerError.InvalidTopicName, str(error)) from error
    if name.domain is Domain.NON_PERSISTENT:
        raise _Stopped(ServerError.NotAllowedError, f"{name.text} has no segments")
    if name.partition is not None or name.segment is not None:
        raise _Stopped(ServerError.TopicNotFound, f"{name.text} is a part of a topic")
    return name
