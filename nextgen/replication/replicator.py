"""The leader's side of replication: what each follower has, and what to send it next.

One instance lives for one term of leadership. Entries are sent ahead of their
acknowledgement, in order, within a window; after a refusal or a new connection one message
at a time, until the follower agrees again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nextgen.kernel.limits import (
    ENTRIES_PER_MESSAGE_MAX,
    ENTRY_BYTES_MAX,
    FOLLOWER_IN_FLIGHT_BYTES_MAX,
)
from nextgen.replication.journal import JournalEntry
from nextgen.replication.mesh_frames import Message
from nextgen.replication.ports import NodeId
from nextgen.replication.quorum import reached_by_majority


class LeaderLog(Protocol):
    """What a leader needs of its journal."""

    @property
    def base_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def durable_index(self) -> int: ...
    def term_of(self, index: int) -> int: ...
    def entries(self, from_index: int, to_index: int, bytes_max: int) -> Sequence[JournalEntry]: ...


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of one follower."""

    node_id: NodeId
    next_index: int
    heard_at: float  # Loop time of its last answer in this term.
    connected: bool = False
    match_index: int = 0  # Durable there and equal to ours.
    read_round: int = 0  # The newest round of reads it has confirmed.
    told_commit_index: int = 0
    applied_index: int = 0
    view_lag_ms: int = 0
    disk_takes_writes: bool = True
    probing: bool = True  # One message at a time: its log may differ.
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
        """Send again from ``index``, but never what it has acknowledged."""
        self.next_index = max(self.match_index + 1, index)
        self.probing = True
        self.in_flight.clear()
        self.in_flight_bytes = 0

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
        followers: Iterable[NodeId],
        clock: Callable[[], float],
        send: Callable[[NodeId, Message], bool],
        is_connected: Callable[[NodeId], bool],
        start_snapshot: Callable[[NodeId], None],
    ) -> None:
        self._log = log
        self._term = term
        self._clock = clock
        self._send = send
        self._start_snapshot = start_snapshot
        now = clock()
        self.followers = {
            node_id: FollowerProgress(node_id, log.last_index, now, connected=is_connected(node_id))
            for node_id in followers
        }

    def connected(self, node_id: NodeId) -> None:
        follower = self.followers[node_id]
        follower.connected = True
        # A process that lost its disk may be behind what it acknowledged before it restarted.
        follower.match_index = 0
        follower.needs_snapshot = False
        follower.restart_from(self._log.last_index + 1)

    def disconnected(self, node_id: NodeId) -> None:
        self.followers[node_id].connected = False

    def answered(self, node_id: NodeId, message: Message) -> None:
        """Take in an ``append_answer`` of this term."""
        follower = self.followers[node_id]
        follower.heard_at = self._clock()
        follower.read_round = max(follower.read_round, message["read_round"])
        follower.applied_index = max(follower.applied_index, message["applied_index"])
        follower.view_lag_ms = message["view_lag_ms"]
        follower.disk_takes_writes = message["disk_takes_writes"]
        index = min(message["index"], self._log.last_index + 1)
        if message["success"]:
            follower.matched(min(index, self._log.last_index))
        elif index <= follower.next_index:
            follower.restart_from(index)

    def send_entries(self, commit_index: int, read_round: int) -> None:
        """Send every follower what it lacks, as far as its window allows."""
        for follower in self.followers.values():
            while (
                follower.connected
                and not follower.needs_snapshot
                and follower.next_index <= self._log.last_index
                and follower.has_room
            ):
                self._send_next(follower, commit_index, read_round)

    def send_heartbeats(self, commit_index: int, read_round: int) -> None:
        """Tell every follower who leads, what is committed and which reads wait."""
        for follower in self.followers.values():
            if follower.connected:
                self._send_heartbeat(follower, commit_index, read_round)

    def send_commit(self, commit_index: int, read_round: int) -> None:
        """Tell the commit index to those who have not heard it yet."""
        for follower in self.followers.values():
            if follower.connected and follower.told_commit_index < commit_index:
                self._send_heartbeat(follower, commit_index, read_round)

    def majority_durable_index(self) -> int:
        """Return the greatest index that is on disk on a majority, this replica included."""
        own = min(self._log.durable_index, self._log.last_index)
        return reached_by_majority([own, *(f.match_index for f in self.followers.values())])

    def majority_heard_at(self) -> float:
        """Return the time since when a majority, this replica included, has been heard."""
        now = self._clock()
        heard = [now, *(f.heard_at for f in self.followers.values())]
        # Times are compared like indexes: a majority has been heard at this time or later.
        return sorted(heard, reverse=True)[len(heard) // 2]

    def majority_read_round(self, own_round: int) -> int:
        """Return the newest round of reads that a majority has confirmed."""
        return reached_by_majority([own_round, *(f.read_round for f in self.followers.values())])

    def fresh_views(self, lag_ms_max: int, *, silence_s_max: float) -> int:
        """Return how many followers are heard and report a view no older than ``lag_ms_max``."""
        now = self._clock()
        return sum(
            f.view_lag_ms <= lag_ms_max and now - f.heard_at < silence_s_max
            for f in self.followers.values()
        )

    def best_follower(self) -> NodeId | None:
        """Return the connected follower with room on its disk that has the most of the log; one
        without room only if there is no other, None if none is connected."""
        ready = [f for f in self.followers.values() if f.connected and not f.needs_snapshot]
        if not ready:
            return None
        return max(ready, key=_fitness).node_id

    def _send_heartbeat(
        self, follower: FollowerProgress, commit_index: int, read_round: int
    ) -> None:
        # One that must be copied anew still has to hear that its leader lives.
        previous = max(follower.next_index - 1, self._log.base_index)
        follower.told_commit_index = commit_index
        self._send(follower.node_id, self._append(previous, (), commit_index, read_round))

    def _send_next(self, follower: FollowerProgress, commit_index: int, read_round: int) -> None:
        previous = follower.next_index - 1
        if previous < self._log.base_index:
            follower.needs_snapshot = True
            self._start_snapshot(follower.node_id)
            return
        last = min(self._log.last_index, previous + ENTRIES_PER_MESSAGE_MAX)
        entries = self._log.entries(follower.next_index, last, ENTRY_BYTES_MAX)
        assert entries, f"entry {follower.next_index} is not in the log"
        follower.told_commit_index = commit_index
        self._send(follower.node_id, self._append(previous, entries, commit_index, read_round))
        follower.sent(entries[-1].index, sum(len(entry.payload) for entry in entries))

    def _append(
        self,
        previous: int,
        entries: Sequence[JournalEntry],
        commit_index: int,
        read_round: int,
    ) -> Message:
        return {
            "type": "append",
            "term": self._term,
            "previous_index": previous,
            "previous_term": self._log.term_of(previous),
            "commit_index": commit_index,
            "read_round": read_round,
            "entries": [(e.index, e.term, e.first_position, e.events, e.payload) for e in entries],
        }


def _fitness(follower: FollowerProgress) -> tuple[bool, int, NodeId]:
    return follower.disk_takes_writes, follower.match_index, follower.node_id
