"""Registered consumers without a cluster, for sessions of Pulsar clients."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from nextgen.kernel.errors import MetadataError
from nextgen.pulsar.scalable_topics.ports import ConsumerAssignment, JoinRequest
from protos.nextgen.v1.layouts_pb2 import TopicSegment

WHOLE = TopicSegment(segment_id=0, hash_end=0xFFFF, bucket_starts=[0x4000, 0x8000])
NOTHING = ConsumerAssignment(0)
ALL = ConsumerAssignment(0, ((WHOLE, False),))


class FakeJoined:
    """A ``JoinedConsumer`` whose assignments a test gives: an error ends them."""

    def __init__(self, request: JoinRequest, first: ConsumerAssignment) -> None:
        self.request = request
        self.has_left = False
        self.is_closed = False
        self.leave_error: MetadataError | None = None
        self.replace: Callable[[], None] = lambda: None
        self._assignments: asyncio.Queue[ConsumerAssignment | MetadataError] = asyncio.Queue()
        self.assign(first)

    def assign(self, assignment: ConsumerAssignment | MetadataError) -> None:
        self._assignments.put_nowait(assignment)

    def on_replaced(self, listener: Callable[[], None]) -> None:
        self.replace = listener

    async def next_assignment(self) -> ConsumerAssignment:
        assignment = await self._assignments.get()
        while not self._assignments.empty():
            assignment = self._assignments.get_nowait()
        if isinstance(assignment, MetadataError):
            raise assignment
        return assignment

    async def leave(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True
        if self.leave_error is not None:
            raise self.leave_error
        self.has_left = True

    def close(self) -> None:
        self.is_closed = True


class FakeConsumers:
    """A ``ScalableConsumers``. ``failures`` are raised by the next joins, in order."""

    def __init__(self) -> None:
        self.first = ALL
        self.joined: list[FakeJoined] = []
        self.failures: deque[Exception] = deque()
        self.may_join = asyncio.Event()
        self.may_join.set()

    async def join(self, request: JoinRequest) -> FakeJoined:
        await self.may_join.wait()
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.popleft()
        self.joined.append(FakeJoined(request, self.first))
        return self.joined[-1]
