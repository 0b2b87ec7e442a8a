"""A program that knows a cluster's id and addresses, but not its secret, wants to be a broker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from aiohttp import ClientSession

from nextgen.cli.local.cluster import child_environment
from nextgen.cli.local.plan import ClusterPlan, NodePlan, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.transport.node_calls import NODE_CALLS, OPEN_CALLS
from nextgen.runtime.security.cluster_secret import SECRET_FILE, make_cluster_secret
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerSessionServiceStub
from protos.nextgen.v1.events_pb2 import BrokerEndpoints
from tests.support.callers.raw_calls import OF_SIDECARS, call, methods, methods_of_sidecars
from tests.support.processes.local_cluster import MINIMAL, LocalCluster

TOPICS = [f"persistent://acme/orders/t-{number}" for number in range(12)]
ITS_URL = "pulsar://127.0.0.1:1"
ANSWER_S = 20
ENDS_S_MAX = 60
FLAG = "--cluster-secret-file"
NOT_REQUIRED = ("--cluster-secret-required", "false")


class WithoutSecret(ClusterPlan):
    """A cluster without a secret: no proof is sent or required."""

    def arguments(self, node: NodePlan, data_dir: Path) -> list[str]:
        return without_secret(super().arguments(node, data_dir))


def without_secret(arguments: list[str]) -> list[str]:
    place = arguments.index(FLAG)
    return arguments[:place] + arguments[place + 2 :]


class StagedCluster(LocalCluster):
    """One whose processes are given what ``flags`` says in place of the cluster's secret."""

    flags: tuple[str, ...] = ()

    def command_of(self, node: NodePlan) -> list[str]:
        return without_secret(super().command_of(node)) + list(self.flags)


@asynccontextmanager
async def cluster_of(kind: type[ClusterPlan], directory: Path) -> AsyncIterator[LocalCluster]:
    made = make_plan_on_free_ports(MINIMAL, cluster_id="test")
    async with LocalCluster(kind(made.cluster_id, made.size, made.nodes), directory) as cluster:
        await cluster.wait_ready()
        async with Client(cluster.plan.discovery_endpoints) as client:
            await client.create_tenant("acme")
            await client.create_namespace("acme/orders")
        yield cluster


