"""A whole Raft group in one process: real adapter code, virtual time, seeded network and disks.

Everything random comes from one seed, so a run that failed once fails again. The invariants
of docs/invariants.md are checked as things happen, not only at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from nextgen.kernel.errors import MetadataError, NotLeader, Overloaded
from nextgen.replication.config import RaftConfig
from nextgen.replication.mesh import MeshChannel
from nextgen.replication.mesh_frames import FrameReader, Message, decode_frame, encode_frame
from nextgen.replication.ports import (
    AppliedPoint,
    Commit,
    Entry,
    GroupId,
    NodeId,
    Record,
    Role,
    RoleChange,
)
from nextgen.replication.pysyncobj_group import PySyncObjGroup
from nextgen.replication.raft_host import PySyncObjHost, Surroundings
from tests.support.sim_disk import SimDisk
from tests.support.virtual_time import VirtualWorker

GROUP = GroupId(1)
DATA = Path("/data")
FAULTS = (
    *("crash", "crash", "stop", "power cut", "cut", "cut", "unplug", "unplug"),
    *("heal", "heal", "loss", "disk", "disk", "transfer", "snapshot"),
)
CONFIG = RaftConfig(
    journal_segment_bytes=32 * 1024, snapshot_tail_entries=8, snapshot_chunk_bytes=512
)


class SimView:
    """A view in memory whose durable copy and snapshots live on the simulated disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._point = AppliedPoint(0, 0, 0)
        self.payloads: list[str] = []
        self.full = False
        self.broken = False
        if "view" in disk.list_names(DATA):
            self._load(DATA / "view")

    def applied(self) -> AppliedPoint:
        return self._point

    def apply(self, entries: Sequence[Entry]) -> None:
        if self.full:
            raise OSError(28, "no space left on device")
        assert not self.broken, "the view is broken"
        for entry in entries:
            assert entry.index == self._point.index + 1, "a gap in what is folded"
            assert entry.first_position == self._point.position + 1, "positions are dense"
            self.payloads += [record.payload.decode() for record in entry.records]
            self._point = AppliedPoint(entry.index, entry.term, entry.next_position - 1)

    def make_durable(self) -> AppliedPoint:
        point = self._save(DATA / "view.new")
        self._disk.rename(DATA / "view.new", DATA / "view")
        self._disk.sync_directory(DATA, label="view.name")
        return point

    def write_snapshot(self, path: Path) -> AppliedPoint:
        return self._save(path)

    def install_snapshot(self, path: Path) -> AppliedPoint:
        self._load(path)
        return self._point

    def close(self) -> None:
        """Nothing to close."""

    def _save(self, path: Path) -> AppliedPoint:
        point = self._point
        body = json.dumps([[point.index, point.term, point.position], self.payloads]).encode()
        self._disk.unlink(path)
        handle = self._disk.open(path, create=True)
        self._disk.pwrite(handle, body, 0)
        self._disk.sync(handle, label="view.bytes")
        self._disk.close(handle)
        return point

    def _load(self, path: Path) -> None:
        point, self.payloads = json.loads(self._disk.read(path))
        self._point = AppliedPoint(*point)


