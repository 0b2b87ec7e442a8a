"""Faults of the disk on which brokers keep their ledgers."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.cluster_simulation.components import kind_of
from tests.support.cluster_simulation.process import DISK_DELAY_MS
from tests.support.cluster_simulation.simulation import ClusterSimulation, Node
from tests.support.cluster_simulation.virtual_loop import OUTSIDE
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.process import PROCESS

PAUSE_S = (1.0, 6.0)
"""Between the end of one fault and the next one."""

DOWN_S = (0.2, 2.0)
"""For so long a broker is away after a loss of power."""

OPERATIONS_MAX = 60
"""Changes of the disk in which some ten rounds or takeovers are made: one of them is the last."""

OPERATIONS_S_MAX = 2.0
"""Brokers that change so little meanwhile lose power between two changes."""

FIRST_S_MAX = 6.0
"""Brokers that have started so long ago have sessions, and have opened topics: the power that is
to fail in the middle of that fails by then."""

HANG_S = (120.0, 300.0)
"""How long a sync hangs in the runs that have one so long, unless all other faults end before."""

SHORT_HANG_S = (2.0, 12.0)
LONG_HANGS = 0.1
"""The share of runs in which the disk may hang for ``HANG_S``."""

LOST_DISKS = 0.25
"""The share of runs in which the disk may be lost: what was acknowledged before is lost with it."""

LABELS = (
    "ledger.entries",
    "ledger.facts",
    "ledger.names",
    "ledger.own",
    "ledger.own_seal",
    "ledger.predecessor",
    "ledger.prefix_name",
    "ledger.read",
    "ledger.removed_claims",
    "ledger.root",
    "ledger.seal",
    "ledger.segment_name",
    "ledger.snapshot",
    "ledger.unit_name",
)
"""Syncs that fail, one of them at a time."""


class LedgerFaults:
    """One fault at a time, each of which ends by itself.

    A loss of power ends all brokers, and what none of them has synced survives or not, sector by
    sector and name by name. A disk is lost, or its tail rots, once in a run at most.
    """

    def __init__(
        self, simulation: ClusterSimulation, chance: random.Random, counts: Counter[str]
    ) -> None:
        self._simulation = simulation
        self._chance = chance
        self._counts = counts
        self._may_hang_long = chance.random() < LONG_HANGS
        self._may_lose = chance.random() < LOST_DISKS
        self._is_off = asyncio.Event()
        """Set when the power, or the process that was to die at an operation, is gone."""
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "full ledger disk": self._fill,
            "slow ledger disk": self._slow,
            "failing ledger sync": self._fail_sync,
            "hanging ledger sync": self._hang,
            "broker killed at its disk": self._kill_at_disk,
            "ledgers lose power": self._lose_power,
            "rotten ledger index": self._rot_index,
            "rotten ledger tail": self._rot_tail,
            "lost ledger disk": self._lose_disk,
        }

    async def run(self) -> None:
        """Begin faults until this is cancelled; ``take_all_back`` ends the present one then."""
        while True:
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            await self.begin(self._chance.choice([kind for kind in self.kinds if self._may(kind)]))

    async def begin(self, kind: str) -> None:
        """Have one fault, and return when it is over."""
        self._counts[kind] += 1
        self._simulation.network.trace.note(f"fault {kind}")
        await self.kinds[kind]()

    def take_all_back(self) -> None:
        """Let the disk work again, and start the brokers that are down."""
        disk, now_s = self._disk, self._simulation.loop.now_s
        disk.keep_power()
        disk.free()
        disk.heal_syncs()
        self._set_delay(DISK_DELAY_MS)
        for node in self._brokers():
            # A hang would be most of what is left of the run.
            if node.process is not None and node.process.disk_hangs_until_s > now_s:
                node.crash(power_cut=True)
            if not node.is_up:
                node.start()

    @property
    def _disk(self) -> SimDisk:
        return self._simulation.storage.disk

    def _may(self, kind: str) -> bool:
        if kind == "lost ledger disk":
            return self._may_lose and not self._counts[kind]
        return kind != "rotten ledger tail" or not self._counts[kind]

    def _brokers(self) -> list[Node]:
        nodes = self._simulation.nodes.values()
        return [node for node in nodes if kind_of(node.name) == "broker"]

    async def _fill(self) -> None:
        self._disk.fill_up(self._chance.choice((0, 600, 20_000)))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._disk.free()

    async def _slow(self) -> None:
        """Steps of a round are so far apart that much happens in between."""
        self._set_delay(self._chance.choice((5.0, 40.0, 250.0)))
        await asyncio.sleep(self._chance.uniform(0.5, 6.0))
        self._set_delay(DISK_DELAY_MS)

    def _set_delay(self, delay_ms: float) -> None:
        for node in self._brokers():
            if node.process is not None:
                node.process.disk_delay_ms = delay_ms

    async def _fail_sync(self) -> None:
        self._disk.fail_sync(self._chance.choice(LABELS), errno.EIO, self._chance.choice((1, 1, 3)))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._disk.heal_syncs()

    async def _hang(self) -> None:
        """Nothing that a broker's thread has begun, or is about to, ends before the hang does."""
        is_long = self._may_hang_long and not self._counts["long ledger hang"]
        hang_s = self._chance.uniform(*(HANG_S if is_long else SHORT_HANG_S))
        self._counts["long ledger hang"] += is_long
        for node in self._brokers():
            if node.process is not None:
                node.process.hang_disk(hang_s)
        await asyncio.sleep(hang_s)

    # Processes that die at an operation ---------------------------------------------------------

    async def _kill_at_disk(self) -> None:
        """The broker that makes a certain change of the disk dies at it: the system goes on, and
        may fail to write what the broker has left it with."""
        self._arm(self._kill_present)
        if self._chance.random() < 0.5:
            self._disk.fail_sync("ledger.predecessor", errno.EIO)
        await self._is_off_within(OPERATIONS_S_MAX)
        await asyncio.sleep(self._chance.uniform(*DOWN_S))
        self._start_all()
        await asyncio.sleep(self._chance.uniform(*DOWN_S))
        self._disk.heal_syncs()

    def _kill_present(self) -> None:
        process = PROCESS.get()
        assert process is not None, "only brokers use their disk"
        node = self._simulation.nodes[process.name]
        if node.process is process:
            node.crash(power_cut=False)
        self._off(self._disk.keep_power)

    async def _lose_power(self) -> None:
        """At an operation of the disk, or between two; and again while brokers start."""
        await self._go_off(OPERATIONS_S_MAX)
        await self._come_back()

    async def _go_off(self, seconds_max: float) -> None:
        self._arm(self._power_fails)
        if not await self._is_off_within(seconds_max):
            self._power_fails()
            await self._is_off.wait()

    async def _come_back(self) -> None:
        for _ in range(self._chance.choice((0, 0, 1, 2))):
            self._start_all()
            await self._go_off(FIRST_S_MAX)
            self._counts["interrupted ledger start"] += 1
        for node in self._brokers():
            await asyncio.sleep(self._chance.uniform(*DOWN_S))
            if not node.is_up:
                node.start()

    def _start_all(self) -> None:
        for node in self._brokers():
            if not node.is_up:
                node.start()

    def _arm(self, at_operation: Callable[[], None]) -> None:
        self._is_off.clear()
        self._disk.on_power_cut = at_operation
        self._disk.cut_power_after(self._chance.randrange(OPERATIONS_MAX))

    async def _is_off_within(self, seconds: float) -> bool:
        """Return whether it came to the operation in time; then none is armed any more."""
        ends_at_s = self._simulation.loop.now_s + seconds
        while not self._is_off.is_set() and self._simulation.loop.now_s < ends_at_s:
            await asyncio.sleep(0.05)
        self._disk.keep_power()
        return self._is_off.is_set()

    def _power_fails(self) -> None:
        self._end_brokers()
        disk, seed = self._disk, self._chance.getrandbits(32)
        self._off(lambda: disk.crash(seed))

    def _end_brokers(self) -> None:
        for node in self._brokers():
            if node.is_up:
                node.crash(power_cut=True)

    def _off(self, afterwards: Callable[[], None]) -> None:
        """Have the disk work again for others, once the work that was interrupted has ended."""

        def ended() -> None:
            afterwards()
            self._is_off.set()

        self._simulation.loop.call_soon(ended, context=OUTSIDE)

    # What the disk loses ------------------------------------------------------------------------

    async def _rot_index(self) -> None:
        """Damage an index: the one file of a ledger that is made again if it is not whole."""
        await self._go_off(OPERATIONS_S_MAX)
        self._end_brokers()  # Another fault may have started one meanwhile.
        indexes = [path for path in self._disk.image() if path.endswith(".index")]
        if indexes:
            path = Path(self._chance.choice(indexes))
            size = len(self._disk.read(path))
            offset = self._chance.randrange(max(1, size))
            self._disk.damage(path, offset, self._chance.randbytes(min(16, max(0, size - offset))))
        await self._come_back()

    async def _rot_tail(self) -> None:
        """Damage one of the last entries of a ledger."""
        await self._go_off(OPERATIONS_S_MAX)
        self._end_brokers()
        self._counts["no ledger to rot"] += not self._simulation.storage.rot(self._chance)
        await self._come_back()

    async def _lose_disk(self) -> None:
        """An empty disk is put in."""
        await self._go_off(OPERATIONS_S_MAX)
        self._end_brokers()
        self._simulation.storage.replace_disk()
        await self._come_back()
