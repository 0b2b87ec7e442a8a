"""Which layouts there may be, and which takes the place of which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.st.domain.layout import (
    Layout,
    LayoutSegment,
    Succession,
    compare_layouts,
    make_layout,
)
from nextgen.client.st.errors import MalformedLayout
from nextgen.kernel.limits.scalable import LAYOUT_SEGMENTS_MAX
from nextgen.kernel.scalable.ranges import initial_ranges
from tests.unit.client.st.domain.layouts import merge, new_layout, segment, split


def test_active_segments_are_in_the_order_of_ranges_and_sealed_ones_of_ids() -> None:
    layout = split(split(new_layout(1), 0), 2)

    assert [each.segment_id for each in layout.active] == [1, 3, 4]
    assert [each.segment_id for each in layout.sealed] == [0, 2]


@pytest.mark.parametrize(
    "segments",
    [
        [segment(0, 0, 0x8000), segment(1, 0x8000, 0xFFFF)],
        [segment(0, 0, 0xFFFF), segment(1, 0, 0xFFFF)],
        [segment(0, 0, 0x7FFF), segment(0, 0x8000, 0xFFFF)],
        [segment(0, 9, 8)],
        [segment(0, 0, 0x10000)],
        [segment(0, 0, 0xFFFF, buckets=(0, 5))],
        [segment(0, 0, 0xFFFF, buckets=(5, 5))],
        [segment(0, 0, 0xFFFF, buckets=(5, 0x10000))],
    ],
)
def test_what_cannot_be_a_layout_is_refused(segments: list[LayoutSegment]) -> None:
    with pytest.raises(MalformedLayout):
        make_layout(1, segments)


def test_sealed_segments_may_overlap_anything() -> None:
    make_layout(1, [segment(0, 0, 0xFFFF, is_active=False), segment(1, 0, 0xFFFF)])


def test_a_layout_has_at_most_LAYOUT_SEGMENTS_MAX_segments() -> None:
    ranges = initial_ranges(LAYOUT_SEGMENTS_MAX)
    segments = [segment(index, each.start, each.end) for index, each in enumerate(ranges)]

    assert len(make_layout(1, segments).active) == LAYOUT_SEGMENTS_MAX
    one_more = segment(LAYOUT_SEGMENTS_MAX + 1, 0, 0xFFFF, is_active=False)
    with pytest.raises(MalformedLayout, match="more than"):
        make_layout(1, [*segments, one_more])


def test_only_a_higher_epoch_replaces_a_layout_that_it_shares_segments_with() -> None:
    first = new_layout(2)
    second = split(first, 0)

    assert compare_layouts(None, first) is Succession.NEWER
    assert compare_layouts(first, second) is Succession.NEWER
    assert compare_layouts(second, first) is Succession.STALE
    assert compare_layouts(second, replace(second, controller_url="x")) is Succession.REPEATED


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_topic_that_was_created_again_replaces_a_layout_of_a_higher_epoch(epoch: int) -> None:
    current = split(new_layout(1), 0)
    again = make_layout(epoch, [segment(0, 0, 0xFFFF, created_at_ms=42)])

    assert compare_layouts(current, again) is Succession.NEWER


def test_an_empty_layout_of_a_lower_epoch_is_stale() -> None:
    assert compare_layouts(new_layout(1, epoch=3), make_layout(2, [])) is Succession.STALE


def test_a_migrated_topic_replaces_the_classic_one_in_epoch_0() -> None:
    name = "persistent://public/default/t"
    classic = make_layout(0, [segment(0, 0, 0xFFFF, legacy=name)])
    migrated = make_layout(
        0,
        [
            segment(0, 0, 0xFFFF, legacy=name, is_active=False),
            segment(1, 0, 0xFFFF, parents=(0,)),
        ],
    )

    assert classic.is_synthetic
    assert compare_layouts(classic, migrated) is Succession.NEWER
    assert compare_layouts(migrated, classic) is not Succession.NEWER
    assert compare_layouts(classic, classic) is Succession.REPEATED


@given(st.data())
def test_a_client_that_gets_layouts_in_any_order_ends_with_the_newest(data: st.DataObject) -> None:
    history = [new_layout(2)]
    for _ in range(data.draw(st.integers(1, 8))):
        layout = history[-1]
        kinds = ["split"]
        if len(layout.active) > 1:
            kinds.append("merge")
        kind = data.draw(st.sampled_from(kinds))
        if kind == "split":
            chosen = data.draw(st.sampled_from(layout.active))
            history.append(split(layout, chosen.segment_id))
        else:
            index = data.draw(st.integers(0, len(layout.active) - 2))
            first, second = layout.active[index : index + 2]
            history.append(merge(layout, first.segment_id, second.segment_id))

    current: Layout | None = None
    for index in data.draw(st.permutations(range(len(history)))):
        offered = history[index]
        if compare_layouts(current, offered) is Succession.NEWER:
            current = offered
    assert current == history[-1]
