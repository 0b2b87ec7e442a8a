"""Read index: reads that wait together for one confirmation of leadership (Raft thesis, 6.4).

A round is a number that travels with the heartbeats and comes back with the answers. A read
waits for a round that began after it arrived; a majority that answered that round in this
term proves that no later leader existed when the read came. Each heartbeat begins a round too: what
was asked a while ago needs no round of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque

from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.kernel.limits.cluster import READ_REQUESTS_MAX
from nextgen.replication.ports import GroupId

_BEGINNINGS_MAX = 16
"""Rounds whose beginning is remembered: two seconds of heartbeats. Answers take far less."""


class ReadRounds:
    """The reads of one group that wait for their round."""

    def __init__(self, group_id: GroupId) -> None:
        self._group_id = group_id
        self._round = 0  # The newest round that has begun.
        self._asking: list[tuple[int, asyncio.Future[int]]] = []  # In the round under way.
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []  # For the next one.
        self._beginnings: deque[tuple[int, float]] = deque(maxlen=_BEGINNINGS_MAX)
        self._clock = asyncio.get_running_loop().time

    @property
    def round(self) -> int:
        return self._round

    @property
    def is_empty(self) -> bool:
        """True when no read waits."""
        return not self._asking and not self._waiting

    def ask(self, commit_index: int) -> asyncio.Future[int]:
        """Return a future of ``commit_index``, resolved once leadership is confirmed.

        Raises:
            Overloaded: Too many reads wait already.
        """
        if len(self._asking) + len(self._waiting) >= READ_REQUESTS_MAX:
            raise Overloaded(f"group {self._group_id}: too many reads wait for confirmation")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((commit_index, future))
        return future

    def begin(self) -> bool:
        """Begin a round for the reads that wait, if none is under way; True if one began."""
        if self._asking or not self._waiting:
            return False
        self._begin()
        return True

    def begin_with_heartbeat(self) -> None:
        """Begin a round, for reads or without any, if none is under way. Its heartbeats follow."""
        if not self._asking:
            self._begin()

    def began_at(self, majority_round: int) -> float:
        """Return when the newest round that a majority has answered began, by the loop's clock.

        Minus infinity if that was too long ago.
        """
        for number, at in reversed(self._beginnings):
            if number <= majority_round:
                return at
        return float("-inf")

    def confirm(self, majority_round: int) -> None:
        """Answer the reads of the round under way if a majority has answered it."""
        if majority_round < self._round or not self._asking:
            return
        asking, self._asking = self._asking, []
        for commit_index, future in asking:
            if not future.done():
                future.set_result(commit_index)

    def fail(self, leader_hint: str | None) -> None:
        """Fail every read: leadership could not be confirmed."""
        reads = [*self._asking, *self._waiting]
        self._asking, self._waiting = [], []
        for _, future in reads:
            if not future.done():
                future.set_exception(NotLeader(self._group_id, leader_hint))

    def _begin(self) -> None:
        self._round += 1
        self._beginnings.append((self._round, self._clock()))
        self._asking, self._waiting = self._waiting, []
