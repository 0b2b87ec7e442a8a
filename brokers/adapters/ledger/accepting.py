"""Checks of new entries and facts, and the sequence ids of producers, for every kind of ledger."""

from __future__ import annotations

from collections.abc import Callable

from brokers.ports.ledger import NewEntry
from nextgen.kernel.limits import pulsar as pulsar_limits

_MESSAGES_MAX = 2**32 - 1
_SEQUENCE_ID_MAX = 2**63 - 1


def check_entry(entry: NewEntry) -> bytes:
    """Refuse an entry that the record format cannot store; return the producer's name in UTF-8.

    Raises:
        ValueError: See ``TopicLedger.append``.
    """
    if len(entry.payload) > pulsar_limits.LEDGER_ENTRY_BYTES_MAX:
        raise ValueError(f"the payload has {len(entry.payload)} bytes")
    if not 0 <= entry.message_count <= _MESSAGES_MAX:
        raise ValueError(f"{entry.message_count} is no message count")
    if not -1 <= entry.sequence_id <= _SEQUENCE_ID_MAX:
        raise ValueError(f"{entry.sequence_id} is no sequence id")
    name = entry.producer_name.encode()
    if len(name) > pulsar_limits.PRODUCER_NAME_BYTES_MAX:
        raise ValueError("the producer's name is too long")
    return name


def check_state(key: str, value: bytes | None) -> None:
    """Refuse a fact that is too large.

    Raises:
        ValueError: The key or the value is too long.
    """
    if len(key.encode()) > pulsar_limits.LEDGER_STATE_KEY_BYTES_MAX:
        raise ValueError("the key of a fact is too long")
    if value is not None and len(value) > pulsar_limits.LEDGER_STATE_VALUE_BYTES_MAX:
        raise ValueError(f"the fact {key} has {len(value)} bytes")


def remember(producers: dict[str, int], name: str, sequence_id: int) -> None:
    """Raise the producer's sequence id. The dictionary is ordered by producers' last entries."""
    before = producers.pop(name, -1)
    producers[name] = max(before, sequence_id)
    if len(producers) > pulsar_limits.PRODUCERS_REMEMBERED_MAX:
        del producers[next(iter(producers))]


class Listeners:
    """Listeners of one occurrence, called in the order in which they subscribed."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def add(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Add one; return a function that removes it, which may be called twice."""
        entry = listener

        def remove() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        self._listeners.append(entry)
        return remove

    def call(self) -> None:
        """Call all present listeners."""
        for listener in tuple(self._listeners):
            listener()

    def clear(self) -> None:
        self._listeners.clear()
