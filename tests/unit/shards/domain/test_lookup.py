"""Whether a name can be served at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_topic
from shards.domain.lookup import check_listed, check_served
from shards.domain.scalable.commands import PruneSegments
from shards.domain.topic import Topic
from tests.support.shards.scalable import NAME, SPLIT, after, changed, new_topic, plan

BASE = "persistent://acme/orders/paid"


def topic(partitions: int) -> Topic:
    return Topic("id", BASE, partitions, 1, "namespace id", 0, ())


@pytest.mark.parametrize(
    ("name", "found", "code"),
    [
        (BASE, None, RejectionCode.NOT_FOUND),
        (f"{BASE}-partition-0", None, RejectionCode.NOT_FOUND),
        (BASE, topic(0), None),
        (BASE, topic(3), RejectionCode.PARTITIONED),
        (f"{BASE}-partition-0", topic(3), None),
        (f"{BASE}-partition-2", topic(3), None),
        (f"{BASE}-partition-3", topic(3), RejectionCode.NOT_FOUND),
        (f"{BASE}-partition-0", topic(0), RejectionCode.NOT_FOUND),
        (NAME, topic(0), RejectionCode.SCALABLE),
        ("segment://acme/orders/paid/0000-ffff-0", None, RejectionCode.NOT_FOUND),
        ("segment://acme/orders/paid/0000-ffff-0", topic(0), None),
    ],
)
def test_every_combination_of_name_and_topic(
    name: str, found: Topic | None, code: RejectionCode | None
) -> None:
    refusal = check_served(parse_topic(name), found)

    assert (refusal.code if refusal is not None else None) == code


def segment(descriptor: str):
    return parse_topic(f"segment://acme/orders/paid/{descriptor}")


SPLIT_TOPIC = changed(new_topic(), SPLIT, 0)
PLANNED = after(SPLIT_TOPIC, plan(SPLIT, 1))


@pytest.mark.parametrize(
    ("descriptor", "layout", "may_be_planned", "is_listed"),
    [
        ("0000-7fff-1", SPLIT_TOPIC, False, True),
        ("0000-ffff-0", SPLIT_TOPIC, False, True),
        ("0000-7FFF-1", SPLIT_TOPIC, False, True),
        ("0-7fff-1", SPLIT_TOPIC, False, True),
        ("0000-7fff-2", SPLIT_TOPIC, False, False),
        ("0000-8000-1", SPLIT_TOPIC, False, False),
        ("0000-7fff-3", SPLIT_TOPIC, True, False),
        ("0000-7fff-1", None, True, False),
        ("0000-3fff-3", PLANNED, False, False),
        ("0000-3fff-3", PLANNED, True, True),
        ("0000-4000-3", PLANNED, True, False),
        ("0000-7fff-1", PLANNED, True, True),
        ("0000-ffff-0", after(SPLIT_TOPIC, PruneSegments((0,))), True, False),
    ],
)
def test_only_what_the_layout_lists_with_that_range_is_served(
    descriptor, layout, may_be_planned, is_listed
):
    refusal = check_listed(segment(descriptor), layout, may_be_planned=may_be_planned)

    assert (refusal is None) is is_listed
    if refusal is not None:
        assert refusal.code is RejectionCode.NOT_FOUND


def test_a_segment_that_is_a_classic_topic_is_not_served_under_another_name():
    topic = new_topic()
    legacy = replace(topic.segments[0], legacy_topic_name=BASE)

    refusal = check_listed(
        segment("0000-ffff-0"), replace(topic, segments={0: legacy}), may_be_planned=False
    )

    assert refusal is not None
    assert "has no segment 0 of its own" in refusal.message
