"""How long the messages of a sealed segment are kept that every subscription has acknowledged.

The retention of a topic limits them by time and by size, as for any other topic; whichever is over
first lets a segment go. Time counts from the seal. Size counts the bytes of all segments of the
topic that were sealed later: a segment is the oldest part of its topic, and goes whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.limits.scalable import PRUNE_EXAMINED_MS_MAX, PRUNE_EXAMINED_MS_MIN
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.state import ScalableTopic


@dataclass(frozen=True, slots=True)
class SegmentUsage:
    """What the broker of a sealed segment says of it.

    ``is_drained``: every durable subscription that it has there is drained, those included that
    the topic does not know. The retention is the one in force; ``FOR_EVER`` for no limit.
    """

    is_drained: bool
    retention_ms: int
    retention_bytes: int


def kept_until_ms(topic: ScalableTopic, segment: Segment, usage: SegmentUsage, now_ms: int) -> int:
    """Return until when a prunable segment is kept at least; ``now_ms`` or less: it may go.

    It is examined again then. That is never later than ``PRUNE_EXAMINED_MS_MAX`` from now, as the
    retention may be changed.
    """
    if not usage.is_drained:
        return examined_again_ms(segment, now_ms)
    newer_bytes = sum(
        topic.sealed_bytes.get(each.segment_id, 0)
        for each in topic.segments.values()
        if each.is_sealed and _sealing_order(each) > _sealing_order(segment)
    )
    if usage.retention_bytes != FOR_EVER and newer_bytes >= usage.retention_bytes:
        return now_ms
    latest_ms = now_ms + PRUNE_EXAMINED_MS_MAX
    if usage.retention_ms == FOR_EVER:
        return latest_ms
    return min(segment.sealed_at_ms + usage.retention_ms, latest_ms)


def examined_again_ms(segment: Segment, now_ms: int) -> int:
    """Return when a segment is examined again of which it is not known when it may go: after as
    long as it has been sealed, within bounds."""
    age_ms = now_ms - segment.sealed_at_ms
    return now_ms + min(max(age_ms, PRUNE_EXAMINED_MS_MIN), PRUNE_EXAMINED_MS_MAX)


def _sealing_order(segment: Segment) -> tuple[int, int]:
    return segment.sealed_at_epoch, segment.segment_id
