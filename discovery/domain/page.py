"""Page tokens: the place in a listing over all shards at which the next page begins."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from nextgen.kernel.limits.listing import PAGE_TOKEN_CHARACTERS_MAX

_SCOPE_BYTES = 6
_VERSIONED = b"\x01"
"""The beginning of a token. Tokens of releases up to 0.1.0 are only a name."""


class InvalidPageToken(ValueError):
    """The text is not a page token of this service."""


@dataclass(frozen=True, slots=True)
class PageToken:
    """The next page begins behind the name ``after`` and rests on ``positions`` at least.

    ``positions`` are those of the shards at the first page. ``scope`` is that of the listing, ""
    if unknown: see ``scope_of``.
    """

    after: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    scope: str = ""

    def __str__(self) -> str:
        content = [self.after, self.scope, *self.positions.items()]
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        return base64.urlsafe_b64encode(_VERSIONED + text.encode()).decode()


def scope_of(*parts: str) -> str:
    """Return a digest of a listing's scope: kind, parent, domain, prefix."""
    text = "\0".join(parts).encode()
    return blake2b(text, digest_size=_SCOPE_BYTES).hexdigest()


def parse_page_token(token: str) -> PageToken:
    """Return the token that has this text; "" stands for the first page.

    Raises:
        InvalidPageToken: No page has this token.
    """
    try:
        if len(token) > PAGE_TOKEN_CHARACTERS_MAX:
            raise ValueError("it is too long")
        content = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        if not content.startswith(_VERSIONED):
            return PageToken(content.decode())
        return _parse(json.loads(content[len(_VERSIONED) :]))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise InvalidPageToken(f"page token {token[:80]!a} is not one of ours") from error


def _parse(content: Any) -> PageToken:
    if not isinstance(content, list) or len(content) < 2:
        raise ValueError("a token is a list")
    after, scope, *positions = content
    if not isinstance(after, str) or not isinstance(scope, str):
        raise ValueError("a token begins with two texts")
    after.encode()  # JSON may spell surrogates, which are no characters.
    return PageToken(after, dict(_position(pair) for pair in positions), scope)


def _position(pair: Any) -> tuple[int, int]:
    match pair:
        case [int() as shard_id, int() as position] if min(pair) >= 0 and max(pair) < 1 << 63:
            return shard_id, position
    raise ValueError("a position is a pair of numbers")
