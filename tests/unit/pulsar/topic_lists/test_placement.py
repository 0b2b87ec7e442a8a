"""Lookups of patterns are answered with this node while it has room, then with a broker."""

from __future__ import annotations

import pytest

from nextgen.pulsar.topic_lists.placement import WatcherPlaces, looks_like_pattern
from nextgen.pulsar.topic_lists.session import TopicWatches
from tests.support.pulsar.fake_topic_lists import FakeTopicLists

OWN, BROKER = "pulsar://discovery:6650", "pulsar://broker:6650"
PATTERN = "persistent://acme/orders/a.*"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (PATTERN, True),
        ("persistent://public/default/.*", True),
        (r"persistent://t/n/x-\d", True),
        ("persistent://t/n/(a|b)", True),
        ("persistent://t/n/[ab]", True),
        ("persistent://t/n/a{2}", True),
        ("persistent://t/n/a$", True),
        ("persistent://t/n/v1.2-paid_eu", False),
        ("persistent://t/n/a-partition-0", False),
    ],
)
def test_patterns_are_known_by_their_special_characters(topic: str, expected: bool) -> None:
    assert looks_like_pattern(topic) is expected


def test_a_pattern_is_placed_here_while_there_is_memory_and_then_at_a_broker() -> None:
    watches = TopicWatches(FakeTopicLists())
    places = WatcherPlaces(OWN, watches, lambda _topic: BROKER)
    assert places.url(PATTERN) == OWN
    assert places.url("persistent://acme/orders/absent") == BROKER

    watches.bytes_max = 0

    assert places.url(PATTERN) == BROKER
    assert watches.sent_elsewhere == 1


def test_a_node_without_watchers_places_none() -> None:
    assert WatcherPlaces(OWN, None, lambda _topic: BROKER).url(PATTERN) == BROKER
    watches = TopicWatches(FakeTopicLists())
    assert WatcherPlaces("", watches, lambda _topic: BROKER).url(PATTERN) == BROKER


def test_a_scalable_topic_is_placed_here_while_another_layout_can_be_watched() -> None:
    scalable = "topic://acme/orders/paid"
    room = [True]
    places = WatcherPlaces(OWN, None, lambda _topic: BROKER, lambda: room[0])
    assert places.url(scalable) == OWN
    assert places.url("persistent://acme/orders/paid") == BROKER

    room[0] = False

    assert places.url(scalable) == BROKER
    assert WatcherPlaces("", None, lambda _topic: BROKER, lambda: True).url(scalable) == BROKER
    assert WatcherPlaces(OWN, None, lambda _topic: BROKER).url(scalable) == BROKER
