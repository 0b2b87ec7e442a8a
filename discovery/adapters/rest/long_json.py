"""Long answers as JSON in pieces: a few milliseconds of them in each round of the loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from nextgen.kernel.limits.rest import REST_JSON_ITEMS_PER_TURN, REST_JSON_TURN_MS

Texts = Iterator[str]
"""JSON of one value, in pieces that are each made within a few milliseconds."""


def json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def object_texts(members: Mapping[str, Any], **long: Texts) -> Texts:
    """Yield an object of ``members``, at least one, and behind them of those that are long."""
    yield json_text(members)[:-1]
    for name, texts in long.items():
        yield f',"{name}":'
        yield from texts
    yield "}"


def list_texts(items: Iterable[Any]) -> Texts:
    """Yield a list. The items are made when they are written."""
    remaining, beginning = iter(items), "["
    while batch := list(islice(remaining, REST_JSON_ITEMS_PER_TURN)):
        yield beginning + json_text(batch)[1:-1]
        beginning = ","
    yield "[]" if beginning == "[" else "]"


def map_texts(items: Iterable[tuple[str, Texts]]) -> Texts:
    """Yield an object whose members are all long."""
    beginning = "{"
    for name, texts in items:
        yield f"{beginning}{json_text(name)}:"
        yield from texts
        beginning = ","
    yield "{}" if beginning == "{" else "}"


class LongAnswers:
    """Makes the long answers of one process. Owned by one event loop.

    However many requests there are, one round of the loop has ``REST_JSON_TURN_MS`` of them.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def pieces(self, texts: Texts) -> AsyncGenerator[bytes]:
        """Yield the bytes of ``texts``."""
        is_done = False
        while not is_done:
            async with self._turn:
                piece, is_done = _piece(texts)
                # The next one belongs to the next round.
                await asyncio.sleep(0)
            if piece:
                yield piece


def _piece(texts: Texts) -> tuple[bytes, bool]:
    """Return what can be made of ``texts`` in one turn, and whether that was the end."""
    made: list[str] = []
    ends_at = time.perf_counter() + REST_JSON_TURN_MS / 1_000
    for text in texts:
        made.append(text)
        if time.perf_counter() > ends_at:
            return "".join(made).encode(), False
    return "".join(made).encode(), True
