"""What one frame costs the process that gets it: its event loop, its memory, its log.

    async with probed_cluster(folder) as cluster:
        measured = await Measuring(cluster, "broker-1").frame("a name", send)

The processes are those of a cluster as anybody starts one, with a probe in each that notes the
processor time of its loop's most expensive callback (``tests/support/costs/stall_probe``).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import psutil

from nextgen.cli.local.plan import MINIMAL, NodePlan, make_plan_on_free_ports
from tests.support.costs.processor_time import slowness
from tests.support.processes.local_cluster import LocalCluster

STALL_MS_MAX = 100
"""Processor time of a loop's thread between two yields, on an ordinary server."""

GROWTH_SHARE_MAX = 0.1
"""Of a process' resident memory, by a round of frames that it had before."""

LOG_BYTES_MAX = 1_024
"""Diagnostics for one frame."""

Send = Callable[[], Awaitable[None]]
"""Sends one frame, and returns once the process has dealt with it."""

ROUNDS_MAX = 5

TOO_EXPENSIVE: dict[str, str] = {}
"""Frames that are known to cost too much, by the beginning of their names, and why. Only gets
shorter."""

Frame = tuple[str, Send]

RECORD = struct.Struct("=d248s")
"""As ``stall_probe`` writes it."""

QUIET_S = 0.5
"""Between two attempts a process' log stays as it is for so long."""
SETTLED_S = 0.02
"""After the last answer, so that what frames still cause is measured with them."""
GROUP_FRAMES = 8
QUIET_WAITS_MAX = 40


@dataclass(frozen=True)
class Cost:
    """What one frame cost. ``where`` is the callback that took the most."""

    frame: str
    stall_ms: float
    log_bytes: int
    where: str

    @property
    def is_too_much(self) -> bool:
        return self.stall_ms > STALL_MS_MAX or self.log_bytes > LOG_BYTES_MAX

    def __str__(self) -> str:
        return f"{self.stall_ms:8.1f} ms {self.log_bytes:8,} B of log  {self.frame}  [{self.where}]"


class ProbedCluster(LocalCluster):
    """A cluster with a probe in each of its processes."""

    @property
    def probes(self) -> Path:
        return self.data_dir / "probes"

    def environment_of(self, node: NodePlan) -> dict[str, str]:
        """Return the environment of a process that loads the probe before anything else."""
        environment = super().environment_of(node)
        self.probes.mkdir(parents=True, exist_ok=True)
        probe = Path(__file__).parent / "stall_probe"
        return environment | {
            "PYTHONPATH": f"{probe}:{environment['PYTHONPATH']}",
            "NEXTGEN_STALL_PROBE": str(self.probes),
        }


@asynccontextmanager
async def probed_cluster(data_dir: Path) -> AsyncIterator[ProbedCluster]:
    """Start a minimal cluster with probes, wait until it is ready, and stop it at the end."""
    plan = make_plan_on_free_ports(MINIMAL, cluster_id="test")
    async with ProbedCluster(plan, data_dir) as cluster:
        await cluster.wait_ready()
        yield cluster


