"""Read index: reads that wait together for one confirmation of leadership (Raft thesis, 6.4).

A round is a number that travels with the heartbeats and comes back with the answers. A read
waits for a round that began after it arrived; a majority that answered that round in this
term proves that no later leader existed when the read came.
"""

from __future__ import annotations

import asyncio

from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.kernel.limits.cluster import READ_REQUESTS_MAX
from nextgen.replication.ports import GroupId


class ReadRounds:
    """The reads of one group that wait for their round."""

    def __init__(self, group_id: GroupId) -> None:
        self._group_id = group_id
        self._round = 0  # The newest round that has begun.
        self._confirmed = 0
        self._asking: list[tuple[int, asyncio.Future[int]]] = []  # In the round under way.
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []  # For the next one.

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
        self._round += 1
        self._asking, self._waiting = self._waiting, []
        return True

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
