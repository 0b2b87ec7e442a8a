"""An outage that leaves one node too few, and whose survivors cannot lead until one returns.

1. The leader is cut off, takes entries that nobody else gets, and dies.
2. As many others go down, or their disks hang, that the rest is no majority.
3. The first leader comes back; its log is longer than those of the rest. The others stay down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from nextgen.replication.ports import NodeId, Record
from tests.simulation.engine.clients import Clients
from tests.support.simulated.network import SimNetwork
from tests.support.simulated.node import SimNode

CUT_OFF_S = (0.05, 0.5)
DOWN_S = (2.0, 40.0)
HANGING_SHARE = 0.7
"""Of those that go down: a voter whose disk hangs still answers what needs no disk."""

STAY_DOWN_S = (9.0, 15.0)
"""Longer than the bound of liveness, so that it is judged."""

LED_S = 1.0
"""A group that has had a leader for so long is led: there is no more to judge, and what it does
under load until the others return would be most of what an outage costs."""

LOOK_S = 0.25


class Struck(Protocol):
    """The simulation as an outage sees it."""

    chance: random.Random
    network: SimNetwork
    nodes: list[SimNode]
    clients: Clients
    calm_periods: int
    outages: int
    stopping: bool

    def leading(self) -> SimNode | None: ...
    def node(self, node_id: NodeId) -> SimNode: ...
    def voters_of(self, node: SimNode) -> tuple[NodeId, ...]: ...
    def restart_soon(self, node: SimNode) -> None: ...
    def background(self, work: Coroutine[Any, Any, None]) -> None: ...


class Outage:
    """One of them. Ends early when every fault is taken back."""

    def __init__(self, world: Struck, leader: SimNode) -> None:
        self._world = world
        self._leader = leader
        self._period = world.calm_periods
        voters = [world.node(voter) for voter in world.voters_of(leader)]
        others = [node for node in voters if node is not leader]
        self._victims = world.chance.sample(others, len(others) - len(voters) // 2)
        self.is_possible = len(voters) >= 3

    async def run(self) -> None:
        """Carry it out. No other fault happens meanwhile: liveness could not be judged."""
        self._world.outages += 1
        try:
            await self._run()
        finally:
            self._world.outages -= 1

    async def _run(self) -> None:
        chance = self._world.chance
        if not await self._goes_on(0):
            return
        if not await self._cut_leader_off(chance.uniform(*CUT_OFF_S)):
            return
        if self._leader.process is not None:
            self._leader.kill()
        self._strike_victims()
        if not await self._goes_on(chance.uniform(*DOWN_S)):
            return
        for victim in self._victims:
            if victim.process is not None:
                victim.crash()
        self._start([self._leader])
        if await self._is_led_within(chance.uniform(*STAY_DOWN_S)):
            self._start(self._victims)

    async def _cut_leader_off(self, seconds: float) -> bool:
        world, leader = self._world, self._leader
        pairs = {frozenset((leader.node_id, o.node_id)) for o in world.nodes if o is not leader}
        world.network.cut |= pairs
        if leader.log is not None and leader.log.is_leader:
            world.background(self._write())
        goes_on = await self._goes_on(seconds)
        world.network.cut -= pairs
        return goes_on

    def _start(self, nodes: Sequence[SimNode]) -> None:
        for node in nodes:
            if node.process is None:
                self._world.restart_soon(node)

    def _strike_victims(self) -> None:
        for victim in self._victims:
            if victim.process is None:
                continue
            if self._world.chance.random() < HANGING_SHARE:
                victim.hang_disk(DOWN_S[1])
            else:
                victim.crash()

    async def _goes_on(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return self._world.calm_periods == self._period and not self._world.stopping

    async def _is_led_within(self, seconds: float) -> bool:
        """Return whether the outage goes on, once the rest has a leader or the time is over."""
        led_s = 0.0
        while seconds > 0 and led_s < LED_S:
            if not await self._goes_on(LOOK_S):
                return False
            seconds -= LOOK_S
            led_s = 0.0 if self._world.leading() is None else led_s + LOOK_S
        return True

    async def _write(self) -> None:
        record = Record(f"cut off {self._world.chance.getrandbits(64)}".encode(), 1)
        await self._world.clients.write(self._leader, record)
