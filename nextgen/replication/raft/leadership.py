"""One term of leadership: proposals that wait for commit, reads for confirmation, followers."""

from __future__ import annotations

import asyncio

from nextgen.kernel.errors import ProposalLost
from nextgen.replication.ports import Configuration, GroupId, NodeId
from nextgen.replication.raft.group_commit import GroupCommit
from nextgen.replication.raft.read_rounds import ReadRounds
from nextgen.replication.raft.replicator import Replicator


class Leadership:
    """Made when an election is won and thrown away, with everything in it, when it is lost."""

    def __init__(
        self,
        group_id: GroupId,
        *,
        term: int,
        first_index: int,
        replicator: Replicator,
        entries_in_flight_max: int,
    ) -> None:
        self.term = term
        self.first_index = first_index
        """The empty entry of this term: once it is applied this replica may decide."""
        self.replicator = replicator
        self.commits = GroupCommit(group_id, entries_in_flight_max)
        self.reads = ReadRounds(group_id)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group_id = group_id
        self._successor: NodeId | None = None
        self._is_transfer_sent = False
        self._change: tuple[Configuration, asyncio.Future[Configuration]] | None = None

    def await_commit_of(self, configuration: Configuration) -> asyncio.Future[Configuration]:
        """Return a future of ``configuration``, resolved once its entry is committed."""
        future: asyncio.Future[Configuration] = asyncio.get_running_loop().create_future()
        self._change = (configuration, future)
        return future

    def committed(self, index: int) -> None:
        """Note that everything up to entry ``index`` is committed."""
        if self._change is not None and self._change[0].index <= index:
            (configuration, future), self._change = self._change, None
            if not future.done():
                future.set_result(configuration)

    @property
    def is_quiet(self) -> bool:
        """True while nothing waits: no proposal, no read, no change of members, no successor."""
        return (
            self.commits.is_empty
            and self.reads.is_empty
            and self._change is None
            and self._successor is None
        )

    @property
    def confirmed_at(self) -> float:
        """A time at which no later leader existed, as a majority has confirmed since.

        It confirms what was asked BEFORE it: a clock of milliseconds gives the same time to what
        came later.
        """
        return self.reads.began_at(self.replicator.majority_read_round(self.reads.round))

    @property
    def hands_over(self) -> bool:
        """True while a successor catches up: no entry is appended, proposals wait."""
        return self._successor is not None

    def hand_over(self, successor: NodeId) -> None:
        """Stop filling entries until ``successor`` has taken over or ``keep`` is called."""
        self._successor = successor
        self._is_transfer_sent = False

    def keep(self) -> None:
        """Cancel the handover: this replica keeps leading."""
        self._successor = None

    def take_ready_successor(self, last_index: int, commit_index: int) -> NodeId | None:
        """Return the successor, once, when it has every entry and every entry is committed."""
        if self._successor is None or self._is_transfer_sent or commit_index < last_index:
            return None
        follower = self.replicator.followers.get(self._successor)
        if follower is None or follower.match_index < last_index:
            return None
        self._is_transfer_sent = True
        return self._successor

    def end(self, why: str, leader_hint: str | None) -> None:
        """Fail everything that waits."""
        self.commits.fail(why)
        self.reads.fail(leader_hint)
        if self._change is not None and not self._change[1].done():
            self._change[1].set_exception(ProposalLost(f"group {self._group_id}: {why}"))
        if not self.ended.done():
            self.ended.set_result(None)
