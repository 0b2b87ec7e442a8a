"""The cluster: processes that start, die and return, on one network."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from brokers.adapters.cluster import manager_connection
from brokers.adapters.metrics import BrokerCollector
from nextgen.cli.calls.replica_plan import set_node_state
from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.ports import Role
from nextgen.runtime.lifecycle.process import Shutdown
from nextgen.runtime.security.cluster_proof import ClusterCredentials
from tests.support.cluster_simulation.clients.residents import Resident
from tests.support.cluster_simulation.cluster_secret import write_secret
from tests.support.cluster_simulation.components import (
    CLUSTER_ID,
    ClusterPlan,
    has_disk,
    serve_of,
)
from tests.support.cluster_simulation.judges.in_touch import InTouch
from tests.support.cluster_simulation.judges.invariants import Invariants
from tests.support.cluster_simulation.judges.ledgers import Storage
from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.raft_environment import (
    Machine,
    MeshFabric,
    SimulatedHost,
)
from tests.support.cluster_simulation.virtual_loop import OUTSIDE, SimulatedLoop

IN_TOUCH_S = 5.0
"""A process that was healthy for this long is silent to no other healthy process."""

_logger = structlog.get_logger(__name__)


class Node:
    """A place in the cluster, with the process that fills it at the moment."""

    def __init__(self, simulation: ClusterSimulation, name: str) -> None:
        self.name = name
        self.process: SimulatedProcess | None = None
        self.machine = Machine(simulation.root, name) if has_disk(name) else None
        self.host: SimulatedHost | None = None
        self.starts = 0
        self.is_disk_sick = False
        """True while its disk has a fault: the process may end itself."""
        self._disk_hangs_until_s = 0.0
        self._simulation = simulation
        self._shutdown = Shutdown()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Node {self.process or self.name}>"

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_frozen

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs already"
        simulation = self._simulation
        self.starts += 1
        self.host = None
        process = SimulatedProcess(simulation.loop, simulation.chance, self.name)
        process.wall_offset_ms = simulation.wall_offset_ms.get(self.name, 0)
        process.disk_hangs_until_s = self._disk_hangs_until_s
        simulation.network.started(process.host)
        self.process = process
        self._shutdown = shutdown = Shutdown()

        def make_host(**named: Any) -> SimulatedHost:
            assert self.machine is not None
            self.host = SimulatedHost(
                process, self.machine, simulation.fabric, simulation.invariants, **named
            )
            return self.host

        directory = self.machine.directory if self.machine is not None else simulation.root
        serve = serve_of(
            simulation.plan, self.name, directory, make_host, secret_file=simulation.secret_file
        )
        self._task = process.run(simulation.loop.create_task, serve(shutdown))
        self._task.add_done_callback(
            lambda task: self._ended(process, shutdown, task), context=OUTSIDE
        )

    def _ended(self, process: SimulatedProcess, shutdown: Shutdown, task: Any) -> None:
        if process.is_dead:
            return
        error = None if task.cancelled() else task.exception()
        may_end = shutdown.is_requested and error is None
        if not may_end and not self.is_disk_sick:
            self._simulation.violate(f"{self.name} ended by itself: {error!r}", error)
        self._is_gone(process)

    def _is_gone(self, process: SimulatedProcess) -> None:
        simulation = self._simulation
        process.kill()
        simulation.network.died(process, with_machine=False)
        simulation.remains.append(process)
        mesh = simulation.fabric.meshes.get(self.name)
        if mesh is not None and mesh.process is process:
            simulation.fabric.leave(mesh, with_machine=False)
        if self.machine is not None:
            self.machine.lose_process(power_cut=False, seed=0)
        if self.process is process:
            self.process = None

    def crash(self, *, power_cut: bool) -> None:
        """End the process without a clean stop; with ``power_cut`` its machine too."""
        process, self.process = self.process, None
        assert process is not None, f"{self.name} is down"
        simulation = self._simulation
        process.kill()
        # A restart changes nothing about a disk that hangs, a power cut ends it.
        self._disk_hangs_until_s = 0.0 if power_cut else process.disk_hangs_until_s
        simulation.network.died(process, with_machine=power_cut)
        simulation.remains.append(process)
        mesh = simulation.fabric.meshes.get(self.name)
        if mesh is not None:
            simulation.fabric.leave(mesh, with_machine=power_cut)
        if self.machine is not None:
            seed = simulation.chance.getrandbits(32)
            self.machine.lose_process(power_cut=power_cut, seed=seed)

    async def stop(self) -> bool:
        """SIGTERM. Return False if it had to be killed because it did not end in time."""
        process, task = self.process, self._task
        assert process is not None
        assert task is not None
        process.run(self._shutdown.request, "SIGTERM")
        await asyncio.wait((task,), timeout=SHUTDOWN_MS_MAX / 1000)
        if self.process is process:
            self.crash(power_cut=False)
            return False
        return True


class ClusterSimulation:
    """One cluster on one seed. ``violations`` are what may never happen."""

    def __init__(
        self, loop: SimulatedLoop, root: Path, seed: int, plan: ClusterPlan | None = None
    ) -> None:
        self.loop = loop
        self.root = root
        self.plan = plan or ClusterPlan()
        self.secret_file = write_secret(root) if self.plan.has_secret else None
        self.proofs: list[str] = []
        """The process that took it, for each proof of the secret."""
        self.seed = seed
        self.storage = Storage(now=lambda: loop.now_s)
        self._disturbed_at_s: dict[str, float] = {}
        self.in_touch = InTouch(lambda: loop.now_s, self._running_leader, self._reach)
        self._led: set[tuple[str, int]] = set()
        self.chance = random.Random(f"cluster {seed}")
        self.network = Network(loop, random.Random(f"network {seed}"))
        self.fabric = MeshFabric(self.network, random.Random(f"mesh {seed}"))
        self.wall_offset_ms: dict[str, int] = {}
        self.invariants = Invariants(self.violate, lambda: self.loop.now_s, self.wall_offset_ms)
        self.storage.deleted = self.invariants.deleted_topics
        self.invariants.spares_clients = self._check_spared
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self.remains: list[SimulatedProcess] = []
        """Dead processes, kept until the run is over: their tasks never end."""
        plan = self.plan
        names = (
            *(*plan.manager_names, *plan.shard_node_names),
            *(*plan.discovery_names, *plan.broker_names),
        )
        self.nodes = {name: Node(self, name) for name in names}

    def violate(self, what: str, error: BaseException | None = None) -> None:
        """Note that something happened that must not."""
        _logger.error("violated", what=what, exc_info=error)
        self.violations.append(f"at {self.loop.now_s - 1000:.3f} s: {what}")

    def logs_of(self, node: Node) -> Sequence[PySyncObjGroup]:
        """Return the open replicas of ``node``."""
        return node.host.groups if node.is_up and node.host is not None else ()

    def groups_of(self, node: Node) -> list[int]:
        return [log.status.group_id for log in self.logs_of(node)]

    async def set_node_state(self, node_id: str, state: str) -> None:
        """Do as ``nextgen nodes drain | undo`` does. Replicas move while the run goes on."""
        endpoints = [f"{name}:7000" for name in self.plan.discovery_names]
        await set_node_state(endpoints, node_id, state)

    def look_at_brokers(self) -> None:
        """Check what every broker holds at this moment; one that has just begun gets clients."""
        self._note_disturbed()
        self.in_touch.look(self.invariants.placements)
        for node in self.nodes.values():
            if node.process is None:
                continue
            for collector in node.process.collectors:
                if isinstance(collector, BrokerCollector):
                    session = collector._agent.session
                    self.invariants.check_holding(node.name, session)
                    self.invariants.check_open_topics(node.name, session, collector._front)
                    if node.process.resident is None:
                        self._settle_in(node.name, node.process, collector)

    def _settle_in(self, name: str, process: SimulatedProcess, found: BrokerCollector) -> None:
        assert found._front is not None, "brokers of the simulation have clients"
        seed = f"resident {name} {self.nodes[name].starts} {self.seed}"
        process.resident = resident = Resident(
            name,
            found._agent,
            found._front,
            self.storage,
            random.Random(seed),
            self.invariants.check_acknowledged,
            self.violate,
        )
        process.run(self.loop.create_task, resident.run())

    def _check_spared(self, topic_id: str) -> None:
        """UnforcedSparesClients: all clients that are left are connected to a replaced owner, or to
        what no lookup leads to."""
        for node in self.nodes.values():
            resident = node.process.resident if node.process is not None else None
            for unit in resident.connected_to(topic_id) if resident is not None else ():
                newest = self.invariants.units[unit.key].epoch
                is_unlisted = self.invariants.is_unlisted_child(topic_id, unit.unit)
                if unit.epoch >= newest and not is_unlisted:
                    self.violate(f"{unit.name} was deleted without force under a producer")

    async def prove_served(self, name: str, broker_id: str) -> bool:
        """Return whether a broker takes a message to a topic."""
        process = self.nodes[broker_id].process
        if process is None or process.resident is None:
            return False
        return await process.run(self.loop.create_task, process.resident.prove(name))

    def check_effective(self, name: str, object_id: str, version: int) -> None:
        """A write was answered as effective: look at every broker whose session goes on.

        It holds the version, and what it has open acts on that: frozen, cut off or not. Brokers
        whose manager had not to be waited for are left out, see ``in_touch``.
        """
        home = self.home_of(name)
        for node in self.nodes.values():
            for collector in node.process.collectors if node.process is not None else ():
                if isinstance(collector, BrokerCollector):
                    session = collector._agent.session
                    if self._is_managed(session.session_id, home):
                        self.invariants.check_effective(
                            node.name, session, name, object_id, version
                        )
                        self.invariants.check_open_topics(node.name, session, collector._front)

    def home_of(self, name: str) -> int:
        """Return the home shard of a tenant, namespace or topic."""
        table = self.invariants.slot_table
        assert table is not None, "there is no shard map yet"
        return table.shard_for_key(parse_topic(name).routing_key if "://" in name else name)

    def _running_leader(self, group_id: int) -> str | None:
        name = self.invariants.leader_of(group_id)
        return name if name is not None and self.nodes[name].is_running else None

    def _reach(self, one: str, other: str) -> bool:
        return one == other or self.network.reach(one, other)

    def _is_managed(self, session_id: str, home: int) -> bool:
        """Return whether a session continues under a broker manager that a home waits for."""
        if not self.invariants.goes_on(session_id):
            return False
        shard_id = self.invariants.sessions[session_id].shard_id
        if self.in_touch.counts(shard_id, home):
            return True
        calm_since_s = self.loop.now_s - IN_TOUCH_S
        leaders = [
            name
            for (name, group), role in self.invariants.roles.items()
            if group == shard_id and role is Role.LEADER
        ]
        return len(leaders) == 1 and self._disturbed_at_s.get(leaders[0], 0.0) < calm_since_s

    def _note_disturbed(self) -> None:
        """Record unhealthy processes and networks, and new leaders."""
        leaders = {key for key, role in self.invariants.roles.items() if role is Role.LEADER}
        for name, _ in leaders ^ self._led:
            self._disturbed_at_s[name] = self.loop.now_s
        self._led = leaders
        for node in self.nodes.values():
            if not node.is_running or self.network.is_cut_off(node.name):
                self._disturbed_at_s[node.name] = self.loop.now_s

    def stale_metadata(self) -> list[str]:
        """Return what brokers with a session hold otherwise than it is committed."""
        return [
            stale
            for node in self.nodes.values()
            for collector in (node.process.collectors if node.process is not None else ())
            if isinstance(collector, BrokerCollector) and collector._agent.is_registered
            for stale in self.invariants.stale_metadata(node.name, collector._agent.session)
        ]

    def client(self, name: str) -> SimulatedProcess:
        """Return a process for a user of the cluster."""
        process = SimulatedProcess(self.loop, self.chance, name)
        self.remains.append(process)
        return process

    def operator(self, name: str) -> SimulatedProcess:
        """Return a process for an operator, with the cluster secret if there is one."""
        process = self.client(name)
        process.credentials = ClusterCredentials.load(CLUSTER_ID, self.secret_file)
        return process

    def start_all(self) -> None:
        for node in self.nodes.values():
            if not node.is_up:
                node.start()

    def bury(self) -> None:
        """Release all processes, once the loop runs nothing any more."""
        self.loop.set_exception_handler(lambda _loop, _found: None)
        self.network.is_over = True
        processes = [*self.remains, *(node.process for node in self.nodes.values())]
        for process in processes:
            if process is not None:
                process.bury()
        # Kept for the life of a real process; the tasks in it will never end.
        manager_connection._closing_channels.clear()
        for node in self.nodes.values():
            if node.machine is not None:
                node.machine.remove()
