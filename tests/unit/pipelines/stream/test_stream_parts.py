"""Which parts of a stream's tables a batch can still change."""

from __future__ import annotations

from pipelines.stream.job import open_parts

DAY_MS = 86_400_000
MINUTE_MS = 60_000

PARTS = {
    "inventory": "a/part=inventory",
    "brokers": "a/part=brokers",
    "changes-2025-02-27": "b/part=changes-2025-02-27",
    "changes-2025-02-28": "b/part=changes-2025-02-28",
    "changes-2025-03-01": "a/part=changes-2025-03-01",
}


def open_days(delay_ms: int) -> list[str]:
    names = open_parts(PARTS, delay_ms)
    assert {"inventory", "brokers"} < set(names)
    return sorted(name.removeprefix("changes-2025-") for name in names if "changes" in name)


def test_the_newest_day_is_open_and_that_in_which_its_delay_may_begin() -> None:
    assert open_days(0) == ["02-28", "03-01"]
    assert open_days(DAY_MS - MINUTE_MS) == ["02-28", "03-01"]


def test_a_delay_of_a_day_and_more_keeps_more_days_open() -> None:
    assert open_days(DAY_MS) == ["02-27", "02-28", "03-01"]
    assert open_days(30 * DAY_MS) == ["02-27", "02-28", "03-01"]


def test_without_a_day_all_parts_are_open() -> None:
    shards = {"inventory": "a/part=inventory"}
    assert open_parts(shards, 0) == shards
    assert open_parts({}, 30 * DAY_MS) == {}
