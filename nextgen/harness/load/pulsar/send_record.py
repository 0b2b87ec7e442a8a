"""The sends of one producer: when each was sent, and when it was acknowledged.

Times are seconds of the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

from array import array
from itertools import pairwise

from nextgen.harness.load.pulsar.message_stamp import ranges_of

NEVER = 0.0


class SendRecord:
    """One lane's sends, by number. A send is acknowledged, failed, or in flight.

    ``sent`` is called on one thread and ``acknowledged`` and ``failed`` on another.
    """

    def __init__(self) -> None:
        self._sent_at = array("d")
        self._acknowledged_at = array("d")
        self.acknowledged_count = 0
        self.failed_count = 0
        self.first_failure = ""

    @property
    def count(self) -> int:
        return len(self._sent_at)

    @property
    def in_flight(self) -> int:
        return len(self._sent_at) - self.acknowledged_count - self.failed_count

    def sent(self, now_s: float) -> int:
        """Record a send before it is made, and return its number."""
        self._acknowledged_at.append(NEVER)
        self._sent_at.append(now_s)
        return len(self._sent_at) - 1

    def acknowledged(self, number: int, now_s: float) -> None:
        self._acknowledged_at[number] = now_s
        self.acknowledged_count += 1

    def failed(self, reason: str) -> None:
        """Record that the client gave a send up: it may be stored or not."""
        self.failed_count += 1
        self.first_failure = self.first_failure or reason

    def acknowledged_ranges(self) -> list[list[int]]:
        """Return the numbers of acknowledged sends."""
        times = enumerate(self._acknowledged_at)
        return ranges_of(number for number, at in times if at != NEVER)

    def in_flight_at(self, moment_s: float) -> int:
        """Return how many sends were in flight at a past moment."""
        return sum(
            sent_at <= moment_s and (at == NEVER or at > moment_s)
            for sent_at, at in zip(self._sent_at, self._acknowledged_at, strict=True)
        )

    def gap_ms(self, from_s: float, until_s: float) -> float:
        """Return the longest time between two acknowledgements that overlaps the period, in
        milliseconds.

        It is infinite without an acknowledgement before and after the period.
        """
        times = sorted(at for at in self._acknowledged_at if at != NEVER)
        if not times or times[-1] < until_s or times[0] > from_s:
            return float("inf")
        gaps = (b - a for a, b in pairwise(times) if b >= from_s and a <= until_s)
        return max(gaps, default=0.0) * 1000

    def longest_wait_ms(self) -> float:
        """Return the longest time without an acknowledgement, in milliseconds.

        It is between two acknowledgements, or between a send and its own, because messages of other
        partitions may be acknowledged in between.
        """
        times = sorted(at for at in self._acknowledged_at if at != NEVER)
        between = max((b - a for a, b in pairwise(times)), default=0.0)
        pairs = zip(self._sent_at, self._acknowledged_at, strict=True)
        waits = max((at - sent_at for sent_at, at in pairs if at != NEVER), default=0.0)
        return max(between, waits) * 1000
