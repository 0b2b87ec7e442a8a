"""Faults: one begins at a time, several may last at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from nextgen.kernel.errors import MetadataError
from nextgen.replication.ports import NodeId
from nextgen.tasks.timeouts import timeout
from tests.support.cluster_simulation.components import has_disk, kind_of
from tests.support.cluster_simulation.faults.disks import DiskFaults
from tests.support.cluster_simulation.network import pair_of
from tests.support.cluster_simulation.simulation import ClusterSimulation, Node

FAULT_PAUSE_S_MAX = 3.0
DOWN_MAX = 3
"""More processes than this are not down or frozen at a time."""

HOUR_MS = 3_600_000


OFTEN = ("discovery off",) * 4
"""Harmless to others, so it may be there most of the time: it is when answers grow old."""


class Faults:
    """Begins faults on a seed. ``cells`` counts them by the state of what they hit."""

    def __init__(self, simulation: ClusterSimulation, chance: random.Random) -> None:
        self._simulation = simulation
        self._chance = chance
        self.counts: Counter[str] = Counter()
        self.cells: Counter[tuple[str, str]] = Counter()
        self._is_changing_replicas = False
        self._drained: str | None = None
        self._lasting: set[asyncio.Task[None]] = set()
        self._disks = DiskFaults(simulation, chance, self.counts, self._come_back)
        self._kinds: dict[str, Callable[[Node], Awaitable[None] | None]] = {
            "kill": self._kill,
            "power cut": self._cut_power,
            "blackout": self._black_out,
            "stop": self._stop,
            "freeze": self._freeze,
            "short freeze": self._freeze_shortly,
            "leader stall": self._stall_leader,
            "two down": self._two_down,
            "cut": self._cut,
            "one-way cut": self._cut_one_way,
            "isolate": self._isolate,
            "split": self._split,
            "discovery off": self._cut_discovery_off,
            "reset": self._reset,
            "slow link": self._slow_link,
            "bad mesh": self._bad_mesh,
            **self._disks.kinds,
            "replicas": self._change_replicas,
            "clock jump": self._jump_clock,
            "transfer": self._transfer,
            "snapshot": self._snapshot,
            "heal": self._heal,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*self._kinds, *OFTEN)

    async def run(self, count: int, only: tuple[str, ...] | None = None) -> None:
        """Begin ``count`` faults, of the kinds ``only`` if given."""
        kinds = only or self.kinds
        for _ in range(count):
            await asyncio.sleep(self._chance.uniform(0.1, FAULT_PAUSE_S_MAX))
            self._begin(self._chance.choice(kinds))

    def _begin(self, kind: str) -> None:
        node = self._target(kind)
        if node is None:
            return
        self.counts[kind] += 1
        self.cells[(kind, self.state_of(node))] += 1
        self._simulation.network.trace.note(f"fault {kind} {node.name}")
        lasting = self._kinds[kind](node)
        if lasting is not None:
            task = asyncio.ensure_future(lasting)
            self._lasting.add(task)
            task.add_done_callback(self._lasting.discard)

    def _target(self, kind: str) -> Node | None:
        nodes = [node for node in self._simulation.nodes.values() if node.is_running]
        if kind in ("transfer", "snapshot", "blackout"):
            nodes = [node for node in nodes if has_disk(node.name)]
        if kind == "discovery off":
            nodes = [node for node in nodes if kind_of(node.name) == "discovery"]
        if kind in ("replicas", "leader stall", "two down"):
            nodes = [node for node in nodes if kind_of(node.name) == "shard"]
        if kind == "leader stall":
            nodes = [node for node in nodes if self._leads_shard(node)]
        nodes = [node for node in nodes if self._disks.may_hit(kind, node)]
        if kind == "replicas" and not self._may_change_replicas():
            return None
        away = len(self._simulation.nodes) - sum(
            node.is_running for node in self._simulation.nodes.values()
        )
        if kind == "two down" and (away > DOWN_MAX - 2 or not self._may_put_two_down()):
            return None
        if kind in ("kill", "power cut", "stop", "freeze", "leader stall") and away >= DOWN_MAX:
            return None
        return self._chance.choice(nodes) if nodes else None

    def state_of(self, node: Node) -> str:
        """Return what ``node`` is at the moment, for the table of faults and states."""
        kind = kind_of(node.name)
        roles = self._simulation.invariants.roles
        groups = self._simulation.groups_of(node)
        if not groups:
            return kind
        led = sum(roles.get((node.name, group)) == "leader" for group in groups)
        known = {str(roles.get((node.name, group), "starting")) for group in groups}
        return f"{kind} leader" if led else f"{kind} {min(known)}"

    # Processes --------------------------------------------------------------------------------

    async def _kill(self, node: Node) -> None:
        node.crash(power_cut=False)
        await self._come_back(node, (0.0, 0.2, 1.0, 6.0))

    async def _cut_power(self, node: Node) -> None:
        node.crash(power_cut=True)
        await self._come_back(node, (0.5, 2.0, 8.0))

    async def _black_out(self, node: Node) -> None:
        """All machines of one kind lose power at once; some return much later than others."""
        alike = [
            other
            for other in self._simulation.nodes.values()
            if kind_of(other.name) == kind_of(node.name) and other.is_up
        ]
        for each in alike:
            each.crash(power_cut=True)
        self._chance.shuffle(alike)
        for each in alike:
            await self._come_back(each, (0.1, 0.5, 4.0))

    async def _stop(self, node: Node) -> None:
        if not await node.stop():
            self.counts["stop took too long"] += 1
        await self._come_back(node, (0.0, 0.5, 3.0))

    async def _come_back(self, node: Node, delays_s: tuple[float, ...]) -> None:
        await asyncio.sleep(self._chance.choice(delays_s) * self._chance.uniform(0.5, 1.5))
        if not node.is_up:
            node.start()

    async def _freeze(self, node: Node) -> None:
        await self._freeze_for(node, self._chance.choice((1.5, 4.0, 16.0)))

    async def _freeze_shortly(self, node: Node) -> None:
        await self._freeze_for(node, self._chance.uniform(0.05, 0.6))

    def _leads_shard(self, node: Node) -> bool:
        return any(log.is_leader for log in self._simulation.logs_of(node))

    async def _stall_leader(self, node: Node) -> None:
        """A shard's leader freezes, others lead meanwhile, and it wakes as if it still led."""
        await self._freeze_for(node, self._chance.choice((2.5, 6.0, 20.0)))

    def _may_put_two_down(self) -> bool:
        names = self._simulation.plan.shard_node_names
        return all(self._simulation.nodes[name].is_running for name in names)

    async def _two_down(self, node: Node) -> None:
        """Two machines of shard nodes lose power; one returns much later than the other."""
        names = self._simulation.plan.shard_node_names
        other = self._simulation.nodes[self._chance.choice([n for n in names if n != node.name])]
        for each in (node, other):
            each.crash(power_cut=True)
        await self._come_back(other, (1.0, 4.0))
        await self._come_back(node, (4.0, 15.0))

    async def _freeze_for(self, node: Node, seconds: float) -> None:
        process = node.process
        assert process is not None
        process.freeze()
        self._simulation.network.frozen(process)
        await asyncio.sleep(seconds)
        process.thaw()

    # The network ------------------------------------------------------------------------------

    def _cut(self, node: Node) -> None:
        others = [name for name in self._simulation.nodes if name != node.name]
        for other in self._chance.sample(others, self._chance.randint(1, 3)):
            self._simulation.network.cut(pair_of(node.name, other))

    async def _cut_one_way(self, node: Node) -> None:
        """What ``node`` sends to some others is lost, or what they send to it."""
        others = [name for name in self._simulation.nodes if name != node.name]
        some = self._chance.sample(others, self._chance.randint(1, len(others)))
        sends = self._chance.random() < 0.5
        for other in some:
            way = (node.name, other) if sends else (other, node.name)
            self._simulation.network.cut_way(*way)
        await asyncio.sleep(self._chance.choice((0.5, 3.0, 14.0)))
        self._simulation.network.heal()

    async def _isolate(self, node: Node) -> None:
        for other in self._simulation.nodes:
            if other != node.name:
                self._simulation.network.cut(pair_of(node.name, other))
        await asyncio.sleep(self._chance.choice((0.3, 2.0, 15.0)))
        self._simulation.network.heal()

    async def _cut_discovery_off(self, node: Node) -> None:
        """A discovery node hears nothing of the shards, and clients ask it on."""
        pairs = [pair_of(node.name, name) for name in self._simulation.plan.shard_node_names]
        for pair in pairs:
            self._simulation.network.cut(pair)
        await asyncio.sleep(self._chance.choice((1.0, 3.0, 6.0)))
        for pair in pairs:
            self._simulation.network.mend(pair)

    async def _split(self, node: Node) -> None:
        """Two halves that do not reach each other, ``node`` among the smaller one."""
        names = [name for name in self._simulation.nodes if name != node.name]
        away = [node.name, *self._chance.sample(names, self._chance.randint(1, len(names) // 2))]
        for one in away:
            for other in names:
                if other not in away:
                    self._simulation.network.cut(pair_of(one, other))
        await asyncio.sleep(self._chance.choice((0.5, 3.0, 14.0)))
        self._simulation.network.heal()

    def _reset(self, node: Node) -> None:
        assert node.process is not None
        self._simulation.network.reset(node.process)

    def _slow_link(self, node: Node) -> None:
        slowness_ms = self._chance.choice((20.0, 100.0, 600.0))
        for other in self._simulation.nodes:
            if self._chance.random() < 0.5:
                self._simulation.network.slow_pairs[pair_of(node.name, other)] = slowness_ms

    def _bad_mesh(self, _node: Node) -> None:
        fabric = self._simulation.fabric
        fabric.loss = self._chance.choice((0.0, 0.02, 0.2))
        fabric.repeats = self._chance.choice((0.0, 0.05))
        self._simulation.network.delay_ms_max = self._chance.choice((1.0, 10.0, 50.0))

    def _heal(self, _node: Node) -> None:
        self._simulation.network.heal()
        self._simulation.fabric.calm()

    # Clocks, leadership, membership -------------------------------------------------------------

    def _may_change_replicas(self) -> bool:
        simulation = self._simulation
        return (
            simulation.plan.shard_nodes > simulation.plan.replication_factor
            and not self._is_changing_replicas
            and bool(simulation.invariants.placements)
        )

    async def _change_replicas(self, _node: Node) -> None:
        """Have an operator drain a shard node, or let the drained one have replicas again."""
        simulation = self._simulation
        drained, self._drained = self._drained, None
        if drained is None:
            self._drained = self._chance.choice(simulation.plan.shard_node_names)
        node_id, state = (drained, "active") if drained else (self._drained, "leaving")
        assert node_id is not None
        self._is_changing_replicas = True
        operator = simulation.operator(f"operator-{self.counts['replicas']}")
        work = simulation.set_node_state(node_id, state)
        task = operator.run(simulation.loop.create_task, work)
        try:
            # Not awaited itself: a run that ends here would wait for it, and its process is dead.
            await asyncio.wait((task,))
            task.result()
        except MetadataError as error:
            self.counts[f"replicas: {type(error).__name__}"] += 1
        finally:
            self._is_changing_replicas = False

    def _jump_clock(self, node: Node) -> None:
        process = node.process
        assert process is not None
        offset_ms = self._chance.choice((-HOUR_MS, -5_000, 5_000, HOUR_MS))
        process.wall_offset_ms += offset_ms
        self._simulation.wall_offset_ms[node.name] = process.wall_offset_ms

    def _transfer(self, node: Node) -> None:
        for log in self._simulation.logs_of(node):
            others = [m for m in log.status.members if m != node.name]
            if log.is_leader and others:
                target = NodeId(self._chance.choice(others))
                self._ask(node, lambda log=log, target=target: log.transfer_leadership(target))

    def _snapshot(self, node: Node) -> None:
        for log in self._simulation.logs_of(node):
            self._ask(node, log.compact)

    def _ask(self, node: Node, work: Callable[[], Awaitable[Any]]) -> None:
        """Make ``node``'s process run something in the background, whatever its result."""

        async def attempt() -> None:
            try:
                async with timeout(20):
                    await work()
            except (MetadataError, OSError):
                # A full disk takes no snapshot: the request for one fails.
                return

        assert node.process is not None
        node.process.run(self._simulation.loop.create_task, attempt())

    # The end ----------------------------------------------------------------------------------

    async def take_all_back(self) -> None:
        """End every fault and start whatever is down."""
        anybody = next(iter(self._simulation.nodes.values()))
        self._heal(anybody)
        self._disks.others_are_over()
        # Whoever was asked to stop, or is away, comes back by itself.
        await asyncio.gather(*self._lasting)
        self._heal(anybody)
        for node in self._simulation.nodes.values():
            if node.process is None:
                node.start()
