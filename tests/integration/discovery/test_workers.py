"""Several processes on one Pulsar port: both answer, one dies and comes back, numbers add up."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import psutil
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from discovery.bootstrap.node import DiscoveryNode
from discovery.config import DiscoveryConfig
from nextgen.client.client import Client
from nextgen.kernel.errors import ConnectionLost
from nextgen.kernel.limits.trace import LOOP_STALL_MS
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.runtime.settings import Address
from nextgen.runtime.telemetry.observability import LoopLag
from nextgen.tasks.timeouts import timeout
from tests.integration.discovery.conftest import TIMEOUT_MS, WAIT_S
from tests.integration.discovery.test_process import ROOT, free_place
from tests.integration.discovery.test_pulsar import TOPIC, URL, located
from tests.support.processes.kept_tasks import break_kept, has_begun_again

pytestmark = pytest.mark.integration

CONNECTIONS = 24


class Pair:
    """A node of two processes: this one and a worker."""

    def __init__(self, node: DiscoveryNode, registry: CollectorRegistry, site) -> None:
        self.node = node
        self.registry = registry
        self.site = site
        self._is_running = True

    async def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            await self.node.stop()

    @property
    def worker_id(self) -> int:
        return self.node.workers.process_ids[2]

    async def connect(self) -> list[PulsarClientConnection]:
        """Return connections of which both processes have some, the worker's last."""
        async with timeout(WAIT_S):
            while True:
                clients = [
                    await PulsarClientConnection.open(
                        "127.0.0.1", self.node.pulsar_port, timeout_ms=TIMEOUT_MS
                    )
                    for _ in range(CONNECTIONS)
                ]
                if 0 < self.node.core.pulsar.connection_count < CONNECTIONS:
                    return clients
                await closed(clients)

    async def until_both(self) -> None:
        await self.site.until(lambda: self.node._report().gauges["processes"] == 2)

    async def until_counted(self, name: str, wanted: int) -> dict[str, int]:
        """Return the counters of all processes once ``name`` is ``wanted`` or more.

        The worker's report may be late.
        """
        async with (
            timeout(WAIT_S),
            Client([f"127.0.0.1:{self.node.grpc_port}"], timeout_ms=TIMEOUT_MS) as client,
        ):
            while (counters := await client.counters())[name] < wanted:
                await asyncio.sleep(0.05)
        return counters

    async def until_exactly(self, name: str, wanted: int) -> dict[str, int]:
        """Return the same; ``name`` never passes ``wanted``: that would count something twice."""
        counters = await self.until_counted(name, wanted)
        assert counters[name] == wanted
        return counters

    def worker_stalls(self) -> float:
        """Return the stalls on the node's metrics page that are not this process's own."""
        return self.metric("nextgen_discovery_event_loop_stalls_total") - LoopLag.stalls

    def metric(self, name: str) -> float:
        page = generate_latest(self.registry).decode()
        line = next(line for line in page.splitlines() if line.startswith(f"{name} "))
        return float(line.split()[1])


async def closed(clients: list[PulsarClientConnection]) -> None:
    for client in clients:
        client.close()
        await client.closed


@pytest.fixture
async def pair(site) -> AsyncIterator[Pair]:
    registry = CollectorRegistry()
    config = DiscoveryConfig(
        node_id="discovery-7",
        cluster_id="test",
        listen=Address("127.0.0.1", 0),
        advertise=Address("127.0.0.1", 1),
        http_listen=Address("127.0.0.1", 0),
        cluster_managers=(Address("127.0.0.1", site.manager.port),),
        pulsar_listen=Address("127.0.0.1", 0),
        pulsar_advertise=Address("127.0.0.1", 1),
        workers=2,
    )
    node = DiscoveryNode(config, registry)
    await node.start()
    pair = Pair(node, registry, site)
    await pair.until_both()
    yield pair
    await pair.stop()


