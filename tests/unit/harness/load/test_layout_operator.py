"""An operator that changes layouts at random asks only for what a layout allows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from nextgen.client.model import ScalableTopic
from nextgen.harness.load.recorded import layout_operator
from nextgen.harness.load.recorded.layout_operator import ACTIVE_MAX, BUCKETS, choose
from nextgen.kernel.scalable.segments import Segment


def layout(active: int, sealed: int = 0) -> ScalableTopic:
    """Segments of equal ranges, whose ids fall as their ranges rise."""
    width = 0x10000 // active
    segments: Sequence[Segment] = [
        *(Segment(each, 0, 0xFFFF, 0, 1, is_sealed=True) for each in range(sealed)),
        *(
            Segment(sealed + active - at, at * width, (at + 1) * width - 1, 0, 1)
            for at in range(active)
        ),
    ]
    return ScalableTopic("topic://a/b/c", "t", 1, 1, tuple(segments), ())


@pytest.mark.parametrize(
    ("active", "kinds"),
    [
        (1, {"split", "rebucket"}),
        (2, {"split", "merge", "rebucket"}),
        (ACTIVE_MAX, {"merge", "rebucket"}),
    ],
)
def test_it_asks_for_changes_that_the_layout_allows(active: int, kinds: set[str]) -> None:
    chooser = random.Random(1)
    given = layout(active, sealed=3)
    starts = {each.segment_id: each.hash_start for each in given.segments if not each.is_sealed}
    seen: Counter[str] = Counter()
    for _ in range(300):
        choice = choose(given, chooser)
        assert choice is not None
        kind, segments, buckets = choice
        seen[kind] += 1
        assert set(segments) <= starts.keys()
        if kind == "merge":
            first, second = (starts[each] for each in segments)
            assert second - first == 0x10000 // active
        assert (buckets in BUCKETS) == (kind == "rebucket")

    assert seen.keys() == kinds


def test_a_topic_with_segments_max_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_operator, "SEGMENTS_MAX", 7)

    assert choose(layout(2, sealed=5), random.Random(1)) is None
    assert choose(layout(2, sealed=4), random.Random(1)) is not None
