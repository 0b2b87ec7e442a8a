"""A topic as it would be: when it is evaluated, what is done, and when its loads are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE, AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.auto_scale import Action, ActionKind, GroupSizes, Reason, ScaleClocks
from nextgen.kernel.scalable.ranges import WHOLE_RANGE, initial_ranges
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment
from pipelines.scaling.scaled_topic import Begun, Durations, ScaledTopic
from pipelines.scaling.traffic import Traffic

BEGAN_MS = 1_000_000
HOT, COLD = Rates(25_000), Rates(1)


class Heard:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.loads: list[tuple[int, tuple[int, ...]]] = []
        self.operations: list[tuple[int, str, tuple[int, ...], Reason]] = []
        self.commits: list[tuple[int, tuple[int, ...]]] = []

    def recorded(self, at_ms: int, loads: Iterable[SegmentLoad]) -> None:
        self.loads.append((at_ms, tuple(each.segment_id for each in loads)))

    def begun(self, begun: Begun) -> None:
        action = begun.action
        self.operations.append(
            (begun.decided_at_ms, action.kind.value, action.segments, action.reason)
        )

    def committed(self, at_ms: int, begun: Begun, made: tuple[Segment, ...]) -> None:
        self.commits.append((at_ms, tuple(each.segment_id for each in made)))


def topic_of(
    count: int = 1, policy: AutoScalePolicy | None = DEFAULT_AUTO_SCALE
) -> tuple[ScaledTopic, Heard]:
    segments = [
        Segment(number, each.start, each.end, 0, BEGAN_MS)
        for number, each in enumerate(initial_ranges(count))
    ]
    heard = Heard()
    return ScaledTopic(segments, Traffic(), policy, heard, Durations(500, 10_000)), heard


def report(topic: ScaledTopic, at_ms: int, rates: Rates) -> None:
    topic.run_until(at_ms)
    topic.traffic.record(0, 0xFFFF, rates)
    topic.note_traffic(at_ms, (WHOLE_RANGE,))


def test_a_hot_topic_is_split_until_it_is_not_one_split_for_each_cooldown() -> None:
    topic, heard = topic_of()
    report(topic, BEGAN_MS, HOT)
    topic.run_until(BEGAN_MS + 3_600_000)

    first_commit = BEGAN_MS + 500
    cool = first_commit + 60_000
    assert [(at, kind, ids) for at, kind, ids, _ in heard.operations] == [
        (BEGAN_MS, "split", (0,)),
        (cool, "split", (1,)),
        (cool + 60_500, "split", (2,)),
    ]
    assert {reason for *_, reason in heard.operations} == {Reason.MSG_RATE_IN}
    assert sorted(topic.segments) == [3, 4, 5, 6]
    assert heard.loads[:2] == [(BEGAN_MS, (0,)), (first_commit + 10_000, (1, 2))]


def test_cold_neighbours_are_merged_when_the_window_is_over_though_nothing_comes() -> None:
    topic, heard = topic_of(2)
    report(topic, BEGAN_MS, COLD)
    topic.run_until(BEGAN_MS + 299_999)
    assert heard.operations == []

    topic.run_until(BEGAN_MS + 301_000)
    assert heard.operations == [(BEGAN_MS + 300_000, "merge", (0, 1), Reason.COLD)]
    assert heard.commits == [(BEGAN_MS + 300_500, (2,))]


def test_more_consumers_split_a_busy_topic_and_nothing_is_begun_meanwhile() -> None:
    topic, heard = topic_of()
    report(topic, BEGAN_MS, Rates(2_000))
    topic.set_groups(BEGAN_MS + 10, GroupSizes(2, 2))
    assert topic.is_busy
    topic.set_groups(BEGAN_MS + 20, GroupSizes(3, 3))
    assert len(heard.operations) == 1

    topic.run_until(BEGAN_MS + 120_000)
    # The children have no loads for ten seconds, so none of them is busy then.
    assert [reason for *_, reason in heard.operations] == [
        Reason.CONSUMER_COUNT,
        Reason.BELOW_SPLIT_RATE_FLOOR,
        Reason.CONSUMER_COUNT,
    ]


def test_another_policy_takes_effect_at_once_and_marks_what_is_cold_by_it() -> None:
    topic, heard = topic_of(2)
    report(topic, BEGAN_MS, Rates(6_000))
    warmer = replace(DEFAULT_AUTO_SCALE, merge_msg_rate_in_threshold=4_000)
    topic.set_policy(BEGAN_MS + 1_000, warmer)
    topic.run_until(BEGAN_MS + 302_000)

    assert heard.loads[1] == (BEGAN_MS + 1_000, (0, 1))
    assert heard.operations == [(BEGAN_MS + 301_000, "merge", (0, 1), Reason.COLD)]


def test_a_topic_whose_policy_makes_no_sense_is_left_alone() -> None:
    topic, heard = topic_of(policy=None)
    report(topic, BEGAN_MS, HOT)
    topic.run_until(BEGAN_MS + 10_000_000)
    assert (heard.operations, topic.evaluations) == ([], 0)

    topic.set_policy(BEGAN_MS + 10_000_001, DEFAULT_AUTO_SCALE)
    assert heard.operations == []
    report(topic, BEGAN_MS + 10_000_002, HOT)
    assert len(heard.operations) == 1


def test_clocks_begin_with_the_first_loads_as_those_of_the_shards() -> None:
    topic, _ = topic_of()
    topic.operate(BEGAN_MS, Action(ActionKind.SPLIT, (0,), Reason.NOT_REACHED), "operator")
    topic.run_until(BEGAN_MS + 500)
    assert topic.clocks == ScaleClocks()

    report(topic, BEGAN_MS + 20_000, Rates(2_000))
    topic.operate(BEGAN_MS + 30_000, Action(ActionKind.SPLIT, (1,), Reason.NOT_REACHED), "operator")
    topic.run_until(BEGAN_MS + 30_500)
    assert topic.clocks == ScaleClocks(split_at_ms=BEGAN_MS + 30_500)


def test_replaced_segments_have_no_loads_until_they_are_reported() -> None:
    topic, heard = topic_of(2)
    report(topic, BEGAN_MS, Rates(4_000))
    topic.replace_segments(BEGAN_MS + 1_000, [Segment(9, 0, 0xFFFF, 3, BEGAN_MS + 1_000)])
    assert topic.loads == {}

    topic.run_until(BEGAN_MS + 11_000)
    assert heard.loads[-1] == (BEGAN_MS + 11_000, (9,))
    assert topic.loads[9].rates == Rates(4_000)
