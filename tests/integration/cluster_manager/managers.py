"""Cluster manager replicas as real processes on loopback."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from nextgen.client.cluster.link import ClusterLink, ClusterView
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import cluster_service_pb2_grpc as cluster_grpc
from tests.support.callers.member_channel import member_channel
from tests.support.processes.fork_server import WarmProcess, start_warm
from tests.support.processes.free_ports import free_ports

ROOT = Path(__file__).parents[3]
READY_S_MAX = 60.0
"""For processes to start and elect: seconds on a machine that is busy with other things."""
ENDS_S_MAX = 30.0
ANSWER_S_MAX = 30.0
"""For one answer. Only a failing test waits that long."""
SEEN_MS_MAX = 30_000
"""The same, for what a node reported to be seen by others."""
REPORTED_AGAIN_MS = 2_000


class Managers:
    """Some replicas of one cluster manager. Every process ends with the ``with`` block."""

    def __init__(self, directory: Path, count: int = 3, **flags: str) -> None:
        self._directory = directory
        self._flags = flags
        ports = free_ports(3 * count)
        self.node_ids = [f"cluster-manager-{number + 1}" for number in range(count)]
        self.raft = dict(zip(self.node_ids, ports[:count], strict=True))
        self.grpc = dict(zip(self.node_ids, ports[count : 2 * count], strict=True))
        self.http = dict(zip(self.node_ids, ports[2 * count :], strict=True))
        self.processes: dict[str, WarmProcess | subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Managers:
        for node_id in self.node_ids:
            self.start(node_id)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if error is not None:
            for log in sorted(self._directory.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-4_000:]}")

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{self.grpc[node_id]}" for node_id in self.node_ids]

    def arguments(self, node_id: str) -> list[str]:
        peers = ",".join(
            f"{peer}=127.0.0.1:{self.raft[peer]}=127.0.0.1:{self.grpc[peer]}"
            for peer in self.node_ids
        )
        flags = {
            "--node-id": node_id,
            "--cluster-id": "test",
            "--listen": f"127.0.0.1:{self.grpc[node_id]}",
            "--raft-listen": f"127.0.0.1:{self.raft[node_id]}",
            "--http-listen": f"127.0.0.1:{self.http[node_id]}",
            "--data-dir": str(self._directory / node_id),
            "--peers": peers,
            "--initial-shard-nodes": "1",
            "--shards": "2",
            "--replication-factor": "1",
            **{f"--{name.replace('_', '-')}": value for name, value in self._flags.items()},
        }
        return [part for pair in flags.items() for part in pair]

    def start(self, node_id: str) -> None:
        """Start a replica, again if it has ended."""
        # The child has a copy of its own.
        with (self._directory / f"{node_id}.log").open("ab") as log:
            self.processes[node_id] = start_warm(
                "cluster_manager",
                self.arguments(node_id),
                environment={**os.environ, "NEXTGEN_LIFELINE": "stdin"},
                stderr=log,
            )

    def kill(self, node_id: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(node_id)
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def terminate(self, node_id: str) -> int:
        """SIGTERM; return the exit code."""
        process = self.processes.pop(node_id)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=ENDS_S_MAX)
        if process.stdin is not None:
            process.stdin.close()
        return code

    def node_at(self, endpoint: str | None) -> str:
        """Return which replica has a gRPC address."""
        return next(node for node in self.node_ids if endpoint == f"127.0.0.1:{self.grpc[node]}")

    async def status(self, node_id: str) -> cluster_pb.ReplicaStatus:
        async with member_channel(f"127.0.0.1:{self.grpc[node_id]}") as channel:
            stub = cluster_grpc.ClusterServiceStub(channel)
            return await stub.GetManagerStatus(
                cluster_pb.GetManagerStatusRequest(), timeout=READY_S_MAX, wait_for_ready=True
            )

    async def wait_leader(self) -> str:
        """Return which of the replicas that run leads, waiting for an election if need be."""
        async with timeout(READY_S_MAX):
            while True:
                for node_id in tuple(self.processes):
                    if (await self.status(node_id)).role == "leader":
                        return node_id
                await asyncio.sleep(0.05)

    async def wait_applied(self, node_id: str, position: int) -> None:
        """Return once a replica's view has an event."""
        for _ in range(round(READY_S_MAX / 0.05)):
            if (await self.status(node_id)).applied_position >= position:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{node_id} did not apply event {position}")


def link_of(
    managers: Managers,
    node_id: str,
    kind: str = "shard",
    *,
    cluster_id: str = "test",
    endpoint: str = "127.0.0.1:1",
) -> ClusterLink:
    """Return a link as a node of that kind has it; start and stop it."""
    hello = cluster_pb.Hello(
        cluster_id=cluster_id,
        node_id=node_id,
        kind=kind,
        grpc=endpoint,
        raft_host="127.0.0.1",
        raft_port=1,
    )
    return ClusterLink(managers.endpoints, hello)


async def report(
    link: ClusterLink,
    message: cluster_pb.NodeMessage,
    watcher: ClusterLink,
    is_seen: Callable[[ClusterView], bool],
) -> None:
    """Report until ``watcher`` was notified: a report on a connection that breaks is lost."""
    async with timeout(SEEN_MS_MAX / 1_000):
        while True:
            link.send(message)
            if await watcher.wait_until(is_seen, REPORTED_AGAIN_MS):
                return


async def connected(link: ClusterLink) -> None:
    """Return once the link stands: a cluster manager that stood still ends it for a moment."""
    async with timeout(READY_S_MAX):
        await link.wait_connected()


async def ready(link: ClusterLink) -> None:
    async with timeout(READY_S_MAX):
        await link.wait_ready()
