"""What a process with Raft groups has under it: a mesh, a disk, views in SQLite.

The mesh loses, delays, overtakes and repeats messages, which is more than TCP would do. Journals
and snapshots are on a ``SimDisk``; views are real SQLite files, whose state after a power cut is
that of the last ``make_durable``. A process that is merely killed finds all it had written.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nextgen.replication.config import RaftConfig
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.raft_host import HostEnvironment, PySyncObjHost
from nextgen.replication.mesh.frames import Message, decode_frame, encode_frame
from nextgen.replication.ports import AppliedPoint, Entry, GroupId, NodeId, RoleChange
from nextgen.runtime.lifecycle.data_directory import LOCK_FILE
from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.network import LENGTH_BYTES, MeshEnd

RAFT_CONFIG = RaftConfig(
    journal_segment_bytes=48 * 1024,
    snapshot_journal_bytes=24 * 1024,
    log_tail_entries=12,
    snapshot_chunk_bytes=16 * 1024,
)
"""Small, so that a few minutes see segments, snapshots and transfers."""

MESH_SILENCE_MS = (1_000, 3_000)
"""After so long a mesh gives up a connection to a machine that is off."""


class MeshFabric:
    """All meshes of a cluster, and the faults between them."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.network = network
        self.chance = chance
        self.meshes: dict[str, SimulatedMesh] = {}
        self.loss = 0.0
        self.repeats = 0.0

    def calm(self) -> None:
        self.loss = self.repeats = 0.0

    def join(self, mesh: SimulatedMesh) -> None:
        self.meshes[mesh.process.name] = mesh
        for other in tuple(self.meshes.values()):
            self.connect_if_known(mesh, other)

    def connect_if_known(self, one: SimulatedMesh, other: SimulatedMesh) -> None:
        """The greater of two names dials the lesser, once it knows where that is."""
        dialer, dialed = (one, other) if one.node_id > other.node_id else (other, one)
        if one is other or dialed.node_id not in dialer.known:
            return
        for mesh, peer in ((one, other), (other, one)):
            self._later(mesh, lambda mesh=mesh, peer=peer: mesh.meet(peer))  # type: ignore[misc]

    def leave(self, mesh: SimulatedMesh, *, with_machine: bool) -> None:
        if self.meshes.get(mesh.process.name) is mesh:
            del self.meshes[mesh.process.name]
        for other in tuple(self.meshes.values()):
            delay_ms = self.chance.uniform(*MESH_SILENCE_MS) if with_machine else None
            self._later(other, lambda other=other: other.lose(mesh), delay_ms)  # type: ignore[misc]

    def carry(self, sender: SimulatedMesh, target: SimulatedMesh, frame: bytes) -> None:
        if self.chance.random() < self.loss:
            return
        copies = 2 if self.chance.random() < self.repeats else 1
        for _ in range(copies):
            self._later(target, lambda: self._arrive(sender, target, frame))

    def _arrive(self, sender: SimulatedMesh, target: SimulatedMesh, frame: bytes) -> None:
        is_cut = self.network.is_cut(sender.process.host, target.process.host)
        # What a process was sent before it died dies with its connections.
        if is_cut or target.peers.get(sender.node_id) is not sender:
            return
        self.network.trace.note(f"{sender.node_id}>{target.node_id} raft", frame)
        target.receive(sender.node_id, *decode_frame(frame[LENGTH_BYTES:]))

    def _later(
        self, mesh: SimulatedMesh, work: Callable[[], None], delay_ms: float | None = None
    ) -> None:
        if delay_ms is None:
            delay_ms = self.chance.uniform(0.05, self.network.delay_ms_max)
        context = mesh.process.context
        self.network.loop.call_later(delay_ms / 1000, work, context=context)


class SimulatedMesh(MeshEnd["SimulatedMesh"]):
    """One process's end; a ``HostMesh``."""

    def __init__(self, fabric: MeshFabric, process: SimulatedProcess) -> None:
        super().__init__(NodeId(process.name))
        self.process = process
        self.known: dict[NodeId, None] = {}
        self._fabric = fabric

    async def start(self) -> None:
        self._fabric.join(self)

    async def stop(self) -> None:
        self._fabric.leave(self, with_machine=False)

    async def set_peer_address(self, node_id: NodeId, host: str, port: int) -> None:
        if node_id in self.known:
            return
        self.known[node_id] = None
        peer = self._fabric.meshes.get(node_id)
        if peer is not None and self._fabric.meshes.get(self.node_id) is self:
            self._fabric.connect_if_known(self, peer)

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool:
        peer = self.peers.get(node_id)
        if peer is None:
            return False
        self._fabric.carry(self, peer, encode_frame(channel, message))
        return True

    def meet(self, peer: SimulatedMesh) -> None:
        if self._fabric.meshes.get(peer.process.name) is not peer:
            return
        before = self.peers.get(peer.node_id)
        if before is peer:
            return
        if before is not None:
            self.lose(before)
        self.peers[peer.node_id] = peer
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_connected(peer.node_id)

    def lose(self, peer: SimulatedMesh) -> None:
        if self.peers.get(peer.node_id) is not peer:
            return
        del self.peers[peer.node_id]
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_disconnected(peer.node_id)
        for receiver in tuple(self._channels.values()):
            receiver.on_peer_unreachable(peer.node_id)


