"""Decides what goes wrong next, where, and in which state the victim shall be.

Half of the faults come by chance. The others are hunted: the cell of the coverage table that
this run has filled least is chosen, the stage is set for it, and the fault is injected in the
very step that brings a node into that state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nextgen.replication.ports import ChangeKind
from nextgen.tasks.timeouts import timeout
from tests.simulation.engine.faults import BY_NAME, FAULTS, Fault
from tests.simulation.engine.membership import Membership
from tests.simulation.engine.simulation import EngineSimulation
from tests.simulation.engine.states import State, is_in
from tests.support.simulated.node import SimNode

HUNT_S_MAX = 3.0
"""Time for the wanted state to occur, once everything is prepared."""

OUTAGE_SEEDS = (5, 2)
"""Of so many seeds in a row, which one. An outage is rare and long, so that it shows what it can
only where most of what goes wrong is one."""

OUTAGE_SHARE = 0.6
"""Of all rounds of such a seed."""

OUTAGE_VOTERS_MIN = 3
"""With fewer there is no outage: in such a seed the group grows to this size and keeps it."""

CALM_S_MAX = 12.0
"""For a group without faults to have a leader that commits."""


class Conductor:
    """One run's source of trouble."""

    def __init__(self, world: EngineSimulation) -> None:
        self._world = world
        self._chance = world.chance
        every, which = OUTAGE_SEEDS
        self._outage_share = OUTAGE_SHARE if world.seed % every == which else 0.0
        voters_min = OUTAGE_VOTERS_MIN if self._outage_share else 1
        self._membership = Membership(world, voters_min)
        self._stages: dict[State, Callable[[], None]] = {
            State.CANDIDATE: self._lose_leader,
            State.BEHIND: self._isolate_follower,
            State.RECEIVING: self._send_a_snapshot,
            State.SENDING: self._send_a_snapshot,
            State.UNVERIFIED: self._forget_a_disk,
            State.LEARNER: lambda: self._change(ChangeKind.ADD_LEARNER),
            State.CHANGING: lambda: self._change(None),
            State.RECOVERING: lambda: self._at_somebody(BY_NAME["crash"]),
            State.FROZEN: lambda: self._at_somebody(BY_NAME["pause"]),
        }

    async def round(self) -> None:
        """Let one thing go wrong, or let the group recover and see that it does."""
        chance = self._chance
        await asyncio.sleep(chance.uniform(0, 1.2))
        while self._world.outages:
            await asyncio.sleep(0.25)
        if self._outage_share and chance.random() < self._outage_share:
            self._strike_leader()
            return
        dice = chance.random()
        if dice < 0.05:
            await self.calm_down()
        elif dice < 0.15:
            self._change(None)
        elif dice < 0.5:
            self._at_somebody(chance.choices(FAULTS, [fault.weight for fault in FAULTS])[0])
        else:
            await self._hunt()

    async def calm_down(self) -> None:
        """Take every fault back; the group must commit within its bound. Liveness."""
        world = self._world
        world.take_faults_back()
        try:
            async with timeout(CALM_S_MAX):
                await world.everybody_is_up()
                while not await world.write_once():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            world.fail(f"nothing goes wrong for {CALM_S_MAX} s, and nothing is committed")

    # Inside -----------------------------------------------------------------------------------

    async def _hunt(self) -> None:
        world, chance = self._world, self._chance
        fault = chance.choices(FAULTS, [fault.weight for fault in FAULTS])[0]
        states = sorted(fault.states)
        least = min(world.cells[fault.name, state.value] for state in states)
        wanted = chance.choice(
            [state for state in states if world.cells[fault.name, state.value] == least]
        )
        stage = self._stages.get(wanted)
        if stage is not None:
            stage()
        caught: asyncio.Future[None] = world.loop.create_future()

        def look(stepped: SimNode) -> None:
            # One that is frozen makes no steps: whoever does looks at all.
            for node in world.nodes if wanted is State.FROZEN else [stepped]:
                if not caught.done() and is_in(world, node, wanted):
                    self._inject(fault, node)
                    caught.set_result(None)

        world.in_step = look
        try:
            async with timeout(HUNT_S_MAX):
                await caught
        except TimeoutError:
            return
        finally:
            world.in_step = None

    def _at_somebody(self, fault: Fault) -> None:
        running = [node for node in self._world.nodes if node.process is not None]
        if running:
            self._inject(fault, self._chance.choice(running))

    def _inject(self, fault: Fault, node: SimNode) -> None:
        world = self._world
        if node.process is None or not set(world.states_of(node)) <= fault.states:
            return
        hit = world.nodes if fault.of_everybody else [node]
        before = [world.states_of(victim) for victim in hit if victim.process is not None]
        if not fault.inject(world, node):
            return
        world.trace.note(f"{fault.name} at {node.node_id}, {', '.join(before[0])}")
        world.faults[fault.name] += 1
        world.liveness.disturbed(hit)
        for states in before:
            for state in set(states):
                world.cells[fault.name, state.value] += 1

    def _strike_leader(self) -> None:
        leader = self._world.leading()
        if leader is None:
            return
        if len(self._world.voters_of(leader)) < OUTAGE_VOTERS_MIN:
            self._change(None)
        else:
            self._inject(BY_NAME["outage"], leader)

    # Stages -----------------------------------------------------------------------------------

    def _lose_leader(self) -> None:
        leader = self._world.leading()
        if leader is not None:
            name = self._chance.choice(("crash", "partition", "pause", "unplugged"))
            self._inject(BY_NAME[name], leader)

    def _follower(self) -> SimNode | None:
        found = [
            node
            for node in self._world.nodes
            if node.log is not None and not node.log.engine.core.leads
        ]
        return self._chance.choice(found) if found else None

    def _isolate_follower(self) -> None:
        """Drop what a follower receives but not what it sends, so that it stays a follower."""
        world, follower = self._world, self._follower()
        if follower is not None:
            ids = [node.node_id for node in world.nodes if node is not follower]
            pairs = {(other, follower.node_id) for other in ids}
            world.network.cut_one_way |= pairs
            world.later(2, lambda: world.network.cut_one_way.difference_update(pairs))

    def _send_a_snapshot(self) -> None:
        """Keep a follower away until the log behind it is cut."""
        world, follower, leader = self._world, self._follower(), self._world.leading()
        if follower is None or leader is None or follower.process is None:
            return
        if self._chance.random() < 0.4 and world.may_lose_disk(follower):
            world.lose_disk(follower)
            return
        follower.kill()
        world.background(self._return_behind_the_cut(follower, leader))

    async def _return_behind_the_cut(self, follower: SimNode, leader: SimNode) -> None:
        await asyncio.sleep(self._chance.uniform(0.5, 1.5))
        self._world.snapshot(leader)
        await asyncio.sleep(0.1)
        self._world.restart_soon(follower)

    def _forget_a_disk(self) -> None:
        follower = self._follower()
        if follower is not None:
            self._inject(BY_NAME["lost disk"], follower)

    def _change(self, kind: ChangeKind | None) -> None:
        self._world.background(self._membership.one_step(kind))
