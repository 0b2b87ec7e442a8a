"""One stream to each home shard for all topic controllers of a node.

    controllers of the node ──▶ a share each ──▶ one ShardWatch ──▶ the home shard's leader

Each controller follows the namespaces of its topics at most home shards. A stream of its own for
each pair would be as many as the square of the number of shards, each with progress twice a second.

A share's watches are watches of the stream. What its controller withholds is not acknowledged by
the stream. The home shard sees one subscriber: a watch is sent before the read that it belongs to
leaves, and before any acknowledgement of a later change, because both go by the stream in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from nextgen.client.changes.watch_places import WatchListener
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from nextgen.tasks.background import keep
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import Item, Kind
from shards.ports import ShardWatching

OpenStream = Callable[[int], ShardWatching]
"""Returns a new stream to a shard's leader."""


class SharedHomeStreams:
    """The shared streams of one process, by home shard. Owned by one event loop.

    A stream begins with its first share and ends with its last one.
    """

    def __init__(self, open_stream: OpenStream) -> None:
        self._open = open_stream
        self._streams: dict[int, _Shared] = {}

    def __repr__(self) -> str:
        return f"<SharedHomeStreams shards={sorted(self._streams)}>"

    def share(self, shard_id: int) -> StreamShare:
        """Return a share of the stream to a shard; ``run`` holds it."""
        shared = self._streams.get(shard_id)
        if shared is None:
            shared = self._streams[shard_id] = _Shared(
                self._open(shard_id), lambda: self._streams.pop(shard_id)
            )
        share = StreamShare(shared)
        shared.shares.add(share)
        return share


class _Shared:
    """One stream, its shares, and the watches of shares that were given up."""

    def __init__(self, stream: ShardWatching, forget: Callable[[], object]) -> None:
        self.stream = stream
        self.shares: set[StreamShare] = set()
        self._forget = forget
        self._lingering: set[int] = set()
        self._is_over = False
        stream.withhold_with(self._withheld)
        self._runner = keep("shared_home_stream", stream.run)

    def leave(self, share: StreamShare) -> None:
        """Keep the share's watches for as long as a subscriber that left counts: what its
        controller decided may still be committed."""
        self.shares.discard(share)
        watch_ids = frozenset(share.watch_ids)
        self._lingering |= watch_ids
        loop = asyncio.get_running_loop()
        loop.call_later(ASSIGNMENT_TTL_MS / 1_000, self._remove, watch_ids)

    def _remove(self, watch_ids: Collection[int]) -> None:
        self._lingering.difference_update(watch_ids)
        for watch_id in watch_ids:
            self.stream.remove(watch_id)
        if self.shares or self._lingering:
            self.stream.acknowledge()
        elif not self._is_over:
            self._is_over = True
            self._runner.cancel()
            self._forget()

    def _withheld(self) -> Collection[int]:
        withheld = set(self._lingering)
        for share in self.shares:
            withheld.update(share.withheld())
        return withheld


class StreamShare:
    """What one topic controller follows by a shared stream: a ``ShardWatching``."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._listeners: dict[int, _Listener] = {}
        self.withheld: Callable[[], Collection[int]] = tuple
        """Returns the watches of which nothing may be acknowledged."""

    def __repr__(self) -> str:
        return f"<StreamShare watches={len(self._listeners)} of {self._shared.stream!r}>"

    @property
    def watch_ids(self) -> Collection[int]:
        """Its live watches."""
        return self._listeners.keys()

    @property
    def heard_at(self) -> float:
        """See ``ShardWatching.heard_at``."""
        return self._shared.stream.heard_at

    def is_caught_up(self, watch_id: int) -> bool:
        """See ``ShardWatching.is_caught_up``."""
        return self._shared.stream.is_caught_up(watch_id)

    def add(
        self,
        listener: WatchListener,
        *,
        kinds: Sequence[Kind],
        names: Sequence[str] = (),
        from_position: int = 0,
        acknowledged: bool = False,
    ) -> int:
        """See ``ShardWatching.add``.

        Raises:
            Overloaded: The stream has as many watches as it may have.
        """
        heard = _Listener(listener)
        watch_id = self._shared.stream.add(
            heard,
            kinds=kinds,
            names=names,
            from_position=from_position,
            acknowledged=acknowledged,
        )
        self._listeners[watch_id] = heard
        heard.on_end = lambda: self._listeners.pop(watch_id, None)
        return watch_id

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None:
        """See ``ShardWatching.withhold_with``."""
        self.withheld = withheld

    def acknowledge_with(self, in_effect: Callable[[int], int]) -> None:
        """Not for shares: positions of one user say nothing of the others."""
        raise AssertionError("a shared stream acknowledges by watch")

    def complete_with(self, complete_term: Callable[[], int]) -> None:
        """Not for shares: only broker managers are waited for by their terms."""
        raise AssertionError("a shared stream belongs to no term")

    def acknowledge(self) -> None:
        """See ``ShardWatching.acknowledge``."""
        self._shared.stream.acknowledge()

    def remove(self, watch_id: int) -> None:
        """See ``ShardWatching.remove``."""
        if self._listeners.pop(watch_id, None) is not None:
            self._shared.stream.remove(watch_id)

    async def run(self) -> None:
        """Hold the share until cancelled; the stream runs as long as it has any."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for heard in self._listeners.values():
                heard.to = None
            self._shared.leave(self)
            self._listeners.clear()


class _Listener:
    """Passes on what one watch hears, until its share is given up."""

    def __init__(self, to: WatchListener) -> None:
        self.to: WatchListener | None = to
        self.on_end: Callable[[], object] = lambda: None

    def on_reset(self) -> None:
        if self.to is not None:
            self.to.on_reset()

    def on_items(self, items: Sequence[Item]) -> None:
        if self.to is not None:
            self.to.on_items(items)

    def on_snapshot_complete(self, position: int) -> None:
        if self.to is not None:
            self.to.on_snapshot_complete(position)

    def on_events(self, events: Sequence[Event]) -> None:
        if self.to is not None:
            self.to.on_events(events)

    def on_position(self, position: int) -> None:
        if self.to is not None:
            self.to.on_position(position)

    def on_ended(self, error: MetadataError) -> None:
        self.on_end()
        if self.to is not None:
            self.to.on_ended(error)
