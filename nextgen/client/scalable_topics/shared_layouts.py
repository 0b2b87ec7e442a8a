"""All layouts that a process follows: one for each topic, while somebody watches it.

    watch ─▶ the shared layout ─┬─ it is there ────────────────────────▶ a place
                                ╰─ absent: the leader is asked ─┬─ it is there: wait for it
                                                                ╰─ absent: created, or refused

A watch may be behind what a client was told elsewhere, or at a shard that has given the slot away,
so nothing is called absent by a snapshot alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.shard_calls import Shards, call_home
from nextgen.client.scalable_topics.shared_layout import SharedLayout
from nextgen.kernel.errors import MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.scalable import LAYOUT_LOADS_MAX, LAYOUT_READ_MS_MAX
from nextgen.kernel.routing.names import TopicName
from nextgen.kernel.routing.slots import SlotTable
from nextgen.pulsar.scalable_topics.ports import KnownLayout, WatchedLayout
from nextgen.tasks.background import cancel_and_wait, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_SCALABLE_TOPIC

_MISSING_PAUSE_SECONDS = 0.5
"""Before a topic that a snapshot did not have is followed anew: a map that is on its way comes."""

_Leave = Callable[[SharedLayout], None]


_logger = structlog.get_logger(__name__)


class Streams(Protocol):
    """A ``ShardStreams``, as far as layouts need it."""

    def stream(self, shard_id: int) -> ShardWatch: ...


class KnownCluster(Protocol):
    """A ``ClusterLink``, as far as layouts need it."""

    @property
    def view(self) -> ClusterView: ...


class Creation(Protocol):
    """Creates topics on demand: a ``TopicCreation``."""

    async def create_scalable(self, name: TopicName) -> None:
        """Create an absent scalable topic if its namespace allows it.

        Raises:
            Refused: ``NOT_FOUND``, with the reason why it was not created.
        """


class SharedLayouts:
    """See ``nextgen.pulsar.scalable_topics.ports.ScalableTopics``. Owned by one event loop."""

    def __init__(
        self, streams: Streams, shards: Shards, cluster: KnownCluster, creation: Creation
    ) -> None:
        self._streams = streams
        self._shards = shards
        self._cluster = cluster
        self._creation = creation
        self._layouts: dict[str, SharedLayout] = {}
        self._table: SlotTable | None = None
        self._loads = asyncio.Semaphore(LAYOUT_LOADS_MAX)
        """Held while a layout that nobody watched before is read."""
        self._missing: set[SharedLayout] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<SharedLayouts layouts={len(self._layouts)}>"

    def __len__(self) -> int:
        return len(self._layouts)

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {"layouts_followed": len(self._layouts)}

    async def watch(self, name: TopicName, *, create: bool, may_be_absent: bool) -> WatchedLayout:
        """See ``ScalableTopics.watch``."""
        known = self._layouts.get(name.text)
        if known is not None and known.is_loaded:
            return await self._opened(name, create=create, may_be_absent=may_be_absent)
        # Clients of a node that was restarted come back at once, with all of their topics.
        async with self._loads:
            return await self._opened(name, create=create, may_be_absent=may_be_absent)

    def cluster_changed(self) -> None:
        """Follow layouts at the shards that have their topics by the present map."""
        table = self._cluster.view.map_table
        if table is None or table is self._table:
            return
        self._table = table
        for shared in tuple(self._layouts.values()):
            home = table.shard_for_key(shared.name.routing_key)
            if shared.error is None and home != shared.shard_id:
                self._rehome(shared)

    async def stop(self) -> None:
        """End every layout; their watchers get ``Unavailable``."""
        for shared in tuple(self._layouts.values()):
            shared.end(Unavailable("this node stops"))
        await cancel_and_wait(*self._tasks)

    # ------------------------------------------------------------------------------------------

    async def _opened(self, name: TopicName, *, create: bool, may_be_absent: bool) -> LayoutPlace:
        place = self._place(name)
        try:
            await self._load(place.shared, create=create, may_be_absent=may_be_absent)
        except BaseException:
            place.close()
            raise
        return place

    def _place(self, name: TopicName) -> LayoutPlace:
        shared = self._layouts.get(name.text)
        if shared is None or shared.error is not None:
            shared = self._layouts[name.text] = SharedLayout(
                name, self._stream_of(name), self._broker_url, self._on_missing
            )
        shared.places += 1
        return LayoutPlace(shared, self._left)

    def _stream_of(self, name: TopicName) -> ShardWatch:
        """Return the stream of the shard that has the topic by the map.

        What a former shard said of a slot counts for requests only: the shard that it named has
        not the topic before it has adopted the slot, of which the map tells.
        """
        table = self._cluster.view.map_table
        if table is None:
            raise Unavailable("no shard map is known here yet")
        return self._streams.stream(table.shard_for_key(name.routing_key))

    def _rehome(self, shared: SharedLayout) -> None:
        try:
            shared.rehome(self._stream_of(shared.name))
        except MetadataError as error:
            shared.end(error)

    def _on_missing(self, shared: SharedLayout) -> None:
        if shared not in self._missing:
            self._missing.add(shared)
            start("missing_layout", self._look_for(shared), self._tasks)

    async def _look_for(self, shared: SharedLayout) -> None:
        """Settle whether a topic that a snapshot does not have is there; if so, follow it anew."""
        try:
            while shared.error is None and shared.places:
                try:
                    exists = await self._exists(shared.name)
                except MetadataError as error:
                    _logger.info("layout is missing", topic=shared.name.text, why=str(error))
                else:
                    if not exists:
                        shared.take_topic(None)
                        return
                await asyncio.sleep(_MISSING_PAUSE_SECONDS)
                if shared.error is None and shared.places:
                    # Its next snapshot has the topic, or is doubted again.
                    self._missing.discard(shared)
                    self._rehome(shared)
                    return
        finally:
            self._missing.discard(shared)

    def _left(self, shared: SharedLayout) -> None:
        shared.places -= 1
        if not shared.places:
            shared.close()
            if self._layouts.get(shared.name.text) is shared:
                del self._layouts[shared.name.text]

    async def _load(self, shared: SharedLayout, *, create: bool, may_be_absent: bool) -> None:
        try:
            async with timeout(LAYOUT_READ_MS_MAX / 1_000):
                while not shared.is_loaded:
                    await shared.wait_change(shared.changes)
                if shared.topic is None:
                    await self._seek(shared, create=create, may_be_absent=may_be_absent)
        except TimeoutError:
            raise Unavailable(
                f"the layout of {shared.name.text} did not come within {LAYOUT_READ_MS_MAX} ms"
            ) from None

    async def _seek(self, shared: SharedLayout, *, create: bool, may_be_absent: bool) -> None:
        """Return once a layout that was absent is there, or certainly is not."""
        name = shared.name
        if not await self._exists(name):
            if create:
                await self._creation.create_scalable(name)
            elif may_be_absent:
                return
            else:
                raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")
        while shared.topic is None:
            await shared.wait_change(shared.changes)

    async def _exists(self, name: TopicName) -> bool:
        wanted = pb.ObjectName(kind=KIND_SCALABLE_TOPIC, name=name.text)
        request = pb.ShardRequest(get=pb.GetRequest(names=[wanted]))
        response = await call_home(
            self._shards, name.routing_key, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
        )
        return any(item.HasField("scalable_topic") for item in response.get.items)

    def _broker_url(self, broker_id: str, session_id: str) -> str:
        broker = self._cluster.view.brokers.get(broker_id)
        if broker is None or broker.session_id != session_id or not broker.is_live:
            return ""
        return broker.endpoints.pulsar_url


class LayoutPlace:
    """A ``WatchedLayout``."""

    __slots__ = ("_leave", "_seen", "_seen_graph", "shared")

    def __init__(self, shared: SharedLayout, leave: _Leave) -> None:
        self.shared = shared
        self._leave: _Leave | None = leave
        self._seen = self._seen_graph = -1

    def layout(self) -> KnownLayout | None:
        """See ``WatchedLayout.layout``."""
        self._seen, self._seen_graph = self.shared.changes, self.shared.graph_changes
        return self.shared.known()

    async def next_change(self) -> None:
        """See ``WatchedLayout.next_change``."""
        await self.shared.wait_change(self._seen)

    async def next_graph_change(self) -> None:
        """See ``WatchedLayout.next_graph_change``."""
        await self.shared.wait_graph_change(self._seen_graph)

    def close(self) -> None:
        """See ``WatchedLayout.close``."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave(self.shared)
