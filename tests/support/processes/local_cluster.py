"""A real cluster for tests: processes on loopback, on ports nobody else has.

    async with running_cluster(tmp_path, MINIMAL) as cluster:
        await cluster.kill("shard-node-1")

``blocking_cluster`` is the same for tests without an event loop of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from nextgen.cli.local import cluster as local_cluster
from nextgen.cli.local.plan import (
    MINIMAL,
    MODULES,
    ClusterSize,
    NodePlan,
    make_plan_on_free_ports,
)
from nextgen.runtime.security.client_token import use_token_file
from nextgen.runtime.security.process_tls import tls_in_use, use_tls
from tests.support.processes.fork_server import IS_AVAILABLE, AsyncWarmProcess, start_warm

__all__ = ["MINIMAL", "ClusterSize", "LocalCluster", "blocking_cluster", "running_cluster"]

T = TypeVar("T")

READY_MS_MAX = 90_000
"""For processes to start and elect: seconds, but for a machine that is busy with other things."""

STEP_TIMEOUT_MS = 100_000
"""For one call of the blocking form: waiting until everything is ready is the longest."""


class LocalCluster(local_cluster.LocalCluster):
    """One whose processes start warm, and may take longer than anybody at a terminal would wait.

    A process gets a new interpreter where a subclass runs another module or other sources.
    """

    async def spawn(self, node: NodePlan, log: BinaryIO) -> asyncio.subprocess.Process:
        """See ``nextgen.cli.local.cluster`` and ``tests.support.processes.fork_server``."""
        command, environment = self.command_of(node), self.environment_of(node)
        module = MODULES[node.kind]
        runs_module = command[:3] == [sys.executable, "-m", module]
        sources = super().environment_of(node)["PYTHONPATH"]
        if not IS_AVAILABLE or not runs_module or environment["PYTHONPATH"] != sources:
            return await super().spawn(node, log)
        started = start_warm(
            module,
            command[3:],
            environment=environment,
            directory=self.data_dir,
            stdout=log,
            stderr=log,
        )
        return AsyncWarmProcess(started)

    async def wait_ready(
        self, node_ids: Iterable[str] | None = None, *, timeout_ms: int = READY_MS_MAX
    ) -> None:
        """See ``nextgen.cli.local.cluster``."""
        await super().wait_ready(node_ids, timeout_ms=timeout_ms)


@asynccontextmanager
async def running_cluster(
    data_dir: Path, size: ClusterSize | None = None, *, wait_ready: bool = True
) -> AsyncIterator[LocalCluster]:
    """Start a cluster (default: the full one) and stop it at the end, whatever happened."""
    plan = make_plan_on_free_ports(size or ClusterSize(), cluster_id="test")
    async with LocalCluster(plan, data_dir) as cluster:
        if wait_ready:
            await cluster.wait_ready()
        yield cluster


class BlockingCluster:
    """A ``LocalCluster`` driven from a thread of its own; ``plan`` as there."""

    def __init__(self, cluster: LocalCluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self.plan = cluster.plan
        self._loop = loop

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Run one of the cluster's coroutines to its end."""
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(STEP_TIMEOUT_MS / 1000)

    def kill(self, node_id: str) -> None:
        self.run(self.cluster.kill(node_id))

    def start_node(self, node_id: str) -> None:
        self.run(self.cluster.start_node(node_id))

    def wait_ready(self, *node_ids: str) -> None:
        self.run(self.cluster.wait_ready(node_ids or None))


@contextmanager
def blocking_cluster(
    data_dir: Path,
    size: ClusterSize | None = None,
    *,
    authentication: str = "",
    authorization: bool = True,
    tls: bool = False,
    kind: type[LocalCluster] = LocalCluster,
) -> Iterator[BlockingCluster]:
    """Start a cluster and wait until it is ready; stop it at the end.

    ``authentication``, ``authorization`` and ``tls``: as in a plan. ``kind``: what gives processes
    other flags.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster")
    thread.start()
    plan = make_plan_on_free_ports(size or ClusterSize(), cluster_id="test")
    plan = replace(plan, authentication=authentication, authorization=authorization, tls=tls)
    blocking = BlockingCluster(kind(plan, data_dir), loop)
    before = tls_in_use()
    try:
        blocking.run(blocking.cluster.start())
        blocking.wait_ready()
        yield blocking
    finally:
        with contextlib.suppress(Exception):
            blocking.run(blocking.cluster.stop())
        # This process was the cluster's operator, and others' tests follow.
        use_tls(before)
        use_token_file(None)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
