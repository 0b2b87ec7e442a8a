"""The segments that the controller assigned to one consumer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nextgen.client.st.errors import MalformedLayout
from nextgen.kernel.limits.scalable import LAYOUT_SEGMENTS_MAX

BucketRanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AssignedSegment:
    """One segment. With ``bucket_ranges`` it is shared with other consumers of the group."""

    segment_id: int
    topic: str
    bucket_ranges: BucketRanges = ()

    @property
    def is_shared(self) -> bool:
        return bool(self.bucket_ranges)


@dataclass(frozen=True, slots=True)
class Assignment:
    """All segments of one consumer at one epoch of the layout."""

    layout_epoch: int
    segments: tuple[AssignedSegment, ...]


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """The difference between two assignments.

    A segment whose mode or bucket ranges changed is in both lists: it is drained and left before
    it is joined again. One whose buckets are the same is in none.
    """

    joined: tuple[AssignedSegment, ...]
    left: tuple[AssignedSegment, ...]


def make_assignment(layout_epoch: int, segments: Iterable[AssignedSegment]) -> Assignment:
    """Return an assignment.

    Raises:
        MalformedLayout: It names a segment twice, or too many.
    """
    found = tuple(segments)
    if len(found) > LAYOUT_SEGMENTS_MAX:
        raise MalformedLayout(f"an assignment has more than {LAYOUT_SEGMENTS_MAX} segments")
    if len({each.segment_id for each in found}) != len(found):
        raise MalformedLayout("an assignment names a segment twice")
    return Assignment(layout_epoch, found)


def change_between(former: Assignment | None, offered: Assignment) -> AssignmentChange:
    """Return what a consumer has to leave and to join."""
    had = {each.segment_id: each for each in (former.segments if former else ())}
    has = {each.segment_id: each for each in offered.segments}
    return AssignmentChange(
        joined=tuple(each for key, each in has.items() if had.get(key) != each),
        left=tuple(each for key, each in had.items() if has.get(key) != each),
    )
