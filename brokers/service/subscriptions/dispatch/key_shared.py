"""Key_Shared: the entries of a key go to one consumer, in order.

Keys are represented by their slots. An entry goes to the owner of its slot. If an earlier entry of
the slot waits, or is unacknowledged at the slot's former owner, the entry waits too, until the slot
is drained. Reading skips waiting entries, so that other keys continue.

With entry buckets (PIP-486) the number of an entry's bucket takes the place of its slot, so a
bucket that moves is drained in the same way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.cursor import Cursor
from brokers.domain.subscriptions.entry_buckets import EntryBuckets
from brokers.domain.subscriptions.key_hash import key_slot
from brokers.domain.subscriptions.key_ranges import KeyRanges, SplitRanges, StickyRanges
from brokers.ports.ledger import Entry
from brokers.service.entry_metadata import (
    bucket_hash_of,
    deliver_at_ms_of,
    metadata_of,
    sticky_key_of,
)
from brokers.service.subscriptions.consumer import Consumer, KeySharedRequest
from brokers.service.subscriptions.dispatch.individual import IndividualDispatcher
from brokers.service.subscriptions.reader import EntrySource
from protos.pulsar.PulsarApi_pb2 import MessageMetadata

_AUTO_SPLIT = KeySharedRequest()
_SORTED_WORTH = 16
"""Sorting a whole list costs as much as inserting this part of it one by one."""


class KeySharedDispatcher(IndividualDispatcher):
    """Adds, for each slot, the consumer that has unacknowledged entries of it, and its waiting
    entries."""

    def __init__(self, cursor: Cursor, source: EntrySource, now_ms: Callable[[], int]) -> None:
        super().__init__(cursor, source, now_ms)
        self._ranges: KeyRanges[Consumer] = SplitRanges()
        self._buckets: EntryBuckets[Consumer] | None = None
        """``_ranges`` again, if they are entry buckets."""
        self._policy = _AUTO_SPLIT
        # Slot of every entry that is unacknowledged, waiting or delayed.
        self._slots: dict[Position, int] = {}
        # Slot → the consumer with unacknowledged entries of it, and their number.
        self._holders: dict[int, Consumer] = {}
        self._held: dict[int, int] = {}
        # Slot → waiting entries in order; and by consumer, the slots of which it can be sent some.
        self._waiting: dict[int, list[Position]] = {}
        self._waiting_entries = 0
        self._servable: dict[Consumer, dict[int, None]] = {}
        self._is_indexed = True
        """Whether ``_servable`` is as of the present consumers."""

    def _joining(self, consumer: Consumer) -> None:
        policy = consumer.request.key_shared or _AUTO_SPLIT
        if not self.consumers:
            self._begin(policy)
        elif _kind_of(policy) != _kind_of(self._policy):
            raise Refusal(
                ServerError.CONSUMER_ASSIGN, "other consumers have another key shared policy"
            )
        self._ranges.add(consumer, consumer.name, policy.ranges)
        if self._buckets is not None:
            # A thousand consumers state the same thousand buckets: keep one list.
            consumer.request = replace(consumer.request, key_shared=self._policy)

    def _begin(self, policy: KeySharedRequest) -> None:
        """Use the policy of the first consumer."""
        buckets = EntryBuckets[Consumer](policy.ranges) if policy.uses_entry_buckets else None
        self._policy = policy
        self._buckets = buckets
        self._ranges = buckets or (StickyRanges() if policy.is_sticky else SplitRanges())

    def _leaving(self, consumer: Consumer) -> None:
        self._ranges.remove(consumer)

    def _members_changed(self) -> None:
        # Not here: a connection that closes may take a thousand consumers with it at once.
        self._is_indexed = False

    def _settled(self, consumer: Consumer, position: Position) -> None:
        slot = self._slots.get(position)
        if slot is None or self._policy.is_out_of_order_allowed:
            return
        held = self._held[slot] - 1
        if held:
            self._held[slot] = held
            return
        del self._held[slot], self._holders[slot]
        if slot in self._waiting:
            self._index(slot)

    def _withdraw(self, position: Position) -> None:
        slot = self._slots.pop(position, None)
        positions = self._waiting.get(slot) if slot is not None else None
        if slot is None or positions is None:
            return
        index = bisect_left(positions, position)
        if index < len(positions) and positions[index] == position:
            self._remove_waiting(slot, positions, index)

    def _waiting_up_to(self, up_to: Position) -> list[Position]:
        return [position for position in self._slots if position <= up_to]

    def _put_back(self, positions: Iterable[Position]) -> None:
        by_slot: dict[int, list[Position]] = {}
        for position in positions:
            by_slot.setdefault(self._slots[position], []).append(position)
        for slot, fresh in by_slot.items():
            waiting = self._waiting.setdefault(slot, [])
            if len(fresh) * _SORTED_WORTH < len(waiting):
                for position in fresh:
                    insort(waiting, position)
            else:
                waiting += fresh
                waiting.sort()
            self._waiting_entries += len(fresh)
            self._index(slot)

    def _rewound(self) -> None:
        self._slots.clear()
        self._holders.clear()
        self._held.clear()
        self._waiting.clear()
        self._waiting_entries = 0
        self._members_changed()

    def _send_waiting(self) -> bool:
        if not self._waiting_entries:
            return True
        candidates = self._candidates()
        for index, (position, slot) in enumerate(candidates):
            if self._is_turn_over:
                return True
            consumer = self._target(slot)
            if consumer is None or not consumer.is_ready:
                continue
            length = 1
            while index + length < len(candidates) and candidates[index + length][0] == (
                position[0],
                position[1] + length,
            ):
                length += 1
            entry, is_known = self._find(position, length)
            if not is_known:
                return False
            positions = self._waiting[slot]
            assert positions[0] == position, "a slot's entries leave in order"
            self._remove_waiting(slot, positions, 0)
            if entry is None:
                # Retention dropped the entry, as it does only if no cursor needs it.
                del self._slots[position]
            else:
                self._send(entry, slot, consumer)
        return True

    def _candidates(self) -> list[tuple[Position, int]]:
        """Return waiting entries for ready consumers, as many as they can take, in order."""
        if not self._is_indexed:
            self._index_all()
        candidates: list[tuple[Position, int]] = []
        for consumer in self.consumers:
            if not consumer.is_ready:
                continue
            room = min(consumer.permits, self._entries_left)
            for slot in islice(self._servable[consumer], room):
                taken = self._waiting[slot][:room]
                candidates.extend((position, slot) for position in taken)
                room -= len(taken)
                if room <= 0:
                    break
        candidates.sort()
        return candidates

    @property
    def _waiting_count(self) -> int:
        return self._waiting_entries

    def _send_one(self, entry: Entry, now_ms: int) -> bool:
        position = entry.position
        metadata = metadata_of(entry)
        slot = self._slot_of(metadata)
        deliver_at_ms = deliver_at_ms_of(metadata)
        if deliver_at_ms > now_ms:
            self._slots[position] = slot
            self._delayed.add(position, deliver_at_ms)
            self._passed(position)
            return True
        consumer = None if slot in self._waiting else self._target(slot)
        if consumer is not None and consumer.is_ready:
            self._send(entry, slot, consumer)
        elif any(each.is_ready for each in self.consumers):
            self._wait(slot, position)
        else:
            return False
        self._passed(position)
        return True

    def _slot_of(self, metadata: MessageMetadata | None) -> int:
        if self._buckets is not None:
            return self._buckets.bucket_of(bucket_hash_of(metadata))
        return key_slot(sticky_key_of(metadata))

    def _target(self, slot: int) -> Consumer | None:
        """Return the consumer that may be sent the next entry of a slot, None if none may."""
        owner = self._ranges.owner(slot)
        holder = self._holders.get(slot)
        return owner if holder is None or holder is owner else None

    def _send(self, entry: Entry, slot: int, consumer: Consumer) -> None:
        self._slots[entry.position] = slot
        if not self._policy.is_out_of_order_allowed:
            self._holders[slot] = consumer
            self._held[slot] = self._held.get(slot, 0) + 1
        self._hand(entry, consumer)

    def _wait(self, slot: int, position: Position) -> None:
        self._slots[position] = slot
        insort(self._waiting.setdefault(slot, []), position)
        self._waiting_entries += 1
        self._index(slot)

    def _index_all(self) -> None:
        self._is_indexed = True
        self._servable = {consumer: {} for consumer in self.consumers}
        for slot in self._waiting:
            self._index(slot)

    def _index(self, slot: int) -> None:
        if not self._is_indexed:
            return
        target = self._target(slot)
        if target is not None:
            self._servable[target][slot] = None

    def _remove_waiting(self, slot: int, positions: list[Position], index: int) -> None:
        del positions[index]
        self._waiting_entries -= 1
        if not positions:
            del self._waiting[slot]
            for slots in self._servable.values():
                slots.pop(slot, None)


def _kind_of(policy: KeySharedRequest) -> tuple[bool, bool, bool]:
    """Return the part of a policy that all consumers must have in common."""
    return (policy.is_sticky, policy.uses_entry_buckets, policy.is_out_of_order_allowed)
