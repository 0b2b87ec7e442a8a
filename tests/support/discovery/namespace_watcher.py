"""A stock client that watches the scalable topics of a namespace, over a session of a node."""

from __future__ import annotations

import asyncio

from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.pulsar.admission.command_access import NOTHING_KEPT, Kept
from nextgen.pulsar.scalable_topics.namespace_session import NamespaceSession, NamespaceWatches
from nextgen.pulsar.topic_lists.hash import topics_hash
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand, ServerError
from tests.support.discovery.topic_list_world import NAMESPACE, LoggedShards, Node


def watch_command(
    watch_id: int, namespace: str, properties: PropertyFilter, known: str | None = None
) -> BaseCommand:
    request = pulsar.CommandWatchScalableTopics(
        watch_id=watch_id, namespace=namespace, current_hash=known
    )
    for key, value in properties.pairs:
        request.property_filters.add(key=key, value=value)
    return BaseCommand(type=BaseCommand.WATCH_SCALABLE_TOPICS, watchScalableTopics=request)


class NamespaceWatcher:
    """It has what its connections brought, and comes back with the hash of that. It ignores errors,
    as the stock Java client does."""

    def __init__(self, properties: PropertyFilter) -> None:
        self.properties = properties
        self.names: set[str] | None = None
        self.changes = 0
        self.errors = 0
        self.failure: BaseException | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._session: NamespaceSession | None = None
        self._arrived = asyncio.Event()

    @property
    def hash(self) -> str:
        return topics_hash(self.names or ())

    @property
    def is_paused(self) -> bool:
        return not self._has_room.is_set()

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        if is_paused:
            self._has_room.clear()
        else:
            self._has_room.set()

    def truth(self, shards: LoggedShards) -> set[str]:
        return shards.scalable_names(self.properties)

    async def begin(self, node: Node) -> None:
        self._session = NamespaceSession(self, NamespaceWatches(node.lists))
        known = None if self.names is None else self.hash
        self._session.handle(watch_command(1, NAMESPACE.text, self.properties, known))
        while self.names is None:
            await self._arrived.wait()
            self._arrived.clear()

    async def leave(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
            # Its tasks end.
            for _ in range(5):
                await asyncio.sleep(0)

    # As the session calls it --------------------------------------------------------------------

    def keep(self, command: BaseCommand) -> Kept:
        return NOTHING_KEPT

    async def until_writable(self) -> None:
        await self._has_room.wait()

    def send_command(self, command: BaseCommand) -> None:
        try:
            self._take(command.watchScalableTopicsUpdate)
        except AssertionError as error:
            self.failure = self.failure or error

    def send_error(self, request_id: int, error: ServerError, message: str) -> None:
        raise AssertionError("errors of a watch come as updates")

    def _take(self, update: pulsar.CommandWatchScalableTopicsUpdate) -> None:
        if update.HasField("error"):
            self.errors += 1
            # Only a client without a list gets an error, and asks again.
            assert self.names is None
            asyncio.get_running_loop().call_soon(self._ask_again, self._session)
        elif update.HasField("snapshot"):
            assert len(set(update.snapshot.topics)) == len(update.snapshot.topics)
            self.names = set(update.snapshot.topics)
            self._arrived.set()
        else:
            self.changes += 1
            diff = update.diff
            assert diff.added or diff.removed, "an empty change"
            assert self.names is not None, "a change before the list"
            assert self.names.issuperset(diff.removed), "removed what was not there"
            self.names.difference_update(diff.removed)
            assert self.names.isdisjoint(diff.added), "added twice"
            self.names.update(diff.added)

    def _ask_again(self, session: NamespaceSession | None) -> None:
        if session is self._session is not None:
            session.handle(watch_command(1, NAMESPACE.text, self.properties))
