"""All watches of programs through this discovery node: admits them, places them, ends them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from discovery.domain.watch_scope import (
    Share,
    WatchedKind,
    WatchScope,
    parse_scope,
    slots_digests,
)
from discovery.ports import CatchUpReader, ChangeStreams, Clock, Directory
from discovery.service.watches.public_watch import PublicWatch
from discovery.service.watches.shard_feed import EncodedEvents, ShardWays
from discovery.service.watches.shard_map_watch import ShardMapWatch
from discovery.service.watches.topic_list_watch import TopicListWatch
from nextgen.kernel.errors import InvalidRequest, Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.stream import (
    CATCH_UPS_AT_ONCE_MAX,
    PUBLIC_WATCH_BYTES,
    PUBLIC_WATCH_PROGRESS_MAX,
    PUBLIC_WATCH_PROGRESS_MS,
    PUBLIC_WATCHES_BYTES_MAX,
)
from nextgen.kernel.routing.names import InvalidName
from nextgen.pulsar.topic_lists.ports import TopicLists
from nextgen.tasks.background import cancel_and_wait, keep
from protos.nextgen.v1.discovery_service_pb2 import WatchRequest

SHARD_MAP = "map"
"""The kind of a watch of the shard map, in addition to those of ``WatchedKind``."""

TOPIC_LIST = "topic_lists"
"""The kind of a watch of topics by pattern."""

WATCH_KINDS = (*(kind.value for kind in WatchedKind), SHARD_MAP, TOPIC_LIST)

AnyWatch = PublicWatch | ShardMapWatch | TopicListWatch
RELAYED_PREFIX = "watch_events_relayed_"
SLOW_PREFIX = "watches_ended_as_slow_"
OPEN_PREFIX = "watches_"
"""Prefix of the names of the gauges of each kind of watch."""


@dataclass(slots=True)
class WatchLag:
    """The lag of the watchers that are furthest behind."""

    positions: int = 0
    """Events of a shard that are unsent or unread."""

    wait_ms: int = 0
    """The time the oldest update has waited to be read."""


class WatchRegistry:
    """Every watch of a program belongs to it from ``open`` to ``close``."""

    def __init__(
        self,
        directory: Directory,
        streams: ChangeStreams,
        catch_up: CatchUpReader,
        clock: Clock,
    ) -> None:
        self.events_relayed: Counter[str] = Counter()
        """By kind of watch: an event counts once for each watcher that it was queued for."""
        self.refused = 0
        """Watches for which there was no memory."""
        self._closed_as_slow: Counter[str] = Counter()
        self._directory = directory
        self._streams = streams
        self._ways = ShardWays(
            streams, catch_up, asyncio.Semaphore(CATCH_UPS_AT_ONCE_MAX), EncodedEvents()
        )
        self._clock = clock
        self.topic_lists: TopicLists | None = None
        """What watches by pattern stand on. None: they are refused, as configured."""
        self._watches: dict[AnyWatch, str] = {}
        self._digests: tuple[int, dict[int, bytes]] = (0, {})
        self._placed_version = 0
        self._ticking: asyncio.Task[None] | None = None
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<WatchRegistry watches={len(self._watches)}>"

    def open(self, kind: WatchedKind, request: WatchRequest) -> AnyWatch:
        """Begin a watch of objects, or of the topics that a pattern describes.

        Raises:
            InvalidRequest: A name, the prefix, the pattern or a position to resume from is
                malformed.
            Refused: ``NOT_ALLOWED``: by pattern nothing is watched here.
            Unavailable: The shard map is not known yet, or this node stops.
            Overloaded: Public watches take ``PUBLIC_WATCHES_BYTES_MAX``.
        """
        if request.pattern:
            return self._open_topic_list(kind, request)
        try:
            scope = parse_scope(kind, request.prefix, request.names)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error
        self._check_admission()
        shares = self._shares(scope)
        watch = PublicWatch(
            scope,
            self._known(request),
            without_snapshot=request.without_snapshot,
            ways=self._ways,
            clock=self._clock,
            on_events=lambda events: self._relayed(kind, events),
        )
        self._admit(watch, kind.value)
        watch.place(shares)
        return watch

    def open_shard_map(self, request: WatchRequest) -> ShardMapWatch:
        """Begin a watch of the shard map.

        Raises:
            InvalidRequest: The request has a filter, which the map does not allow.
            Unavailable: This node stops.
            Overloaded: Public watches take ``PUBLIC_WATCHES_BYTES_MAX``.
        """
        if request.prefix or request.names or getattr(request, "from") or request.without_snapshot:
            raise InvalidRequest("a watch of the shard map has no names and always begins with it")
        self._check_admission()
        watch = ShardMapWatch(self._directory, self._clock)
        self._admit(watch, SHARD_MAP)
        return watch

    def _open_topic_list(self, kind: WatchedKind, request: WatchRequest) -> TopicListWatch:
        if kind is not WatchedKind.TOPICS:
            raise InvalidRequest("only topics are watched by pattern")
        if self.topic_lists is None:
            message = "topic lists cannot be watched here: list the topics"
            raise Refused(RejectionCode.NOT_ALLOWED, message)
        self._check_admission()
        watch = TopicListWatch(self.topic_lists, request, self._clock)
        self._admit(watch, TOPIC_LIST)
        return watch

    async def close(self, watch: AnyWatch) -> None:
        """Remove and close a watch whose call has ended."""
        kind = self._watches.pop(watch)
        if _is_slow(watch):
            self._closed_as_slow[kind] += 1
        await watch.close()

    def cluster_changed(self) -> None:
        """Apply a change of the shard map or of a leader to all watches that it affects."""
        version = self._directory.view.shard_map_version
        for watch in tuple(self._watches):
            if isinstance(watch, ShardMapWatch):
                watch.notice()
            elif isinstance(watch, PublicWatch) and version != self._placed_version:
                watch.place(self._shares(watch.scope))
        self._placed_version = version

    def tick(self) -> None:
        """Send the progress that is due and end watchers that do not read: of all watches, or of
        the ``PUBLIC_WATCH_PROGRESS_MAX`` whose turn is the longest ago."""
        for watch in tuple(islice(self._watches, PUBLIC_WATCH_PROGRESS_MAX)):
            # The first one becomes the last one.
            self._watches[watch] = self._watches.pop(watch)
            watch.tick()

    def drain(self) -> None:
        """End every watch: this node stops. Their watchers resume elsewhere."""
        self._is_stopping = True
        for watch in tuple(self._watches):
            watch.fail(Unavailable("this discovery node stops"))

    async def stop(self) -> None:
        """End everything."""
        self.drain()
        if self._ticking is not None:
            await cancel_and_wait(self._ticking)
        for watch in tuple(self._watches):
            await watch.close()

    @property
    def ended_as_slow(self) -> Counter[str]:
        """By kind: watches that ended because their watcher did not read."""
        ending = [kind for watch, kind in self._watches.items() if _is_slow(watch)]
        return self._closed_as_slow + Counter(ending)

    def counts(self) -> dict[str, int]:
        """Return the counters by name, for every kind."""
        slow = self.ended_as_slow
        return {"watches_refused": self.refused} | {
            name: count
            for kind in WATCH_KINDS
            for name, count in (
                (f"{RELAYED_PREFIX}{kind}", self.events_relayed[kind]),
                (f"{SLOW_PREFIX}{kind}", slow[kind]),
            )
        }

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name, for every kind."""
        open_watches, lag = self.open_watches(), self.lag()
        return {
            **{f"{OPEN_PREFIX}{kind}": open_watches[kind] for kind in WATCH_KINDS},
            "watch_bytes": self.bytes,
            "watch_lag_positions": lag.positions,
            "watch_lag_ms": lag.wait_ms,
        }

    @property
    def bytes(self) -> int:
        """Memory that the watches count for."""
        queued = sum(watch.queue.bytes for watch in self._watches if isinstance(watch, PublicWatch))
        return queued + PUBLIC_WATCH_BYTES * len(self._watches)

    def open_watches(self) -> Counter[str]:
        """Return how many watches are open, by kind."""
        return Counter(self._watches.values())

    def lag(self) -> WatchLag:
        """Return the present lag of the watchers."""
        lag = WatchLag()
        now = self._clock()
        for watch in self._watches:
            if not isinstance(watch, PublicWatch):
                continue
            lag.wait_ms = max(lag.wait_ms, int(watch.queue.age(now) * 1_000))
            for shard_id, sent in watch.sent.items():
                # With an empty queue, all updates up to this position count as sent.
                reached = watch.told.get(shard_id, 0) if not len(watch.queue) else sent
                behind = self._streams.position(shard_id) - max(sent, reached)
                lag.positions = max(lag.positions, behind)
        return lag

    # ------------------------------------------------------------------------------------------

    def _relayed(self, kind: WatchedKind, events: int) -> None:
        self.events_relayed[kind.value] += events

    def _check_admission(self) -> None:
        if self._is_stopping:
            raise Unavailable("this discovery node stops")
        taken = self.bytes + PUBLIC_WATCH_BYTES
        if taken > PUBLIC_WATCHES_BYTES_MAX:
            self.refused += 1
            raise Overloaded(
                f"{len(self._watches)} watches would take {taken} bytes at this discovery node, "
                f"at most {PUBLIC_WATCHES_BYTES_MAX} are allowed"
            )

    def _admit(self, watch: AnyWatch, kind: str) -> None:
        self._watches[watch] = kind
        if self._ticking is None:
            self._ticking = keep("watch_progress", self._tick)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(PUBLIC_WATCH_PROGRESS_MS / 1_000)
            self.tick()

    def _shares(self, scope: WatchScope) -> Mapping[int, Share]:
        view = self._directory.view
        # By the map alone. A refusal may name a new owner that has not adopted the slot yet.
        table = view.map_table
        if table is None:
            raise Unavailable("no shard map is known here yet")
        if self._digests[0] != table.version:
            self._digests = table.version, slots_digests(table, view.shard_ids)
        return scope.shares(table, self._digests[1])

    def _known(self, request: WatchRequest) -> dict[int, int]:
        """Return the positions to resume from."""
        known: dict[int, int] = {}
        shard_ids = self._directory.view.shard_ids
        for place in getattr(request, "from"):
            if place.shard_id not in shard_ids:
                raise InvalidRequest(
                    f"there is no shard {place.shard_id} to resume, known are {list(shard_ids)}"
                )
            if place.shard_id in known:
                raise InvalidRequest(f"shard {place.shard_id} is resumed from two positions")
            known[place.shard_id] = place.position
        return {shard_id: position for shard_id, position in known.items() if position}


def _is_slow(watch: AnyWatch) -> bool:
    return isinstance(watch.error, Overloaded)
