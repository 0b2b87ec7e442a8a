"""pysyncobj with its dangerous parts taken out: elections and votes are the library's.

What stays: campaigns, votes, counting votes, terms, the leader. Before each campaign the library
is given the nodes whose votes count: the voters of the configuration that holds
(H12); its own membership changes are off. What is replaced, because it loses data or never
ends (hazards H1 to H10 of raft-feasibility.md): its log, its transport, its append handling,
its commit counting, its apply loop, its snapshots and its clock. Those live in the other
packages of ``nextgen.replication``.

The overrides reach name-mangled members, so the library's version is pinned exactly and
``library_check.check_library`` compares every member with what is expected, at start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from nextgen.kernel.routing.hashing import hash64
from nextgen.replication.journal.recovery import UNKNOWN_VOTE
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.entry_codec import NO_RECORDS

_FOLLOWER, _CANDIDATE, _LEADER = 0, 1, 2


class VoteLog(Protocol):
    """The part of a journal that elections need."""

    @property
    def base_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...
    @property
    def hard_state(self) -> tuple[int, str | None]: ...
    def term_of(self, index: int) -> int: ...
    def append(self, term: int, payload: bytes, events: int) -> int: ...
    def set_hard_state(self, term: int, voted_for: str | None) -> None: ...


class ElectionOwner(Protocol):
    """The group's reactions to the library's decisions."""

    def send_when_durable(self, node_id: NodeId, message: Message) -> None:
        """Send once the present term, vote and log are on disk."""
        ...

    def leadership_won(self, first_index: int) -> None:
        """This replica leads; ``first_index`` is the empty entry of its term."""
        ...

    def leadership_lost(self) -> None: ...


class _Peer(Node):  # type: ignore[misc]  # The library carries no types.
    """A member by its id. Its hash is the same in every process, so that a set of members has
    one order and a simulation can be repeated."""

    def __init__(self, node_id: str) -> None:
        super().__init__(node_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Peer) and bool(self.id == other.id)

    def __hash__(self) -> int:
        return hash64(self.id)


class HardenedSyncObj(SyncObj):  # type: ignore[misc]  # The library carries no types.
    """The library's election state of one replica, driven by calls instead of by ticks."""

    def __init__(
        self,
        node_id: NodeId,
        configuration: Callable[[], Configuration],
        log: VoteLog,
        owner: ElectionOwner,
    ) -> None:
        self._node_id = node_id
        self._configuration = configuration
        self._log = log
        self._owner = owner
        self._transfer = False
        self._won = False
        self._voters: set[NodeId] = set()
        library_configuration = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            dynamicMembershipChange=False,
            pollerType="select",
            commandsQueueSize=1,
        )
        super().__init__(_Peer(node_id), (), library_configuration, transportClass=_VoteTransport)
        self._poller = _NoPoller()
        library_log = _LibraryLog(log)
        self._SyncObj__raftLog = library_log
        self._SyncObj__raftCurrentTerm = max(library_log.getCurrentTerm(), log.last_term)
        self._SyncObj__votedForNodeId = library_log.getVotedForNodeId()

    @property
    def term(self) -> int:
        term: int = self._SyncObj__raftCurrentTerm
        return term

    @property
    def leads(self) -> bool:
        return bool(self._SyncObj__raftState == _LEADER)

    @property
    def campaigns(self) -> bool:
        return bool(self._SyncObj__raftState == _CANDIDATE)

    @property
    def leader_id(self) -> NodeId | None:
        leader = self._SyncObj__raftLeader
        return None if leader is None else NodeId(leader.id)

    def is_up_to_date(self, last_log_term: int, last_log_index: int) -> bool:
        """Return whether such a log may lead this one (Raft paper, 5.4.1)."""
        return (last_log_term, last_log_index) >= (self._log.last_term, self._log.last_index)

    def note_connected(self, node_id: NodeId) -> None:
        self._SyncObj__onNodeConnected(_Peer(node_id))

    def note_disconnected(self, node_id: NodeId) -> None:
        self._SyncObj__onNodeDisconnected(_Peer(node_id))

    def campaign(self, *, transfer: bool) -> None:
        """Campaign in the next term. ``transfer``: the leader itself requested it."""
        assert not self.leads, "a leader does not campaign"
        self._transfer = transfer
        self._voters = set()
        voters = set(self._configuration().voters)
        electors = [_Peer(voter) for voter in sorted(voters - {self._node_id})]
        self._SyncObj__otherNodes = set(electors)
        self._SyncObj__raftElectionDeadline = 0
        self._onTick(0.0)
        if self._node_id not in voters and self.campaigns:
            # The library counts itself and as many others as it knows: neither holds here.
            self._SyncObj__votesCount = 0
            self._SyncObj__otherNodes = set(electors[1:])
        self._take_lead_if_won()

    def vote_requested(self, sender: NodeId, message: Message) -> bool:
        """Pass a vote request to the library; return True if it granted this replica's vote."""
        led = self.leads
        before = (self.term, self._SyncObj__votedForNodeId)
        self._SyncObj__onMessageReceived(_Peer(sender), message)
        if led and not self.leads:
            self._owner.leadership_lost()
        after = (self.term, self._SyncObj__votedForNodeId)
        return after != before and after[1] == sender

    def vote_received(self, sender: NodeId, message: Message) -> None:
        """Count a voter's vote once: the library would count a repeated message twice."""
        if not self.campaigns or message["term"] != self.term or sender in self._voters:
            return
        if sender not in self._configuration().voters:
            return
        self._voters.add(sender)
        self._SyncObj__onMessageReceived(_Peer(sender), message)
        self._take_lead_if_won()

    def follow(self, leader_id: NodeId, term: int) -> None:
        """Accept ``leader_id`` as the leader of ``term``, which is at least the present one."""
        assert term >= self.term, f"a leader of term {term} in term {self.term}"
        assert not (self.leads and term == self.term), f"two leaders in term {term}"
        self.step_down(term)
        self._set_leader(_Peer(leader_id))

    def adopt_term(self, term: int) -> None:
        """Move to ``term`` if it is later, with its vote already spent."""
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, UNKNOWN_VOTE)

    def step_down(self, term: int) -> None:
        """Become a follower without a leader in ``term``, if that is later than the present one."""
        led = self.leads
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_FOLLOWER)
        self._set_leader(None)
        if led:
            self._owner.leadership_lost()

    def _set_leader(self, leader: _Peer | None) -> None:
        self._SyncObj__raftLeader = leader

    def send_from_library(self, node_id: NodeId, message: Message) -> None:
        """Send a message of the library once the state in it is durable."""
        if message["type"] == "request_vote":
            message = {**message, "transfer": self._transfer}
        self._owner.send_when_durable(node_id, message)

    def _take_lead_if_won(self) -> None:
        if not self._won:
            return
        self._won = False
        SyncObj._SyncObj__onBecomeLeader(self)
        self._owner.leadership_won(self._log.last_index)

    # Overridden members of the library --------------------------------------------------------

    def _SyncObj__onBecomeLeader(self) -> None:
        # The library goes on to commit in the same tick, counting this replica's own copy
        # before it is durable (H6); so its victory takes effect after its tick.
        self._won = True

    def _SyncObj__generateRaftTimeout(self) -> float:
        # Its own deadline never ends: only a won pre-vote or a transfer starts an election.
        return math.inf

    def _SyncObj__sendAppendEntries(self) -> None:
        """Do nothing: the replicator sends entries."""

    def _SyncObj__applyLogEntries(self) -> bool:
        return False

    def _SyncObj__tryLogCompaction(self) -> None:
        """Do nothing: the journal is cut behind the view."""

    def _checkCommandsToApply(self) -> None:
        """Do nothing: the group commit fills entries."""


