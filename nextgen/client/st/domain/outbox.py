"""Which messages wait for which segment, and when they may be sent.

Theory of operation. Messages are numbered as they are added. Each active segment has a *lane*: its
waiting messages, one queue for each entry bucket, and its batches in flight. A batch has messages
of one bucket. Three rules keep the order of messages with the same key, whatever the layouts do:

1. Every queue is in the order of the numbers. Messages that come back, because their segment is
   gone or has left the layout, are put where their numbers belong.
2. Messages are routed by the newest layout. When it changes, those that wait in a segment that left
   it are routed again at once.
3. A lane sends nothing while a segment that left the layout, and whose range meets its own, has
   batches in flight: one of them may come back.

A segment that turns out to be gone while it is still in the layout is *resting*: its messages wait
for a newer layout or for ``rested``. A message that came back ``SEGMENT_ATTEMPTS_MAX`` times fails.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nextgen.client.st.domain.key_hash import bucket_hash
from nextgen.client.st.domain.layout import Layout, LayoutSegment
from nextgen.client.st.domain.router import Router
from nextgen.client.st.errors import NoActiveSegment, ScalableTopicError
from nextgen.kernel.limits.scalable import (
    SEGMENT_ATTEMPTS_MAX,
    SEGMENT_RETRY_MS_MAX,
    SEGMENT_RETRY_STEP_MS,
    ST_BATCH_BYTES_MAX,
    ST_BATCH_MESSAGES_MAX,
    ST_BATCHES_IN_FLIGHT_MAX,
)

KEYLESS = -1
"""The queue of messages without key: they have no bucket."""


class Waiting:
    """One message until it is stored or has failed. ``content`` belongs to the owner."""

    __slots__ = ("attempts", "content", "hash32", "is_alone", "is_dropped", "number", "size_bytes")

    def __init__(
        self, content: Any, hash32: int | None, size_bytes: int, *, is_alone: bool = False
    ) -> None:
        self.content = content
        self.hash32 = hash32
        """The unmasked hash of its key; None if it has no key."""

        self.size_bytes = size_bytes
        self.is_alone = is_alone
        """Whether it must be a batch of its own."""

        self.number = 0
        self.attempts = 0
        self.is_dropped = False
        """Whether its owner gave it up; it is not sent any more."""


Failed = tuple[Waiting, ScalableTopicError]
"""A message that will not be sent, and why."""


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one bucket that are sent to one segment together."""

    segment: LayoutSegment
    messages: list[Waiting]
    stamp: tuple[int, int] | None
    """The lowest and the highest bucket hash of its messages; None if they have no key."""

    content: Any = None
    """Belongs to the owner."""


@dataclass(slots=True, eq=False)
class Lane:
    """What is on its way to one segment."""

    segment: LayoutSegment
    queues: dict[int, deque[Waiting]] = field(default_factory=dict)
    in_flight: dict[Batch, None] = field(default_factory=dict)
    waiting: int = 0
    attempts: int = 0
    """Times in a row that the segment turned out to be gone."""

    is_resting: bool = False
    is_active: bool = True

    def bucket_of(self, message: Waiting) -> int:
        if message.hash32 is None:
            return KEYLESS
        return bisect_right(self.segment.bucket_starts, bucket_hash(message.hash32))

    def append(self, message: Waiting) -> None:
        bucket = self.bucket_of(message)
        queue = self.queues.get(bucket)
        if queue is None:
            queue = self.queues[bucket] = deque()
        queue.append(message)
        self.waiting += 1

    def sort(self) -> None:
        """Restore rule 1 after messages came back."""
        for bucket, queue in self.queues.items():
            self.queues[bucket] = deque(sorted(queue, key=lambda each: each.number))

    def drain(self) -> list[Waiting]:
        """Take all messages, waiting and in flight."""
        taken = [each for batch in self.in_flight for each in batch.messages]
        taken += [each for queue in self.queues.values() for each in queue]
        self.in_flight.clear()
        self.queues.clear()
        self.waiting = 0
        return [each for each in taken if not each.is_dropped]

    def meets(self, other: Lane) -> bool:
        mine, others = self.segment, other.segment
        if mine.is_legacy or others.is_legacy:
            return True
        return (
            mine.hash_range.start <= others.hash_range.end
            and others.hash_range.start <= mine.hash_range.end
        )


