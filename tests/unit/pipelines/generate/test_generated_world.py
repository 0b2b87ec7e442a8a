"""What may be asked of the generator, and what follows from it."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import InvalidRequest
from pipelines.generate.world import (
    BROKERS_MAX,
    CALM_MS,
    FOLDERS_MAX,
    OUTAGE_MS,
    SHARDS_MAX,
    TOPICS_MAX,
    World,
)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"topics": 0}, "topics"),
        ({"topics": TOPICS_MAX + 1}, "topics"),
        ({"days": 0}, "days"),
        ({"shards": 0}, "shards"),
        ({"shards": SHARDS_MAX + 1}, "shards"),
        ({"brokers": 1}, "brokers"),
        ({"brokers": BROKERS_MAX + 1}, "brokers"),
        ({"events_per_topic": 0.5}, "events per topic"),
        ({"shards": 4, "days": FOLDERS_MAX // 5 + 1}, "times days"),
        ({"topics": TOPICS_MAX, "brokers": 2}, "cannot carry"),
        ({"auto_scaled_percent": -1}, "percent of topics with loads"),
        ({"auto_scaled_percent": 101}, "percent of topics with loads"),
    ],
)
def test_a_history_that_cannot_be_made_is_refused(asked: dict[str, int], word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        World(**{"topics": 100, "days": 1, "seed": 1} | asked)


def test_the_largest_history_of_a_kind_is_allowed() -> None:
    assert World(TOPICS_MAX, 200, 1, shards=4, brokers=BROKERS_MAX).bursts == 400


@pytest.mark.parametrize("days", [1, 2, 30])
@pytest.mark.parametrize("brokers", [2, 8, 200])
def test_outages_never_meet(days: int, brokers: int) -> None:
    world = World(1_000, days, 1, brokers=brokers)
    assert world.outages >= 1
    assert world.outage_slot_ms > OUTAGE_MS + CALM_MS


def test_more_events_per_topic_are_more_stays() -> None:
    assert World(100, 1, 1, events_per_topic=4).stays_mean == 1.0
    assert World(100, 1, 1, events_per_topic=40).stays_mean > 20


def test_topics_with_loads_are_there_from_the_first_day_and_have_no_partitions() -> None:
    all_of_them = World(100, 1, 1, auto_scaled_percent=100)
    none = World(100, 1, 1)

    assert (all_of_them.scalable_share, all_of_them.partitioned_share) == (1, 0)
    assert all_of_them.import_share == 1
    assert (none.scalable_share, none.import_share) == (0.03, 0.3)
