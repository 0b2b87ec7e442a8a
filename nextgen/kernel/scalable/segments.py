"""One segment of a scalable topic, as layouts have it."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.routing.names import Domain, SegmentDescriptor, TopicName, Unit, parse_topic
from nextgen.kernel.scalable.buckets import BucketStarts, bucket_count
from nextgen.kernel.scalable.ranges import HashRange


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The last message of a sealed segment; -1 and -1 if it has none."""

    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment. ``hash_end`` belongs to its range.

    ``parents`` and ``children`` are segments that are still in the layout. Epochs are those of the
    layout that it was created and sealed in; ``sealed_at_epoch`` and ``sealed_at_ms`` are 0 while
    it is active.
    """

    segment_id: int
    hash_start: int
    hash_end: int
    created_at_epoch: int
    created_at_ms: int
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    is_sealed: bool = False
    sealed_at_epoch: int = 0
    sealed_at_ms: int = 0
    end: SegmentEnd | None = None
    """Of a sealed segment."""

    bucket_starts: BucketStarts = ()
    merge_depth: int = 0
    """The number of merges on the longest way to it: pruning does not change it."""

    legacy_topic_name: str = ""
    """The classic topic or partition that it is stored as; empty for one of its own."""

    @property
    def hash_range(self) -> HashRange:
        return HashRange(self.hash_start, self.hash_end)

    @property
    def bucket_count(self) -> int:
        return bucket_count(self.bucket_starts)

    @property
    def descriptor(self) -> SegmentDescriptor:
        return SegmentDescriptor(self.hash_start, self.hash_end, self.segment_id)

    @property
    def unit(self) -> Unit:
        """What of its topic, or of the classic one it was part of, is assigned to a broker."""
        if self.legacy_topic_name:
            return parse_topic(self.legacy_topic_name).unit
        return Unit.segment(self.segment_id)

    def name_in(self, topic: TopicName) -> str:
        """Return the canonical name of the segment's own messages. ``topic`` is scalable."""
        if self.legacy_topic_name:
            return self.legacy_topic_name
        assert topic.domain is Domain.TOPIC, f"{topic.text} has no segments"
        return (
            f"{Domain.SEGMENT}://{topic.tenant}/{topic.namespace}/{topic.base_name}/"
            f"{self.descriptor.text}"
        )
