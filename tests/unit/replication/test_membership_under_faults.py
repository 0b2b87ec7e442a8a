"""Members come and go at random while nodes crash, cables are cut and disks are slow."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from nextgen.kernel.errors import MetadataError
from nextgen.replication.ports import ChangeKind, MemberChange, Record
from nextgen.tasks.timeouts import timeout
from tests.support.simulated.membership import (
    MembershipSimulation,
    engine_of,
    log_of,
    membership,
    until,
)
from tests.support.simulated.raft import SimNode

ROUNDS = 40
SEEDS = (0, 1, 3, 4, 5, 6, 7, 8)
LONG = {5, 6, 7}
"""Of them, those that take seconds: `make nightly` runs them."""


class Trouble:
    """What happens to a group, by its seed."""

    def __init__(self, simulation: MembershipSimulation) -> None:
        self.simulation = simulation
        self.chance = simulation.chance
        self.acked: set[str] = set()
        self.changes = 0
        self.stopping = False

    async def write_for_ever(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.chance.uniform(0, 0.05))
            for node in self.simulation.nodes:
                if node.log is None or not node.log.is_leader:
                    continue
                number += 1
                text = f"{number}" + "." * self.chance.choice((0, 400))
                with contextlib.suppress(MetadataError, TimeoutError):
                    async with timeout(3):
                        await node.log.propose(Record(text.encode(), 1))
                        self.acked.add(text)

    async def change_for_ever(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.chance.uniform(0, 0.4))
            kind = self.chance.choice(list(ChangeKind))
            target = self.chance.choice(self.simulation.nodes)
            for node in self.simulation.nodes:
                if node.log is None or engine_of(node).leadership is None:
                    continue
                if kind is ChangeKind.REMOVE and len(log_of(node).status.members) <= 2:
                    continue  # Of two, one that is lost for long would stop everything.
                with contextlib.suppress(MetadataError, TimeoutError):
                    async with timeout(3):
                        before = log_of(node).status.configuration_index
                        made = await node.log.change_members(MemberChange(kind, target.node_id))
                        self.changes += made.index > before

    async def one_fault(self) -> None:
        simulation, chance = self.simulation, self.chance
        node = chance.choice(simulation.nodes)
        match chance.choice(("crash", "crash", "cut", "heal", "heal", "disk", "snapshot", "all")):
            case "crash" if node.is_up:
                await self._crash(node)
            case "all":
                await self._crash(*[node for node in simulation.nodes if node.is_up])
            case "cut":
                simulation.cut_off(*chance.sample(simulation.nodes, chance.randint(1, 2)))
            case "heal":
                simulation.heal()
            case "disk":
                node.disk_delay_ms = chance.choice((0.2, 1.0, 40.0))
            case "snapshot" if node.is_up:
                with contextlib.suppress(MetadataError, TimeoutError):
                    async with timeout(5):
                        await log_of(node).compact()

    async def _crash(self, *nodes: SimNode) -> None:
        for node in nodes:
            node.crash()
        for node in nodes:
            await asyncio.sleep(self.chance.choice((0.0, 0.3, 2.5)))
            await node.start(joining=node.node_id not in self.simulation.members)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed in LONG)) for seed in SEEDS]
)
def test_nothing_acknowledged_is_lost_whoever_comes_and_goes(seed: int) -> None:
    async def scenario(simulation: MembershipSimulation) -> None:
        for node in simulation.nodes[3:]:
            await node.start(joining=True)
        trouble = Trouble(simulation)
        tasks = [
            asyncio.ensure_future(trouble.write_for_ever()),
            asyncio.ensure_future(trouble.change_for_ever()),
        ]
        for _ in range(ROUNDS):
            await asyncio.sleep(trouble.chance.uniform(0, 0.6))
            await trouble.one_fault()
            assert not simulation.broken, simulation.broken
        simulation.heal()
        for node in simulation.nodes:
            node.disk_delay_ms = 1
        trouble.stopping = True
        await asyncio.gather(*tasks)
        await simulation.write("last", deadline_s=60)
        leader = await simulation.leader()
        voters = [
            node for node in simulation.nodes if node.node_id in log_of(leader).status.members
        ]
        await until(lambda: all(map(simulation.is_caught_up, voters)), "the voters agree")

        views = [node.view.payloads for node in voters if node.view is not None]
        assert all(view == views[0] for view in views)
        assert len(views) >= 2
        assert trouble.acked <= set(views[0])
        assert trouble.changes > 3, "hardly anybody came or went"

    membership(scenario, extra=2, seed=seed)
