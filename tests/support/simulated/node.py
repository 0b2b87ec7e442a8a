"""One node of a simulated group: its disk stays, everything else dies with its process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from nextgen.replication.config import RaftConfig
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.raft_host import HostEnvironment, PySyncObjHost
from nextgen.replication.journal.format import decode_segment_header
from nextgen.replication.journal.recovery import SEGMENT_SUFFIX
from nextgen.replication.ports import Entry, GroupId, NodeId, RoleChange
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.network import SimMesh, SimNetwork
from tests.support.simulated.process import SimProcess
from tests.support.simulated.view import SimView
from tests.support.simulated.virtual_time import VirtualTimeLoop, VirtualWorker

GROUP = GroupId(1)
DATA = Path("/data")

USUAL_DELAY_MS = 1.0
"""What an operation of a disk without faults takes, within half of it."""

BUSY_S_MAX = 0.05
"""A worker that is busy for longer has work left from when its disk was slow."""


class World(Protocol):
    """What a node needs of the simulation it lives in."""

    chance: random.Random
    network: SimNetwork
    members: list[NodeId]
    config: RaftConfig

    def make_view(self, node: SimNode) -> SimView: ...
    def saw_committed(self, node_id: NodeId, entries: Sequence[Entry]) -> None: ...
    def saw_role(self, node_id: NodeId, change: RoleChange) -> None: ...
    def saw_step(self, process: SimProcess) -> None: ...


class SimNode:
    """Starts, stops and kills the process; see the module."""

    def __init__(self, world: World, node_id: NodeId) -> None:
        self._world = world
        self.node_id = node_id
        self.lose_disk()
        self.disk_delay_ms = USUAL_DELAY_MS
        self.view_delay_ms = USUAL_DELAY_MS
        self.process: SimProcess | None = None
        self.host: PySyncObjHost | None = None
        self.log: PySyncObjGroup | None = None
        self.view: SimView | None = None
        self._mesh: SimMesh | None = None
        self._workers: list[VirtualWorker] = []
        self._loop: VirtualTimeLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self._disk_hangs_until_s = 0.0

    def __repr__(self) -> str:
        return f"<SimNode {self.node_id} {self.process} {self.log}>"

    def lose_disk(self) -> None:
        """Put an empty disk in."""
        self.disk = SimDisk()
        self.disk.make_directory(DATA)
        self.disk.sync_directory(Path("/"), label="simulation")

    def put_data_aside(self) -> None:
        """Do what a node does that left the group: all is gone but the note that it was there."""
        self.lose_disk()
        note = self.disk.open(DATA / f"group-{GROUP}.member", create=True)
        self.disk.close(note)
        self.disk.sync_directory(DATA, label="simulation")

    def hang_disk(self, seconds: float) -> None:
        """Let every operation of the disk that begins within ``seconds`` end behind them.

        A restart changes nothing about that, a power cut ends it.
        """
        self._disk_hangs_until_s = self._loop.now_s + seconds
        for worker in self._workers:
            worker.hang(seconds)

    @property
    def disk_hangs_s(self) -> float:
        """Return for how long the disk will still hang."""
        return max(0.0, self._disk_hangs_until_s - self._loop.now_s)

    @property
    def is_disk_quick(self) -> bool:
        """True if the disk and the view take no longer than they usually do."""
        slow_ms = max(self.disk_delay_ms, self.view_delay_ms)
        busy_s = max((worker.busy_s for worker in self._workers), default=0.0)
        return slow_ms <= USUAL_DELAY_MS and not self.disk_hangs_s and busy_s <= BUSY_S_MAX

    @property
    def is_up(self) -> bool:
        return self.log is not None

    @property
    def is_recovering(self) -> bool:
        """True while its process runs and has not opened the group yet."""
        return self.process is not None and self.log is None

    @property
    def mesh(self) -> SimMesh:
        """Its end of the network while it is up."""
        assert self._mesh is not None, f"{self.node_id} is down"
        return self._mesh

    async def start(self, *, may_be_lost: bool = False, joining: bool = False) -> None:
        """Start a process and open the group. ``may_be_lost``: see ``Groups.open`` of a shard node.

        Raises:
            ConnectionResetError: The process died meanwhile.
            OSError, MetadataError: It refused to start, and is gone.
        """
        assert self.process is None, f"{self.node_id} runs already"
        process = self.process = SimProcess(self.node_id, self._world.saw_step)
        try:
            await process.ask(lambda: self._open(may_be_lost=may_be_lost, joining=joining))
        except BaseException:
            if self.process is process:
                self.kill()
            raise

    def rot_tail(self, length: int) -> None:
        """Turn the last ``length`` bytes that the journal holds to garbage, its header excepted.

        The process must be gone.
        """
        directory = DATA / f"group-{GROUP}" / "journal"
        segments = [n for n in self.disk.list_names(directory) if n.endswith(SEGMENT_SUFFIX)]
        if segments:
            path = directory / segments[-1]
            data = self.disk.read(path)
            header = decode_segment_header(data)
            if header is None:
                return  # What its last process began was never finished.
            end = len(data.rstrip(b"\0"))
            begin = max(header.bytes_long, end - length)
            self.disk.damage(path, begin, b"\xb6" * max(0, end - begin))

    def crash(self, *, keep_some: bool = True, silently: bool = False) -> None:
        """Cut the power. Of the unsynced bytes some may survive, or none.

        ``silently``: nobody answers for the machine, not even with a reset.
        """
        self._end(silently=silently)
        self._disk_hangs_until_s = 0.0
        self.disk.crash(self._world.chance.getrandbits(32) if keep_some else None)

    def power_cycle(self) -> None:
        """Cut the power, whether a process runs or not: a disk that hung works again."""
        if self.process is not None:
            self.crash()
        self._disk_hangs_until_s = 0.0

    def kill(self) -> None:
        """Kill the process: what it wrote stays in the system's cache, synced or not."""
        self._end(silently=False)
        self.disk.close_all()

    async def stop(self) -> None:
        """Stop it properly: SIGTERM.

        Raises:
            ConnectionResetError: It died meanwhile.
        """
        assert self.host is not None
        assert self.process is not None
        process, host = self.process, self.host
        await process.ask(host.stop)
        process.kill()
        self._forget_process()

    def _end(self, *, silently: bool) -> None:
        assert self.process is not None, f"{self.node_id} does not run"
        self.process.kill()
        for worker in self._workers:
            worker.kill()
        if self.host is not None:
            self.host.abandon()
        if self._mesh is not None:
            self._world.network.leave(self._mesh, silently=silently)
        self._forget_process()

    def _forget_process(self) -> None:
        self.process = self.host = self.log = self.view = self._mesh = None
        self._workers.clear()

    async def _open(self, *, may_be_lost: bool, joining: bool) -> None:
        world = self._world
        self._mesh = SimMesh(world.network, self.node_id)
        self.host = PySyncObjHost(
            node_id=self.node_id,
            cluster_id="simulation",
            listen_host="",
            listen_port=0,
            data_directory=DATA,
            config=world.config,
            storage=self.disk,
            random_source=world.chance,
            environment=HostEnvironment(
                self._mesh,
                lambda name: self._worker("view" if name.startswith("view") else "disk"),
                lambda: self._worker("disk"),
            ),
        )
        await self.host.start()
        view = world.make_view(self)
        log = await self.host.open_group(
            GROUP, world.members, view, rejoining=may_be_lost, joining=joining
        )
        self.view, self.log = view, log
        log.on_commit(lambda entries: world.saw_committed(self.node_id, entries))
        log.on_role_change(lambda change: world.saw_role(self.node_id, change))

    def _worker(self, works_on: str) -> VirtualWorker:
        chance = self._world.chance

        def delay_ms() -> float:
            typical_ms = self.view_delay_ms if works_on == "view" else self.disk_delay_ms
            return chance.uniform(0.5, 1.5) * typical_ms

        worker = VirtualWorker(delay_ms)
        worker.hang(self.disk_hangs_s)
        self._workers.append(worker)
        return worker
