"""One topic's layout and the owners of its segments, followed for all who watch them here.

shard ─▶ events of the topic ──────▶ the folded layout ─╮
  ╰────▶ assignments of segments ──▶ their brokers ─────┴─▶ every place is woken
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.scalable_topics.fold import fold_events
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.scalable import LAYOUT_WAKES_AT_ONCE_MAX
from nextgen.kernel.routing.names import Domain, TopicName, Unit, UnitKind
from nextgen.pulsar.scalable_topics.ports import KnownLayout
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_SCALABLE_TOPIC,
    Item,
)
from protos.nextgen.v1.layouts_pb2 import ScalableTopic

BrokerUrl = Callable[[str, str], str]
"""Returns the URL of a broker by its id, if this session of it lives; else ""."""

_Owner = tuple[str, str]
"""Broker id and session id."""


class SharedLayout:
    """See the module. ``close`` it when nobody watches it any more."""

    def __init__(
        self,
        name: TopicName,
        stream: ShardWatch,
        broker_url: BrokerUrl,
        on_missing: Callable[[SharedLayout], None] = lambda _: None,
    ) -> None:
        """Begins two watches on ``stream``. ``on_missing`` is called if a snapshot does not have
        a topic that was there, which stays until it is settled.

        Raises:
            Overloaded: The stream has as many watches as it may have.
        """
        self.name = name
        self.places = 0
        self.changes = 0
        """Grows with each change of the topic or of an owner."""
        self.graph_changes = 0
        """Grows with those of them that concern the segments: with each epoch, not with what
        becomes of subscriptions."""
        self.topic: ScalableTopic | None = None
        self.error: MetadataError | None = None
        """Why it is followed no longer."""
        self.is_loaded = False
        self._broker_url = broker_url
        self._on_missing = on_missing
        self._owners: dict[int, _Owner] = {}
        self._known: tuple[int, Mapping[_Owner, str], KnownLayout] | None = None
        """What ``known`` returned last, of which change, with which URLs."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._waiting_for_graph: set[asyncio.Future[None]] = set()
        self._follow(stream)

    def _follow(self, stream: ShardWatch) -> None:
        layout_id = stream.add(
            _LayoutListener(self), kinds=[KIND_SCALABLE_TOPIC], names=[self.name.text]
        )
        prefix = f"{Domain.SEGMENT}://{self.name.routing_key}/"
        try:
            owners_id = stream.add(_OwnerListener(self), kinds=[KIND_ASSIGNMENT], prefix=prefix)
        except MetadataError:
            stream.remove(layout_id)
            raise
        self._stream, self._layout_id, self._owners_id = stream, layout_id, owners_id

    @property
    def shard_id(self) -> int:
        """The shard at which it is followed."""
        return self._stream.shard_id

    def rehome(self, stream: ShardWatch) -> None:
        """Follow the topic anew, behind a snapshot: on the stream of the shard where its slot is by
        now. Its watchers get what has changed meanwhile.

        Raises:
            Overloaded: The stream has as many watches as it may have; it is followed as before.
        """
        before, ids = self._stream, (self._layout_id, self._owners_id)
        self._follow(stream)
        for watch_id in ids:
            before.remove(watch_id)

    def __repr__(self) -> str:
        return f"<SharedLayout {self.name.text} places={self.places} loaded={self.is_loaded}>"

    def known(self) -> KnownLayout | None:
        """Return the present layout with the URLs of brokers that live; None if there is none.

        While several watch it, it is the same object until something differs.
        """
        if self.topic is None:
            return None
        url_of = {owner: self._broker_url(*owner) for owner in set(self._owners.values())}
        if self._known is not None and self._known[:2] == (self.changes, url_of):
            return self._known[2]
        urls = {each: url for each, owner in self._owners.items() if (url := url_of[owner])}
        known = KnownLayout(self.topic, urls)
        self._known = (self.changes, url_of, known) if self.places > 1 else None
        return known

    async def wait_change(self, changes: int) -> None:
        """Return once ``changes`` is no longer that.

        Raises:
            MetadataError: The layout is followed no longer.
        """
        while self.changes == changes:
            await self._woken(self._waiting)
        self._check()

    async def wait_graph_change(self, changes: int) -> None:
        """Return once ``graph_changes`` is no longer that.

        Raises:
            MetadataError: The layout is followed no longer.
        """
        while self.graph_changes == changes:
            await self._woken(self._waiting_for_graph)
        self._check()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    async def _woken(self, waiting: set[asyncio.Future[None]]) -> None:
        self._check()
        woken = asyncio.get_running_loop().create_future()
        waiting.add(woken)
        try:
            await woken
        finally:
            waiting.discard(woken)

    def close(self) -> None:
        """End the watches."""
        self._stream.remove(self._layout_id)
        self._stream.remove(self._owners_id)

    # As the listeners call it -----------------------------------------------------------------

    def take_topic(self, topic: ScalableTopic | None) -> None:
        """Take in the layout as it is now; the first one completes the loading."""
        is_first, self.is_loaded = not self.is_loaded, True
        if is_first or topic != self.topic:
            before, self.topic = self.topic, topic
            self.notify(of_graph=is_first or _graph_of(before) != _graph_of(topic))

    def miss_topic(self) -> None:
        """A snapshot does not have the topic: it may be that of a shard without its slot."""
        if self.topic is None:
            self.take_topic(None)
        else:
            self._on_missing(self)

    def take_owners(self, owners: Mapping[int, _Owner]) -> None:
        if owners != self._owners:
            self._owners = dict(owners)
            self.notify(of_graph=True)

    @property
    def owners(self) -> Mapping[int, _Owner]:
        return self._owners

    def end(self, error: MetadataError) -> None:
        self.error = error
        self.notify(of_graph=True)

    def notify(self, *, of_graph: bool) -> None:
        self.changes += 1
        woken = list(self._waiting)
        if of_graph:
            self.graph_changes += 1
            woken += self._waiting_for_graph
        _wake(woken)