class SimNetwork:
    """Delivers frames late, rarely not at all, and not across a cut."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self.meshes: dict[NodeId, SimMesh] = {}
        self.cut: set[frozenset[NodeId]] = set()
        self.tap: Callable[[NodeId, NodeId, Message], None] = lambda _sender, _target, _m: None
        """Sees every message at the moment it is sent."""
        self.loss = 0.0
        self.delay_ms_max = 2.0

    def connected(self, one: NodeId, other: NodeId) -> bool:
        return one in self.meshes and other in self.meshes

    def send(self, sender: SimMesh, target_id: NodeId, channel: int, message: Message) -> bool:
        if not self.connected(sender.node_id, target_id):
            return False
        frame = encode_frame(channel, message)
        self.tap(sender.node_id, target_id, message)
        if self._chance.random() < self.loss:
            return True
        target = self.meshes[target_id]
        self._loop.call_later(
            self._chance.uniform(0.05, self.delay_ms_max) / 1000,
            self._deliver,
            sender,
            target,
            frame,
        )
        return True

    def _deliver(self, sender: SimMesh, target: SimMesh, frame: bytes) -> None:
        if frozenset((sender.node_id, target.node_id)) in self.cut:
            return
        # What a process sent or was sent before it died dies with its connections.
        if self.meshes.get(sender.node_id) is sender and self.meshes.get(target.node_id) is target:
            (body,) = FrameReader().receive_data(frame)
            channel, message = decode_frame(body)
            target.receive(sender.node_id, channel, message)

    def unplug(self, node_id: NodeId) -> None:
        """Cut a living node off in a way that makes the others take it for dead at once."""
        for other in tuple(self.meshes.values()):
            if other.node_id != node_id:
                self.cut.add(frozenset((node_id, other.node_id)))
                other.tell_unreachable(node_id)

    def join(self, mesh: SimMesh) -> None:
        self.meshes[mesh.node_id] = mesh
        for other in tuple(self.meshes.values()):
            if other is not mesh:
                other.tell_connected(mesh.node_id)
                mesh.tell_connected(other.node_id)

    def leave(self, mesh: SimMesh) -> None:
        del self.meshes[mesh.node_id]
        for other in tuple(self.meshes.values()):
            delay_s = self._chance.uniform(0.1, 3) / 1000
            self._loop.call_later(delay_s, other.tell_gone, mesh.node_id)


class SimMesh:
    """One process's end of the network; a ``HostMesh``."""

    port = 0

    def __init__(self, network: SimNetwork, node_id: NodeId) -> None:
        self.node_id = node_id
        self._network = network
        self._channels: dict[int, MeshChannel] = {}

    async def start(self) -> None:
        self._network.join(self)

    async def stop(self) -> None:
        self._network.leave(self)

    async def set_peer_address(self, node_id: NodeId, host: str, port: int) -> None:
        """There are no addresses here."""

    def register(self, channel: int, receiver: MeshChannel) -> None:
        self._channels[channel] = receiver
        for node_id in self._network.meshes:
            if node_id != self.node_id:
                receiver.on_peer_connected(node_id)

    def unregister(self, channel: int) -> None:
        self._channels.pop(channel, None)

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool:
        return self._network.send(self, node_id, channel, message)

    def is_connected(self, node_id: NodeId) -> bool:
        return self._network.connected(self.node_id, node_id)

    def receive(self, sender: NodeId, channel: int, message: Message) -> None:
        if channel in self._channels:
            self._channels[channel].on_message(sender, message)

    def tell_connected(self, node_id: NodeId) -> None:
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_connected(node_id)

    def tell_gone(self, node_id: NodeId) -> None:
        if node_id in self._network.meshes:
            return  # It is back already.
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_disconnected(node_id)
        self.tell_unreachable(node_id)

    def tell_unreachable(self, node_id: NodeId) -> None:
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_unreachable(node_id)


