"""What a complaint says of the segments that keep a subscription waiting."""

from __future__ import annotations

from nextgen.client.model import ScalableSubscription, ScalableTopic
from nextgen.harness.load.recorded.stuck_segments import TOLD_MAX, describe_stuck, find_stuck
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable.segments import Segment

TOPIC = "topic://a/b/c"


def layout(segments: int, sealed: int, group: ScalableSubscription | None = None) -> ScalableTopic:
    made = tuple(
        Segment(each, 0, 0xFFFF, 0, 0, is_sealed=each < sealed) for each in range(segments)
    )
    return ScalableTopic(TOPIC, "t", 7, 9, made, () if group is None else (group,))


def name(number: int) -> str:
    return Segment(number, 0, 0xFFFF, 0, 0).name_in(parse_topic(TOPIC))


def test_stuck_segments_are_told_with_their_readers_marks_and_owners() -> None:
    group = ScalableSubscription("stream", "stream", "live", {"a": (1,), "b": ()}, (0,))

    stuck = find_stuck(layout(4, 3, group), "stream", {name(2): 5, name(3): 1, "?": 1})

    assert describe_stuck(stuck, {name(1): "b-1", name(3): ""}) == (
        "epoch 7, subscription live, with 2 consumers: "
        "segment 1 sealed at b-1, of a, misses 0; "
        "segment 2 sealed at nowhere, of nobody, misses 5; "
        "segment 3 active at nowhere, of nobody, misses 1; "
        "1 of segments that are not in the layout"
    )


def test_a_drained_segment_that_misses_messages_is_told_as_such() -> None:
    group = ScalableSubscription("stream", "stream", "live", {}, (0,))

    stuck = find_stuck(layout(1, 1, group), "stream", {name(0): 2})

    told = describe_stuck(stuck, {})
    assert told.endswith("segment 0 sealed and drained at nowhere, of nobody, misses 2")


def test_told_max_segments_are_told_one_by_one_and_one_more_is_counted() -> None:
    stuck = find_stuck(layout(TOLD_MAX + 1, TOLD_MAX + 1), "s", {})

    assert [each.segment.segment_id for each in stuck.told] == list(range(TOLD_MAX))
    told = describe_stuck(stuck, {})
    assert told.startswith("epoch 7, subscription absent: segment 0 ")
    assert told.endswith("; 1 segments more")


def test_nothing_is_stuck_where_everything_is_drained() -> None:
    stuck = find_stuck(layout(1, 0), "s", {})

    assert describe_stuck(stuck, {}) == "epoch 7, subscription absent: no segment is stuck"
