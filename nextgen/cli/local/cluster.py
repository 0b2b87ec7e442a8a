"""A cluster of real processes on loopback, kept by one supervisor.

Every process ends with its supervisor: it holds the read end of a pipe whose other end only the
supervisor has, and stops at end-of-file. The supervisor never polls a running cluster; a process
that ends wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from nextgen.cli.local.cluster_state import remove_state, write_state
from nextgen.cli.local.plan import MODULES, ClusterPlan, NodePlan, make_directory
from nextgen.cli.local.readiness import readiness
from nextgen.cli.local.security import make_security, use_security
from nextgen.kernel.errors import DeadlineExceeded, RefusesToStart
from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX
from nextgen.runtime.lifecycle.lifeline import LIFELINE_STDIN, LIFELINE_VARIABLE
from nextgen.tasks.timeouts import timeout

READY_TIMEOUT_MS = 30_000
"""From the first process to a cluster that answers. It usually takes seconds."""

READY_INTERVAL_MS = 100
LOG_TAIL_BYTES = 2_000
_PASSED_ON = frozenset(
    {
        "NEXTGEN_LOG_LEVEL",
        "NEXTGEN_LOG_FORMAT",
        "NEXTGEN_OTLP_ENDPOINT",
        "NEXTGEN_TRACE_FILE",
        "NEXTGEN_TRACE_RATIO",
    }
)

STOP_ORDER = (("broker", "discovery"), ("shard-node",), ("cluster-manager",))
"""Order of stopping: processes that send a goodbye come before those that receive it."""

BROKER_LEAVES_MS_MAX = 30_000
"""Time for other brokers to take the units of a removed one: the default of ``--drain-ms-max``."""

Ended = Callable[[str, int], None]
"""Called with node id and exit code (negative: the signal) when a process ended by itself."""


class LocalCluster:
    """Starts, kills and restarts the processes of one plan. Used on one event loop.

        async with LocalCluster(plan, data_dir) as cluster:
            await cluster.wait_ready()
            await cluster.kill("shard-node-1")
            await cluster.start_node("shard-node-1")

    ``on_ended`` is called for processes that end by themselves. From the start on this process uses
    the cluster's credentials, as an operator of it.
    """

    def __init__(self, plan: ClusterPlan, data_dir: Path, *, on_ended: Ended | None = None) -> None:
        self.plan = plan
        self.data_dir = data_dir.absolute()
        self._on_ended = on_ended
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._expected: set[str] = set()

    def __repr__(self) -> str:
        return f"<LocalCluster {self.data_dir} running={len(self.running)}/{len(self.plan.nodes)}>"

    async def __aenter__(self) -> LocalCluster:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.stop()

    @property
    def running(self) -> list[str]:
        """Node ids of the processes that run, in the plan's order."""
        return [node.node_id for node in self.plan.nodes if self.is_running(node.node_id)]

    def is_running(self, node_id: str) -> bool:
        process = self._processes.get(node_id)
        return process is not None and process.returncode is None

    def process_id(self, node_id: str) -> int | None:
        """Return the operating system's id of a running process."""
        return self._processes[node_id].pid if self.is_running(node_id) else None

    @property
    def logs_dir(self) -> Path:
        """Where all processes write their diagnostics."""
        return self.data_dir / "logs"

    def log_path(self, node_id: str) -> Path:
        """Return where the process writes its diagnostics; restarts append."""
        return self.logs_dir / f"{node_id}.log"

    async def start(self) -> None:
        """Start every process; they find each other in any order.

        Raises:
            RefusesToStart: A port is taken, or the cluster secret cannot be written.
        """
        self.plan.check_ports()
        self.plan.save(self.data_dir)
        make_security(self.plan, self.data_dir)
        use_security(self.plan, self.data_dir)
        make_directory(self.logs_dir)
        for node in self.plan.nodes:
            await self.start_node(node.node_id)

    async def start_node(self, node_id: str) -> None:
        """Start one process that does not run, with the identity and the data it had before."""
        assert not self.is_running(node_id), f"{node_id} runs already"
        node = self.plan.node(node_id)
        make_security(self.plan, self.data_dir)
        self._expected.discard(node_id)
        with self.log_path(node_id).open("ab") as log:
            process = await self.spawn(node, log)
        self._processes[node_id] = process
        self._watchers[node_id] = asyncio.create_task(self._watch(node_id, process))
        self._write_state()

    async def spawn(self, node: NodePlan, log: BinaryIO) -> asyncio.subprocess.Process:
        """Start a node's process with a lifeline; its output goes to ``log``."""
        return await asyncio.create_subprocess_exec(
            *self.command_of(node),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=self.environment_of(node),
            cwd=self.data_dir,
            # A Ctrl-C at the terminal is for the supervisor, which stops them in order.
            start_new_session=True,
        )

    def command_of(self, node: NodePlan) -> list[str]:
        """Return the command of a node's process, which must not start another process for the
        node."""
        module = MODULES[node.kind]
        return [sys.executable, "-m", module, *self.plan.arguments(node, self.data_dir)]

    def environment_of(self, node: NodePlan) -> dict[str, str]:
        """Return the environment of a node's process: here one with this process's modules."""
        return child_environment(lifeline=True)

    async def kill(self, node_id: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a running process and return when it is gone."""
        self.strike(node_id, number)
        await self._processes[node_id].wait()
        await self._watchers[node_id]

    def strike(self, node_id: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a running process and return at once; ``kill`` waits for its end."""
        self._expected.add(node_id)
        with contextlib.suppress(ProcessLookupError):
            self._processes[node_id].send_signal(number)

    async def restart(self, node_id: str) -> None:
        """Kill the process if it runs (SIGKILL) and start it again; return without waiting."""
        if self.is_running(node_id):
            await self.kill(node_id)
        await self.start_node(node_id)

    async def adopt(self, plan: ClusterPlan) -> None:
        """Change to ``plan``: stop the processes that it lacks, start those that it adds.

        Processes in both plans keep running. The plan is stored.
        """
        wanted = {node.node_id for node in plan.nodes}
        gone = [node for node in self.plan.nodes if node.node_id not in wanted]
        self._expected.update(node.node_id for node in gone)
        await self._stop_nodes(gone, BROKER_LEAVES_MS_MAX)
        started = [node for node in plan.nodes if node not in self.plan.nodes]
        self.plan = plan
        plan.save(self.data_dir)
        for node in started:
            await self.start_node(node.node_id)
        self._write_state()

    async def wait_ready(
        self, node_ids: Iterable[str] | None = None, *, timeout_ms: int = READY_TIMEOUT_MS
    ) -> None:
        """Return once these processes (default: all) report that they are ready.

        Raises:
            RefusesToStart: One ended; the message has the end of its diagnostics.
            DeadlineExceeded: Not all are ready in time; the message says what they lack.
        """
        waiting = {self.plan.node(one) for one in node_ids or [n.node_id for n in self.plan.nodes]}
        reasons: dict[str, str] = {}
        try:
            async with timeout(timeout_ms / 1000):
                while waiting:
                    for node in sorted(waiting, key=lambda node: node.node_id):
                        self._check_alive(node)
                        ready, reasons[node.node_id] = await readiness(node.http)
                        if ready:
                            waiting.discard(node)
                    if waiting:
                        await asyncio.sleep(READY_INTERVAL_MS / 1000)
        except TimeoutError:
            lacking = "; ".join(
                f"{node.node_id}: {reasons.get(node.node_id, 'not asked')}" for node in waiting
            )
            raise DeadlineExceeded(f"not ready after {timeout_ms} ms: {lacking}") from None

    async def stop(self) -> None:
        """Stop every process in order: SIGTERM first, SIGKILL after a time-out."""
        self._expected.update(self._processes)
        for kinds in STOP_ORDER:
            await self._stop_nodes([n for n in self.plan.nodes if n.kind in kinds])
        for watcher in self._watchers.values():
            await watcher
        remove_state(self.data_dir)

    async def _stop_nodes(self, nodes: list[NodePlan], leaving_ms: int = 0) -> None:
        running = [self._processes[n.node_id] for n in nodes if self.is_running(n.node_id)]
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        waits = [asyncio.create_task(process.wait()) for process in running]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=(SHUTDOWN_MS_MAX + leaving_ms) / 1000)
        for process in running:
            if late and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        await asyncio.gather(*waits)

    async def _watch(self, node_id: str, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if node_id not in self._expected and self._on_ended is not None:
            self._on_ended(node_id, code)

    def _check_alive(self, node: NodePlan) -> None:
        process = self._processes.get(node.node_id)
        if process is None or process.returncode is not None:
            code = "never started" if process is None else f"ended with code {process.returncode}"
            raise RefusesToStart(f"{node.node_id} {code}: {self._log_tail(node.node_id)}")

    def _log_tail(self, node_id: str) -> str:
        path = self.log_path(node_id)
        if not path.exists():
            return "it wrote nothing"
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def _write_state(self) -> None:
        write_state(self.data_dir, {node: self._processes[node].pid for node in self.running})


def child_environment(*, lifeline: bool) -> dict[str, str]:
    """Return the environment of a child that imports the same modules as this process.

    With ``lifeline`` its standard input must be a pipe of this process, whose end it follows.
    """
    source = str(Path(__file__).resolve().parents[3])
    path = os.environ.get("PYTHONPATH")
    # Variables of this command line, such as its data directory, are not for a child.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NEXTGEN_") or name in _PASSED_ON
    }
    return {
        **inherited,
        **({LIFELINE_VARIABLE: LIFELINE_STDIN} if lifeline else {}),
        "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source,
        # Eleven processes with the default number of arenas would hold memory for nothing.
        "MALLOC_ARENA_MAX": "2",
        # The library logs every connection that ends; a killed node ends dozens.
        "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR"),
    }
