"""Three benchmark processes on loopback, as a context manager."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NODES = ("node-1", "node-2", "node-3")
ROOT = Path(__file__).resolve().parents[2]


class NodeProcess:
    """One process and its pipe of JSON lines."""

    def __init__(self, node_id: str, directory: Path) -> None:
        self.node_id = node_id
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.support.raft_node",
                node_id,
                ",".join(NODES),
                directory,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.node_id} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def call(self, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class RaftCluster:
    """Starts the processes and removes them, with their data, at the end."""

    def __init__(self, groups: int = 1) -> None:
        self._groups = groups
        self._temporary = tempfile.TemporaryDirectory(dir=ROOT, prefix=".raft-benchmark-")
        self.directory = Path(self._temporary.name)
        self.nodes: list[NodeProcess] = []

    def __enter__(self) -> RaftCluster:
        self.nodes = [NodeProcess(node, self.directory / node) for node in NODES]
        ports = {node.node_id: node.answer()["port"] for node in self.nodes}
        for node in self.nodes:
            node.send(do="peers", ports=ports, groups=self._groups)
        for node in self.nodes:
            assert node.answer()["opened"] == self._groups
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            node.end()
        self._temporary.cleanup()

    def leader(self, deadline_s: float = 15.0) -> NodeProcess:
        """Return the process that leads group 1, once every group has a leader."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            statuses = [(node, node.call(do="status")) for node in self.nodes]
            if sum(sum(status["leads"]) for _, status in statuses) == self._groups:
                return next(node for node, status in statuses if status["leads"][0])
            time.sleep(0.05)
        raise TimeoutError("no leader was elected")