class _VoteTransport(Transport):  # type: ignore[misc]  # The library carries no types.
    """Sends the library's messages. Received messages reach it by calls to ``HardenedSyncObj``."""

    def __init__(self, core: HardenedSyncObj, self_node: Any, other_nodes: Any) -> None:
        super().__init__(core, self_node, other_nodes)
        self._core = core

    def send(self, node: Any, message: Message) -> bool:
        self._core.send_from_library(NodeId(node.id), message)
        return True


class _LibraryLog(LibraryJournal):  # type: ignore[misc]  # The library carries no types.
    """The journal in the form that the library expects: a list that begins with the base."""

    def __init__(self, log: VoteLog) -> None:
        self._log = log

    def __len__(self) -> int:
        return self._log.last_index - self._log.base_index + 1

    def __getitem__(self, at: int) -> tuple[bytes, int, int]:
        index = self._log.base_index + at if at >= 0 else self._log.last_index + 1 + at
        return b"", index, self._log.term_of(index)

    def add(self, command: bytes, idx: int, term: int) -> None:
        assert idx == self._log.last_index + 1, f"the library appends {idx} out of order"
        self._log.append(term, NO_RECORDS, 0)

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:
        self._log.set_hard_state(term, voted_for)

    def getCurrentTerm(self) -> int:
        return self._log.hard_state[0]

    def getVotedForNodeId(self) -> str | None:
        term, voted_for = self._log.hard_state
        return voted_for if term >= self._log.last_term else None

    def getRaftCommitIndex(self) -> int:
        return 0

    def setRaftCommitIndex(self, index: int) -> None:
        raise AssertionError("the library commits nothing here")


class _NoPoller:
    def poll(self, timeout_s: float) -> None:
        """Do nothing: the mesh does the I/O."""