class SimNode:
    """One process: its disk stays, everything else dies with it."""

    def __init__(self, simulation: RaftSimulation, node_id: NodeId) -> None:
        self._simulation = simulation
        self.node_id = node_id
        self.lose_disk()
        self.disk_delay_ms = 1.0
        self.view_delay_ms = 1.0
        self.host: PySyncObjHost | None = None
        self.log: PySyncObjGroup | None = None
        self.view: SimView | None = None
        self._mesh: SimMesh | None = None
        self._workers: list[VirtualWorker] = []

    def lose_disk(self) -> None:
        """Put an empty disk in."""
        self.disk = SimDisk()
        self.disk.make_directory(DATA)
        self.disk.sync_directory(Path("/"), label="simulation")

    @property
    def is_up(self) -> bool:
        return self.log is not None

    async def start(self, *, rejoining: bool = False) -> None:
        simulation = self._simulation
        self._mesh = SimMesh(simulation.network, self.node_id)
        self.host = PySyncObjHost(
            node_id=self.node_id,
            cluster_id="simulation",
            listen_host="",
            listen_port=0,
            data_directory=DATA,
            config=CONFIG,
            storage=self.disk,
            random_source=simulation.chance,
            surroundings=Surroundings(
                self._mesh,
                lambda name: self._worker("view" if name.startswith("view") else "disk"),
                lambda: self._worker("disk"),
            ),
        )
        await self.host.start()
        view = SimView(self.disk)
        log = await self.host.open_group(GROUP, simulation.members, view, rejoining=rejoining)
        self.view, self.log = view, log
        log.on_commit(lambda entries: simulation.saw_committed(self.node_id, entries))
        log.on_role_change(lambda change: simulation.saw_role(self.node_id, change))

    def crash(self, *, keep_some: bool = True) -> None:
        """Cut the power; nothing is said to anybody. Of the unsynced bytes some may survive."""
        assert self.log is not None
        assert self.host is not None
        assert self._mesh is not None
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        self.host.abandon()
        self._simulation.network.leave(self._mesh)
        self.disk.crash(self._simulation.chance.getrandbits(32) if keep_some else None)
        self.host = self.log = self.view = None

    async def stop(self) -> None:
        assert self.host is not None
        host, self.host, self.log = self.host, None, None
        await host.stop()
        self.view = None
        self._workers.clear()

    def _worker(self, works_on: str) -> VirtualWorker:
        chance = self._simulation.chance

        def delay_ms() -> float:
            typical_ms = self.view_delay_ms if works_on == "view" else self.disk_delay_ms
            return chance.uniform(0.5, 1.5) * typical_ms

        worker = VirtualWorker(delay_ms)
        self._workers.append(worker)
        return worker


