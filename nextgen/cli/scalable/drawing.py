"""Draws the layout of a scalable topic: a row for each epoch, a column for each range of hashes.

    epoch  0000        4000        8000
    0      ┣━━━━━━━━━━━━━━━━ 0 ━━━━━━━━━━━━━━━━┫
    1      ┣━━━━━━━━━━ 1 ━━━━━━━━━━┣━━━━ 2 ━━━━┫  split 0 → 1, 2
    2      ┣━━━━ 3 ━━━━┣━━━━ 4 ━━━━├──── 2 ────┤  split 1 → 3, 4

A row has the segments that were active from its epoch on; heavy lines are those that it made. The
last row has those that are active now, all others are sealed. The parents of a segment stand above
it, its children below. Columns are as wide as their labels need, whatever their ranges: one of two
hashes can be read beside one of thousands.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from nextgen.kernel.scalable.ranges import HASHES, initial_ranges
from nextgen.kernel.scalable.segments import Segment

_LABEL_COLUMNS = 7
"""Of the epoch, in front of the ranges."""

_GAP = "  "

_COLUMN_MIN = 5
"""A boundary has four digits, and one space behind it."""

_COLUMN_MAX = 12


@dataclass(frozen=True, slots=True)
class _Signs:
    """What lines are drawn with; of each kind the light one and the heavy one."""

    begin: tuple[str, str]
    line: tuple[str, str]
    end: tuple[str, str]
    arrow: str
    gone: str
    """A range whose segment of that time is no longer in the layout."""


_DRAWN = _Signs(("├", "┣"), ("─", "━"), ("┤", "┫"), "→", "·")
_PLAIN = _Signs(("|", "#"), ("-", "="), ("|", "#"), "->", ".")
"""For terminals that have no other signs."""


def draw_layout(
    segments: Sequence[Segment],
    epoch: int,
    *,
    columns: int | None,
    epochs_max: int = 0,
    has_signs: bool = True,
) -> list[str] | None:
    """Return the lines of the drawing; None if it is wider than ``columns`` (None: any width).

    It shows the last ``epochs_max`` epochs (0: all) of those whose segments are left, ``epoch``
    last. What changed stands behind a row if there is room. ``has_signs``: the terminal has lines.
    """
    segments = _side_by_side(segments)
    epochs = _epochs(segments, epoch)
    hidden = max(0, len(epochs) - epochs_max) if epochs_max else 0
    epochs = epochs[hidden:]
    shown = [each for each in segments if not each.is_sealed or each.sealed_at_epoch > epochs[0]]
    starts = sorted({each.hash_start for each in shown})
    signs = _DRAWN if has_signs else _PLAIN
    changes = [_change(segments, each, signs.arrow) for each in epochs]
    behind = max(map(len, changes)) + len(_GAP)
    width = _column_width(shown, starts, None if columns is None else columns - behind)
    if width is None:
        changes = [""] * len(epochs)
        width = _column_width(shown, starts, columns)
    if width is None:
        return None
    canvas = _Canvas(starts, width, signs)
    lines = [f"{'epoch':<{_LABEL_COLUMNS}}{canvas.boundaries()}"]
    if hidden:
        lines.append(f"({hidden} earlier)")
    for drawn, change in zip(epochs, changes, strict=True):
        active = [each for each in shown if _was_active(each, drawn)]
        new = {each.segment_id for each in active if each.created_at_epoch == drawn}
        row = f"{drawn:<{_LABEL_COLUMNS}}{canvas.row(active, new)}"
        lines.append(f"{row}{_GAP}{change}".rstrip())
    return lines


def _side_by_side(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return segments with those that were a classic topic's beside each other: they had messages
    of any key."""
    classic = [each.segment_id for each in segments if each.legacy_topic_name]
    if not classic:
        return segments
    within = dict(zip(sorted(classic), initial_ranges(len(classic)), strict=True))
    return [
        replace(each, hash_start=found.start, hash_end=found.end)
        if (found := within.get(each.segment_id))
        else each
        for each in segments
    ]


