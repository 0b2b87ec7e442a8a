"""The decision to split, merge or rebucket: its cases, and what holds for every topic."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import AUTO_SCALE_CLOCK_LEAP_MS
from nextgen.kernel.scalable.auto_scale import (
    Action,
    ActionKind,
    Decision,
    GroupSizes,
    Reason,
    ScaleClocks,
    decide,
)
from nextgen.kernel.scalable.buckets import buckets_of_halves, buckets_of_merged, equal_buckets
from nextgen.kernel.scalable.ranges import HASHES, HashRange, are_tiling, initial_ranges
from nextgen.kernel.scalable.segment_load import SegmentLoad, cold_since
from nextgen.kernel.scalable.segments import Segment
from tests.support.scalable.auto_scale_cases import (
    CASES,
    NOW_MS,
    PAGE,
    load,
    page_with_table,
    rates,
    segments,
    shown,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.topic)
def test_each_case_of_the_table_is_decided_as_it_says(case):
    assert shown(case.decision()) == case.expected


def test_the_page_has_the_present_table():
    text = PAGE.read_text()
    assert page_with_table(text) == text, (
        "write it: python -m tests.support.scalable.auto_scale_cases --write"
    )


def test_every_reason_is_in_a_case():
    seen = {
        reason
        for case in CASES
        for decision in [case.decision()]
        for reason in (decision.consumers, decision.load, decision.merge)
    }
    # One needs a classic topic, one 1,024 buckets in each segment, two a rate of consumers' side.
    rest = {
        Reason.CLASSIC_TOPIC,
        Reason.MAX_BUCKETS,
        Reason.MSG_RATE_OUT,
        Reason.BYTES_RATE_OUT,
    }
    assert seen | rest == set(Reason)


def test_topics_of_classic_segments_are_left_alone():
    classic = replace(segments(1)[0], legacy_topic_name="persistent://t/n/x-partition-0")
    hot = {0: load(0, rates(50_000))}

    decision = decide([classic], hot, GroupSizes(), AutoScalePolicy(), ScaleClocks(), NOW_MS)

    assert (decision.action, decision.load) == (None, Reason.CLASSIC_TOPIC)


def test_buckets_are_not_raised_beyond_what_a_segment_may_have():
    full = segments(1, buckets=1_024)

    decision = decide(full, {}, GroupSizes(1_025, 1_025), AutoScalePolicy(), ScaleClocks(), NOW_MS)

    assert (decision.action, decision.consumers) == (None, Reason.MAX_BUCKETS)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (Rates(messages_out=50_001), Reason.MSG_RATE_OUT),
        (Rates(bytes_out=250_000_001), Reason.BYTES_RATE_OUT),
    ],
)
def test_traffic_to_consumers_splits_too(of, reason):
    decision = decide(
        segments(1), {0: load(0, of)}, GroupSizes(), AutoScalePolicy(), ScaleClocks(), NOW_MS
    )

    assert decision.action == Action(ActionKind.SPLIT, (0,), reason)


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_rates_that_cannot_be_neither_split_nor_merge(rate):
    odd = {number: load(number, rates(rate), NOW_MS - 1_000_000) for number in range(2)}

    decision = decide(segments(2), odd, GroupSizes(), AutoScalePolicy(), ScaleClocks(), NOW_MS)

    assert decision.action is None


def test_a_range_of_one_value_is_not_split():
    # 65,536 segments would be many: a range of one beside the rest.
    one = Segment(0, 0, 0, 0, 0)
    rest = Segment(1, 1, HASHES - 1, 0, 0)

    decision = decide(
        [one, rest],
        {0: load(0, rates(50_000))},
        GroupSizes(3, 0),
        AutoScalePolicy(),
        ScaleClocks(),
        NOW_MS,
    )

    assert decision.action is None


@pytest.mark.parametrize("ahead_ms", [AUTO_SCALE_CLOCK_LEAP_MS, AUTO_SCALE_CLOCK_LEAP_MS + 1])
def test_a_time_ahead_by_more_than_auto_scale_clock_leap_ms_does_not_count(ahead_ms):
    clocks = ScaleClocks(split_at_ms=NOW_MS + ahead_ms)
    decision = decide(
        segments(1), {0: load(0, rates(20_000))}, GroupSizes(), AutoScalePolicy(), clocks, NOW_MS
    )

    assert (decision.action is None) is (ahead_ms <= AUTO_SCALE_CLOCK_LEAP_MS)


# What holds for every topic ------------------------------------------------------------------

_thresholds = st.tuples(st.floats(0, 1_000), st.floats(1, 20_000)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@st.composite
def policies(draw: st.DrawFn) -> AutoScalePolicy:
    least = draw(st.integers(1, 4))
    merge, split = draw(_thresholds)
    return AutoScalePolicy(
        min_segments=least,
        max_segments=draw(st.integers(least, 12)),
        max_dag_depth=draw(st.integers(0, 10)),
        split_cooldown_seconds=draw(st.integers(0, 120)),
        merge_cooldown_seconds=draw(st.integers(0, 600)),
        rebucket_cooldown_seconds=draw(st.integers(0, 120)),
        merge_window_seconds=draw(st.integers(0, 600)),
        split_msg_rate_in_threshold=split,
        merge_msg_rate_in_threshold=merge,
        split_vs_rebucket_min_msg_rate_in_threshold=draw(st.floats(0, 5_000)),
    )


groups = st.tuples(st.integers(0, 14), st.integers(0, 14)).map(
    lambda pair: GroupSizes(max(pair), min(pair))
)
_PLACES = 32
"""Equal parts of the range of hashes, each with a traffic of its own."""


class Topic:
    """A topic under a steady traffic by ranges of hashes; its operations take effect at once."""

    def __init__(self, traffic: list[float], count: int) -> None:
        self.traffic = traffic
        self.segments = [
            replace(each, bucket_starts=equal_buckets(max(1, 4 // count)))
            for each in segments(count)
        ]
        self.loads: dict[int, SegmentLoad] = {}
        self.clocks = ScaleClocks()
        self.next_id = count

    def report(self, policy: AutoScalePolicy, now_ms: int) -> None:
        width = HASHES // _PLACES
        for each in self.segments:
            within = sum(
                rate
                * max(
                    0,
                    min(each.hash_end + 1, (place + 1) * width)
                    - max(each.hash_start, place * width),
                )
                / width
                for place, rate in enumerate(self.traffic)
            )
            before = self.loads.get(each.segment_id)
            of = rates(within)
            since_ms = cold_since(before, of, policy, now_ms)
            self.loads[each.segment_id] = SegmentLoad(each.segment_id, of, now_ms, since_ms)

    def carry_out(self, action: Action, now_ms: int) -> None:
        parents = [each for each in self.segments if each.segment_id in action.segments]
        made: list[Segment] = []
        match action.kind:
            case ActionKind.SPLIT:
                (parent,) = parents
                made = [
                    self._child(half, buckets_of_halves(parent.bucket_starts), parent.merge_depth)
                    for half in parent.hash_range.split()
                ]
                self.clocks = replace(self.clocks, split_at_ms=now_ms)
            case ActionKind.MERGE:
                first, second = parents
                made = [
                    self._child(
                        first.hash_range.union(second.hash_range),
                        buckets_of_merged(first.bucket_starts, second.bucket_starts),
                        max(first.merge_depth, second.merge_depth) + 1,
                    )
                ]
                self.clocks = replace(self.clocks, merge_at_ms=now_ms)
            case ActionKind.REBUCKET:
                made = [
                    self._child(each.hash_range, equal_buckets(action.buckets), each.merge_depth)
                    for each in parents
                ]
                self.clocks = replace(self.clocks, rebucket_at_ms=now_ms)
        self.segments = [each for each in self.segments if each not in parents] + made
        assert are_tiling(each.hash_range for each in self.segments)

    def _child(self, within: HashRange, buckets: tuple[int, ...], depth: int) -> Segment:
        self.next_id += 1
        return Segment(
            self.next_id, within.start, within.end, 0, 0, bucket_starts=buckets, merge_depth=depth
        )


def decided(topic: Topic, size: GroupSizes, policy: AutoScalePolicy, now_ms: int) -> Decision:
    return decide(topic.segments, topic.loads, size, policy, topic.clocks, now_ms)


_traffic = st.lists(
    st.one_of(st.just(0.0), st.floats(0, 100), st.floats(0, 8_000)),
    min_size=_PLACES,
    max_size=_PLACES,
)


@settings(max_examples=150, deadline=None)
@given(policies(), groups, _traffic, st.integers(1, 12))
@example(
    AutoScalePolicy(split_msg_rate_in_threshold=1_100, merge_window_seconds=0),
    GroupSizes(),
    [1_998 / _PLACES] * _PLACES,
    2,
)
@example(AutoScalePolicy(merge_window_seconds=0), GroupSizes(2, 2), [1_800 / _PLACES] * _PLACES, 2)
def test_a_steady_topic_comes_to_rest_within_its_bounds_and_cooldowns(policy, size, traffic, count):
    topic, now_ms = Topic(traffic, count), NOW_MS
    actions: list[tuple[int, Action]] = []
    for _ in range(400):
        topic.report(policy, now_ms)
        before = len(topic.segments)
        decision = decided(topic, size, policy, now_ms)
        action = decision.action
        if action is None:
            if not decision.again_at_ms:
                break
            assert decision.again_at_ms > now_ms
            now_ms = decision.again_at_ms
            continue
        of_kind = [at_ms for at_ms, each in actions if each.kind is action.kind]
        cooldown = {
            ActionKind.SPLIT: policy.split_cooldown_seconds,
            ActionKind.MERGE: policy.merge_cooldown_seconds,
            ActionKind.REBUCKET: policy.rebucket_cooldown_seconds,
        }[action.kind]
        assert not of_kind or now_ms - of_kind[-1] >= 1_000 * cooldown
        actions.append((now_ms, action))
        topic.carry_out(action, now_ms)
        after = len(topic.segments)
        assert after <= max(before, policy.max_segments)
        assert after >= min(before, policy.min_segments)
        now_ms += 1
    else:
        pytest.fail(f"no rest after {len(actions)} actions: {actions[-6:]}")


@given(policies(), groups, _traffic, st.integers(1, 12), st.integers(0, 10**10))
def test_a_decision_is_the_same_again(policy, size, traffic, count, later_ms):
    topic = Topic(traffic, count)
    topic.report(policy, NOW_MS)

    first = decided(topic, size, policy, NOW_MS + later_ms)
    again = decide(
        tuple(reversed(topic.segments)), topic.loads, size, policy, topic.clocks, NOW_MS + later_ms
    )

    assert first == again


@given(policies(), groups, _traffic, st.integers(1, 12), st.floats(0, 1))
def test_nothing_changes_by_time_before_the_time_that_a_decision_names(
    policy, size, traffic, count, part
):
    topic = Topic(traffic, count)
    topic.report(policy, NOW_MS)
    topic.clocks = ScaleClocks(NOW_MS - 1_000, NOW_MS - 1_000, NOW_MS - 1_000)
    decision = decided(topic, size, policy, NOW_MS)
    if decision.action is not None:
        return
    until_ms = decision.again_at_ms or NOW_MS + 10**9
    at_ms = NOW_MS + int(part * (until_ms - 1 - NOW_MS))

    assert decided(topic, size, policy, at_ms).action is None


def test_the_ranges_of_the_cases_tile():
    assert are_tiling(initial_ranges(3))
