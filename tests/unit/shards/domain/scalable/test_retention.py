"""How long drained segments are kept: by time, by size, and until the next look."""

import pytest

from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.limits.scalable import PRUNE_EXAMINED_MS_MAX, PRUNE_EXAMINED_MS_MIN
from shards.domain.scalable.commands import MarkChildrenReady, SealSegment
from shards.domain.scalable.retention import SegmentUsage, kept_until_ms
from tests.support.shards.scalable import END, SPLIT, after, new_topic, plan

SEALED_MS = 3_000
DAY_MS = PRUNE_EXAMINED_MS_MAX


def sealed(topic, number, stored_bytes, time_ms=SEALED_MS):
    """Return the topic after a split of the segment ``number``."""
    topic = after(topic, plan(SPLIT, number))
    operation_id = topic.operation.operation_id
    return after(
        topic,
        MarkChildrenReady(operation_id, ()),
        SealSegment(operation_id, number, END, time_ms, stored_bytes),
    )


def kept(topic, number, now_ms, *, is_drained=True, time_ms=FOR_EVER, size_bytes=FOR_EVER):
    usage = SegmentUsage(is_drained, time_ms, size_bytes)
    return kept_until_ms(topic, topic.segments[number], usage, now_ms)


@pytest.mark.parametrize(("time_ms", "until_ms"), [(0, SEALED_MS), (500, SEALED_MS + 500)])
def test_time_counts_from_the_seal(time_ms, until_ms):
    topic = sealed(new_topic(), 0, 100)

    assert kept(topic, 0, SEALED_MS + 100, time_ms=time_ms) == until_ms


@pytest.mark.parametrize(
    ("size_bytes", "goes"), [(0, True), (299, True), (300, True), (301, False)]
)
def test_size_counts_what_was_sealed_later(size_bytes, goes):
    topic = new_topic(3)
    for number, stored_bytes in ((1, 1_000), (0, 100), (2, 200)):
        topic = sealed(topic, number, stored_bytes)
    oldest, now_ms = 1, SEALED_MS + 100

    until_ms = kept(topic, oldest, now_ms, size_bytes=size_bytes)

    assert (until_ms <= now_ms) is goes
    assert kept(topic, 2, now_ms, size_bytes=1) > now_ms, "nothing was sealed later"


def test_what_is_over_first_lets_a_segment_go():
    topic = sealed(sealed(new_topic(2), 0, 100), 1, 100)
    now_ms = SEALED_MS + 100

    assert kept(topic, 0, now_ms, time_ms=99, size_bytes=1_000) <= now_ms
    assert kept(topic, 0, now_ms, time_ms=1_000, size_bytes=100) <= now_ms
    assert kept(topic, 0, now_ms, time_ms=1_000, size_bytes=101) > now_ms


@pytest.mark.parametrize(
    ("time_ms", "until_ms"),
    [
        (DAY_MS, SEALED_MS + DAY_MS),
        (DAY_MS + 1, SEALED_MS + DAY_MS),
        (FOR_EVER, SEALED_MS + DAY_MS),
    ],
)
def test_prune_examined_ms_max_is_the_longest_time_between_two_looks(time_ms, until_ms):
    topic = sealed(new_topic(), 0, 100)

    assert kept(topic, 0, SEALED_MS, time_ms=time_ms) == until_ms


@pytest.mark.parametrize(
    ("age_ms", "pause_ms"),
    [
        (0, PRUNE_EXAMINED_MS_MIN),
        (PRUNE_EXAMINED_MS_MIN, PRUNE_EXAMINED_MS_MIN),
        (PRUNE_EXAMINED_MS_MIN + 1, PRUNE_EXAMINED_MS_MIN + 1),
        (PRUNE_EXAMINED_MS_MAX + 1, PRUNE_EXAMINED_MS_MAX),
    ],
)
def test_prune_examined_ms_min_is_the_shortest_pause_of_what_is_not_drained(age_ms, pause_ms):
    topic = sealed(new_topic(), 0, 100)
    now_ms = SEALED_MS + age_ms

    assert kept(topic, 0, now_ms, is_drained=False, time_ms=0, size_bytes=0) == now_ms + pause_ms