class Machine:
    """What stays when a process dies: its disk, its data directory, the durable views."""

    def __init__(self, root: Path, name: str) -> None:
        self.directory = root / name
        self.scratch = root / f"{name}.scratch"
        self.scratch.mkdir(parents=True)
        self.disk = self._empty_disk()
        self.snapshots_installed = 0
        self._stores: list[tuple[int, Any]] = []
        self._durable: dict[Path, dict[str, bytes]] = {}

    def _empty_disk(self) -> SimDisk:
        disk = SimDisk()
        made = Path("/")
        for part in self.directory.parts[1:]:
            made = made / part
            disk.make_directory(made)
            disk.sync_directory(made.parent, label="simulation")
        return disk

    def replace_disk(self) -> None:
        """Replace a broken disk by an empty one. The process must be gone."""
        self.disk = self._empty_disk()
        self._durable.clear()
        shutil.rmtree(self.directory)

    def forget_removed(self, group_id: int) -> None:
        """Remove SQLite's files of a group whose directory was put aside, or never was."""
        directory = self.directory / f"group-{group_id}"
        if not self.disk.is_directory(directory):
            shutil.rmtree(directory, ignore_errors=True)
            self._durable.pop(directory / "view", None)

    def open_views(self) -> list[tuple[int, Any]]:
        """Return the open view stores by their groups."""
        return list(self._stores)

    def opened(self, store: Any, group_id: int, directory: Path) -> View:
        self._stores.append((group_id, store))
        self._durable.setdefault(directory, {})
        return View(store, self, directory)

    def closed(self, store: Any) -> None:
        self._stores = [(group_id, other) for group_id, other in self._stores if other is not store]

    def remember(self, directory: Path) -> None:
        """What SQLite has in ``directory`` is on the medium."""
        self._durable[directory] = _files_in(directory)

    def lose_process(self, *, power_cut: bool, seed: int) -> None:
        """Turn the disk into what the next process finds."""
        if power_cut:
            self.disk.crash(seed)
        else:
            self.disk.close_all()
        images = {
            directory: durable if power_cut else _files_in(directory)
            for directory, durable in self._durable.items()
            if directory.exists()
        }
        for _, store in self._stores:
            with suppress(Exception):
                store.close()
        self._stores.clear()
        self._release_lock()
        self._durable = {directory: self._durable[directory] for directory in images}
        for directory, image in images.items():
            for path in directory.iterdir():
                path.unlink()
            for name, data in image.items():
                (directory / name).write_bytes(data)

    def _release_lock(self) -> None:
        """Close the lock that the dead process holds: its descriptor is one of ours."""
        lock = str(self.directory / LOCK_FILE)
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == lock:
                    os.close(int(name))

    def remove(self) -> None:
        for _, store in self._stores:
            with suppress(Exception):
                store.close()
        self._release_lock()
        shutil.rmtree(self.directory, ignore_errors=True)


def _files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


class View:
    """A view store whose snapshots travel by way of the simulated disk."""

    def __init__(self, store: Any, machine: Machine, directory: Path) -> None:
        self._store = store
        self._machine = machine
        self._view_directory = directory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close(self) -> None:
        self._store.close()
        self._machine.closed(self._store)

    def make_durable(self) -> AppliedPoint:
        point: AppliedPoint = self._store.make_durable()
        self._machine.remember(self._view_directory)
        return point

    def write_snapshot(self, path: Path) -> AppliedPoint:
        scratch = self._machine.scratch / path.name
        point: AppliedPoint = self._store.write_snapshot(scratch)
        disk = self._machine.disk
        disk.unlink(path)
        handle = disk.open(path, create=True)
        disk.pwrite(handle, scratch.read_bytes(), 0)
        disk.sync(handle, label="view.snapshot")
        disk.close(handle)
        disk.sync_directory(path.parent, label="view.snapshot_name")
        scratch.unlink()
        return point

    def install_snapshot(self, path: Path) -> AppliedPoint:
        scratch = self._machine.scratch / path.name
        scratch.write_bytes(self._machine.disk.read(path))
        point: AppliedPoint = self._store.install_snapshot(scratch)
        scratch.unlink()
        self._machine.remember(self._view_directory)
        self._machine.snapshots_installed += 1
        return point


class Witness:
    """The observer of replicas in a run."""

    def saw_committed(self, node_id: str, group_id: int, entries: Sequence[Entry]) -> None: ...

    def saw_role(self, node_id: str, group_id: int, change: RoleChange) -> None: ...


class SimulatedHost(PySyncObjHost):
    """The real host in a simulated environment. Made by a component's ``serve``."""

    def __init__(
        self,
        process: SimulatedProcess,
        machine: Machine,
        fabric: MeshFabric,
        witness: Witness,
        *,
        node_id: NodeId,
        cluster_id: str,
        data_directory: Path,
        **_listen: Any,
    ) -> None:
        self.simulated_mesh = SimulatedMesh(fabric, process)
        self._machine = machine
        self._witness = witness
        self._who = node_id
        super().__init__(
            node_id=node_id,
            cluster_id=cluster_id,
            listen_host="",
            listen_port=0,
            data_directory=data_directory,
            config=RAFT_CONFIG,
            storage=machine.disk,
            random_source=random.Random(fabric.chance.getrandbits(64)),
            environment=HostEnvironment(
                self.simulated_mesh,
                lambda _name: process.new_worker(),
                process.new_worker,
            ),
        )

    async def open_group(
        self, group_id: GroupId, members: Sequence[NodeId], state_machine: Any, **named: Any
    ) -> PySyncObjGroup:
        self._machine.forget_removed(group_id)

        def open_view() -> Any:
            store = state_machine()
            directory = self._data_directory / f"group-{group_id}" / "view"
            return self._machine.opened(store, group_id, directory)

        group = await super().open_group(group_id, members, open_view, **named)
        who, witness = str(self._who), self._witness
        group.on_commit(lambda entries: witness.saw_committed(who, group_id, entries))
        group.on_role_change(lambda change: witness.saw_role(who, group_id, change))
        return group