class Measuring:
    """Measures one process of a cluster, those that it began itself included."""

    def __init__(self, cluster: ProbedCluster, node_id: str) -> None:
        self._log = cluster.log_path(node_id)
        process_id = cluster.process_id(node_id)
        assert process_id is not None
        self._process = psutil.Process(process_id)
        children = self._process.children(recursive=True)
        self._members = [self._process, *children]
        self._probes = [
            path
            for member in self._members
            if (path := cluster.probes / f"{member.pid}.probe").exists()
        ]
        assert self._probes

    async def resident_bytes(self) -> int:
        """Return the memory that is left when garbage was collected.

        gRPC holds a stream's last message in a cycle of its own until then.
        """
        for probe in self._probes:
            with probe.open("r+b") as file:
                file.write(RECORD.pack(-1.0, b""))
            while RECORD.unpack(probe.read_bytes())[0] < 0:
                await asyncio.sleep(0.01)
        return sum(member.memory_info().rss for member in self._members)

    async def group(self, frames: list[Frame]) -> list[Cost]:
        """Return the cost of frames that are sent one after the other.

        The longest turn of a group is that of one of its frames, and no frame writes more of log
        than its group does: what is not too much for all is not too much for any.
        """

        async def send_all() -> None:
            for _, send in frames:
                await send()

        name = frames[0][0] if len(frames) == 1 else f"{frames[0][0]} to {frames[-1][0]}"
        cost = await self.once(name, send_all)
        if not cost.is_too_much:
            return [cost]
        return [await self.frame(*frame) for frame in frames]

    async def frame(self, name: str, send: Send) -> Cost:
        """Return the cost of a frame. One that was too expensive is sent and measured again."""
        cost = await self.once(name, send)
        if cost.is_too_much:
            # A collection of garbage, or something that began meanwhile, happens once; what a frame
            # costs it costs each time.
            await self._until_quiet()
            times = slowness()
            cost = await self.once(name, send)
            cost = replace(cost, stall_ms=cost.stall_ms / times)
        return cost

    async def _until_quiet(self) -> None:
        """Return when the process writes nothing of its own accord: an election takes longer than
        two attempts."""
        written = -1
        for _ in range(QUIET_WAITS_MAX):
            if written == (written := self._log.stat().st_size):
                return
            await asyncio.sleep(QUIET_S)

    async def once(self, name: str, send: Send) -> Cost:
        """Send a frame and return its cost, work that happened at the same time included."""
        logged = self._log.stat().st_size
        for probe in self._probes:
            with probe.open("r+b") as file:
                file.write(bytes(RECORD.size))
        await send()
        await asyncio.sleep(SETTLED_S)
        seconds, what = max(RECORD.unpack(probe.read_bytes()) for probe in self._probes)
        where = what.rstrip(b"\0").decode(errors="replace")
        return Cost(name, 1_000 * seconds, self._log.stat().st_size - logged, where)


def worst(costs: Iterable[Cost], count: int = 10) -> str:
    """Return the most expensive frames as text, by stall and then by log."""
    found = list(costs)
    by_stall = sorted(found, key=lambda cost: -cost.stall_ms)[:count]
    by_log = [cost for cost in found if cost.log_bytes > LOG_BYTES_MAX]
    by_log.sort(key=lambda cost: -cost.log_bytes)
    lines = ["the most expensive frames:", *map(str, by_stall)]
    if by_log:
        lines += ["frames that write more than they may:", *map(str, by_log[:count])]
    return "\n".join(lines)


async def costs_of(measuring: Measuring, frames: Iterable[Frame]) -> list[Cost]:
    """Return the costs of frames, of each alone where those of a group are too much together."""
    rest = iter(frames)
    costs = []
    while group := list(islice(rest, GROUP_FRAMES)):
        costs += await measuring.group(group)
    return costs


async def measure(measuring: Measuring, frames: list[Frame]) -> list[Cost]:
    """Send all frames, and again until a round finds its memory there.

    That is mostly the second one. Allocators and gRPC keep some of what was freed, differently
    each time; what is never given back makes every round grow.
    """
    costs = await costs_of(measuring, frames)
    resident = [await measuring.resident_bytes()]
    while len(resident) < ROUNDS_MAX:
        costs += await costs_of(measuring, frames)
        resident.append(await measuring.resident_bytes())
        if resident[-1] <= (1 + GROWTH_SHARE_MAX) * resident[-2]:
            return costs
    raise AssertionError(f"every round of the same frames adds memory: {resident}")


def judge(costs: list[Cost]) -> None:
    print(worst(costs))
    known = tuple(TOO_EXPENSIVE)
    too_much = [cost for cost in costs if cost.is_too_much and not cost.frame.startswith(known)]
    assert too_much == [], worst(too_much)
