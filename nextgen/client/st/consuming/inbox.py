"""The queue between the segments of a consumer and its application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Items in the order of arrival, or an error once there is one.

    Several callers may wait. An error goes to all of them and stays.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> Iterable[Item]:
        """Return the items that wait."""
        return self._items

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._wake_one()

    def fail(self, error: Exception) -> None:
        """From here on ``get`` raises ``error``, after the items that are there."""
        if self._error is None:
            self._error = error
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)

    def clear_error(self) -> None:
        """Forget the error: the cause is gone."""
        self._error = None

    def get_nowait(self) -> Item | None:
        """Return the next item, None if there is none.

        Raises the error if there is one and no item.
        """
        if self._items:
            return self._items.popleft()
        if self._error is not None:
            raise self._error
        return None

    async def get(self) -> Item:
        """Wait for the next item."""
        while (item := self.get_nowait()) is None:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and self._items:
                    self._wake_one()
                raise
        return item

    def _wake_one(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
