"""Pages of a listing that is spread over all shards."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from typing import TypeVar

Listed = TypeVar("Listed")


class InvalidPageToken(ValueError):
    """The text is not a page token of this service."""


def page_token(after: str) -> str:
    """Return the token of the page that begins behind the name ``after``."""
    return base64.urlsafe_b64encode(after.encode()).decode()


def parse_page_token(token: str) -> str:
    """Return the name that the page begins behind; "" for the first page.

    Raises:
        InvalidPageToken: No page has this token.
    """
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise InvalidPageToken(f"page token {token[:80]!a} is not one of ours") from error


def merged_page(
    shards: Iterable[Sequence[Listed]],
    *,
    name_of: Callable[[Listed], str],
    size_of: Callable[[Listed], int],
    items_max: int,
    bytes_max: int,
) -> tuple[list[Listed], bool]:
    """Return the first items of all shards by name, and whether some of those given were left out.

    Each shard's items are in the order of their names. At least one item is returned if there
    is any, however big.
    """
    page: list[Listed] = []
    page_bytes = 0
    for item in merge(*shards, key=name_of):
        size_bytes = size_of(item)
        if len(page) == items_max or (page and page_bytes + size_bytes > bytes_max):
            return page, True
        page.append(item)
        page_bytes += size_bytes
    return page, False