class Impostor:
    """Registers as a broker without topics and says of everything that it has taken it in."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.aio.insecure_channel(endpoint)
        self._call = BrokerSessionServiceStub(self._channel).Connect()
        self.status = ""
        self.is_registered = asyncio.Event()
        self.delivered: list[str] = []
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await self._channel.close()

    async def _run(self) -> None:
        hello = wire.BrokerHello(
            cluster_id="test",
            broker_id="impostor",
            endpoints=BrokerEndpoints(pulsar_url=ITS_URL, grpc="127.0.0.1:1", http="127.0.0.1:1"),
            capacity_units=50_000,
            skips_unknown=True,
        )
        try:
            await self._call.write(wire.BrokerMessage(hello=hello))
            async with TaskGroup() as tasks:
                tasks.create_task(self._hear())
                tasks.create_task(self._beat())
        except* (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self.status = (await self._call.code()).name

    async def _hear(self) -> None:
        while isinstance(message := await self._call.read(), wire.ManagerMessage):
            if message.HasField("established"):
                self.is_registered.set()
            for delivery in message.deliveries.deliveries:
                self.delivered.append(delivery.assign.topic.name)
                sync = wire.SyncPosition(sequence=delivery.sequence)
                await self._call.write(wire.BrokerMessage(sync=sync))

    async def _beat(self) -> None:
        while True:
            await self._call.write(wire.BrokerMessage(heartbeat=wire.BrokerHeartbeat()))
            await asyncio.sleep(0.5)


async def refused_impostor(endpoint: str) -> Impostor:
    """Return an impostor whose call has ended.

    gRPC's client loses the status of some calls that end while it writes: those are INTERNAL, and
    begun again.
    """
    async with timeout(ANSWER_S):
        while True:
            impostor = Impostor(endpoint)
            while not impostor.status:
                await asyncio.sleep(0.05)
            if impostor.status != "INTERNAL":
                return impostor
            assert not impostor.is_registered.is_set()
            await impostor.close()


async def urls_of(cluster: LocalCluster) -> list[str]:
    """Create the topics, look them up, and return where clients of each are sent."""
    async with Client(cluster.plan.discovery_endpoints) as client:
        await client.create_topics(TOPICS)
        return [each.broker_url for each in await client.lookup(TOPICS)]


async def test_without_a_secret_a_program_that_knows_the_clusters_id_is_given_topics(
    tmp_path: Path,
):
    """What a cluster secret is for; and the impostor of the next test knows its part."""
    async with cluster_of(WithoutSecret, tmp_path) as cluster:
        # So that it depends on no placement rule who gets the topics.
        await cluster.kill("broker-1")
        impostor = Impostor(cluster.plan.node("shard-node-1").grpc)
        async with timeout(ANSWER_S):
            await impostor.is_registered.wait()

        urls = await urls_of(cluster)

        await impostor.close()
    assert urls == [ITS_URL] * len(TOPICS)
    assert set(TOPICS) <= set(impostor.delivered)


async def test_an_impostor_broker_gets_no_session_and_no_topic(tmp_path: Path):
    async with cluster_of(ClusterPlan, tmp_path) as cluster:
        own_url = f"pulsar://{cluster.plan.node('broker-1').pulsar}"
        impostor = await refused_impostor(cluster.plan.node("shard-node-1").grpc)

        urls = await urls_of(cluster)

        await impostor.close()
        log = cluster.log_path("shard-node-1").read_text()
    assert impostor.status == "UNAUTHENTICATED"
    assert not impostor.is_registered.is_set()
    assert impostor.delivered == []
    assert urls == [own_url] * len(TOPICS)
    assert "a call came without proof of the cluster secret" in log


def broker_command(cluster: LocalCluster, node: NodePlan, *flags: str) -> list[str]:
    """Return the command of one more broker, at the addresses of ``node``."""
    command = [sys.executable, "-m", "brokers", "--node-id", "broker-2", "--cluster-id", "test"]
    command += ["--cluster-managers", cluster.plan.manager_endpoints]
    return [*command, "--listen", node.grpc, "--http-listen", node.http, *flags]


@pytest.mark.parametrize(
    ("secret", "is_sidecar"),
    [
        (None, False),
        (b"a secret that is another one", False),
        (b"a secret that is a third one", True),
    ],
)
async def test_a_broker_without_the_secret_ends_and_says_why(
    tmp_path: Path, secret: bytes | None, is_sidecar: bool
):
    async with cluster_of(ClusterPlan, tmp_path) as cluster:
        flags = ["--sidecar", str(tmp_path / "nobody.sock")] if is_sidecar else []
        if secret is not None:
            file = tmp_path / "another.secret"
            file.write_bytes(secret)
            flags += [FLAG, str(file)]
        command = broker_command(cluster, make_plan_on_free_ports(MINIMAL).node("broker-1"), *flags)
        ended = await asyncio.to_thread(
            subprocess.run,
            command,
            env=child_environment(lifeline=False),
            capture_output=True,
            text=True,
            timeout=ENDS_S_MAX,
            check=False,
        )

    assert ended.returncode == 78
    said = ended.stderr.strip().splitlines()[-1]
    assert "every cluster manager refuses this process: this node needs the cluster secret" in said


async def test_every_process_refuses_what_is_for_nodes_to_a_stranger(tmp_path: Path):
    async with cluster_of(ClusterPlan, tmp_path) as cluster:
        kinds = {"manager": "cluster-manager", "shard": "shard-node", "broker": "broker"}
        asked = [method for method in methods() if method.path in NODE_CALLS]
        outcomes = {}
        for method in asked:
            endpoint = cluster.plan.node(f"{kinds[method.server]}-1").grpc
            async with grpc.aio.insecure_channel(endpoint) as channel:
                outcome = await call(channel, method, b"")
            outcomes[method.server, method.path] = (outcome.status, outcome.reason)

    of_nodes = {path for path in NODE_CALLS if path.split("/")[1] != OF_SIDECARS}
    assert {method.path for method in asked} == of_nodes
    assert set(outcomes.values()) == {("UNAUTHENTICATED", "UNAUTHENTICATED")}, outcomes


async def test_a_sidecar_refuses_what_is_for_nodes_to_a_stranger(tmp_path: Path):
    """Calls that move topics, and calls that describe the stock broker, need proof of the cluster
    secret. The broker does not run: a sidecar refuses before it asks its broker."""
    async with cluster_of(ClusterPlan, tmp_path) as cluster:
        node = make_plan_on_free_ports(MINIMAL).node("broker-1")
        secret = cluster.data_dir / SECRET_FILE
        flags = ("--sidecar", str(tmp_path / "nobody.sock"), FLAG, str(secret))
        command = broker_command(cluster, node, *flags)
        sidecar = subprocess.Popen(command, env=child_environment(lifeline=False))
        try:
            outcomes = await asked_of_strangers(node.grpc)
            pages = [await status_of(node.http, page) for page in ("livez", "metrics", "status")]
        finally:
            sidecar.terminate()
            await asyncio.to_thread(sidecar.wait, ENDS_S_MAX)

    assert {path for path in outcomes if path.split("/")[1] == OF_SIDECARS}
    assert set(outcomes.values()) == {("UNAUTHENTICATED", "UNAUTHENTICATED")}, outcomes
    assert pages == [200, 200, 404]


async def asked_of_strangers(endpoint: str) -> dict[str, tuple[str, str]]:
    """Return how a sidecar answers each call that is for nodes, once it has started."""
    outcomes = {}
    async with grpc.aio.insecure_channel(endpoint) as channel, timeout(ENDS_S_MAX):
        await channel.channel_ready()
        for method in methods_of_sidecars():
            if method.path not in OPEN_CALLS:
                outcome = await call(channel, method, b"")
                outcomes[method.path] = (outcome.status, outcome.reason)
    return outcomes


async def status_of(endpoint: str, page: str) -> int:
    async with ClientSession() as http, http.get(f"http://{endpoint}/{page}") as answer:
        return answer.status


@pytest.mark.slow
async def test_a_secret_is_introduced_and_changed_one_process_at_a_time(tmp_path: Path):
    first, second = (tmp_path / name for name in ("first", "second"))
    for file in (first, second):
        make_cluster_secret(file)
    made = make_plan_on_free_ports(MINIMAL, cluster_id="test")
    cluster = StagedCluster(made, tmp_path / "cluster")
    looked_up = 0
    async with cluster, Client(made.discovery_endpoints, timeout_ms=60_000) as client:
        await cluster.wait_ready()
        await client.create_tenant("acme")
        await client.create_namespace("acme/orders")
        for flags in (
            (FLAG, str(first), *NOT_REQUIRED),
            (FLAG, str(second), *NOT_REQUIRED),
            (FLAG, str(second)),
        ):
            cluster.flags = flags
            for node in made.nodes:
                await cluster.kill(node.node_id, signal.SIGTERM)
                await cluster.start_node(node.node_id)
                await cluster.wait_ready()
                looked_up += 1
                topic = f"persistent://acme/orders/t-{looked_up}"
                await client.create_topics([topic])
                (found,) = await client.lookup([topic])
                assert found.broker_id == "broker-1", (flags, node, found)
        stranger = Impostor(made.node("shard-node-1").grpc)
        async with timeout(ANSWER_S):
            while not stranger.status:
                await asyncio.sleep(0.05)
        await stranger.close()

    assert looked_up == 12
    assert stranger.status == "UNAUTHENTICATED"
