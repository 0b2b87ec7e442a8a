"""A small cluster of real processes on loopback: cluster manager, shard nodes, brokers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceStub
from protos.nextgen.v1.cluster_service_pb2 import Hello
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub
from tests.integration.cluster_manager.managers import (
    ANSWER_S_MAX,
    ENDS_S_MAX,
    Managers,
)
from tests.support.callers.member_channel import member_channel
from tests.support.processes.fork_server import WarmProcess, start_warm
from tests.support.processes.free_ports import free_ports

NAMESPACE = "acme/orders"
READY_S_MAX = 60.0
"""For processes to start and elect on a machine that is busy with other things."""
READY_MS_MAX = int(READY_S_MAX * 1_000)
TIMEOUT_MS = 30_000
"""For one request, a change of leader in between included."""


class Nodes:
    """Shard nodes and brokers of one cluster manager. Every process ends with the block."""

    def __init__(
        self, directory: Path, managers: Managers, *, shard_nodes: int, brokers: int
    ) -> None:
        self._directory = directory
        self._managers = managers
        names = [f"shard-node-{number + 1}" for number in range(shard_nodes)]
        names += [f"broker-{number + 1}" for number in range(brokers)]
        ports = iter(free_ports(3 * len(names)))
        self.ports = {name: (next(ports), next(ports), next(ports)) for name in names}
        self.processes: dict[str, WarmProcess | subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Nodes:
        for name in self.ports:
            self.start(name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in tuple(self.processes):
            self.kill(name)
        if error is not None:
            for log in sorted(self._directory.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-4_000:]}")

    @property
    def shard_nodes(self) -> list[str]:
        return [name for name in self.ports if name.startswith("shard")]

    @property
    def brokers(self) -> list[str]:
        return [name for name in self.ports if name.startswith("broker")]

    def endpoint(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name][0]}"

    def data_directory(self, name: str) -> Path:
        return self._directory / name

    def module(self, name: str) -> str:
        return "shards" if name.startswith("shard") else "brokers"

    def arguments(self, name: str, **changed: str) -> list[str]:
        grpc_port, http_port, raft_port = self.ports[name]
        flags = {
            "--node-id": name,
            "--cluster-id": "test",
            "--listen": f"127.0.0.1:{grpc_port}",
            "--http-listen": f"127.0.0.1:{http_port}",
            "--cluster-managers": ",".join(self._managers.endpoints),
        }
        if name.startswith("shard"):
            flags["--raft-listen"] = f"127.0.0.1:{raft_port}"
            flags["--data-dir"] = str(self.data_directory(name))
        flags |= {f"--{key.replace('_', '-')}": value for key, value in changed.items()}
        return [part for pair in flags.items() for part in pair]

    def start(self, name: str) -> None:
        """Start a process, again if it has ended."""
        with (self._directory / f"{name}.log").open("ab") as log:
            self.processes[name] = start_warm(
                self.module(name),
                self.arguments(name),
                environment={**os.environ, "NEXTGEN_LIFELINE": "stdin"},
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._end(name, signal.SIGKILL)

    def terminate(self, name: str) -> int:
        """SIGTERM; return the exit code."""
        return self._end(name, signal.SIGTERM)

    def metrics(self, name: str) -> str:
        with urllib.request.urlopen(self._url(name, "metrics"), timeout=ANSWER_S_MAX) as page:
            return str(page.read(), "utf-8")

    def is_ready(self, name: str) -> bool:
        try:
            with urllib.request.urlopen(self._url(name, "readyz"), timeout=5):
                return True
        except OSError:
            return False

    async def wait_ready(self, *names: str) -> None:
        async with timeout(READY_S_MAX):
            for name in names or tuple(self.ports):
                while not await asyncio.to_thread(self.is_ready, name):
                    await asyncio.sleep(0.05)

    def _url(self, name: str, page: str) -> str:
        return f"http://127.0.0.1:{self.ports[name][1]}/{page}"

    def _end(self, name: str, number: int) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        code = process.wait(timeout=ENDS_S_MAX)
        if process.stdin is not None:
            process.stdin.close()
        return code


class Caller:
    """A client of the shards, as discovery is one."""

    def __init__(self, link: ClusterLink, router: ShardRouter, pool: ExchangePool) -> None:
        self.link = link
        self.router = router
        self.pool = pool

    def shard_of(self, topic: str) -> int:
        return self.router.shard_of_key(parse_topic(topic).routing_key)

    async def wait_leaders(self) -> None:
        """Return when every shard is led by its first replica: then no leadership moves."""

        def settled(view: Any) -> bool:
            return bool(view.placements) and all(
                shard_id in view.leaders and view.leaders[shard_id].node_id == placed.replicas[0]
                for shard_id, placed in view.placements.items()
            )

        assert await self.link.wait_until(settled, READY_MS_MAX), self.link.view

    async def wait_brokers(self, count: int) -> None:
        def enough(view: Any) -> bool:
            return sum(broker.is_live for broker in view.brokers.values()) >= count

        assert await self.link.wait_until(enough, READY_MS_MAX), self.link.view

    async def execute(self, key: str, **command: Any) -> pb.CommandResult:
        wanted = pb.Command(command_id=os.urandom(16), **command)
        request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[wanted]))
        response = await self.router.call_key(key, request, timeout_ms=TIMEOUT_MS)
        return response.execute.results[0]

    async def prepare(self) -> None:
        tenant = NAMESPACE.partition("/")[0]
        await self.execute(tenant, create_tenant=pb.CreateTenant(name=tenant))
        await self.execute(NAMESPACE, create_namespace=pb.CreateNamespace(name=NAMESPACE))

    async def create(self, *names: str) -> list[str]:
        """Create topics in ``NAMESPACE``; return their canonical names."""
        topics = [f"persistent://{NAMESPACE}/{name}" for name in names]
        by_shard: dict[int, list[str]] = {}
        for topic in topics:
            by_shard.setdefault(self.shard_of(topic), []).append(topic)
        for group in by_shard.values():
            specs = [pb.TopicSpec(name=topic) for topic in group]
            result = await self.execute(
                parse_topic(group[0]).routing_key, create_topics=pb.CreateTopics(topics=specs)
            )
            refused = [outcome for outcome in result.topics if outcome.rejection_code]
            assert not refused, refused[0]
        return topics

    async def lookup(self, topic: str, timeout_ms: int = TIMEOUT_MS) -> LookupAnswer:
        """Return the final answer, asking again while it says that it will pass."""
        async with timeout(timeout_ms / 1000):
            while True:
                request = pb.ShardRequest(lookup=pb.ShardLookupRequest(topics=[topic]))
                key = parse_topic(topic).routing_key
                response = await self.router.call_key(key, request, timeout_ms=timeout_ms)
                answer = response.lookup.answers[0]
                if not answer.retryable:
                    return answer
                await asyncio.sleep(0.05)

    async def move(self, *assigned: LookupAnswer) -> list[LookupAnswer]:
        """Move topics of one shard to any other broker, each from where the answer says it is.

        Asks again while an answer says that it will pass: a topic is moved once all the same.
        """
        topics = [answer.topic for answer in assigned]
        moves = [
            pb.TopicMove(topic=answer.topic, expected_epoch=answer.epoch) for answer in assigned
        ]
        key = parse_topic(topics[0]).routing_key
        async with timeout(TIMEOUT_MS / 1000):
            while True:
                request = pb.ShardRequest(move=pb.MoveRequest(moves=moves))
                response = await self.router.call_key(key, request, timeout_ms=TIMEOUT_MS)
                if not any(answer.retryable for answer in response.move.answers):
                    return list(response.move.answers)
                await asyncio.sleep(0.05)

    def leader_endpoint(self, shard_id: int) -> str:
        endpoint = self.link.view.leader_endpoint(shard_id)
        assert endpoint is not None, f"shard {shard_id} has no leader"
        return endpoint

    async def events(self, endpoint: str, shard_id: int, *types: str) -> list[Event]:
        request = pb.ReadEventsRequest(shard_id=shard_id, types=types)
        async with member_channel(endpoint) as channel:
            events = []
            async for batch in ShardServiceStub(channel).ReadEvents(request):
                assert not batch.HasField("error"), batch.error
                events += batch.events
            return events


async def serves(answer: LookupAnswer) -> broker_pb.Serving:
    """Ask the broker that an answer names."""
    async with member_channel(answer.broker_grpc) as channel:
        request = broker_pb.ServesRequest(topics=[answer.topic])
        response = await BrokerServiceStub(channel).Serves(request, timeout=ANSWER_S_MAX)
        return response.answers[0]


class Started:
    """A cluster that several tests share; each of them comes as a client of its own."""

    def __init__(self, directory: Path, *, shard_nodes: int, brokers: int, shards: int) -> None:
        self.managers = _managers(directory, shard_nodes, shards)
        self.nodes = Nodes(directory, self.managers, shard_nodes=shard_nodes, brokers=brokers)
        self._brokers = brokers

    def __enter__(self) -> Started:
        for node_id in self.managers.node_ids:
            self.managers.start(node_id)
        for name in self.nodes.ports:
            self.nodes.start(name)
        try:
            asyncio.run(self._prepare())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        for name in tuple(self.nodes.processes):
            self.nodes.kill(name)
        for node_id in tuple(self.managers.processes):
            self.managers.kill(node_id)

    async def _prepare(self) -> None:
        async with calling(self.managers) as caller:
            await self.nodes.wait_ready()
            await caller.wait_leaders()
            await caller.wait_brokers(self._brokers)
            await caller.prepare()


def _managers(directory: Path, shard_nodes: int, shards: int) -> Managers:
    return Managers(
        directory,
        1,
        initial_shard_nodes=str(shard_nodes),
        shards=str(shards),
        replication_factor=str(shard_nodes),
    )


@asynccontextmanager
async def running(
    directory: Path, *, shard_nodes: int = 3, brokers: int = 2, shards: int = 4
) -> AsyncIterator[tuple[Nodes, Caller]]:
    """Start one cluster manager, shard nodes and brokers; give them and a client of theirs."""
    managers = _managers(directory, shard_nodes, shards)
    nodes = Nodes(directory, managers, shard_nodes=shard_nodes, brokers=brokers)
    async with managers, nodes, calling(managers) as caller:
        await nodes.wait_ready()
        await caller.wait_leaders()
        await caller.wait_brokers(brokers)
        await caller.prepare()
        yield nodes, caller


@asynccontextmanager
async def calling(managers: Managers) -> AsyncIterator[Caller]:
    hello = Hello(cluster_id="test", node_id="client-1", kind="client")
    link = ClusterLink(managers.endpoints, hello)
    pool = ExchangePool(lambda: link.view.shard_map_version)
    await link.start()
    try:
        async with timeout(READY_S_MAX):
            await link.wait_ready()
        yield Caller(link, ShardRouter(link, pool), pool)
    finally:
        await pool.stop()
        await link.stop()