class _LayoutListener:
    """Folds the topic's events; a snapshot replaces what is known at once, when it is complete."""

    def __init__(self, owner: SharedLayout) -> None:
        self._owner = owner
        self._read: ScalableTopic | None = None

    def on_reset(self) -> None:
        self._read = None

    def on_items(self, items: Sequence[Item]) -> None:
        for item in items:
            self._read = item.scalable_topic

    def on_snapshot_complete(self, position: int) -> None:
        if self._read is None:
            self._owner.miss_topic()
        else:
            self._owner.take_topic(self._read)

    def on_events(self, events: Sequence[Event]) -> None:
        self._owner.take_topic(fold_events(self._owner.topic, events))

    def on_position(self, position: int) -> None:
        """Do nothing: a layout is as of its last event."""

    def on_ended(self, error: MetadataError) -> None:
        self._owner.end(error)


class _OwnerListener:
    """Keeps the owners of the topic's segments, by segment id."""

    def __init__(self, owner: SharedLayout) -> None:
        self._owner = owner
        self._read: dict[int, _Owner] = {}

    def on_reset(self) -> None:
        self._read = {}

    def on_items(self, items: Sequence[Item]) -> None:
        for item in items:
            unit = item.assignment
            segment_id = _segment_of(unit.unit)
            if segment_id is not None:
                self._read[segment_id] = (unit.broker_id, unit.session_id)

    def on_snapshot_complete(self, position: int) -> None:
        self._owner.take_owners(self._read)

    def on_events(self, events: Sequence[Event]) -> None:
        owners = dict(self._owner.owners)
        for event in events:
            match event.WhichOneof("payload"):
                case "topic_assigned":
                    assigned = event.topic_assigned
                    segment_id = _segment_of(assigned.unit)
                    if segment_id is not None:
                        owners[segment_id] = (assigned.broker_id, assigned.session_id)
                case "topic_unassigned":
                    segment_id = _segment_of(event.topic_unassigned.unit)
                    if segment_id is not None:
                        owners.pop(segment_id, None)
        self._owner.take_owners(owners)

    def on_position(self, position: int) -> None:
        """Do nothing: addresses are hints."""

    def on_ended(self, error: MetadataError) -> None:
        self._owner.end(error)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    """Wake them, ``LAYOUT_WAKES_AT_ONCE_MAX`` in a turn of the event loop."""
    for woken in waiting[:LAYOUT_WAKES_AT_ONCE_MAX]:
        if not woken.done():
            woken.set_result(None)
    if len(waiting) > LAYOUT_WAKES_AT_ONCE_MAX:
        asyncio.get_running_loop().call_soon(_wake, waiting[LAYOUT_WAKES_AT_ONCE_MAX:])


def _graph_of(topic: ScalableTopic | None) -> tuple[str, int] | None:
    """Return what two states with the same segments have in common; None without a topic."""
    return None if topic is None else (topic.topic_id, topic.epoch)


def _segment_of(unit: str) -> int | None:
    parsed = Unit.parse(unit)
    return parsed.number if parsed.kind is UnitKind.SEGMENT else None
