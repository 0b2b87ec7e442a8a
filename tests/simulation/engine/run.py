"""One seed of the engine simulation, from start to report."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from nextgen.tasks.background import failures
from nextgen.tasks.timeouts import timeout
from tests.simulation.engine.conductor import Conductor
from tests.simulation.engine.history import Violation, check_end
from tests.simulation.engine.simulation import EngineSimulation
from tests.simulation.report import SeedReport
from tests.support.simulated.process import PROCESS
from tests.support.simulated.virtual_time import IsolatedLoop, run_virtual

ROUNDS = 40
"""Things that go wrong in one run, some of them several at a time."""

SIZES = (3, 3, 3, 3, 5, 5, 1)
"""Voters at the beginning; the group may grow and shrink from there."""

WRITERS, READERS = 3, 1
SETTLE_S_MAX = 30.0
"""From the last fault until every view has everything."""

EPOCH_S = 1_700_000_000.0


def run_seed(seed: int, echo: Callable[[str], None] | None = None) -> SeedReport:
    """Run one seed. ``echo`` gets a line for everything that happens."""
    size = random.Random(f"size {seed}").choice(SIZES)
    gc_was_on = gc.isenabled()
    gc.disable()  # Or a collection, at some moment of its own, would end what nobody waits for.
    try:
        return run_virtual(lambda: _simulate(seed, size, echo), loop=IsolatedLoop)
    finally:
        if gc_was_on:
            gc.enable()
        gc.collect()


async def _simulate(seed: int, size: int, echo: Callable[[str], None] | None) -> SeedReport:
    world = EngineSimulation(seed, size, echo)
    began = world.now
    world.loop.set_exception_handler(lambda _, found: world.fail(_sentence(found)))
    failures.clear()
    with _critical_lines(world), _wall_clock(world):
        main = world.loop.create_task(_everything(world))
        await asyncio.wait({main, world.failed}, return_when=asyncio.FIRST_COMPLETED)
        if main.done() and main.exception() is not None:
            error = main.exception()
            world.fail(str(error) if isinstance(error, Violation) else f"{error!r}")
        for name, count in failures.items():
            world.fail(f"the background task {name} failed {count} times")
        world.over = True
        main.cancel()
    world.loop.set_exception_handler(lambda _loop, _found: None)
    return SeedReport(
        seed=seed,
        kind="engine",
        steps=world.trace.steps,
        virtual_seconds=world.now - began,
        faults=dict(world.faults),
        cells=dict(world.cells),
        trace_hash=world.trace.digest,
        failure=world.failure,
    )


async def _everything(world: EngineSimulation) -> None:
    await asyncio.gather(*(node.start() for node in world.nodes))
    clients = world.clients
    for number in range(WRITERS):
        world.background(clients.write_for_ever(f"w{number}"))
    for _ in range(READERS):
        world.background(clients.read_for_ever())
    world.background(clients.tail_for_ever())
    world.background(world.liveness.watch())
    conductor = Conductor(world)
    for _ in range(ROUNDS):
        await conductor.round()
    await conductor.calm_down()
    world.stopping = True
    try:
        async with timeout(SETTLE_S_MAX):
            while not world.is_settled:
                await asyncio.sleep(0.05)
    except TimeoutError:
        world.fail(f"nothing goes wrong for {SETTLE_S_MAX} s, and the replicas differ")
        return
    check_end(world.history, world.applied())


def _sentence(found: dict[str, Any]) -> str:
    error = found.get("exception")
    what = f"{type(error).__name__}: {error}" if error is not None else found.get("message", "")
    return f"an error nobody handled: {what}"


@contextlib.contextmanager
def _critical_lines(world: EngineSimulation) -> Iterator[None]:
    """A replica that stops itself reports it, and may do so only if its disk was broken."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            process = PROCESS.get()
            world.saw_critical(process.name if process else "", record.getMessage())

    listener, logger = Listener(logging.CRITICAL), logging.getLogger("nextgen.replication")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagate


@contextlib.contextmanager
def _wall_clock(world: EngineSimulation) -> Iterator[None]:
    """Time of day is virtual too, and each process has its own."""
    real = time.time

    def virtual() -> float:
        process = PROCESS.get()
        ahead_s = world.wall_ahead_s.get(process.name, 0.0) if process else 0.0
        return EPOCH_S + world.now + ahead_s

    time.time = virtual
    try:
        yield
    finally:
        time.time = real