class _Canvas:
    def __init__(self, starts: Sequence[int], width: int, signs: _Signs) -> None:
        self._starts = starts
        self._width = width
        self.signs = signs

    def boundaries(self) -> str:
        return "".join(f"{start:04x}".ljust(self._width) for start in self._starts).rstrip()

    def row(self, active: Sequence[Segment], new: Collection[int]) -> str:
        drawn = ""
        at = 0
        is_new = False
        for segment in sorted(active, key=lambda each: each.hash_start):
            first = bisect_left(self._starts, segment.hash_start)
            behind = bisect_left(self._starts, segment.hash_end + 1)
            if first > at:
                drawn += self.signs.gone * ((first - at) * self._width)
            is_new = segment.segment_id in new
            drawn += self.signs.begin[is_new] + self._labelled(segment, behind - first, is_new)
            at = behind
        if at < len(self._starts):
            drawn += self.signs.gone * ((len(self._starts) - at) * self._width)
            return drawn
        return drawn + self.signs.end[is_new]

    def _labelled(self, segment: Segment, spanned: int, is_new: bool) -> str:
        return f" {segment.segment_id} ".center(spanned * self._width - 1, self.signs.line[is_new])


def _column_width(
    segments: Sequence[Segment], starts: Sequence[int], columns: int | None
) -> int | None:
    """Return how many characters a range between two boundaries has; None if there is no room."""
    if not starts:
        return _COLUMN_MIN
    needed = _COLUMN_MIN
    for segment in segments:
        first = bisect_left(starts, segment.hash_start)
        spanned = bisect_left(starts, segment.hash_end + 1) - first
        # Its beginning, two spaces, and a line at either side of its label.
        needed = max(needed, -(-(len(str(segment.segment_id)) + 5) // spanned))
    if columns is None:
        return max(needed, _COLUMN_MAX)
    room = (columns - _LABEL_COLUMNS - 1) // len(starts)
    return None if room < needed else max(needed, min(room, _COLUMN_MAX))


def _epochs(segments: Sequence[Segment], epoch: int) -> list[int]:
    """Return the epochs in which the segments that are left were made or sealed, and the last."""
    changed = {each.created_at_epoch for each in segments}
    changed.update(each.sealed_at_epoch for each in segments if each.is_sealed)
    return sorted({*changed, epoch})


def _was_active(segment: Segment, epoch: int) -> bool:
    if segment.created_at_epoch > epoch:
        return False
    return not segment.is_sealed or segment.sealed_at_epoch > epoch


def _change(segments: Sequence[Segment], epoch: int, arrow: str) -> str:
    """Return how the layout of an epoch was made, as far as the segments are left."""
    by_range = sorted(segments, key=lambda each: each.hash_start)
    made = [each for each in by_range if each.created_at_epoch == epoch]
    sealed = [each for each in by_range if each.is_sealed and each.sealed_at_epoch == epoch]
    if not epoch or not (made or sealed):
        return ""
    if any(each.legacy_topic_name for each in sealed):
        kind = "migrate"
    elif [_form(each) for each in made] == [_form(each) for each in sealed]:
        kind = "restore"
    elif len(made) == 2:
        kind = "split"
    elif len(sealed) == 2:
        kind = "merge"
    elif made and sealed and made[0].hash_range == sealed[0].hash_range:
        kind = "rebucket"
    else:
        kind = "changed"  # Some of its parents or children are pruned.
    parts = (kind, listed(_ids(sealed)), arrow, listed(_ids(made)))
    return " ".join(part for part in parts if part)


def _form(segment: Segment) -> tuple[object, ...]:
    return segment.hash_range, segment.bucket_starts


def _ids(segments: Sequence[Segment]) -> list[int]:
    return [each.segment_id for each in segments]


def listed(segment_ids: Collection[int]) -> str:
    """Return ids for people."""
    return ", ".join(map(str, segment_ids))


def share_of(segment: Segment) -> str:
    """Return the share of all hashes that a segment has, such as ``25 %``."""
    percent = 100 * segment.hash_range.size / HASHES
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.2g} %"
