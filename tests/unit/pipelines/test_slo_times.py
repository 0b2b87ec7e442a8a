"""Times as the command line of ``pipeline slo`` takes them."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import InvalidRequest
from pipelines.slo.command import time_ms_of


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