async def test_both_processes_answer_and_their_numbers_add_up(pair, site):
    site.assign(TOPIC)
    clients = await pair.connect()

    for client in clients:
        for _ in range(5):
            assert (await located(client)).brokerServiceUrl == URL

    own = pair.node.core.counters.pulsar_lookups
    assert 0 < own < 5 * CONNECTIONS
    counters = await pair.until_exactly("pulsar_lookups", 5 * CONNECTIONS)
    assert counters["names_looked_up"] == 5 * CONNECTIONS
    assert counters["answers_from_cache"] + counters["lookups_assigned"] >= 5 * CONNECTIONS
    assert counters["pulsar_connections"] == CONNECTIONS
    assert counters["processes"] == 2
    assert pair.metric("nextgen_discovery_pulsar_lookups_total") == 5 * CONNECTIONS
    await closed(clients)


async def test_a_worker_that_dies_costs_its_own_connections_and_comes_back(pair, site):
    site.assign(TOPIC)
    clients = await pair.connect()
    for client in clients:
        await located(client)
    await pair.until_exactly("pulsar_lookups", CONNECTIONS)
    before = pair.worker_id

    os.kill(before, signal.SIGKILL)
    await site.until(lambda: pair.node.workers.restarts == 1)

    answered = 0
    for client in clients:
        try:
            answered += (await located(client)).brokerServiceUrl == URL
        except ConnectionLost:
            continue
    assert answered == pair.node.core.pulsar.connection_count > 0
    await pair.until_both()
    assert pair.worker_id != before
    assert pair.metric("nextgen_discovery_worker_restarts_total") == 1
    # What the dead one had counted still counts.
    assert pair.metric("nextgen_discovery_pulsar_lookups_total") == CONNECTIONS + answered

    again = await pair.connect()
    assert {(await located(client)).brokerServiceUrl for client in again} == {URL}
    await closed([*clients, *again])


async def test_a_worker_that_stood_still_is_counted_by_its_node(pair, site):
    """A busy machine may make both processes stall besides: no number of stalls is exact."""
    before = pair.worker_stalls()

    os.kill(pair.worker_id, signal.SIGSTOP)
    await asyncio.sleep(4 * LOOP_STALL_MS / 1_000)
    os.kill(pair.worker_id, signal.SIGCONT)

    await pair.site.until(lambda: pair.worker_stalls() > before)
    await pair.until_counted("event_loop_stalls", LoopLag.stalls + 1)


async def test_a_worker_whose_keeper_ended_comes_back(pair, site):
    before = pair.worker_id

    broken = break_kept("worker")
    await site.until(lambda: has_begun_again("worker", broken))

    await pair.until_both()
    assert pair.worker_id != before
    assert not psutil.pid_exists(before)


async def test_a_move_reaches_every_process_before_it_is_acknowledged(pair, site):
    site.assign(TOPIC)
    clients = await pair.connect()
    for client in clients:
        await located(client)
    shard = site.shard_of(TOPIC)

    site.assign(TOPIC, "broker-2", "s-2")
    subscribers = {"discovery-7", "discovery-7.w2"}
    await site.until(
        lambda: all(shard.acked.get(each, 0) >= shard.position for each in subscribers)
    )

    urls = {(await located(client)).brokerServiceUrl for client in clients}
    assert urls == {"pulsar://broker-2.example:6650"}
    await closed(clients)


async def test_a_stop_ends_the_workers_and_frees_the_port(pair, site):
    worker_id = pair.worker_id

    await pair.stop()

    assert not psutil.pid_exists(worker_id)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", pair.node.pulsar_port)


async def test_workers_end_with_the_process_that_started_them_however_it_ends(site):
    place = free_place()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "discovery", "--node-id", "discovery-8", "--cluster-id", "test"),
        *("--listen", place.grpc, "--http-listen", place.http),
        *("--cluster-managers", site.manager.endpoint, "--pulsar-listen", place.pulsar),
        *("--workers", "2"),
        cwd=ROOT,
        env={**os.environ, "NEXTGEN_LOG_LEVEL": "error"},
    )
    try:
        parent = psutil.Process(process.pid)
        await site.until(lambda: len(parent.children()) == 1)
        (worker,) = parent.children()
        # Its handlers are in place once it has joined the cluster.
        joined = "discovery-8.w2"
        await site.until(lambda: joined in {h.node_id for h in site.manager.hellos})

        process.kill()
        await process.wait()

        await site.until(lambda: not worker.is_running())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
