"""Everything outside our code that a run must not see: clocks, chance, ports, gRPC's core.

Only what belongs to Python or to a library is replaced; the project's modules are as they are. It
is replaced for the thread of the run only: a cluster that a fixture of other tests keeps has
threads of its own in this process, with timers by the real clock and channels to real servers.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import grpc.aio
import grpc.experimental.aio
import grpc_health.v1.health
import grpc_reflection.v1alpha.reflection
import psutil
from prometheus_client import REGISTRY

from nextgen.runtime.servers import ports_check
from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.virtual_loop import SimulatedLoop
from tests.support.simulated.grpc import SimulatedChannel
from tests.support.simulated.grpc_server import SimulatedServer
from tests.support.simulated.process import PROCESS

EPOCH_MS = 1_767_225_600_000
"""The wall clock when the loop's is 0: the beginning of 2026."""

collect_garbage = gc.collect

IMPORTED_EARLY = (
    grpc.experimental.aio,
    grpc_health.v1.health,
    grpc_reflection.v1alpha.reflection,
)
"""Modules that servers import when they start: one imported during a run would keep its clocks."""


@contextmanager
def simulated_world(loop: SimulatedLoop, network: Network, seed: int) -> Iterator[None]:
    """Replace the outside for the time of a run."""
    with ExitStack() as stack:
        _replace_clocks(stack, loop)
        _replace_chance(stack, seed)
        _replace_garbage_collector(stack)
        _replace_grpc(stack, network)
        _replace(stack, REGISTRY, "register", _register)
        _replace(stack, REGISTRY, "unregister", lambda _collector: None)
        stack.enter_context(patch.object(ports_check, "socket", _sockets(network)))
        stack.enter_context(patch.object(psutil, "Process", _IdleProcess))
        yield


def _replace(stack: ExitStack, owner: Any, name: str, simulated: Callable[..., Any]) -> None:
    """Replace a function for this thread."""
    real = getattr(owner, name)
    here = threading.get_ident()

    def of_this_thread(*arguments: Any, **named: Any) -> Any:
        chosen = simulated if threading.get_ident() == here else real
        return chosen(*arguments, **named)

    stack.enter_context(patch.object(owner, name, of_this_thread))


def _replace_clocks(stack: ExitStack, loop: SimulatedLoop) -> None:
    def wall_ns() -> int:
        process = PROCESS.get()
        offset_ms = process.wall_offset_ms if isinstance(process, SimulatedProcess) else 0
        return (EPOCH_MS + offset_ms) * 1_000_000 + round(loop.time() * 1e9)

    clocks: dict[str, Any] = {
        "time_ns": wall_ns,
        "time": lambda: wall_ns() / 1e9,
        "monotonic": loop.time,
        "monotonic_ns": lambda: round(loop.time() * 1e9),
        "perf_counter": loop.time,
        "perf_counter_ns": lambda: round(loop.time() * 1e9),
    }
    for name, clock in clocks.items():
        _replace(stack, time, name, clock)


def _replace_chance(stack: ExitStack, seed: int) -> None:
    entropy = random.Random(f"entropy {seed}")
    seeds = random.Random(f"seeds {seed}")
    real_random = random.Random
    here = threading.get_ident()

    class Seeded(real_random):
        def __new__(cls, *arguments: Any) -> Seeded:
            return super().__new__(cls)

        def __init__(self, given: Any = None) -> None:
            is_ours = given is None and threading.get_ident() == here
            super().__init__(seeds.getrandbits(64) if is_ours else given)

    state = random.getstate()
    stack.callback(random.setstate, state)
    random.seed(f"module {seed}")
    stack.enter_context(patch.object(random, "Random", Seeded))
    _replace(stack, random, "_urandom", entropy.randbytes)
    _replace(stack, os, "urandom", entropy.randbytes)


def _replace_garbage_collector(stack: ExitStack) -> None:
    """No collection but those at fixed steps; what was there before is never looked at."""
    was_enabled = gc.isenabled()
    was_frozen = bool(gc.get_freeze_count())
    gc.collect()
    gc.freeze()
    gc.disable()
    if not was_frozen:
        # The modules that tests freeze (tests/conftest.py) cannot be told from the rest.
        stack.callback(gc.unfreeze)
    if was_enabled:
        stack.callback(gc.enable)
    for name in ("collect", "freeze", "set_threshold"):
        stack.enter_context(patch.object(gc, name, lambda *_: 0))


def _replace_grpc(stack: ExitStack, network: Network) -> None:
    def insecure_channel(target: str, options: Any = None) -> SimulatedChannel:
        return SimulatedChannel(network, target)

    def server(
        interceptors: Any = (), options: Any = None, maximum_concurrent_rpcs: int | None = None
    ) -> SimulatedServer:
        return SimulatedServer(network, interceptors, maximum_concurrent_rpcs)

    _replace(stack, grpc.aio, "insecure_channel", insecure_channel)
    _replace(stack, grpc.aio, "server", server)


def _register(collector: Any) -> None:
    process = PROCESS.get()
    if isinstance(process, SimulatedProcess):
        process.collectors.append(collector)


def _sockets(network: Network) -> Any:
    """The part of ``socket`` that finds out whether a port is free."""

    class Probe:
        def __init__(self, *_: Any) -> None:
            """Nothing is opened."""

        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is closed."""

        def setsockopt(self, *_: Any) -> None:
            """There are no options."""

        def bind(self, address: tuple[str, int]) -> None:
            host, port = address
            if network.is_taken(f"{host}:{port}"):
                raise OSError(98, "Address already in use")

        def listen(self, _backlog: int) -> None:
            """No connection ever arrives."""

    names = {name: getattr(socket, name) for name in dir(socket) if name.isupper()}
    return SimpleNamespace(
        **names,
        socket=Probe,
        getaddrinfo=lambda host, port, **_: [(0, 0, 0, "", (host, port))],
    )


class _IdleProcess:
    """The figures of ``psutil`` for a process: the same each time."""

    def oneshot(self) -> Any:
        return ExitStack()

    def cpu_percent(self, interval: Any = None) -> float:
        return 10.0

    def memory_info(self) -> Any:
        return SimpleNamespace(rss=64 * 1024 * 1024)
