"""The leader's side of replication: the progress of each follower, and its next entries.

One instance lives for one term of leadership. Entries are sent ahead of their
acknowledgement, in order, within a window; after a refusal or a new connection one message
at a time, until the follower agrees again.

Followers are the members of the configuration that holds, and for a while those it removed.
Only its voters are counted, this replica among them only while it is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nextgen.kernel.limits.cluster import (
    ENTRIES_PER_MESSAGE_MAX,
    ENTRY_BYTES_MAX,
    FOLLOWER_IN_FLIGHT_BYTES_MAX,
    REMOVED_FOLLOWER_MS_MAX,
)
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.membership import encode_configuration, members_of
from nextgen.replication.protocol.messages import CONFIGURATION_FIELD, EXPEDITE_FIELD
from nextgen.replication.protocol.quorum import Number, reached_by_majority

SILENCE_MS_MAX = 600
"""A follower that was silent for this long, four heartbeats, gets no leadership transfer."""


class LeaderLog(Protocol):
    """The part of a journal that a leader needs."""

    @property
    def base_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def durable_index(self) -> int: ...
    def term_of(self, index: int) -> int: ...
    def configuration_at(self, index: int) -> Configuration | None: ...
    def entries(self, from_index: int, to_index: int, bytes_max: int) -> Sequence[JournalEntry]: ...


@dataclass(slots=True)
class FollowerProgress:
    """A leader's knowledge of one follower."""

    node_id: NodeId
    next_index: int
    heard_at: float  # Loop time of its last answer in this term.
    connected: bool = False
    match_index: int = 0  # Durable there and equal to ours.
    read_round: int = 0  # The newest round of reads it has confirmed.
    sent_commit_index: int = 0
    applied_index: int = 0
    view_lag_ms: int = 0
    disk_takes_writes: bool = True
    is_expedited: bool = False  # Commits are sent to it at once.
    probing: bool = True  # One message at a time: its log may differ.
    removed_at: float | None = None  # Since when it is no member any more.
    needs_snapshot: bool = False
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)  # Last index, bytes.
    in_flight_bytes: int = 0

    def sent(self, last_index: int, size: int) -> None:
        self.next_index = last_index + 1
        self.in_flight.append((last_index, size))
        self.in_flight_bytes += size

    def matched(self, index: int) -> None:
        """Note that the follower has everything up to ``index``; never goes back (H1)."""
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        self.probing = False
        self.needs_snapshot = False
        while self.in_flight and self.in_flight[0][0] <= self.match_index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]

    def restart_from(self, index: int) -> None:
        """Send again from ``index``, but never entries that the follower has acknowledged."""
        self.next_index = max(self.match_index + 1, index)
        self.probing = True
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def start_over(self, index: int) -> None:
        """Discard its acknowledgements, and send again from ``index``."""
        self.match_index = 0
        self.restart_from(index)

    def waits_for(self, commit_index: int) -> bool:
        """Return whether the commit of an entry that it has is to be sent to it at once."""
        return (
            self.is_expedited
            and self.connected
            and self.sent_commit_index < min(commit_index, self.next_index - 1)
        )

    @property
    def has_room(self) -> bool:
        if not self.in_flight:
            return True
        return not self.probing and self.in_flight_bytes < FOLLOWER_IN_FLIGHT_BYTES_MAX


