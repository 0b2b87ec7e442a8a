"""A shard node whose host is gone: no connection is closed, none is accepted, nothing is said."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nextgen.kernel.errors import ConnectionLost
from nextgen.kernel.limits.cluster import CHANNEL_KEEPALIVE_MS
from nextgen.replication.config import RaftConfig
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from tests.integration.cluster_manager.managers import Managers
from tests.integration.shards.processes import TIMEOUT_MS, Caller, Nodes, calling
from tests.support.processes.vanishing_host import VanishingHost

BUSY_MACHINE_S = 15
"""Slack: eight processes, a busy machine. Whoever waits until a request is given up waits far
longer, ``TIMEOUT_MS``."""

SILENCE_S = 2 * CHANNEL_KEEPALIVE_MS / 1000
RECOVERED_S_MAX = SILENCE_S + RaftConfig().election_ms_max / 1000 + BUSY_MACHINE_S


class NodesOnHosts(Nodes):
    """Every shard node is reached through a host of its own."""

    def __init__(self, directory: Path, managers: Managers) -> None:
        super().__init__(directory, managers, shard_nodes=3, brokers=2)
        self.hosts = {name: VanishingHost() for name in self.shard_nodes}

    def arguments(self, name: str, **changed: str) -> list[str]:
        if name in self.hosts:
            grpc_port, _, raft_port = self.ports[name]
            host = self.hosts[name]
            changed["advertise"] = f"127.0.0.1:{host.forward(grpc_port)}"
            changed["raft_advertise"] = f"127.0.0.1:{host.forward(raft_port)}"
        return super().arguments(name, **changed)

    async def vanish(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGSTOP)
        await self.hosts[name].vanish()

    async def close(self) -> None:
        for host in self.hosts.values():
            await host.close()


@asynccontextmanager
async def on_hosts(directory: Path) -> AsyncIterator[tuple[NodesOnHosts, Caller]]:
    managers = Managers(directory, 1, initial_shard_nodes="3", shards="4", replication_factor="3")
    nodes = NodesOnHosts(directory, managers)
    try:
        async with managers, nodes, calling(managers) as caller:
            await nodes.wait_ready()
            await caller.wait_leaders()
            await caller.wait_brokers(2)
            await caller.prepare()
            yield nodes, caller
    finally:
        await nodes.close()


def leader_of(caller: Caller, shard_id: int) -> str:
    return str(caller.link.view.leaders[shard_id].node_id)


async def commits_again(caller: Caller, shard_id: int, began: float) -> float:
    """Return the seconds until a topic created after ``began`` is acknowledged by the shard."""
    names = (f"after-{number}" for number in range(10_000))
    name = next(n for n in names if caller.shard_of(f"persistent://acme/orders/{n}") == shard_id)
    await caller.create(name)
    return time.monotonic() - began


async def answered(caller: Caller, topic: str, began: float) -> float:
    """Return the seconds until a lookup sent at ``began`` has its final answer."""
    answer = await caller.lookup(topic)
    assert answer.broker_id, f"{topic}: {answer.rejection_code} {answer.message}"
    return time.monotonic() - began


async def test_commits_and_lookups_go_on_when_the_host_of_a_leader_vanishes(
    tmp_path: Path,
) -> None:
    async with on_hosts(tmp_path) as (nodes, caller):
        warm = await caller.create(*(f"warm-{number}" for number in range(60)))
        cold = await caller.create(*(f"cold-{number}" for number in range(60)))
        for topic in warm:
            await answered(caller, topic, time.monotonic())
        victim = leader_of(caller, 1)
        led = [shard_id for shard_id in range(1, 5) if leader_of(caller, shard_id) == victim]

        began = time.monotonic()
        await nodes.vanish(victim)
        commits = await asyncio.gather(*(commits_again(caller, each, began) for each in led))
        lookups = await asyncio.gather(*(answered(caller, each, began) for each in warm + cold))

        print(f"{victim}: next commits {commits}, slowest lookup {max(lookups):.2f} s")
        assert max(commits) <= RECOVERED_S_MAX
        assert max(lookups) <= RECOVERED_S_MAX
        # A leader that answers already may not have been told of here.
        assert await caller.link.wait_until(
            lambda view: all(view.leaders[each].node_id != victim for each in led), TIMEOUT_MS
        )


@pytest.mark.slow
async def test_silence_alone_gives_up_what_waits_for_a_host_that_vanished(tmp_path: Path) -> None:
    """The vanished host was a follower: there is no election, and no push of a leader."""
    async with on_hosts(tmp_path) as (nodes, caller):
        (topic,) = await caller.create("orders")
        shard_id = caller.shard_of(topic)
        follower = next(n for n in nodes.shard_nodes if n != leader_of(caller, shard_id))
        endpoint = caller.link.view.nodes[follower].grpc

        def read() -> pb.ShardRequest:
            names = [pb.ObjectName(kind=KIND_TOPIC, name=topic)]
            return pb.ShardRequest(
                shard_id=shard_id, get=pb.GetRequest(names=names, min_position=1)
            )

        await caller.pool.request(endpoint, read(), timeout_ms=TIMEOUT_MS)

        await nodes.vanish(follower)
        began = time.monotonic()
        with pytest.raises(ConnectionLost):
            await caller.pool.request(endpoint, read(), timeout_ms=TIMEOUT_MS)
        took_s = time.monotonic() - began

        print(f"given up after {took_s:.2f} s")
        assert took_s <= SILENCE_S + BUSY_MACHINE_S
        assert not caller.pool.is_connected(endpoint)
