"""What a node is doing at a moment: the columns of the coverage table."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import NodeId, Role
from nextgen.replication.raft.replica import RaftReplica
from tests.support.simulated.node import SimNode

BEHIND_ENTRIES = 20
"""A follower that lacks more than this is behind."""

TRANSFER_MS = 50.0
"""A snapshot is under way while its last chunk is no older."""


class State(StrEnum):
    LEADER_BUSY = "leader, entries in flight"
    LEADER_IDLE = "leader, idle"
    CANDIDATE = "candidate"
    FOLLOWER = "follower, in sync"
    BEHIND = "follower, behind"
    RECEIVING = "receiving snapshot"
    SENDING = "sending snapshot"
    UNVERIFIED = "in doubt"  # Values order the states, and what a seed does depends on that.
    LEARNER = "learner"
    RECOVERING = "recovering"
    CHANGING = "changing members"
    FROZEN = "frozen"
    DOWN = "down"


class SnapshotWatch:
    """Sender and receiver of each snapshot transfer, by the chunks that arrive."""

    def __init__(self) -> None:
        self._chunk_at: dict[tuple[NodeId, NodeId], float] = {}
        self._newest_at = float("-inf")

    def arrived(self, sender: NodeId, target: NodeId, message: Message, now: float) -> None:
        if message["type"] == "snapshot_chunk":
            self._chunk_at[sender, target] = self._newest_at = now
        elif message["type"] == "snapshot_answer" and message["installed"]:
            self._chunk_at.pop((target, sender), None)

    def sends(self, node_id: NodeId, now: float) -> bool:
        return any(pair[0] == node_id for pair in self._under_way(now))

    def receives(self, node_id: NodeId, now: float) -> bool:
        return any(pair[1] == node_id for pair in self._under_way(now))

    def _under_way(self, now: float) -> list[tuple[NodeId, NodeId]]:
        if (now - self._newest_at) * 1000 >= TRANSFER_MS:
            return []
        return [pair for pair, at in self._chunk_at.items() if (now - at) * 1000 < TRANSFER_MS]


class Surveyed(Protocol):
    """What is needed to judge."""

    snapshots: SnapshotWatch

    @property
    def now(self) -> float: ...
    @property
    def committed_index(self) -> int: ...


def states_of(world: Surveyed, node: SimNode) -> tuple[State, ...]:
    """Return everything that ``node`` is at the moment; at least one."""
    process = node.process
    if process is None:
        return (State.DOWN,)
    if node.log is None:
        return (State.RECOVERING,)
    engine = node.log.engine
    found: list[State] = []
    if not process.may_run:
        found.append(State.FROZEN)
    leadership = engine.leadership
    if leadership is not None:
        in_flight = engine.journal.last_index > engine.commit_index
        busy = in_flight or not leadership.commits.is_empty
        found.append(State.LEADER_BUSY if busy else State.LEADER_IDLE)
        if _changes_members(node):
            found.append(State.CHANGING)
    else:
        found.append(_following(world, node))
    if world.snapshots.sends(node.node_id, world.now):
        found.append(State.SENDING)
    if world.snapshots.receives(node.node_id, world.now):
        found.append(State.RECEIVING)
    return tuple(found)


_OF_LEADERS = frozenset({State.LEADER_BUSY, State.LEADER_IDLE, State.CHANGING})
_OF_OTHERS = frozenset(
    {State.CANDIDATE, State.FOLLOWER, State.BEHIND, State.UNVERIFIED, State.LEARNER}
)


def is_in(world: Surveyed, node: SimNode, state: State) -> bool:
    """Return whether ``state`` is among ``states_of`` the node. Asked after every step."""
    log = node.log
    if log is not None:
        leads = log.engine.leadership is not None
        if state in (_OF_OTHERS if leads else _OF_LEADERS):
            return False
    return state in states_of(world, node)


def _following(world: Surveyed, node: SimNode) -> State:
    assert node.log is not None
    engine = node.log.engine
    if engine.journal.unverified_index:
        return State.UNVERIFIED
    if engine.core.campaigns or engine.core.leader_id is None:
        return State.CANDIDATE
    if engine.role is Role.LEARNER:
        return State.LEARNER
    behind = world.committed_index - engine.journal.last_index > BEHIND_ENTRIES
    return State.BEHIND if behind else State.FOLLOWER


def _changes_members(node: SimNode) -> bool:
    assert node.log is not None
    engine = node.log.engine
    return configuration_known_by(engine) > engine.commit_index


def voters_known_by(engine: RaftReplica) -> tuple[NodeId, ...]:
    """Return the voters of the configuration that holds for this replica."""
    return engine.configuration.voters


def configuration_known_by(engine: RaftReplica) -> int:
    """Return the entry that made it."""
    return engine.configuration.index