class Outbox:
    """All messages of one producer that are not stored yet."""

    def __init__(
        self,
        *,
        batch_messages_max: int = ST_BATCH_MESSAGES_MAX,
        batch_bytes_max: int = ST_BATCH_BYTES_MAX,
    ) -> None:
        self._batch_messages_max = batch_messages_max
        self._batch_bytes_max = batch_bytes_max
        self._router: Router | None = None
        self._lanes: dict[tuple[int, str], Lane] = {}
        self._leaving: dict[Lane, None] = {}
        self._number = 0

    def __len__(self) -> int:
        """The number of messages that are neither stored nor failed."""
        return sum(
            lane.waiting + sum(len(batch.messages) for batch in lane.in_flight)
            for lane in self.all_lanes()
        )

    @property
    def lanes(self) -> Iterable[Lane]:
        """The lanes of active segments that were used."""
        return self._lanes.values()

    def all_lanes(self) -> list[Lane]:
        """Return these lanes, and those of segments that left the layout."""
        return [*self._lanes.values(), *self._leaving]

    def add(self, message: Waiting) -> Lane:
        """Route a message, and return the lane that it waits in.

        Raises:
            NoActiveSegment, UncoveredHash: It was not added.
        """
        if self._router is None:
            raise NoActiveSegment("there is no layout yet")
        lane = self._lane(self._router.route(message.hash32))
        self._number += 1
        message.number = self._number
        lane.append(message)
        return lane

    def take(self, lane: Lane) -> Batch | None:
        """Return the next batch of a lane, which is in flight from then on, or None."""
        if not lane.waiting or len(lane.in_flight) >= ST_BATCHES_IN_FLIGHT_MAX:
            return None
        if lane.is_resting or not lane.is_active or self._is_held(lane):
            return None
        bucket = min(lane.queues, key=lambda each: lane.queues[each][0].number)
        messages = self._cut(lane, bucket)
        if not messages:
            return self.take(lane)
        batch = Batch(lane.segment, messages, _stamp(messages))
        lane.in_flight[batch] = None
        return batch

    def stored(self, lane: Lane, batch: Batch) -> list[Lane]:
        """A batch is stored, or failed for good. Return lanes that may send because of that."""
        lane.in_flight.pop(batch, None)
        lane.attempts = 0
        return self._left(lane)

    def gone(self, lane: Lane, error: ScalableTopicError) -> tuple[int, list[Failed], list[Lane]]:
        """The segment takes no messages any more.

        Returns the pause before ``rested`` is called, messages that have failed for good, and
        lanes that may send. The pause is 0 if the layout has the segment's successors already.
        """
        messages = lane.drain()
        for each in messages:
            each.attempts += 1
        failed = [(each, error) for each in messages if each.attempts >= SEGMENT_ATTEMPTS_MAX]
        kept = [each for each in messages if each.attempts < SEGMENT_ATTEMPTS_MAX]
        if lane.is_active:
            lane.is_resting = True
            lane.attempts += 1
            for each in sorted(kept, key=lambda each: each.number):
                lane.append(each)
            return min(SEGMENT_RETRY_STEP_MS * lane.attempts, SEGMENT_RETRY_MS_MAX), failed, []
        lost, lanes = self._route_again(kept)
        failed += lost
        return 0, failed, _unique((*lanes, *self._left(lane)))

    def rested(self, lane: Lane) -> None:
        """The pause after ``gone`` is over."""
        lane.is_resting = False

    def layout_changed(self, layout: Layout) -> tuple[list[Failed], list[Lane]]:
        """Route by ``layout`` from here on.

        Returns messages that cannot be routed any more, and lanes that may send.
        """
        self._router = Router(layout, turn=self._router.turn if self._router else 0)
        active = {(each.segment_id, each.topic): each for each in layout.active}
        moved: list[Waiting] = []
        for key in [key for key in self._lanes if key not in active]:
            lane = self._lanes.pop(key)
            lane.is_active = False
            in_flight = dict(lane.in_flight)
            lane.in_flight.clear()
            moved += lane.drain()
            if in_flight:
                lane.in_flight.update(in_flight)
                self._leaving[lane] = None
        failed, lanes = self._route_again(moved)
        for lane in lanes:
            lane.is_resting = False
        return failed, lanes

    def lane_of(self, segment: LayoutSegment) -> Lane:
        """Return the lane of an active segment."""
        return self._lane(segment)

    def give_up(self, lane: Lane) -> tuple[list[Waiting], list[Lane]]:
        """Return the messages of a lane, which are not sent any more, and lanes that may send."""
        messages = lane.drain()
        return messages, self._left(lane)

    def drop_all(self) -> list[Waiting]:
        """Give up everything: return all messages."""
        lanes = self.all_lanes()
        self._lanes.clear()
        self._leaving.clear()
        return [message for lane in lanes for message in lane.drain()]

    def _lane(self, segment: LayoutSegment) -> Lane:
        key = (segment.segment_id, segment.topic)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(segment)
        return lane

    def _cut(self, lane: Lane, bucket: int) -> list[Waiting]:
        queue = lane.queues[bucket]
        messages: list[Waiting] = []
        size = 0
        while queue and len(messages) < self._batch_messages_max:
            size += queue[0].size_bytes
            if messages and (size > self._batch_bytes_max or queue[0].is_alone):
                break
            message = queue.popleft()
            lane.waiting -= 1
            if not message.is_dropped:
                messages.append(message)
                if message.is_alone:
                    break
        if not queue:
            del lane.queues[bucket]
        return messages

    def _is_held(self, lane: Lane) -> bool:
        return bool(self._leaving) and any(lane.meets(other) for other in self._leaving)

    def _left(self, lane: Lane) -> list[Lane]:
        """Return the lanes that waited for ``lane``, if nothing of it is in flight any more."""
        if lane in self._leaving and not lane.in_flight:
            del self._leaving[lane]
            return [each for each in self._lanes.values() if each.waiting and each.meets(lane)]
        return []

    def _route_again(self, messages: list[Waiting]) -> tuple[list[Failed], list[Lane]]:
        assert self._router is not None
        failed: list[Failed] = []
        lanes: dict[int, Lane] = {}
        for each in sorted(messages, key=lambda each: each.number):
            try:
                lane = self._lane(self._router.route(each.hash32))
            except ScalableTopicError as error:
                failed.append((each, error))
                continue
            lane.append(each)
            lanes[id(lane)] = lane
        for lane in lanes.values():
            lane.sort()
        return failed, list(lanes.values())


def _stamp(messages: list[Waiting]) -> tuple[int, int] | None:
    hashes = [bucket_hash(each.hash32) for each in messages if each.hash32 is not None]
    return (min(hashes), max(hashes)) if hashes else None


def _unique(lanes: Iterable[Lane]) -> list[Lane]:
    return list({id(lane): lane for lane in lanes}.values())
