"""The recorded loads of segments: what is written, what goes, and what cool-downs count from."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.auto_scale import GroupSizes, ScaleClocks
from nextgen.kernel.scalable.segment_load import SegmentLoad
from shards.domain.scalable import loads
from shards.domain.scalable.commands import AbandonLayoutChange, DeleteScalableTopic, PruneSegments
from shards.domain.scalable.events import LayoutChanged, ScalableTopicDeleted, SegmentLoadsRecorded
from shards.domain.scalable.loads import TopicLoads, record
from shards.domain.scalable.state import ScalableTopic
from tests.support.shards.scalable import (
    MERGE,
    NAME,
    REBUCKET,
    SPLIT,
    accepted,
    after,
    changed,
    finish,
    new_topic,
    plan,
    registered,
)

POLICY = DEFAULT_AUTO_SCALE
HOT, WARM, COLD = Rates(20_000), Rates(2_000), Rates(1)


def recorded(
    topic: ScalableTopic,
    before: TopicLoads | None,
    samples: dict[int, Rates],
    now_ms: int = 5_000,
    policy=POLICY,
) -> TopicLoads | None:
    """Return the loads after what ``samples`` have written, None if they wrote nothing."""
    event = record(topic, before, samples, policy, now_ms)
    return None if event is None else loads.evolve(before, event)


def carried_out(topic, before, command, time_ms=3_000):
    """Return topic and loads after an operation; its events change both."""
    topic = after(topic, command)
    operation = topic.operation
    whole = finish(topic, time_ms)
    parents = [whole.segments[each] for each in operation.parents]
    children = [whole.segments[each.segment_id] for each in operation.children]
    event = LayoutChanged(
        NAME, topic.topic_id, whole.epoch, operation.kind, 1, tuple([*parents, *children])
    )
    return whole, loads.evolve(before, event)


def test_a_steady_load_is_written_once_whoever_reports_it():
    """Finding 4: a new owner that measures the same writes nothing, so the window goes on."""
    topic = new_topic(2)
    first = recorded(topic, None, {0: COLD, 1: WARM}, 5_000)

    assert first.loads == {0: SegmentLoad(0, COLD, 5_000, 5_000), 1: SegmentLoad(1, WARM, 5_000)}
    assert recorded(topic, first, {0: COLD, 1: Rates(2_400)}, 9_000) is None


def test_a_cold_segment_keeps_the_time_of_its_mark_when_its_rates_move():
    topic = new_topic()
    first = recorded(topic, None, {0: COLD}, 5_000)

    again = recorded(topic, first, {0: Rates(500)}, 9_000)

    assert again.loads[0] == SegmentLoad(0, Rates(500), 9_000, 5_000)


def test_a_changed_policy_marks_and_unmarks_what_is_cold():
    topic = new_topic()
    first = recorded(topic, None, {0: WARM}, 5_000)
    wide = replace(POLICY, merge_msg_rate_in_threshold=3_000)

    marked = recorded(topic, first, {}, 9_000, wide)
    unmarked = recorded(topic, marked, {}, 10_000)

    assert marked.loads[0] == SegmentLoad(0, WARM, 9_000, 9_000)
    assert unmarked.loads[0] == SegmentLoad(0, WARM, 10_000)
    assert recorded(topic, unmarked, {}, 11_000) is None


def test_a_mark_of_a_clock_that_leapt_is_replaced_though_the_load_is_steady():
    """With the mark of a year ahead it would not be merged for a year."""
    topic = new_topic()
    first = recorded(topic, None, {0: COLD}, 10**12)

    again = recorded(topic, first, {}, 5_000)

    assert again.loads[0] == SegmentLoad(0, COLD, 5_000, 5_000)
    assert recorded(topic, again, {}, 6_000) is None


def test_sealed_and_unknown_segments_have_no_loads():
    topic = changed(new_topic(), SPLIT, 0)

    found = recorded(topic, None, {0: HOT, 1: HOT, 7: HOT})

    assert set(found.loads) == {1}


def test_an_operation_ends_the_loads_of_its_parents_and_begins_the_cooldown():
    """Findings 2 and 6: records go with their segments; the time is that of the commit."""
    topic = new_topic()
    before = recorded(topic, None, {0: HOT})

    topic, split = carried_out(topic, before, plan(SPLIT, 0, time_ms=2_000), 60_000)
    topic, rebucketed = carried_out(topic, split, plan(REBUCKET, 1, buckets=8), 70_000)
    topic, merged = carried_out(topic, rebucketed, plan(MERGE, 3, 2), 80_000)

    assert split == TopicLoads("topic-1", {}, ScaleClocks(split_at_ms=60_000))
    assert rebucketed.clocks == ScaleClocks(60_000, 0, 70_000)
    assert merged.clocks == ScaleClocks(60_000, 80_000, 70_000)


def test_an_operation_that_is_taken_back_burns_no_cooldown():
    """Finding 6."""
    topic = new_topic()
    planned = after(topic, plan(SPLIT, 0))
    events = accepted(planned, AbandonLayoutChange(1, "no broker"))

    assert not any(isinstance(each, LayoutChanged | ScalableTopicDeleted) for each in events)


def test_a_pruned_segment_and_a_deleted_topic_leave_nothing():
    """Finding 2."""
    topic = changed(new_topic(), SPLIT, 0)
    before = TopicLoads("topic-1", {0: SegmentLoad(0, COLD, 1), 1: SegmentLoad(1, COLD, 1)})

    (pruned,) = accepted(topic, PruneSegments((0,)))
    (deleted,) = accepted(topic, DeleteScalableTopic(NAME, "topic-1"))

    assert set(loads.evolve(before, pruned).loads) == {1}
    assert loads.evolve(before, pruned).clocks == before.clocks
    assert loads.evolve(before, deleted) is None


def test_nothing_begins_with_a_change_of_the_layout():
    """An earlier release, which keeps no loads, folds the same event."""
    _, split = carried_out(new_topic(), None, plan(SPLIT, 0))

    assert split is None


def test_a_topic_of_the_same_name_begins_anew():
    left = TopicLoads("topic-0", {0: SegmentLoad(0, HOT, 1)}, ScaleClocks(1, 2, 3))
    topic = new_topic()

    assert loads.of_topic(topic, left) == TopicLoads("topic-1")
    assert recorded(topic, left, {0: HOT}) == TopicLoads("topic-1", {0: SegmentLoad(0, HOT, 5_000)})


@given(st.dictionaries(st.integers(0, 5), st.sampled_from([HOT, WARM, COLD]), max_size=4))
def test_what_was_written_is_not_written_again(samples):
    topic = new_topic(4)
    first = recorded(topic, None, samples)
    if first is not None:
        assert recorded(topic, first, samples, 6_000) is None
    event = record(topic, None, samples, POLICY, 5_000)
    assert event is None or isinstance(event, SegmentLoadsRecorded)


def test_the_largest_group_counts_and_only_streams_share():
    topic = registered(new_topic(), "a", "b")
    assert topic.group_sizes == GroupSizes(2, 2)

    one_without = registered(topic, "c", takes_buckets=False)
    assert one_without.group_sizes == GroupSizes(3, 0)
    assert new_topic().group_sizes == GroupSizes()
