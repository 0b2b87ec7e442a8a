"""One seed from the empty cluster to the whole one again: ``run_seed``."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from nextgen.client import Client
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.placement import QUARANTINE_MS
from nextgen.kernel.limits.stream import WATCH_EVENTS_PER_SLICE
from nextgen.kernel.routing.names import parse_topic
from nextgen.replication.ports import Role
from nextgen.tasks.background import failures
from nextgen.tasks.timeouts import timeout
from shards.assignment.lease_keeper import _RETRY_SECONDS_MAX as LEASE_GROWTH_S_MAX
from tests.simulation.report import SeedReport
from tests.support.cluster_simulation.clients import contenders
from tests.support.cluster_simulation.clients.administrators import Administrator
from tests.support.cluster_simulation.clients.contenders import Contender, Records, judge
from tests.support.cluster_simulation.clients.grower import Grower, grower
from tests.support.cluster_simulation.clients.tender import Tender
from tests.support.cluster_simulation.clients.workload import Ledger, Workload, check_at_end
from tests.support.cluster_simulation.cluster_secret import proven_calls
from tests.support.cluster_simulation.components import ClusterPlan, limits_of
from tests.support.cluster_simulation.faults.injection import Faults
from tests.support.cluster_simulation.faults.ledgers import LedgerFaults
from tests.support.cluster_simulation.judges import settled
from tests.support.cluster_simulation.judges.freshness import Seeker
from tests.support.cluster_simulation.judges.ledgers import shared_storage
from tests.support.cluster_simulation.judges.liveness import LOOK_S, Liveness
from tests.support.cluster_simulation.judges.settled import check_views, is_settled
from tests.support.cluster_simulation.outside_world import collect_garbage, simulated_world
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.simulation import ClusterSimulation
from tests.support.cluster_simulation.virtual_loop import SimulatedLoop
from tests.support.simulated.process import PROCESS

FAULTS_PER_SEED = 30
CLIENTS = 3
CONTENDERS = 6
ADMINISTRATORS = 3
"""An effective write takes seconds behind a leader change: more of them wait at a time."""

READY_S_MAX = 40.0
"""An empty cluster without faults is complete within it."""

WHOLE_S_MAX = 60.0 + QUARANTINE_MS / 1000 + LEASE_GROWTH_S_MAX
"""After the last fault every topic is found within it. Brokers that restarted too often get nothing
while they are in quarantine, and leases on them may grow one pause after that."""

SERVED_S_MAX = 60.0
"""After that every topic takes messages within it."""

SERVED_TOPICS = 40
"""Number of topics that are checked: each costs an open ledger."""

SETTLED_S_MAX = 60.0
"""After the last command every replica has folded everything within it."""

CURRENT_S_MAX = 20.0
"""After the last command every broker has the latest metadata within it."""

LINES_KEPT = 60

Echo = Callable[[str], None]
Work = Workload | Contender | Administrator | Seeker | Tender | Grower

_FULL = frozenset({"NO_CAPACITY", "SHARE_EXCEEDED"})
"""Why a topic may be served nowhere for long: brokers have too few units, or none idle."""


class ClusterRun:
    """One run; ``report`` at its end."""

    def __init__(
        self,
        seed: int,
        *,
        faults: int = FAULTS_PER_SEED,
        only: tuple[str, ...] | None = None,
        plan: ClusterPlan | None = None,
        echo: Echo | None = None,
    ) -> None:
        self.seed = seed
        self.ledger = Ledger()
        self.records = Records()
        self._fault_count = faults
        self._only = only
        self._plan = plan or plan_of(seed)
        self._echo = echo
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._loop = SimulatedLoop(collect_garbage)
        self.simulation: ClusterSimulation | None = None
        self._faults: Faults | None = None
        self._failure: str | None = None

    def run(self) -> SeedReport:
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        root = Path(tempfile.mkdtemp(prefix="cluster-simulation-", dir=base))
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner, self._diagnostics():
                runner.run(self._main(root))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return self._report()

    def _report(self) -> SeedReport:
        simulation, faults = self.simulation, self._faults
        assert simulation is not None
        assert faults is not None
        return SeedReport(
            seed=self.seed,
            kind="cluster",
            steps=self._loop.steps,
            virtual_seconds=round(self._loop.now_s - 1000, 3),
            faults=dict(faults.counts),
            cells=dict(faults.cells),
            trace_hash=simulation.network.trace.digest(),
            failure=self._failure,
        )

    async def _main(self, root: Path) -> None:
        simulation = ClusterSimulation(self._loop, root, self.seed, self._plan)
        self.simulation = simulation
        self._faults = faults = Faults(simulation, random.Random(f"faults {self.seed}"))
        self._loop.set_exception_handler(self._unhandled)
        if self._echo is not None:
            simulation.network.trace.listener = lambda now, what, data: self._say(
                f"{now - 1000:10.4f}  {what} {len(data)}"
            )
        with (
            simulated_world(self._loop, simulation.network, self.seed),
            shared_storage(simulation.storage),
            limits_of(simulation.plan),
            proven_calls(simulation.violate, simulation.proofs),
        ):
            failures.clear()
            try:
                await self._live(simulation, faults)
            except Exception as error:
                simulation.violate(f"{type(error).__name__}: {error}", error)
            for name, count in failures.items():
                simulation.violate(f"the background task {name} failed {count} times")
            simulation.bury()
        if simulation.violations:
            tail = "\n".join(self._lines)
            others = len(simulation.violations) - 1
            self._failure = f"{simulation.violations[0]} (and {others} more)\n{tail}"

    async def _live(self, simulation: ClusterSimulation, faults: Faults) -> None:
        simulation.start_all()
        looking = asyncio.ensure_future(self._look(simulation))
        await self._wait_ready(simulation)
        clients: list[tuple[SimulatedProcess, Work]] = [
            self._workload(simulation, number) for number in range(1, CLIENTS + 1)
        ]
        clients += [
            contenders.contender(simulation, number, self.seed, self.records)
            for number in range(1, CONTENDERS + 1)
        ]
        clients += [
            self._administrator(simulation, number) for number in range(1, ADMINISTRATORS + 1)
        ]
        clients += [self._seeker(simulation), self._tender(simulation)]
        clients.append(grower(simulation, self.seed, self.records))
        running = [process.run(self._loop.create_task, work.run()) for process, work in clients]
        await asyncio.sleep(2)
        await self._break(simulation, faults, running)
        await faults.take_all_back()
        for _, work in clients:
            work.stopping = True
        await asyncio.gather(*running)
        await self._become_whole(simulation)
        await settled.wait_unchanging(simulation, WHOLE_S_MAX)
        await self._settle(simulation)
        await self._become_current(simulation)
        await self._become_served(simulation)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        # Serving them was committed, too. No await is between this and the look at the views.
        await self._settle(simulation)
        if simulation.invariants.has_gap():
            simulation.violate("a committed entry was never seen by anybody")
        for lost in simulation.storage.lost():
            simulation.violate(lost)
        check_at_end(self.ledger, simulation.invariants, simulation.violate)
        for finding in judge(self.records, simulation.invariants.entries):
            simulation.violate(f"{finding.kind} ({finding.check}): {finding.message}")
        check_views(simulation)

    async def _break(
        self, simulation: ClusterSimulation, faults: Faults, running: list[asyncio.Task[None]]
    ) -> None:
        """Have all faults of the run, and between them those of the brokers' disk.

        A run that is to have faults ``only`` of some kinds has none of these.
        """
        driving = asyncio.ensure_future(faults.run(self._fault_count, self._only))
        if self._only is not None:
            await self._watch(driving, running)
            return
        chance = random.Random(f"ledgers {self.seed}")
        ledger_faults = LedgerFaults(simulation, chance, faults.counts)
        breaking = asyncio.ensure_future(ledger_faults.run())
        await self._watch(driving, [*running, breaking])
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        ledger_faults.take_all_back()

    async def _watch(self, driving: asyncio.Task[None], running: list[asyncio.Task[None]]) -> None:
        """Return when the faults are over; at once if something was violated or broke."""
        assert self.simulation is not None
        while not driving.done():
            await asyncio.wait((driving,), timeout=1.0)
            broken = [task for task in running if task.done()]
            if self.simulation.violations or broken:
                driving.cancel()
                for task in broken:
                    task.result()
                raise AssertionError("stopped at the first violation")
        driving.result()

    def _workload(
        self, simulation: ClusterSimulation, number: int
    ) -> tuple[SimulatedProcess, Workload]:
        process = simulation.client(f"client-{number}")
        endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
        workload = process.run(
            Workload,
            f"c{number}",
            endpoints,
            random.Random(f"client {number} {self.seed}"),
            self.ledger,
            simulation.invariants,
            simulation.violate,
        )
        return process, workload

    def _administrator(
        self, simulation: ClusterSimulation, number: int
    ) -> tuple[SimulatedProcess, Administrator]:
        process = simulation.client(f"administrator-{number}")
        return process, process.run(
            Administrator,
            number,
            [f"{name}:7000" for name in simulation.plan.discovery_names],
            simulation.plan.broker_names,
            random.Random(f"administrator {number} {self.seed}"),
            self.ledger,
            simulation.invariants,
            simulation.check_effective,
        )

    def _seeker(self, simulation: ClusterSimulation) -> tuple[SimulatedProcess, Seeker]:
        process = simulation.client("seeker")
        endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
        chance = random.Random(f"seeker {self.seed}")
        return process, process.run(Seeker, endpoints, chance, simulation.invariants.freshness)

    def _tender(self, simulation: ClusterSimulation) -> tuple[SimulatedProcess, Tender]:
        process = simulation.operator("tender")
        return process, process.run(
            Tender,
            [f"{name}:7000" for name in simulation.plan.discovery_names],
            random.Random(f"tender {self.seed}"),
            self.ledger,
            simulation.invariants,
            simulation.storage,
            simulation.violate,
        )

    async def _wait_ready(self, simulation: ClusterSimulation) -> None:
        """Wait until every shard has a leader and every broker a session."""
        roles, plan = simulation.invariants.roles, simulation.plan
        async with timeout(READY_S_MAX):
            while True:
                led = {group for (_, group), role in roles.items() if role is Role.LEADER}
                if (
                    len(led) == plan.shards + 1
                    and len(simulation.invariants.sessions) >= plan.brokers
                ):
                    return
                await asyncio.sleep(0.1)

    async def _look(self, simulation: ClusterSimulation) -> None:
        liveness = Liveness(simulation)
        while True:
            await asyncio.sleep(LOOK_S)
            simulation.look_at_brokers()
            liveness.look()

    async def _become_whole(self, simulation: ClusterSimulation) -> None:
        """Every acknowledged topic is found, within a bounded time."""
        process, _ = self._workload(simulation, 0)
        units = [
            parse_topic(name).of_partition(each).text
            for name, (_, number) in self.ledger.partitions.items()
            for each in range(number)
        ]
        known = (*self.ledger.created, *self.ledger.units, *units)
        missing = dict.fromkeys(known, "not asked")

        async def find_all() -> None:
            endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
            async with Client(endpoints, timeout_ms=5_000) as client, timeout(WHOLE_S_MAX):
                while missing:
                    await self._find(simulation, client, missing)

        try:
            await process.run(self._loop.create_task, find_all())
        except TimeoutError:
            few = dict(list(missing.items())[:4])
            simulation.violate(
                f"{len(missing)} topics not found {WHOLE_S_MAX} s after the last fault: {few}"
            )

    async def _find(
        self, simulation: ClusterSimulation, client: Client, missing: dict[str, str]
    ) -> None:
        try:
            locations = await client.lookup(list(missing)[:50])
        except MetadataError as error:
            missing.update(dict.fromkeys(list(missing)[:50], repr(error)))
            await asyncio.sleep(0.2)
            return
        for location in locations:
            if location.is_found:
                simulation.invariants.check_location(location)
                missing.pop(location.topic)
            elif location.rejection_code in _FULL and self._is_scarce(simulation.plan):
                missing.pop(location.topic)
            elif not location.retryable:
                simulation.violate(f"{location.topic}: {location.rejection_code}")
                missing.pop(location.topic)
            else:
                missing[location.topic] = f"{location.rejection_code}: {location.message}"

    def _is_scarce(self, plan: ClusterPlan) -> bool:
        """Return whether there are so many topics that a shard may lack leased capacity."""
        names = len(self.ledger.created) + len(self.ledger.units)
        units = names + sum(number for _, number in self.ledger.partitions.values())
        return units * 2 > plan.brokers * plan.broker_units

    async def _become_served(self, simulation: ClusterSimulation) -> None:
        """ServedAgain: topics take messages at the brokers that lookups name."""
        process, _ = self._workload(simulation, 0)
        chance = random.Random(f"served {self.seed}")
        names = sorted(self.ledger.created)
        missing = dict.fromkeys(chance.sample(names, min(len(names), SERVED_TOPICS)), "not asked")

        async def serve_all() -> None:
            endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
            async with (
                Client(endpoints, timeout_ms=5_000) as client,
                timeout(SERVED_S_MAX),
            ):
                while missing:
                    # At the same time: who waits for capacity must not keep others waiting.
                    await asyncio.gather(
                        *(self._serve(simulation, client, name, missing) for name in list(missing))
                    )
                    await asyncio.sleep(0.2)

        try:
            await process.run(self._loop.create_task, serve_all())
        except TimeoutError:
            few = dict(list(missing.items())[:4])
            simulation.violate(f"{len(missing)} topics take no messages: {few}")

    async def _serve(
        self, simulation: ClusterSimulation, client: Client, name: str, missing: dict[str, str]
    ) -> None:
        try:
            (location,) = await client.lookup([name])
        except MetadataError as error:
            missing[name] = repr(error)
            return
        is_left_out = simulation.storage.is_damaged(location.topic_id) or (
            location.rejection_code in _FULL and self._is_scarce(simulation.plan)
        )
        if is_left_out or (
            location.is_found and await simulation.prove_served(name, location.broker_id)
        ):
            del missing[name]
        else:
            missing[name] = f"{location!r} takes no message"

    async def _settle(self, simulation: ClusterSimulation) -> None:
        try:
            async with timeout(SETTLED_S_MAX):
                while not is_settled(simulation):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            states = [
                f"{node.name}/{log.status.group_id}: {log.status.role} {log.status.last_index}"
                for node in simulation.nodes.values()
                for log in simulation.logs_of(node)
            ]
            simulation.violate(f"not settled: {states}")

    async def _become_current(self, simulation: ClusterSimulation) -> None:
        """MetadataConverges, within a bounded time."""
        try:
            async with timeout(CURRENT_S_MAX):
                while simulation.stale_metadata():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            simulation.violate(f"brokers are stale: {simulation.stale_metadata()[:4]}")

    # Diagnostics ------------------------------------------------------------------------------

    def _unhandled(self, _loop: Any, found: dict[str, Any]) -> None:
        """A task of a living process failed, and its exception was never retrieved."""
        task = found.get("future") or found.get("task")
        owner = getattr(task, "owner", None) or getattr(found.get("handle"), "process", None)
        owner = owner or PROCESS.get()
        if isinstance(owner, SimulatedProcess) and owner.is_dead:
            return
        assert self.simulation is not None
        error = found.get("exception")
        self.simulation.violate(f"{owner}: {found.get('message')}: {error!r} {task}", error)

    def _say(self, line: str) -> None:
        self._lines.append(line)
        if self._echo is not None:
            self._echo(line)

    @contextmanager
    def _diagnostics(self) -> Iterator[None]:
        """Keep what the components log, with the virtual time and the process."""
        before = structlog.get_config()
        handler = _LastLines(self._say, self._loop)
        root = logging.getLogger()
        structlog.configure(
            processors=[structlog.processors.format_exc_info, handler.take],
            cache_logger_on_first_use=False,
        )
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
            structlog.configure(**before)


class _LastLines(logging.Handler):
    """Both kinds of logging, as lines."""

    def __init__(self, say: Echo, loop: SimulatedLoop) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._loop = loop

    def take(self, _logger: Any, level: str, found: dict[str, Any]) -> Any:
        event = found.pop("event")
        facts = " ".join(f"{key}={value}" for key, value in found.items())
        self._line(level, f"{event} {facts}")
        raise structlog.DropEvent

    def emit(self, record: logging.LogRecord) -> None:
        self._line(record.levelname.lower(), self.format(record))

    def _line(self, level: str, text_: str) -> None:
        process = PROCESS.get()
        name = process.name if process is not None else "simulation"
        self._say(f"{self._loop.now_s - 1000:10.4f}  {name} {level} {text_}")


def plan_of(seed: int) -> ClusterPlan:
    """Return the cluster of a seed: with one discovery node or two, with brokers of any size."""
    chance = random.Random(f"plan {seed}")
    return ClusterPlan(
        shard_nodes=chance.choice((3, 3, 4)),
        discovery_nodes=chance.choice((1, 2, 2)),
        brokers=chance.choice((2, 3, 3)),
        broker_units=chance.choice((12, 60, 200)),
        has_short_leases=chance.random() < 0.5,
        outcome_window_positions=chance.choice((None, 10, 40)),
        watch_page_events=chance.choice((2, 50, WATCH_EVENTS_PER_SLICE)),
        # By a chance of its own: seeds without a secret have the history that they had before.
        has_secret=random.Random(f"secret {seed}").random() < 0.5,
    )


def run_seed(seed: int, echo: Echo | None = None) -> SeedReport:
    """Run one seed of the cluster's simulation; ``echo`` gets each line of what happens."""
    return ClusterRun(seed, echo=echo).run()
