"""The messages that arrived at consumers: lost, duplicated, redelivered, out of order.

A message is *lost* if its send was acknowledged and it never arrived. It is *duplicated* if

- it was stored twice: it arrives under a second message id, for any reason; or
- it arrives again although its acknowledgement was complete: its consumer was not interrupted
before the second arrival, or only later than ``ACK_SETTLED_MS`` after the acknowledgement.

A message that arrives again because its broker was killed, or its topic moved, before that is
*redelivered*: that is what at-least-once means. The client cannot avoid it: it groups
acknowledgements, requests no receipts, and acknowledges messages that it still has of a broker that
is gone. Such an interruption excuses one arrival of a message. A message is *out of order* if it
arrives, for the first time, behind a later one of its producer and partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.harness.load.pulsar.message_stamp import numbers_in

ACK_SETTLED_MS = 1_000
"""The client groups acknowledgements for 100 ms, and the broker stores them with its next fsync.
The remaining time allows for a busy machine."""

RECONNECT_MS = 5_000
"""Time after a broker's death in which a consumer may still acknowledge messages of that broker."""

EXAMPLES_MAX = 10

MessageId = tuple[int, int, int, int]
"""Ledger, entry, partition, place in the batch."""

Interruption = tuple[float, float]
"""The time in which brokers were killed or topics moved, in seconds of the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Again:
    """One arrival that was not the first of its message, under the same id."""

    lane: int
    number: int
    acknowledged_at_s: float
    arrived_at_s: float

    def excuses(self, interruptions: Sequence[Interruption]) -> set[Interruption]:
        """Return the interruptions that may have lost the acknowledgement."""
        earliest_s = self.acknowledged_at_s - RECONNECT_MS / 1000
        latest_s = min(self.acknowledged_at_s + ACK_SETTLED_MS / 1000, self.arrived_at_s)
        return {
            (begin, end) for begin, end in interruptions if begin <= latest_s and end >= earliest_s
        }


@dataclass(slots=True)
class DeliveryRecord:
    """All lanes' arrivals. Not safe for several threads."""

    arrived: int = 0
    out_of_order: int = 0
    stored_twice: int = 0
    unknown: int = 0
    examples: list[str] = field(default_factory=list)
    again: list[Again] = field(default_factory=list)
    _seen: dict[int, dict[int, tuple[MessageId, float]]] = field(default_factory=dict)
    _last: dict[tuple[int, int], int] = field(default_factory=dict)

    def arrive(self, lane: int, number: int, message_id: MessageId, now_s: float) -> None:
        """Record an arrival, in the order of its consumer. ``now_s`` is the time of its
        acknowledgement."""
        seen = self._seen.setdefault(lane, {})
        before = seen.get(number)
        if before is not None:
            self._arrived_again(lane, number, message_id, before, now_s)
            return
        seen[number] = (message_id, now_s)
        self.arrived += 1
        place = (lane, message_id[2])
        last = self._last.get(place, -1)
        if number < last:
            self.out_of_order += 1
            self._example(f"lane {lane}: {number} came behind {last} in partition {message_id[2]}")
        else:
            self._last[place] = number

    def arrive_unknown(self, reason: str) -> None:
        """Count a message that no producer of this run sent."""
        self.unknown += 1
        self._example(reason)

    def missing(self, acknowledged: Mapping[int, Sequence[Sequence[int]]]) -> list[tuple[int, int]]:
        """Return (lane, number) of each acknowledged message that did not arrive; ``ranges`` are by
        lane."""
        return [
            (lane, number)
            for lane, ranges in acknowledged.items()
            for number in numbers_in(ranges)
            if number not in self._seen.get(lane, {})
        ]

    def ids_other_than(self, sources: DeliveryRecord) -> int:
        """Return how many messages arrived here, at shadows, under another id than at
        ``sources``."""
        return sum(
            arrived[0] != at_source[number][0]
            for lane, seen in self._seen.items()
            if (at_source := sources._seen.get(lane, {}))
            for number, arrived in seen.items()
            if number in at_source
        )

    def duplicated(self, interruptions: Sequence[Interruption]) -> list[str]:
        """Return a sentence for each arrival without an excuse."""
        used: dict[tuple[int, int], set[Interruption]] = defaultdict(set)
        sentences = []
        for one in self.again:
            before = used[one.lane, one.number]
            excuses = one.excuses(interruptions) - before
            if excuses:
                before.add(min(excuses))
                continue
            later_s = one.arrived_at_s - one.acknowledged_at_s
            sentences.append(
                f"lane {one.lane}: {one.number} came again {later_s:.2f} s after its ack"
            )
        return sentences

    def _arrived_again(
        self,
        lane: int,
        number: int,
        message_id: MessageId,
        before: tuple[MessageId, float],
        now_s: float,
    ) -> None:
        first_id, acknowledged_at_s = before
        if message_id != first_id:
            self.stored_twice += 1
            self._example(f"lane {lane}: {number} is stored as {first_id} and as {message_id}")
        else:
            self.again.append(Again(lane, number, acknowledged_at_s, now_s))
            # The second acknowledgement is the one that a third arrival would have to respect.
            self._seen[lane][number] = (message_id, now_s)

    def _example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)
