"""Layouts without a cluster, for sessions of Pulsar clients."""

from __future__ import annotations

import asyncio
from collections import deque

from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.scalable_topics.ports import KnownLayout
from protos.nextgen.v1.layouts_pb2 import ScalableTopic, TopicSegment


def layout_of(name: str, epoch: int = 0, **owners: str) -> KnownLayout:
    """Return a layout of two segments, the first one sealed if ``epoch`` is not 0."""
    segments = [
        TopicSegment(segment_id=0, hash_end=0x7FFF, is_sealed=epoch > 0, sealed_at_epoch=epoch),
        TopicSegment(segment_id=1, hash_start=0x8000, hash_end=0xFFFF, bucket_starts=[32768]),
    ]
    topic = ScalableTopic(name=name, epoch=epoch, segments=segments)
    return KnownLayout(topic, {int(each.removeprefix("s")): url for each, url in owners.items()})


class FakePlace:
    """A place at a layout of ``FakeLayouts``."""

    def __init__(self, layouts: FakeLayouts, name: str) -> None:
        self.is_closed = False
        self._layouts = layouts
        self._name = name
        self._seen = -1

    def layout(self) -> KnownLayout | None:
        self._seen = self._layouts.changes
        return self._layouts.known.get(self._name)

    async def next_change(self) -> None:
        while self._layouts.changes == self._seen:
            self._layouts.moved.clear()
            await self._layouts.moved.wait()

    async def next_graph_change(self) -> None:
        await self.next_change()

    def close(self) -> None:
        self.is_closed = True


class FakeLayouts:
    """A ``ScalableTopics``. ``failures`` are raised by the next calls, in order."""

    def __init__(self, *known: KnownLayout) -> None:
        self.known = {each.topic.name: each for each in known}
        self.changes = 0
        self.moved = asyncio.Event()
        self.places: list[FakePlace] = []
        self.failures: deque[MetadataError] = deque()
        self.created: list[str] = []

    def change(self, name: str, known: KnownLayout | None) -> None:
        if known is None:
            self.known.pop(name, None)
        else:
            self.known[name] = known
        self.changes += 1
        self.moved.set()

    async def watch(self, name: TopicName, *, create: bool, may_be_absent: bool) -> FakePlace:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.popleft()
        if name.text not in self.known and not may_be_absent:
            if not create:
                raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")
            self.created.append(name.text)
            self.known[name.text] = layout_of(name.text)
        place = FakePlace(self, name.text)
        self.places.append(place)
        return place