class Replicator:
    """Sends entries and heartbeats to the followers and reads their answers."""

    def __init__(
        self,
        log: LeaderLog,
        *,
        term: int,
        node_id: NodeId,
        configuration: Callable[[], Configuration],
        clock: Callable[[], float],
        send: Callable[[NodeId, Message], bool],
        is_connected: Callable[[NodeId], bool],
        start_snapshot: Callable[[NodeId], None],
    ) -> None:
        self._log = log
        self._term = term
        self._node_id = node_id
        self._configuration = configuration
        self._clock = clock
        self._send = send
        self._is_connected = is_connected
        self._start_snapshot = start_snapshot
        self._seen: Configuration | None = None
        self._voters: list[FollowerProgress] = []
        self._counts_itself = False
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.follow_configuration(0)

    def follow_configuration(self, commit_index: int) -> None:
        """Send to the members of the configuration in force.

        A removed member gets entries until it knows that its removal is committed, or is gone, or
        does not answer.
        """
        configuration, now = self._configuration(), self._clock()
        if configuration is not self._seen:
            self._take_over(configuration, now)
        if commit_index < configuration.index:
            return
        for follower in tuple(self.followers.values()):
            if follower.removed_at is None:
                continue
            knows = min(follower.match_index, follower.sent_commit_index) >= configuration.index
            late_ms = (now - follower.removed_at) * 1000
            if knows or not follower.connected or late_ms > REMOVED_FOLLOWER_MS_MAX:
                del self.followers[follower.node_id]

    def _take_over(self, configuration: Configuration, now: float) -> None:
        members = members_of(configuration)
        for node_id in members:
            follower = self.followers.get(node_id)
            # A follower that returns after its removal may have lost its log.
            if node_id != self._node_id and (follower is None or follower.removed_at is not None):
                self.followers[node_id] = FollowerProgress(
                    node_id,
                    self._log.last_index,
                    now,
                    connected=self._is_connected(node_id),
                )
        for node_id, follower in self.followers.items():
            if node_id not in members:
                follower.removed_at = now
        self._voters = [self.followers[v] for v in configuration.voters if v != self._node_id]
        self._counts_itself = self._node_id in configuration.voters
        self._seen = configuration

    @property
    def counts_itself(self) -> bool:
        """Whether this replica's own copy and confirmation count."""
        self._look()
        return self._counts_itself

    @property
    def voters(self) -> Sequence[FollowerProgress]:
        """The other voters."""
        self._look()
        return self._voters

    def _look(self) -> None:
        configuration = self._configuration()
        if configuration is not self._seen:
            self._take_over(configuration, self._clock())

    def connected(self, node_id: NodeId) -> bool:
        """Note that a node is connected; return whether it is a follower."""
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        follower.connected = True
        # A process that lost its disk may lack entries that it acknowledged before its restart.
        follower.needs_snapshot = False
        follower.start_over(self._log.last_index + 1)
        return True

    def disconnected(self, node_id: NodeId) -> None:
        if node_id in self.followers:
            self.followers[node_id].connected = False

    def answered(self, node_id: NodeId, message: Message) -> None:
        """Handle an ``append_answer`` of this term."""
        follower = self.followers[node_id]
        follower.heard_at = self._clock()
        follower.read_round = max(follower.read_round, message["read_round"])
        follower.applied_index = max(follower.applied_index, message["applied_index"])
        follower.view_lag_ms = message["view_lag_ms"]
        follower.disk_takes_writes = message["disk_takes_writes"]
        follower.is_expedited = message.get(EXPEDITE_FIELD, False)
        index = min(message["index"], self._log.last_index + 1)
        if message["success"]:
            follower.matched(min(index, self._log.last_index))
        elif index <= follower.match_index and node_id not in self._configuration().voters:
            # It is another replica by that name: the one that acknowledged more was removed.
            follower.start_over(index)
        elif index <= max(follower.next_index, self._log.base_index + 1):
            # Behind the cut heartbeats begin at the base, so the answer may be beyond
            # ``next_index``: it is the only sign that a message was lost.
            follower.restart_from(index)

    def send_snapshot(self, node_id: NodeId) -> None:
        """Send a snapshot, unless that is under way; entries go on as they did."""
        self._start_snapshot(node_id)

    def send_entries(self, commit_index: int, read_round: int) -> None:
        """Send every follower the entries that it lacks, as far as its window allows.

        A removed one gets committed entries only. With its removal, uncommitted, at the end of its
        log it would refuse the other voters, whose log is shorter, and could not win without this
        replica: if this one is gone for good, nobody leads any more (dissertation, 4.2.2).
        """
        for follower in self.followers.values():
            end = self._log.last_index if follower.removed_at is None else commit_index
            while (
                follower.connected
                and not follower.needs_snapshot
                and follower.next_index <= end
                and follower.has_room
            ):
                self._send_next(follower, end, commit_index, read_round)

    def send_heartbeats(self, commit_index: int, read_round: int) -> None:
        """Send every follower the leader's term, the commit index and the read round."""
        for follower in self.followers.values():
            if follower.connected:
                self._send_heartbeat(follower, commit_index, read_round)

    def any_waits_for(self, commit_index: int) -> bool:
        """Return whether a follower that needs commits at once lacks one up to ``commit_index``."""
        return any(follower.waits_for(commit_index) for follower in self.followers.values())

    def send_commit_expedited(self, commit_index: int, read_round: int) -> None:
        """Send the commit index to the followers that need it at once."""
        for follower in self.followers.values():
            if follower.waits_for(commit_index):
                self._send_heartbeat(follower, commit_index, read_round)

    def majority_durable_index(self) -> int:
        """Return the greatest index that is on disk on a majority."""
        own = min(self._log.durable_index, self._log.last_index)
        return self._reached_by_majority(own, [f.match_index for f in self.voters])

    def majority_heard_at(self) -> float:
        """Return the time since when a majority has been heard."""
        # Times are compared like indexes: a majority was heard at this time or later.
        return self._reached_by_majority(self._clock(), [f.heard_at for f in self.voters])

    def majority_read_round(self, own_round: int) -> int:
        """Return the newest round of reads that a majority has confirmed."""
        return self._reached_by_majority(own_round, [f.read_round for f in self.voters])

    def is_majority_fresh(self, own_lag_ms: float, lag_ms_max: int, silence_s_max: float) -> bool:
        """Return whether a majority is heard and has a view no older than ``lag_ms_max``."""
        now = self._clock()
        fresh = [
            int(f.view_lag_ms <= lag_ms_max and now - f.heard_at < silence_s_max)
            for f in self.voters
        ]
        return self._reached_by_majority(int(own_lag_ms <= lag_ms_max), fresh) == 1

    def best_follower(self) -> NodeId | None:
        """Return the connected voter that has the most of the log; one that is silent, or whose
        disk has no room, only if there is no other, None if none is connected."""
        ready = [f for f in self.voters if f.connected and not f.needs_snapshot]
        if not ready:
            return None
        return max(ready, key=lambda f: (self.is_heard(f.node_id), *_fitness(f))).node_id

    def is_heard(self, node_id: NodeId) -> bool:
        """Return whether a message of the follower arrived within ``SILENCE_MS_MAX``."""
        return (self._clock() - self.followers[node_id].heard_at) * 1000 <= SILENCE_MS_MAX

    def _reached_by_majority(self, own: Number, others: list[Number]) -> Number:
        # The caller has just checked the voters.
        if self._counts_itself:
            others.append(own)
        return reached_by_majority(others)

    def _send_heartbeat(
        self, follower: FollowerProgress, commit_index: int, read_round: int
    ) -> None:
        # A follower that needs a snapshot still needs heartbeats.
        previous = max(follower.next_index - 1, self._log.base_index)
        self._send_append(follower, previous, (), commit_index, read_round)

    def _send_next(
        self, follower: FollowerProgress, end: int, commit_index: int, read_round: int
    ) -> None:
        previous = follower.next_index - 1
        if previous < self._log.base_index:
            follower.needs_snapshot = True
            self.send_snapshot(follower.node_id)
            return
        last = min(end, previous + ENTRIES_PER_MESSAGE_MAX)
        entries = self._log.entries(follower.next_index, last, ENTRY_BYTES_MAX)
        assert entries, f"entry {follower.next_index} is not in the log"
        self._send_append(follower, previous, entries, commit_index, read_round)
        follower.sent(entries[-1].index, sum(len(entry.payload) for entry in entries))

    def _send_append(
        self,
        follower: FollowerProgress,
        previous: int,
        entries: Sequence[JournalEntry],
        commit_index: int,
        read_round: int,
    ) -> None:
        message: Message = {
            "type": "append",
            "term": self._term,
            "previous_index": previous,
            "previous_term": self._log.term_of(previous),
            "commit_index": commit_index,
            "read_round": read_round,
            "entries": [(e.index, e.term, e.first_position, e.events, e.payload) for e in entries],
        }
        # A log that lost its tail, while its view did not, has a hole where a configuration was.
        # One that is silent may have met an old configuration on its way, in which it was a voter,
        # and answers nothing before it learns the voters: see ``term_probe``.
        needs_configuration = follower.probing or not self.is_heard(follower.node_id)
        held = self._log.configuration_at(previous) if needs_configuration else None
        if held is not None:
            message[CONFIGURATION_FIELD] = encode_configuration(held)
        # It believes as much as it has.
        follower.sent_commit_index = min(commit_index, previous + len(entries))
        self._send(follower.node_id, message)


def _fitness(follower: FollowerProgress) -> tuple[bool, int, NodeId]:
    return follower.disk_takes_writes, follower.match_index, follower.node_id
