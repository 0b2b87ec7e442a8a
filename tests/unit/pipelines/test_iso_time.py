"""Times as the options of jobs take them."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import InvalidRequest
from pipelines.iso_time import TEXT_SHOWN_MAX, time_at, time_ms_of, unix_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("", None),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.0015Z", 2),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, time_ms: int | None) -> None:
    assert time_ms_of("--since", text) == time_ms


@pytest.mark.parametrize("text", ["yesterday", "1970-13-01", "12:00"])
def test_what_is_no_time_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"--since {text} is no time"):
        time_ms_of("--since", text)


def test_of_a_long_text_the_beginning_is_shown() -> None:
    with pytest.raises(InvalidRequest) as refused:
        time_ms_of("--since", "x" * 1_000)

    assert str(refused.value).count("x") == TEXT_SHOWN_MAX


def test_a_unix_time_is_the_same_there_and_back() -> None:
    time = time_at(1_764_000_000_123)

    assert time.isoformat() == "2025-11-24T16:00:00.123000+00:00"
    assert unix_ms(time) == 1_764_000_000_123
