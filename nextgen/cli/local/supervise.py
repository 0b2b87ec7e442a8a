"""Runs a local cluster until it is stopped, and restarts processes that end by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from nextgen.cli.local.cluster import LocalCluster, child_environment
from nextgen.cli.local.cluster_state import read_state
from nextgen.cli.local.log_rotation import rotate_logs
from nextgen.cli.local.plan import (
    MINIMAL,
    ClusterPlan,
    ClusterSize,
    load_plan,
    make_directory,
    make_plan,
)
from nextgen.kernel.errors import DeadlineExceeded, RefusesToStart
from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX
from nextgen.kernel.limits.inbound import LOG_FILES_CHECK_MS
from nextgen.runtime.lifecycle.process import EXIT_REFUSED
from nextgen.tasks.background import keep

RESTART_PAUSE_MS_MIN = 500
RESTART_PAUSE_MS_MAX = 10_000
RESTART_COUNTS_FOR_MS = 60_000
"""A process that ran this long before it ended is restarted after the shortest pause again."""

RELOAD_SIGNAL = signal.SIGUSR1
"""Signal to a supervisor that its plan has changed. Not SIGHUP: a closed terminal ends the
cluster."""

SETTLE_MS_MAX = 8_000
"""Time for leaderships to reach the preferred replicas: two seconds of stability, then a transfer
for each. A cluster whose leaders do not settle serves all the same, so it is ready then too."""

SETTLE_INTERVAL_MS = 100

Notice = Callable[[str], None]

Unsettled = Callable[[], Awaitable[Sequence[str]]]
"""Returns a sentence for each shard that its preferred replica does not lead yet."""


def choose_plan(
    data_dir: Path,
    *,
    minimal: bool,
    shards: int | None,
    port_base: int | None,
    tls: bool = False,
    authentication: str | None = None,
    authorization: bool | None = None,
) -> ClusterPlan:
    """Return the plan stored in ``data_dir``, or a fresh one from the options.

    ``tls``: whether every port needs TLS from here on; it is never taken back. ``authentication``:
    how clients prove their role from here on, and ``authorization``: whether roles need
    permissions; None: as before.

    Raises:
        RefusesToStart: A cluster runs there, or the stored plan differs from the options.
    """
    running = read_state(data_dir)
    if running is not None:
        raise RefusesToStart(
            f"a cluster runs in {data_dir} already (process {running.supervisor_pid}): "
            "stop it with 'nextgen down', or name another --data-dir"
        )
    default = MINIMAL if minimal else ClusterSize()
    size = default if shards is None else _with_shards(default, shards)
    asked = make_plan(size) if port_base is None else make_plan(size, port_base=port_base)
    stored = load_plan(data_dir)
    if stored is None:
        return replace(
            asked,
            tls=tls,
            authentication=authentication or "",
            authorization=authorization is not False,
        )
    differs = (minimal or shards is not None) and stored.size != size
    if differs or (port_base is not None and stored.nodes[0].grpc_port != port_base):
        raise RefusesToStart(
            f"{data_dir} holds a cluster of another shape ({len(stored.nodes)} processes, "
            f"{stored.size.shards} shards, ports from {stored.nodes[0].grpc_port}): "
            "start it without these options, remove the directory, or name another --data-dir"
        )
    return replace(
        stored,
        tls=stored.tls or tls,
        authentication=stored.authentication if authentication is None else authentication,
        authorization=stored.authorization if authorization is None else authorization,
    )


def _with_shards(size: ClusterSize, shards: int) -> ClusterSize:
    return ClusterSize(
        size.cluster_managers, size.shard_nodes, size.discovery, size.brokers, shards
    )


class Supervisor:
    """Keeps a cluster running. ``notice`` is called with each sentence for the operator.

    The cluster counts as ready once every process is, and nothing is ``unsettled``: a leadership
    that moves later would have the first commands fail or wait.
    """

    def __init__(
        self, plan: ClusterPlan, data_dir: Path, notice: Notice, *, unsettled: Unsettled
    ) -> None:
        self.cluster = LocalCluster(plan, data_dir, on_ended=self._ended)
        self._notice = notice
        self._unsettled = unsettled
        self._stopping = asyncio.Event()
        self._restarts: set[asyncio.Task[None]] = set()
        self._reloading: asyncio.Task[None] | None = None
        self._pauses_ms: dict[str, int] = {}
        self._started_at: dict[str, float] = {}

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start, call ``on_ready`` once the cluster answers, run until a signal, stop.

        Raises:
            RefusesToStart, DeadlineExceeded: The cluster did not start; no process is left running.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(RELOAD_SIGNAL, self._reload)
        rotating = keep("log_rotation", self._rotate_logs)
        try:
            async with self.cluster:
                if await self._unless_stopping(self._wait_ready()):
                    on_ready()
                    await self._stopping.wait()
                for task in (*self._restarts, self._reloading):
                    if task is not None:
                        task.cancel()
        finally:
            rotating.cancel()
            for number in (signal.SIGINT, signal.SIGTERM, RELOAD_SIGNAL):
                loop.remove_signal_handler(number)

    async def _wait_ready(self) -> None:
        await self.cluster.wait_ready()
        loop = asyncio.get_running_loop()
        settle_until = loop.time() + SETTLE_MS_MAX / 1_000
        while unsettled := await self._unsettled():
            if loop.time() >= settle_until:
                self._notice("; ".join(unsettled))
                break
            await asyncio.sleep(SETTLE_INTERVAL_MS / 1_000)
        # Brokers join the next leader of their manager again.
        await self.cluster.wait_ready()

    async def _rotate_logs(self) -> None:
        while True:
            rotate_logs(self.cluster.logs_dir)
            await asyncio.sleep(LOG_FILES_CHECK_MS / 1_000)

    async def _unless_stopping(self, work: Coroutine[None, None, None]) -> bool:
        """Return whether ``work`` was done before a signal came."""
        tasks = (asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
            return tasks[0].done()
        finally:
            for task in tasks:
                task.cancel()

    def _reload(self) -> None:
        before = self._reloading
        self._reloading = asyncio.get_running_loop().create_task(self._adopt_stored(before))

    async def _adopt_stored(self, before: asyncio.Task[None] | None) -> None:
        """Change to the stored plan, after earlier changes."""
        if before is not None:
            await asyncio.wait([before])
        try:
            plan = load_plan(self.cluster.data_dir)
        except RefusesToStart as error:
            self._notice(str(error))
            return
        if plan is not None and not self._stopping.is_set():
            await self.cluster.adopt(plan)

    def _ended(self, node_id: str, code: int) -> None:
        if self._stopping.is_set():
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended, code {code}"
        if code == EXIT_REFUSED:  # It would refuse again.
            self._notice(f"{node_id} {how}, see {self.cluster.log_path(node_id)}")
            return
        loop = asyncio.get_running_loop()
        ran_ms = (loop.time() - self._started_at.get(node_id, 0.0)) * 1000
        pause_ms = self._pauses_ms.get(node_id, RESTART_PAUSE_MS_MIN)
        if ran_ms > RESTART_COUNTS_FOR_MS:
            pause_ms = RESTART_PAUSE_MS_MIN
        self._pauses_ms[node_id] = min(2 * pause_ms, RESTART_PAUSE_MS_MAX)
        self._notice(f"{node_id} {how}, starting it again in {pause_ms} ms")
        task = loop.create_task(self._restart(node_id, pause_ms))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _restart(self, node_id: str, pause_ms: int) -> None:
        await asyncio.sleep(pause_ms / 1000)
        if all(node.node_id != node_id for node in self.cluster.plan.nodes):
            return  # It was taken out of the plan meanwhile.
        self._started_at[node_id] = asyncio.get_running_loop().time()
        await self.cluster.start_node(node_id)


def start_detached(arguments: Sequence[str], data_dir: Path) -> None:
    """Start ``nextgen up`` in the background and return once its cluster is ready.

    Raises:
        RefusesToStart: It ended; the message has its last lines.
    """
    logs = data_dir / "logs"
    make_directory(logs)
    log_path = logs / "supervisor.log"
    with log_path.open("ab") as log:
        start = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "nextgen", "up", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=child_environment(lifeline=False),
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        # A line means that it is ready; end of file means that it ended.
        is_ready = bool(process.stdout.readline())
    except BaseException:
        process.terminate()
        raise
    if not is_ready:
        process.wait()
        with log_path.open("rb") as file:
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        raise RefusesToStart(
            lines[-1].removeprefix("nextgen: ") if lines else "it wrote no message"
        )


def stop_running(data_dir: Path) -> bool:
    """Stop the cluster that runs in ``data_dir``; return False if none does.

    Raises:
        DeadlineExceeded: It still runs.
    """
    running = read_state(data_dir)
    if running is None:
        return False
    timeout_ms = 4 * SHUTDOWN_MS_MAX
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(running.supervisor_pid)
        os.kill(running.supervisor_pid, signal.SIGTERM)
        try:
            supervisor.wait(timeout_ms / 1000)
        except psutil.TimeoutExpired:
            raise DeadlineExceeded(
                f"process {running.supervisor_pid} still runs after {timeout_ms} ms"
            ) from None
    return True
