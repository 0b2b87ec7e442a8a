"""The segments of one scalable topic at one epoch: an immutable value.

A layout replaces an earlier one only if it is newer; ``compare_layouts`` has the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

from nextgen.client.st.errors import MalformedLayout
from nextgen.kernel.limits.scalable import LAYOUT_SEGMENTS_MAX
from nextgen.kernel.scalable.ranges import HASH_MAX, HashRange


@dataclass(frozen=True, slots=True)
class LayoutSegment:
    """One segment. ``topic`` is the name that its messages are sent to and read from."""

    segment_id: int
    hash_range: HashRange
    is_active: bool
    topic: str
    parents: tuple[int, ...] = ()
    created_at_ms: int = 0
    is_legacy: bool = False
    """Whether it is stored as a classic topic or a partition of one."""

    bucket_starts: tuple[int, ...] = ()
    """The first bucket hash of each entry bucket but the first."""


@dataclass(frozen=True, slots=True, repr=False)
class Layout:
    """Make one with ``make_layout``. Two are equal if epoch and segments are."""

    epoch: int
    segments: Mapping[int, LayoutSegment] = field(hash=False)
    active: tuple[LayoutSegment, ...] = field(compare=False)
    """In the order of their ranges."""

    sealed: tuple[LayoutSegment, ...] = field(compare=False)
    """In the order of their ids: parents come before their children."""

    controller_url: str = field(default="", compare=False)
    controller_url_tls: str = field(default="", compare=False)
    """Where consumers register; empty if no broker leads the topic. A hint."""

    def __repr__(self) -> str:
        return f"<Layout epoch {self.epoch}, {len(self.active)} active, {len(self.sealed)} sealed>"

    @property
    def is_synthetic(self) -> bool:
        """Whether it stands for a classic topic that was never migrated."""
        return self.epoch == 0 and all(each.is_legacy for each in self.segments.values())

    @property
    def is_all_legacy(self) -> bool:
        """Whether every segment that takes messages is a classic topic or partition."""
        return bool(self.active) and all(each.is_legacy for each in self.active)

    def shares_segment_with(self, other: Layout) -> bool:
        """Return whether a segment of one, with its time of creation, is in the other."""
        return any(
            (twin := other.segments.get(each.segment_id)) is not None
            and twin.created_at_ms == each.created_at_ms
            for each in self.segments.values()
        )


class Succession(Enum):
    """What a layout from the server is to the layout that the client has."""

    NEWER = auto()
    REPEATED = auto()
    """Of the same epoch; only its hints may differ."""

    STALE = auto()


def compare_layouts(current: Layout | None, offered: Layout) -> Succession:
    """Return whether ``offered`` takes the place of ``current``.

    A higher epoch does. One that is not higher does if the two share no segment, by id and time of
    creation: the topic was deleted and created again. A layout that stands for a classic topic has
    epoch 0 whatever happens to the topic, so any other layout of epoch 0 replaces it.
    """
    if current is None or offered.epoch > current.epoch:
        return Succession.NEWER
    if offered.segments and not offered.shares_segment_with(current):
        return Succession.NEWER
    if offered.epoch < current.epoch:
        return Succession.STALE
    if current.is_synthetic and offered.segments != current.segments:
        return Succession.NEWER
    return Succession.REPEATED


def make_layout(
    epoch: int,
    segments: Iterable[LayoutSegment],
    *,
    controller_url: str = "",
    controller_url_tls: str = "",
) -> Layout:
    """Return the layout of ``segments``, in any order.

    Gaps between active segments are not refused: a message whose hash lies in one cannot be sent.

    Raises:
        MalformedLayout: Too many segments, an id twice, an impossible range or bucket, or active
            segments that overlap.
    """
    by_id: dict[int, LayoutSegment] = {}
    for each in segments:
        _check_segment(each)
        if each.segment_id in by_id:
            raise MalformedLayout(f"segment {each.segment_id} is in the layout twice")
        by_id[each.segment_id] = each
        if len(by_id) > LAYOUT_SEGMENTS_MAX:
            raise MalformedLayout(f"a layout has more than {LAYOUT_SEGMENTS_MAX} segments")
    active = sorted(
        (each for each in by_id.values() if each.is_active),
        key=lambda each: (each.hash_range, each.segment_id),
    )
    sealed = sorted(
        (each for each in by_id.values() if not each.is_active), key=lambda each: each.segment_id
    )
    # Of classic partitions the ranges mean nothing.
    if not all(each.is_legacy for each in active):
        _check_disjoint(active)
    return Layout(epoch, by_id, tuple(active), tuple(sealed), controller_url, controller_url_tls)


def _check_segment(segment: LayoutSegment) -> None:
    span = segment.hash_range
    if not 0 <= span.start <= span.end <= HASH_MAX:
        raise MalformedLayout(
            f"segment {segment.segment_id} has the range {span.start:#x} to {span.end:#x}"
        )
    starts = segment.bucket_starts
    if starts and not (
        starts[0] > 0
        and starts[-1] <= HASH_MAX
        and all(before < after for before, after in pairwise(starts))
    ):
        raise MalformedLayout(f"segment {segment.segment_id} has buckets out of order")


def _check_disjoint(active: list[LayoutSegment]) -> None:
    for before, after in pairwise(active):
        if before.hash_range.end >= after.hash_range.start:
            raise MalformedLayout(
                f"segments {before.segment_id} and {after.segment_id} are active and overlap"
            )
