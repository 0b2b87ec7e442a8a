"""Shared: consumers get entries in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile

from brokers.domain.position import Position
from brokers.domain.subscriptions.cursor import Cursor
from brokers.domain.subscriptions.redelivery import ReplayQueue
from brokers.domain.subscriptions.round_robin import RoundRobin
from brokers.ports.ledger import Entry
from brokers.service.entry_metadata import (
    chunk_owner_key_of,
    deliver_at_ms_of,
    is_last_chunk,
    metadata_of,
)
from brokers.service.subscriptions.consumer import Consumer
from brokers.service.subscriptions.dispatch.individual import IndividualDispatcher
from brokers.service.subscriptions.reader import EntrySource
from nextgen.kernel.limits.pulsar import CHUNK_OWNERS_MAX
from protos.pulsar.PulsarApi_pb2 import MessageMetadata


class SharedDispatcher(IndividualDispatcher):
    """Dispatches in turn. All chunks of a message go to one consumer, which has to join them."""

    def __init__(self, cursor: Cursor, source: EntrySource, now_ms: Callable[[], int]) -> None:
        super().__init__(cursor, source, now_ms)
        self._turns: RoundRobin[Consumer] = RoundRobin()
        self._replay = ReplayQueue()
        self._chunk_owners: dict[str, Consumer] = {}

    def _joining(self, consumer: Consumer) -> None:
        pass

    def _leaving(self, consumer: Consumer) -> None:
        self._chunk_owners = {
            key: owner for key, owner in self._chunk_owners.items() if owner is not consumer
        }

    def _members_changed(self) -> None:
        self._turns.set_members(self.consumers)

    def _settled(self, consumer: Consumer, position: Position) -> None:
        pass

    def _withdraw(self, position: Position) -> None:
        self._replay.discard(position)

    def _waiting_up_to(self, up_to: Position) -> list[Position]:
        return list(takewhile(lambda position: position <= up_to, self._replay.ascending()))

    def _put_back(self, positions: Iterable[Position]) -> None:
        self._replay.add(positions)

    def _rewound(self) -> None:
        self._replay.clear()
        self._chunk_owners.clear()

    def _send_waiting(self) -> bool:
        for position in self._replay.ascending():
            if self._is_turn_over:
                return True
            length = self._replay.run_length(position, self._entries_left)
            entry, is_known = self._find(position, length)
            if not is_known:
                return False
            if entry is None:
                # Retention dropped the entry, as it does only if no cursor needs it.
                self._replay.discard(position)
                continue
            consumer, is_somebody_ready = self._consumer_for(metadata_of(entry))
            if consumer is not None:
                self._replay.discard(position)
                self._hand(entry, consumer)
            elif not is_somebody_ready:
                return False
        return True

    @property
    def _waiting_count(self) -> int:
        return len(self._replay)

    def _send_one(self, entry: Entry, now_ms: int) -> bool:
        position = entry.position
        metadata = metadata_of(entry)
        deliver_at_ms = deliver_at_ms_of(metadata)
        if deliver_at_ms > now_ms:
            self._delayed.add(position, deliver_at_ms)
            self._passed(position)
            return True
        consumer, is_somebody_ready = self._consumer_for(metadata)
        if consumer is not None:
            self._hand(entry, consumer)
        elif is_somebody_ready:
            self._replay.add((position,))
        else:
            return False
        self._passed(position)
        return True

    def _consumer_for(self, metadata: MessageMetadata | None) -> tuple[Consumer | None, bool]:
        """Return the consumer for an entry, and whether any consumer could get another one."""
        key = chunk_owner_key_of(metadata)
        owner = self._chunk_owners.get(key) if key else None
        if owner is not None and not owner.is_ready:
            return None, any(consumer.is_ready for consumer in self.consumers)
        consumer = owner or self._turns.next()
        if key and metadata is not None and consumer is not None:
            if is_last_chunk(metadata):
                self._chunk_owners.pop(key, None)
            elif len(self._chunk_owners) < CHUNK_OWNERS_MAX:
                self._chunk_owners[key] = consumer
        return consumer, consumer is not None
