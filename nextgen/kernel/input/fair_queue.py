"""A bounded queue that serves its keys in turn: one key cannot delay the others by its length.

Each key (a tenant, a connection) has a queue of its own, first in first out. ``take`` serves one
item of the key whose turn it is; a key with more items goes behind the others. So an item waits
for at most ``its place in its own key's queue`` rounds, and a round serves each waiting key once,
however long the other queues are.

Pure: no clock, no tasks. Every operation takes constant time. A key that has no items takes no
memory, so keys may come from outside.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Items that wait, by key. An item may be in the queue once per key."""

    def __init__(self, per_key_max: int, total_max: int) -> None:
        """At most ``per_key_max`` items of one key wait, and ``total_max`` of all keys."""
        assert 0 < per_key_max <= total_max, "a queue has room for one item at least"
        self._per_key_max = per_key_max
        self._total_max = total_max
        self._queues: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        """The items of each key, oldest first; the key whose turn is next comes first."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<FairQueue items={self._length} keys={len(self._queues)}>"

    @property
    def keys_waiting(self) -> int:
        return len(self._queues)

    def waiting(self, key: str) -> int:
        """Return how many items of ``key`` wait."""
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue)

    def put(self, key: str, item: T) -> bool:
        """Add ``item`` behind those of ``key``; False if there is no room, and nothing changed."""
        queue = self._queues.get(key)
        if self._length >= self._total_max:
            return False
        if queue is None:
            queue = self._queues[key] = OrderedDict()
        elif len(queue) >= self._per_key_max:
            return False
        assert item not in queue, "an item waits once"
        queue[item] = None
        self._length += 1
        return True

    def take(self) -> tuple[str, T] | None:
        """Remove the oldest item of the key whose turn it is, and return both; None if empty."""
        if not self._length:
            return None
        key, queue = next(iter(self._queues.items()))
        item, _ = queue.popitem(last=False)
        self._length -= 1
        if queue:
            self._queues.move_to_end(key)
        else:
            del self._queues[key]
        return key, item

    def discard(self, key: str, item: T) -> bool:
        """Remove an item whose caller gave up; return False if it is not in the queue.

        The key keeps its turn if it has others.
        """
        queue = self._queues.get(key)
        if queue is None or item not in queue:
            return False
        del queue[item]
        self._length -= 1
        if not queue:
            del self._queues[key]
        return True
