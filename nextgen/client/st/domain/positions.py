"""Places of messages, and vectors of them over the segments of a topic.

A segment is named by the topic that it is stored as: two scalable topics have none in common, so a
vector may cover several of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

NO_BATCH = -1


class Position(NamedTuple):
    """An entry of one segment, or a message in it. Ordered as they were stored."""

    ledger_id: int
    entry_id: int
    batch_index: int = NO_BATCH
    partition: int = -1

    @property
    def entry(self) -> tuple[int, int]:
        return self.ledger_id, self.entry_id


@dataclass(frozen=True, slots=True)
class MessageId:
    """The place of a message: the segment that has it, and its position there."""

    topic: str
    """The scalable topic."""

    segment: str
    """The segment's own topic."""

    position: Position

    def __str__(self) -> str:
        place = self.position
        batch = "" if place.batch_index == NO_BATCH else f":{place.batch_index}"
        return f"{self.segment}#{place.ledger_id}:{place.entry_id}{batch}"


class DeliveredPositions:
    """What was delivered from each segment and is not acknowledged, in the order of delivery.

    A cumulative acknowledgement of a message covers, in every segment, what was put into the queue
    of the application before that message: the vector of positions when the message was enqueued.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        """``numbers``: ascending ones, which several of these may share: then a number stands for
        the vector of all of them."""
        self._numbers = numbers if numbers is not None else count(1)
        self._delivered: dict[str, deque[tuple[int, Position]]] = {}

    def __len__(self) -> int:
        return sum(len(each) for each in self._delivered.values())

    def delivered(self, segment: str, position: Position) -> int:
        """A message is enqueued. Return the number that stands for the vector at this moment."""
        number = next(self._numbers)
        queue = self._delivered.get(segment)
        if queue is None:
            queue = self._delivered[segment] = deque()
        queue.append((number, position))
        return number

    def acknowledged_until(self, number: int) -> dict[str, list[Position]]:
        """Take and return what the vector of ``number`` covers, by segment, oldest first."""
        covered: dict[str, list[Position]] = {}
        for segment, queue in self._delivered.items():
            positions: list[Position] = []
            while queue and queue[0][0] <= number:
                positions.append(queue.popleft()[1])
            if positions:
                covered[segment] = positions
        return covered

    def pending(self, segment: str) -> int:
        """Return how many messages of a segment are delivered and not acknowledged."""
        return len(self._delivered.get(segment, ()))

    def forget_behind(self, segment: str, number: int) -> None:
        """Forget what was enqueued behind ``number``: it was not delivered, and comes again."""
        queue = self._delivered.get(segment)
        while queue and queue[-1][0] > number:
            queue.pop()

    def forget(self, segment: str) -> None:
        """The segment belongs to this consumer no more, or its messages come again."""
        self._delivered.pop(segment, None)
