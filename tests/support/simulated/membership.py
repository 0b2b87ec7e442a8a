"""A simulated group whose members change, and what may never be seen meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from nextgen.kernel.errors import MetadataError
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.ports import (
    ChangeKind,
    Commit,
    Configuration,
    Entry,
    MemberChange,
    NodeId,
    Record,
    Role,
    RoleChange,
)
from nextgen.replication.raft.replica import RaftReplica
from nextgen.tasks.timeouts import timeout
from tests.support.simulated.raft import RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual

ADD, PROMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.REMOVE

Scenario = Callable[["MembershipSimulation"], Coroutine[Any, Any, None]]


class MembershipSimulation(RaftSimulation):
    """``extra`` more nodes than the group begins with; those are not started."""

    def __init__(self, seed: int, size: int = 3, extra: int = 1) -> None:
        super().__init__(seed, size)
        self.broken: list[str] = []
        self._committed: dict[int, Entry] = {}
        self._leaders: dict[int, NodeId] = {}
        self.nodes += [
            SimNode(self, NodeId(f"node-{number}")) for number in range(size + 1, size + extra + 1)
        ]

    async def start(self) -> None:
        for node in self.nodes[: len(self.members)]:
            await node.start()

    def node(self, number: int) -> SimNode:
        return self.nodes[number - 1]

    def saw_committed(self, node_id: NodeId, entries: Sequence[Entry]) -> None:
        for entry in entries:
            known = self._committed.setdefault(entry.index, entry)
            if known != entry:
                self.broken.append(f"{node_id} committed another entry {entry.index}")

    def saw_role(self, node_id: NodeId, change: RoleChange) -> None:
        if change.role is Role.LEADER:
            leader = self._leaders.setdefault(change.term, node_id)
            if leader != node_id:
                self.broken.append(f"{leader} and {node_id} lead term {change.term}")

    async def followers_of_three(self) -> list[SimNode]:
        """Return the followers among those that the group began with."""
        leader = await self.leader()
        return [node for node in self.nodes[: len(self.members)] if node is not leader]

    # Faults -----------------------------------------------------------------------------------

    def cut_off(self, *some: SimNode) -> None:
        """Let nothing through between ``some`` and everybody else."""
        for one in some:
            for other in self.nodes:
                if other not in some:
                    self.network.cut.add(frozenset((one.node_id, other.node_id)))

    def heal(self) -> None:
        self.network.cut.clear()

    async def restart(self, *nodes: SimNode) -> None:
        """Cut the power of all of them at once, and start them again."""
        for node in nodes:
            node.crash()
        for node in nodes:
            await node.start(joining=node.node_id not in self.members)

    # Changes ----------------------------------------------------------------------------------

    async def lead(self, node: SimNode) -> None:
        """Let ``node`` be the leader."""
        leader = await self.leader()
        if leader is not node:
            await log_of(leader).transfer_leadership(node.node_id)
        await until(lambda: log_of(node).is_leader, f"{node.node_id} leads")

    async def change(self, kind: ChangeKind, node: SimNode) -> Configuration:
        leader = await self.leader()
        return await log_of(leader).change_members(MemberChange(kind, node.node_id))

    async def add_learner(self, node: SimNode) -> None:
        """Start ``node`` and return when it has everything."""
        if not node.is_up:
            await node.start(joining=True)
        await self.change(ChangeKind.ADD_LEARNER, node)
        await self.leader_knows(node)

    async def leader_knows(self, node: SimNode) -> None:
        """Return when the leader knows that ``node`` has everything."""

        def lacks_nothing() -> bool:
            return any(
                progress.node_id == node.node_id and progress.match_index == status.last_index
                for status in (log_of(n).status for n in self.nodes if n.is_up)
                for progress in status.progress
            )

        await until(lacks_nothing, f"{node.node_id} catches up")

    async def add_voter(self, node: SimNode) -> None:
        await self.add_learner(node)
        await self.change(ChangeKind.PROMOTE, node)

    def is_caught_up(self, node: SimNode) -> bool:
        newest = max(log_of(n).status.commit_index for n in self.nodes if n.is_up)
        return log_of(node).status.applied.index == newest

    async def write(self, text: str = "x", *, deadline_s: float = 20.0) -> Commit:
        """Write as a client does: to the present leader, until it is acknowledged."""
        async with timeout(deadline_s):
            while True:
                leader = await self.leader()
                try:
                    return await log_of(leader).propose(Record(text.encode(), 1))
                except MetadataError:
                    await asyncio.sleep(0.01)


def log_of(node: SimNode) -> PySyncObjGroup:
    assert node.log is not None, f"{node.node_id} is down"
    return node.log


def engine_of(node: SimNode) -> RaftReplica:
    return log_of(node).engine


def ask(node: SimNode, kind: ChangeKind, target: SimNode) -> asyncio.Future[Configuration]:
    """Append a change on ``node`` and wait for nothing."""
    change = engine_of(node).change_members(MemberChange(kind, target.node_id))
    change.add_done_callback(lambda done: done.cancelled() or done.exception())
    return change


def members(node: SimNode) -> tuple[list[int], list[int]]:
    """Return the numbers of the voters and of the learners that ``node`` knows of."""
    status = log_of(node).status
    voters, learners = (
        [int(name.removeprefix("node-")) for name in names]
        for names in (status.members, status.learners)
    )
    return voters, learners


async def until(condition: Callable[[], bool], what: str, *, deadline_s: float = 20.0) -> None:
    """Return once ``condition`` holds."""
    try:
        async with timeout(deadline_s):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


def membership(scenario: Scenario, *, size: int = 3, extra: int = 1, seed: int = 1) -> None:
    """Run ``scenario`` in virtual time; afterwards all views must agree."""

    async def main() -> None:
        simulation = MembershipSimulation(seed, size, extra)
        await simulation.start()
        await scenario(simulation)
        assert not simulation.broken, simulation.broken
        await asyncio.gather(*(node.stop() for node in simulation.nodes if node.is_up))

    run_virtual(main)
