"""One segment of a scalable topic."""

from dataclasses import replace

from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import HashRange
from nextgen.kernel.scalable.segments import Segment

TOPIC = parse_topic("topic://acme/orders/paid/today")
SEGMENT = Segment(11, 0x00AB, 0x7FFF, 3, 1_000, bucket_starts=equal_buckets(3))


def test_a_segment_is_called_by_its_range_and_its_id():
    name = SEGMENT.name_in(TOPIC)

    assert name == "segment://acme/orders/paid/today/00ab-7fff-11"
    parsed = parse_topic(name)
    assert parsed.text == name
    assert parsed.base_text == TOPIC.text
    assert parsed.segment == SEGMENT.descriptor


def test_a_segment_that_is_a_classic_topic_keeps_that_name():
    legacy = "persistent://acme/orders/paid-partition-1"

    assert replace(SEGMENT, legacy_topic_name=legacy).name_in(TOPIC) == legacy


def test_range_and_buckets_of_a_segment():
    assert SEGMENT.hash_range == HashRange(0x00AB, 0x7FFF)
    assert SEGMENT.bucket_count == 3
