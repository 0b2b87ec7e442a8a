"""What ``--as-of`` may say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nextgen.kernel.errors import InvalidRequest
from pipelines.errors import JobRefused
from pipelines.rebuild.as_of import AsOf, check_positions, parse_as_of


def test_positions_are_named_by_shard() -> None:
    assert parse_as_of("2:730,1:500") == AsOf(positions={1: 500, 2: 730})


@pytest.mark.parametrize(
    "text", ["2026-11-22T08:30:00Z", "2026-11-22T08:30:00", "2026-11-22T10:30:00+02:00"]
)
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    assert parse_as_of(text) == AsOf(time=datetime(2026, 11, 22, 8, 30, tzinfo=UTC))


@pytest.mark.parametrize("text", ["yesterday", "1:", "1:2,1:3", "0:5", "1:0", "1;2"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="neither a time"):
        parse_as_of(text)


def test_shards_that_are_not_named_are_folded_whole() -> None:
    assert check_positions({2: 5}, {1: 10, 2: 7}) == {1: 10, 2: 5}


def test_the_last_position_of_the_export_may_be_asked_for() -> None:
    assert check_positions({2: 7}, {1: 10, 2: 7}) == {1: 10, 2: 7}


def test_a_position_behind_the_export_is_refused() -> None:
    with pytest.raises(JobRefused, match="ends at position 7, 8 was requested"):
        check_positions({2: 8}, {1: 10, 2: 7})


def test_a_shard_that_the_export_does_not_have_is_refused() -> None:
    with pytest.raises(JobRefused, match="no shard 3"):
        check_positions({3: 1}, {1: 10})
