"""JSON documents of this program, which may be damaged or forged, and their fields."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

_SURROGATE = "\\ud"


def parse_json(content: bytes | str) -> Any:
    """Return the content of a JSON document.

    Raises:
        ValueError: It is not JSON in UTF-8, is nested too deep, has an invalid or too long number,
        or repeats a key.
    """
    text = content if isinstance(content, str) else content.decode()
    try:
        document = json.loads(
            text,
            object_pairs_hook=_members_once,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if _SURROGATE in text.lower():
        # Half of a pair can be escaped, and is no text that could be stored or sent.
        json.dumps(document, ensure_ascii=False).encode()
    return document


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it says {twice!r} twice")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def as_count(value: object) -> int:
    """Return ``value``, which must be a whole number from 0 on.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def as_text(value: object) -> str:
    """Return ``value``, which must be a text.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
