"""A shard's change streams without a network: what is shared, and what is read for one watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from nextgen.client.changes.shard_watch import WatchListener
from nextgen.kernel.errors import MetadataError
from protos.nextgen.v1.events_pb2 import Event, TopicCreated, TopicDeleted, TopicPropertiesSet
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item, Topic
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate


@dataclass
class Added:
    """A watch on a shared stream."""

    shard_id: int
    listener: WatchListener
    names: tuple[str, ...]
    from_position: int


class FakeStreams:
    """``ChangeStreams``: tests call the listeners, and set the positions of the streams."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.watches: dict[int, Added] = {}
        self.removed: list[int] = []

    def position(self, shard_id: int) -> int:
        return self.positions.get(shard_id, 0)

    def add(
        self,
        shard_id: int,
        listener: WatchListener,
        *,
        kind: int,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> int:
        watch_id = len(self.watches) + len(self.removed) + 1
        self.watches[watch_id] = Added(shard_id, listener, tuple(names), from_position)
        return watch_id

    def remove(self, shard_id: int, watch_id: int) -> None:
        del self.watches[watch_id]
        self.removed.append(watch_id)

    def of_shard(self, shard_id: int) -> list[Added]:
        return [watch for watch in self.watches.values() if watch.shard_id == shard_id]


@dataclass
class Reading:
    """One reading of a shard; ``updates`` is its content, an error ends it."""

    shard_id: int
    from_position: int
    names: tuple[str, ...]
    updates: asyncio.Queue[WatchShardUpdate | MetadataError] = field(default_factory=asyncio.Queue)
    is_open: bool = True
    taken: int = 0


class FakeReader:
    """``CatchUpReader``: tests feed its readings."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    async def read(
        self,
        shard_id: int,
        *,
        kind: int,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> AsyncGenerator[WatchShardUpdate]:
        reading = Reading(shard_id, from_position, tuple(names))
        self.readings.append(reading)
        try:
            while True:
                update = await reading.updates.get()
                if isinstance(update, MetadataError):
                    raise update
                reading.taken += 1
                yield update
        finally:
            reading.is_open = False

    def of_shard(self, shard_id: int) -> Reading:
        """Return the reading of the shard that is open."""
        (reading,) = [r for r in self.readings if r.shard_id == shard_id and r.is_open]
        return reading


def topic_item(name: str, **properties: str) -> Item:
    topic = Topic(topic_id=f"id-of-{name}", name=name, properties=properties, version=1)
    return Item(kind=KIND_TOPIC, name=name, topic=topic)


def created(position: int, name: str, **properties: str) -> Event:
    return Event(
        position=position,
        time_ms=position,
        topic_created=TopicCreated(topic_id=f"id-of-{name}", name=name, properties=properties),
    )


def properties_set(position: int, name: str, **properties: str) -> Event:
    return Event(
        position=position, topic_properties_set=TopicPropertiesSet(name=name, properties=properties)
    )


def deleted(position: int, name: str) -> Event:
    return Event(position=position, topic_deleted=TopicDeleted(name=name, topic_id="x"))
