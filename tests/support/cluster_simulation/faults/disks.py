"""Faults of the disks of shard nodes and cluster managers."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from nextgen.replication.journal.format import decode_segment_header
from nextgen.tasks.timeouts import timeout
from tests.support.cluster_simulation.components import has_disk, kind_of
from tests.support.cluster_simulation.process import DISK_DELAY_MS
from tests.support.cluster_simulation.simulation import ClusterSimulation, Node
from tests.support.simulated.disk import SECTOR_BYTES

START_OPERATIONS_MAX = 60
"""Changes of a disk that a first start makes, and some more: it is interrupted at one of them."""

FIRST_START_S_MAX = 3.0
"""A start that has reached this step is not interrupted any more."""

HANG_S = (120.0, 300.0)
"""How long a sync hangs in the runs that have one so long."""

LAST_HANG_S = 20.0
"""A hang outlasts all other faults by so much at most: a power cut ends it. The rest of it would
be most of what such a run costs, in a cluster to which nothing else happens any more."""

SHORT_HANG_S = (2.0, 12.0)
LONG_HANGS = 0.1
"""The share of runs in which a disk may hang for ``HANG_S``: each makes its run much longer."""

LABELS = (
    "journal.batch",
    "journal.mark",
    "journal.segment_header",
    "journal.recovered",
    "view.snapshot",
    "cluster.file",
)
"""Syncs that fail, one of them at a time."""


class DiskFaults:
    """Each fault ends by itself.

    At most one shard node and one cluster manager in a run forget what they had.
    """

    def __init__(
        self,
        simulation: ClusterSimulation,
        chance: random.Random,
        counts: Counter[str],
        come_back: Callable[[Node, tuple[float, ...]], Awaitable[None]],
    ) -> None:
        self._simulation = simulation
        self._chance = chance
        self._counts = counts
        self._come_back = come_back
        self._may_hang_long = chance.random() < LONG_HANGS
        self._forgot: set[str] = set()
        self._others_are_over = asyncio.Event()
        self.kinds: dict[str, Callable[[Node], Awaitable[None] | None]] = {
            "slow disk": self._slow,
            "full disk": self._fill,
            "failing sync": self._fail_sync,
            "hanging sync": self._hang,
            "lost disk": self._lose,
            "rotten tail": self._rot,
        }

    def others_are_over(self) -> None:
        """No further fault begins."""
        self._others_are_over.set()

    def may_hit(self, kind: str, node: Node) -> bool:
        """Return whether ``kind`` at ``node`` leaves a majority that has everything."""
        if kind not in self.kinds:
            return True
        if not has_disk(node.name) or node.is_disk_sick:
            return False
        if kind not in ("lost disk", "rotten tail"):
            return True
        alike = [
            other
            for other in self._simulation.nodes.values()
            if kind_of(other.name) == kind_of(node.name)
        ]
        return kind_of(node.name) not in self._forgot and all(each.is_running for each in alike)

    async def _slow(self, node: Node) -> None:
        process = node.process
        assert process is not None
        process.disk_delay_ms = self._chance.choice((5.0, 40.0, 250.0))
        node.is_disk_sick = True
        await asyncio.sleep(self._chance.uniform(0.5, 6.0))
        process.disk_delay_ms = DISK_DELAY_MS
        node.is_disk_sick = False

    async def _hang(self, node: Node) -> None:
        """Nothing that a thread has begun or is about to begin ends before the hang does."""
        assert node.process is not None
        is_long = self._may_hang_long and not self._counts["long hang"]
        hang_s = self._chance.uniform(*(HANG_S if is_long else SHORT_HANG_S))
        self._counts["long hang"] += is_long
        node.is_disk_sick = True
        node.process.hang_disk(hang_s)
        if await self._ends_by_itself(hang_s + 0.5):
            node.is_disk_sick = False
            return
        if node.is_up:
            node.crash(power_cut=True)
        await self._recover(node)

    async def _ends_by_itself(self, hang_s: float) -> bool:
        """Wait for the end of a hang; return False if it is to be ended before that."""
        ends_at_s = self._simulation.loop.now_s + hang_s
        try:
            async with timeout(hang_s):
                await self._others_are_over.wait()
        except TimeoutError:
            return True
        rest_s = ends_at_s - self._simulation.loop.now_s
        await asyncio.sleep(min(rest_s, LAST_HANG_S))
        return rest_s <= LAST_HANG_S

    async def _fill(self, node: Node) -> None:
        assert node.machine is not None
        disk = node.machine.disk
        node.is_disk_sick = True
        disk.fill_up(self._chance.choice((0, 600, 5_000)))
        await asyncio.sleep(self._chance.uniform(0.5, 6.0))
        disk.free()
        await self._recover(node)

    async def _fail_sync(self, node: Node) -> None:
        """One sync fails, and an operator starts the process again on the disk that works again."""
        assert node.machine is not None
        label = self._chance.choice(LABELS)
        node.is_disk_sick = True
        node.machine.disk.fail_sync(label, errno.EIO)
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        node.machine.disk.heal_syncs()
        if node.is_up:
            node.crash(power_cut=self._chance.random() < 0.5)
        await self._recover(node)

    async def _recover(self, node: Node) -> None:
        await self._come_back(node, (0.2, 1.0))
        node.is_disk_sick = False

    async def _lose(self, node: Node) -> None:
        """An empty disk is put in. Its first start may be interrupted, even twice."""
        assert node.machine is not None
        self._forgot.add(kind_of(node.name))
        node.crash(power_cut=True)
        node.machine.replace_disk()
        node.is_disk_sick = True
        for _ in range(self._chance.choice((0, 1, 1, 2))):
            await asyncio.sleep(self._chance.uniform(0.2, 1.0))
            if self._chance.random() < 0.3:
                await self._start_on_full_disk(node)
            else:
                await self._start_and_lose_power(node)
        await self._recover(node)

    async def _start_and_lose_power(self, node: Node) -> None:
        machine = node.machine
        assert machine is not None
        node.start()
        process = node.process

        def power_fails() -> None:
            if node.process is process and process is not None:
                node.crash(power_cut=True)

        machine.disk.on_power_cut = power_fails
        machine.disk.cut_power_after(self._chance.randrange(START_OPERATIONS_MAX))
        await asyncio.sleep(self._chance.uniform(0.3, FIRST_START_S_MAX))
        power_fails()
        self._counts["interrupted first start"] += 1

    async def _start_on_full_disk(self, node: Node) -> None:
        machine = node.machine
        assert machine is not None
        machine.disk.fill_up(self._chance.choice((0, 300, 60_000, 200_000)))
        node.start()
        await asyncio.sleep(self._chance.uniform(0.3, FIRST_START_S_MAX))
        machine.disk.free()
        if node.is_up:
            node.crash(power_cut=self._chance.random() < 0.5)
        self._counts["first start on a full disk"] += 1

    async def _rot(self, node: Node) -> None:
        """The last sectors of a journal are damaged while the machine is off, never its header:
        a replica refuses to start without it, until a person has moved the journal away."""
        assert node.machine is not None
        self._forgot.add(kind_of(node.name))
        node.crash(power_cut=True)
        disk, chance = node.machine.disk, self._chance
        journals = [path for path in disk.image() if path.endswith(".journal")]
        directories = sorted({path.rpartition("/")[0] for path in journals})
        if directories:
            inside = chance.choice(directories)
            newest = Path(max(path for path in journals if path.startswith(inside)))
            data = disk.read(newest)
            header, written = decode_segment_header(data), len(data.rstrip(b"\0"))
            begin = written if header is None else header.bytes_long
            offset = max(begin, written - chance.randint(1, 3 * SECTOR_BYTES))
            disk.damage(newest, offset, chance.randbytes(max(0, min(40, written - offset))))
        node.is_disk_sick = True
        await self._recover(node)
