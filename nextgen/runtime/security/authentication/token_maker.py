"""Makes tokens, with the claims of Pulsar's ``tokens create``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jwt

from nextgen.kernel.errors import RefusesToStart

_DURATION = re.compile(r"(\d{1,9})([smhdwy])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 365 * 86_400}


def make_token(
    key: Any, algorithm: str, claims: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> str:
    """Return a token that ``key`` has signed.

    Raises:
        RefusesToStart: The key is not one for the algorithm.
    """
    try:
        return jwt.encode(dict(claims), key, algorithm=algorithm, headers=dict(headers or {}))
    except (jwt.PyJWTError, TypeError, ValueError, NotImplementedError) as error:
        raise RefusesToStart(f"the key signs no tokens with {algorithm}") from error


def duration_s(text: str) -> int:
    """Return the seconds in a duration as Pulsar writes it: ``30s``, ``10m``, ``3h``, ``1y``.

    Raises:
        ValueError: It is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise ValueError(f"{text!r} is no duration like 30s, 10m, 3h, 7d, 2w or 1y")
    return int(found[1]) * _SECONDS[found[2]]