class RaftSimulation:
    """Nodes, network, clients that write and read, and what they may never see."""

    def __init__(self, seed: int, size: int = 3) -> None:
        self.chance = random.Random(seed)
        self.members = [NodeId(f"node-{number}") for number in range(1, size + 1)]
        self.network = SimNetwork(self.chance)
        self.nodes = [SimNode(self, member) for member in self.members]
        self.leaders: dict[int, NodeId] = {}
        self.committed: dict[int, Entry] = {}
        self.acked: dict[str, Commit] = {}
        self.acked_index = 0
        self.reads = 0
        self.stopping = False

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()

    async def leader(self) -> SimNode:
        """Return the one node that leads, once there is one."""
        async with asyncio.timeout(30):
            while len(leading := [n for n in self.nodes if n.log and n.log.is_leader]) != 1:
                await asyncio.sleep(0.001)
        return leading[0]

    async def followers(self) -> list[SimNode]:
        leader = await self.leader()
        return [node for node in self.nodes if node is not leader]

    # Invariants -------------------------------------------------------------------------------

    def saw_role(self, node_id: NodeId, change: RoleChange) -> None:
        """OneLeaderPerTerm (Raft paper, 5.2)."""
        if change.role is Role.LEADER:
            leader = self.leaders.setdefault(change.term, node_id)
            assert leader == node_id, f"{leader} and {node_id} lead term {change.term}"

    def saw_committed(self, node_id: NodeId, entries: Sequence[Entry]) -> None:
        """CommittedEntriesNeverChange (Raft paper, 5.4.3)."""
        for entry in entries:
            known = self.committed.setdefault(entry.index, entry)
            assert known == entry, f"{node_id} committed another entry {entry.index}"

    def check_end(self) -> None:
        """AnswerImpliesCommitted, and ReplicasAgree."""
        views = [node.view.payloads for node in self.nodes if node.view is not None]
        assert all(view == views[0] for view in views), "the views differ"
        folded = set(views[0])
        lost = [payload for payload in self.acked if payload not in folded]
        assert not lost, f"acknowledged and lost: {lost[:5]}"
        assert len(folded) == len(views[0]), "a record was committed twice"
        for payload, commit in self.acked.items():
            entry = self.committed[commit.index]
            assert payload.encode() in [record.payload for record in entry.records]

    # Clients ----------------------------------------------------------------------------------

    async def write_for_ever(self, name: str) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.chance.uniform(0, 0.02))
            node = self.chance.choice(self.nodes)
            if node.log is None or not node.log.is_leader:
                continue
            number += 1
            payload = f"{name}-{number}" + "." * self.chance.choice((0, 0, 300))
            try:
                future = node.log.propose(Record(payload.encode(), self.chance.choice((0, 1, 3))))
                async with asyncio.timeout(3):
                    commit = await future
            except (MetadataError, TimeoutError):
                continue
            self.acked[payload] = commit
            self.acked_index = max(self.acked_index, commit.index)

    async def read_for_ever(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.chance.uniform(0, 0.05))
            node = self.chance.choice(self.nodes)
            if node.log is None:
                continue
            acked_before = self.acked_index
            try:
                async with asyncio.timeout(3):
                    index = await node.log.read_index()
            except (NotLeader, Overloaded, TimeoutError):
                continue
            self.reads += 1
            assert index >= acked_before, f"a stale read: {index}, acked was {acked_before}"

    # Faults -----------------------------------------------------------------------------------

    async def one_fault(self) -> str:
        """Let one thing go wrong, or right again; return what it was."""
        fault = self.chance.choice(FAULTS)
        node = self.chance.choice(self.nodes)
        if fault in ("crash", "stop") and node.log is not None:
            node.crash() if fault == "crash" else await node.stop()
            await asyncio.sleep(self.chance.uniform(0, 3))
            await node.start()
        elif fault == "power cut":
            await self._cut_power()
        elif fault == "cut":
            pairs = [frozenset((node.node_id, m)) for m in self.members if m != node.node_id]
            self.network.cut |= set(self.chance.sample(pairs, self.chance.randint(1, len(pairs))))
        elif fault == "unplug":
            self.network.unplug(node.node_id)
        elif fault == "heal":
            self.network.cut.clear()
        elif fault == "loss":
            self.network.loss = self.chance.choice((0.0, 0.0, 0.02, 0.2))
            self.network.delay_ms_max = self.chance.choice((1.0, 5.0, 60.0))
        elif fault == "disk":
            node.disk_delay_ms = self.chance.choice((0.2, 1.0, 30.0))
        else:
            await self._ask_leader(fault)
        return f"{fault} {node.node_id}"

    async def _cut_power(self) -> None:
        """Everybody dies at once; some come back much later than others."""
        down = [node for node in self.nodes if node.is_up]
        for node in down:
            node.crash()
        self.chance.shuffle(down)
        for node in down:
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 4.0)))
            await node.start()

    async def _ask_leader(self, fault: str) -> None:
        for node in self.nodes:
            if node.log is not None and (node.log.is_leader or fault == "snapshot"):
                try:
                    if fault == "snapshot":
                        async with asyncio.timeout(5):
                            await node.log.take_snapshot()
                    else:
                        await node.log.transfer_leadership(self.chance.choice(self.members))
                except (MetadataError, TimeoutError):
                    continue

    async def heal(self) -> None:
        """Take every fault back and wait until all views have everything."""
        self.network.cut.clear()
        self.network.loss = 0.0
        self.network.delay_ms_max = 2.0
        for node in self.nodes:
            node.disk_delay_ms = 1.0
            if not node.is_up:
                await node.start()
        async with asyncio.timeout(60):
            while not self._is_settled():
                await asyncio.sleep(0.05)

    def _is_settled(self) -> bool:
        logs = [node.log for node in self.nodes if node.log is not None]
        if len(logs) < len(self.nodes) or sum(log.is_leader for log in logs) != 1:
            return False
        ends = {(log.status.last_index, log.status.applied.index) for log in logs}
        return len(ends) == 1 and all(log.status.role is not Role.STOPPED for log in logs)
