"""Who changes the members of a simulated group: one step at a time, while things go wrong.

A machine that leaves puts its data aside, one that comes begins empty: as the cluster does it.
"""

from __future__ import annotations

import asyncio

from nextgen.kernel.errors import MetadataError
from nextgen.replication.ports import ChangeKind, MemberChange, NodeId
from nextgen.tasks.timeouts import timeout
from tests.simulation.engine.simulation import EngineSimulation
from tests.support.simulated.node import SimNode

CHANGE_DEADLINE_S = 5.0
VOTERS_MAX = 5
SPARES_MAX = 2
"""Machines beside the members that the group began with."""


class Membership:
    """Picks a step that makes sense, asks the leader for it and looks after the machines.

    It removes no voter of ``voters_min`` or fewer.
    """

    def __init__(self, world: EngineSimulation, voters_min: int = 1) -> None:
        self._world = world
        self._voters_min = voters_min
        self._founders = set(world.members)
        self._busy = False

    async def one_step(self, kind: ChangeKind | None = None) -> None:
        """Make one change, of ``kind`` if given and possible."""
        leader = self._world.leading()
        if leader is None or leader.log is None or self._busy:
            return
        change = self._pick(leader, kind)
        if change is None:
            return
        self._busy = True
        try:
            await self._carry_out(leader, change)
        finally:
            self._busy = False

    async def _carry_out(self, leader: SimNode, change: MemberChange) -> None:
        world, node_id = self._world, change.node_id
        if change.kind is ChangeKind.ADD_LEARNER:
            await self._bring_up(node_id)
            leader = world.leading() or leader
        states = world.states_of(world.node(node_id))
        if change.kind is ChangeKind.ADD_LEARNER:
            states = world.states_of(leader)
        log, process = leader.log, leader.process
        if log is None or process is None:
            return
        world.hit(str(change.kind).replace("_", " "), states)
        world.trace.note(f"asks {leader.node_id} to {change.kind} {node_id}")
        try:
            async with timeout(CHANGE_DEADLINE_S):
                made = await process.ask(lambda: log.change_members(change))
        except (MetadataError, TimeoutError, ConnectionResetError) as error:
            world.trace.note(f"{change.kind} {node_id}: {error}")
            return
        world.trace.note(f"{change.kind} {node_id} made {made}")
        if change.kind is ChangeKind.REMOVE:
            world.later(world.chance.uniform(0, 3), lambda: self._retire(node_id))

    def _pick(self, leader: SimNode, kind: ChangeKind | None) -> MemberChange | None:
        chance = self._world.chance
        assert leader.log is not None
        status = leader.log.status
        voters, learners = status.members, status.learners
        spare = self._spare((*voters, *learners))
        possible: list[MemberChange] = []
        if len(voters) + len(learners) < VOTERS_MAX and spare is not None:
            possible.append(MemberChange(ChangeKind.ADD_LEARNER, spare))
        possible += [MemberChange(ChangeKind.PROMOTE, learner) for learner in learners]
        possible += [MemberChange(ChangeKind.REMOVE, learner) for learner in learners[:1]]
        if len(voters) > self._voters_min and not self._is_unverified(voters):
            possible.append(MemberChange(ChangeKind.REMOVE, chance.choice(voters)))
        wanted = [change for change in possible if kind in (None, change.kind)]
        return chance.choice(wanted) if wanted else None

    def _is_unverified(self, voters: tuple[NodeId, ...]) -> bool:
        """True if a voter cannot vote: without another one the group could be stuck for good."""
        nodes = [self._world.node(voter) for voter in voters]
        return any(
            self._world.may_have_lost_its_disk(node.node_id)
            or (node.log is not None and bool(node.log.engine.journal.unverified_index))
            for node in nodes
        )

    def _spare(self, members: tuple[NodeId, ...]) -> NodeId | None:
        """Return a machine that is no member and has nothing on its disk."""
        world = self._world
        for node in world.nodes:
            if node.node_id not in members and node.node_id in world.spares:
                return node.node_id
        if len(world.nodes) < len(self._founders) + SPARES_MAX:
            node_id = NodeId(f"node-{len(world.nodes) + 1}")
            world.add_node(node_id)
            world.spares.add(node_id)
            return node_id
        return None

    async def _bring_up(self, node_id: NodeId) -> None:
        world = self._world
        node = world.node(node_id)
        world.spares.discard(node_id)
        world.joining.add(node_id)
        if node.process is None:
            world.restart_soon(node)
        async with timeout(10):
            while node.process is None:
                await asyncio.sleep(0.01)

    def _retire(self, node_id: NodeId) -> None:
        """Clear a machine that was removed, unless it has become a member again."""
        world = self._world
        leader = world.leading()
        if leader is None or leader.log is None:
            world.later(1.0, lambda: self._retire(node_id))
            return
        status = leader.log.status
        change_is_committed = status.configuration_index <= status.commit_index
        if node_id in (*status.members, *status.learners) or not change_is_committed:
            return
        node = world.node(node_id)
        if node.process is not None:
            node.kill()
        node.put_data_aside()
        world.joining.discard(node_id)
        world.spares.add(node_id)
