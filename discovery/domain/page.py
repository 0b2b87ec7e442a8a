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

_DIGEST_BYTES = 6
_VERSION = b"\x01"
"""The first byte of a token. A digest follows, then the content."""


class InvalidPageToken(ValueError):
    """The text is not a page token of this service."""


@dataclass(frozen=True, slots=True)
class PageToken:
    """The next page begins behind the name ``after`` and reflects ``positions`` at least.

    ``positions`` are those of the shards at the first page. ``scope`` is that of the listing: see
    ``scope_of``. The text of a token has a digest, so that an altered one is refused. It is no
    signature: it guards against accidents, and a token allows nothing that its holder may not.
    """

    after: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    scope: str = ""

    def __str__(self) -> str:
        fields = [self.after, self.scope, *self.positions.items()]
        content = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(_VERSION + _digest(content) + content).decode()


def scope_of(*parts: str) -> str:
    """Return a digest of a listing's scope: kind, parent, domain, prefix."""
    return _digest("\0".join(parts).encode()).hex()


def parse_page_token(token: str) -> PageToken:
    """Return the token that has this text; "" stands for the first page.

    Raises:
        InvalidPageToken: No page has this token.
    """
    try:
        if len(token) > PAGE_TOKEN_CHARACTERS_MAX:
            raise ValueError("it is too long")
        return _decoded(token) if token else PageToken()
    except (binascii.Error, ValueError, RecursionError) as error:
        raise InvalidPageToken(
            f"page token {token[:80]!a} was altered, or comes from elsewhere: "
            "begin the listing again"
        ) from error


def _decoded(token: str) -> PageToken:
    text = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
    head = len(_VERSION) + _DIGEST_BYTES
    if text[:head] != _VERSION + _digest(text[head:]):
        raise ValueError("its digest is another one")
    return _parse(json.loads(text[head:]))


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


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
