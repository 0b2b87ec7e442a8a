"""Times as the options of jobs take them: ISO 8601, UTC without a zone."""

from __future__ import annotations

from datetime import UTC, datetime

from nextgen.kernel.errors import InvalidRequest

TIME_EXAMPLE = "2026-11-22T08:30:00Z"

TEXT_SHOWN_MAX = 80
"""Characters of an option's value that a refusal shows."""


def parse_time(text: str) -> datetime | None:
    """Return the time that ``text`` gives, None if it is not a time."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.replace(tzinfo=time.tzinfo or UTC)


def unix_ms(time: datetime) -> int:
    """Return the Unix time of ``time``, to the nearest millisecond."""
    return round(time.timestamp() * 1_000)


def time_at(unix_time_ms: int) -> datetime:
    """Return the time, UTC, that a Unix time in milliseconds means."""
    return datetime.fromtimestamp(unix_time_ms / 1_000, UTC)


def time_ms_of(option: str, text: str) -> int | None:
    """Return the Unix time that ``text`` gives; None if it is empty.

    Raises:
        InvalidRequest: It is not a time.
    """
    if not text:
        return None
    time = parse_time(text)
    if time is None:
        raise InvalidRequest(f"{shown_option(option, text)} is no time like {TIME_EXAMPLE}")
    return unix_ms(time)


def shown_option(option: str, text: str) -> str:
    """Return an option and its value, as the beginning of a refusal."""
    return f"{option} {text[:TEXT_SHOWN_MAX]}"
