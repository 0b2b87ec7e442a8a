"""Drawings of layouts, as a terminal shows them."""

from __future__ import annotations

import pytest

from nextgen.cli.scalable.drawing import draw_layout, share_of
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.scalable import SEGMENTS_PER_TOPIC_MAX
from shards.domain.scalable.commands import PruneSegments
from shards.domain.scalable.restore import restore_scalable
from shards.domain.scalable.state import ScalableTopic, evolve
from tests.support.scalable.ten_changes import DRAWN, TEN_CHANGES
from tests.support.shards.scalable import (
    REBUCKET,
    SPLIT,
    after,
    changed,
    finish,
    migrate,
    new_topic,
)


@pytest.fixture
def topic() -> ScalableTopic:
    """Split and merged ten times."""
    topic = new_topic()
    for kind, *segments in TEN_CHANGES:
        topic = changed(topic, kind, *segments)
    return topic


def drawn(topic: ScalableTopic, columns: int | None = 80, epochs_max: int = 0) -> list[str] | None:
    return draw_layout(
        list(topic.segments.values()), topic.epoch, columns=columns, epochs_max=epochs_max
    )


def test_a_topic_that_was_split_and_merged_ten_times_is_drawn(topic: ScalableTopic) -> None:
    assert drawn(topic) == DRAWN.splitlines()


def test_partitions_of_a_classic_topic_stand_beside_each_other() -> None:
    topic = finish(after(None, *migrate(2)))

    assert drawn(topic) == [
        "epoch  0000        8000",
        "0      ┣━━━━ 0 ━━━━┣━━━━ 1 ━━━━┫",
        "1      ┣━━━━ 2 ━━━━┣━━━━ 3 ━━━━┫  migrate 0, 1 → 2, 3",
    ]


def test_a_restore_replaces_every_active_segment() -> None:
    topic: ScalableTopic | None = None
    restored = restore_scalable(None, new_topic(2), "topic-1", 7, 9_000)
    assert isinstance(restored, Accepted)
    for event in restored.events:
        topic = evolve(topic, event)
    assert topic is not None

    assert drawn(finish(topic)) == [
        "epoch  0000        8000",
        "0      ┣━━━━ 0 ━━━━┣━━━━ 1 ━━━━┫",
        "8      ┣━━━━ 7 ━━━━┣━━━━ 8 ━━━━┫  restore 0, 1 → 7, 8",
    ]


def test_what_changed_is_left_out_before_the_drawing_is(topic: ScalableTopic) -> None:
    without_changes = [
        line.partition("  split")[0].partition("  merge")[0] for line in DRAWN.split("\n")
    ]

    assert drawn(topic, 56) == without_changes
    assert drawn(topic, 50) is not None
    assert drawn(topic, 49) is None
    assert all(len(line) <= width for width in (50, 60, 75) for line in drawn(topic, width) or ())


def test_the_last_epochs_have_columns_of_their_own(topic: ScalableTopic) -> None:
    assert drawn(topic, epochs_max=2) == [
        "epoch  0000        8000        b000        e000",
        "(9 earlier)",
        "9      ┣━━━━ 15 ━━━├──── 13 ───├──── 14 ───├──── 11 ───┤  merge 5, 8 → 15",
        "10     ├──── 15 ───┣━━━━━━━━━━ 16 ━━━━━━━━━├──── 11 ───┤  merge 13, 14 → 16",
    ]


def test_pruned_segments_leave_gaps(topic: ScalableTopic) -> None:
    lines = drawn(after(topic, PruneSegments((0, 1))))

    assert lines is not None
    assert lines[1] == "1      ················┣━━━━━━━━━━━━━━ 2 ━━━━━━━━━━━━━━┫  changed → 2"
    assert lines[3] == "3      ┣━━ 5 ━━┣━━ 6 ━━├────── 3 ──────├────── 4 ──────┤  split → 5, 6"
    assert lines[-1] == "11     ├────── 15 ─────├────────── 16 ─────────├── 11 ─┤"


def test_a_rebucket_and_a_terminal_without_lines() -> None:
    topic = changed(new_topic(2), REBUCKET, 1, buckets=8)

    lines = draw_layout(list(topic.segments.values()), 1, columns=80, has_signs=False)

    assert lines == [
        "epoch  0000        8000",
        "0      #==== 0 ====#==== 1 ====#",
        "1      |---- 0 ----#==== 2 ====#  rebucket 1 -> 2",
    ]


def test_a_range_of_one_hash_is_as_wide_as_others() -> None:
    topic, last = new_topic(), 0
    for _ in range(16):
        topic = changed(topic, SPLIT, last)
        last = topic.active[0].segment_id

    assert topic.active[0].hash_range.size == 1
    lines = drawn(topic, None, epochs_max=1)
    assert lines is not None
    assert lines[0].split()[1:4] == ["0000", "0001", "0002"]
    assert " 31 " in lines[-1]
    assert share_of(topic.active[0]) == "0.0015 %"
    assert share_of(topic.active[-1]) == "50 %"


def test_a_layout_of_segments_per_topic_max_segments_is_drawn_at_any_width() -> None:
    topic = new_topic(SEGMENTS_PER_TOPIC_MAX)

    assert drawn(topic, 200) is None
    lines = drawn(topic, None)

    assert lines is not None
    assert " 1023 " in lines[1]
