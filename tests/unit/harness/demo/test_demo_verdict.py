"""When the demo has failed."""

from __future__ import annotations

import pytest

from nextgen.harness.demo.names import namespaces
from nextgen.harness.demo.topics import DemoTopics
from nextgen.harness.demo.verdict import IN_FLIGHT_WANTED, KILLS, complaints_about
from nextgen.kernel.routing.names import parse_topic

GOOD = {
    "sent": 5_000,
    "lost": 0,
    "duplicated": 0,
    "out_of_order": 0,
    "unknown": 0,
    "failed": 0,
    "unanswered": 0,
    "kills": KILLS,
    "leader_failovers": 2,
    "in_flight_at_kill": IN_FLIGHT_WANTED,
    "received_at_shadows": 2_000,
    "other_ids": 0,
    "shadows_struck": {"led": 3, "served": 2, "fed": 1},
}


def test_a_good_run_leaves_no_complaint():
    assert complaints_about(GOOD) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sent", 0),
        ("lost", 1),
        ("duplicated", 1),
        ("out_of_order", 1),
        ("unknown", 1),
        ("failed", 1),
        ("unanswered", 1),
        ("kills", KILLS - 1),
        ("leader_failovers", 0),
        ("in_flight_at_kill", IN_FLIGHT_WANTED - 1),
        ("received_at_shadows", 0),
        ("other_ids", 1),
        ("shadows_struck", {"led": 0, "served": 2, "fed": 1}),
        ("shadows_struck", {"led": 3, "served": 0, "fed": 1}),
        ("shadows_struck", {"led": 3, "served": 2, "fed": 0}),
    ],
)
def test_each_thing_that_went_wrong_is_one_complaint(name: str, value: object):
    assert len(complaints_about(GOOD | {name: value})) == 1


def test_the_topics_are_plain_and_partitioned_ones_in_namespaces_of_the_demo():
    topics = DemoTopics.choose(plain=40, partitioned=10, partitions=4, shadows=20)

    assert (len(topics.plain), len(topics.partitioned), topics.unit_count) == (40, 10, 100)
    assert set(topics.shadows.values()) == set(topics.plain[:20])
    assert {parse_topic(name).namespace_text for name in topics.shadows} <= set(namespaces())
    assert len(set(topics.all)) == 50
    assert {parse_topic(name).namespace_text for name in topics.all} <= set(namespaces())
