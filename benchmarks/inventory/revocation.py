"""How long does a revocation take until it is answered, and do connections of the role end before?

python -m benchmarks.inventory.revocation [--revocations 100] [--connections 10]

A cluster on loopback whose clients need permissions. In each round a role is permitted to produce,
connects, and produces at the broker; then the permission is taken back, over REST or gRPC in turns.
``answered_ms``: from the call to its answer. ``closed_ms``: from the call to the end of each of the
role's connections. ``open_at_answer``: connections that the server had not closed when the answer
was there. ``allowed_after``: lookups that discovery, and producers that the broker, accepted behind
it. Both have to be 0. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.local_tokens import KEY_FILE, TOKEN_FILE, TOKENS
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.cli.local.security import use_security
from nextgen.client import Client
from nextgen.harness.load.measure import Latencies
from nextgen.kernel.governance.permissions import AuthAction, Permission
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.runtime.security.authentication.token_maker import make_token
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandProducer,
)

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=2, shards=2)
ROLE = "ada"
TENANT = "bench"
NAMESPACE = f"{TENANT}/revocation"
TOPIC = f"persistent://{NAMESPACE}/topic"
MAY_PRODUCE = Policies(permissions=(Permission(ROLE, (AuthAction.PRODUCE,)),))
GOAL_MS = 100
CLOSING_S = 10


def producer() -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.PRODUCER, producer=CommandProducer(topic=TOPIC, producer_id=1)
    )


class Held:
    """A connection of the role that produces, and when it ended."""

    def __init__(self, connection: PulsarClientConnection) -> None:
        self.connection = connection
        self.ended_at = 0.0
        transport = connection._transport
        assert transport is not None, "it was just opened"
        # Of our own, to look at it without what the event loop has read.
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        connection.closed.add_done_callback(self._end)

    def _end(self, _done: object) -> None:
        self.ended_at = time.perf_counter()

    def is_closed(self) -> bool:
        """Return whether the server has closed it by now."""
        if self.ended_at:
            return True
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        self.connection.close()
        self._socket.close()


class Bench:
    """A cluster under measurement, an operator's clients of it, and the role's token."""

    def __init__(self, cluster: LocalCluster, client: Client, web: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.client = client
        self.web = web
        secret = (cluster.data_dir / KEY_FILE).read_bytes()
        self.token = make_token(secret, "HS256", {"sub": ROLE}).encode()
        self.answered, self.closed = Latencies(), Latencies()
        self.open_at_answer = self.allowed_after = 0
        self._broker = ("", 0)

    async def prepare(self) -> None:
        await self.client.create_tenant(TENANT)
        await self.client.create_namespace(NAMESPACE)
        await self.client.create_topics([TOPIC])
        (place,) = await self.client.lookup([TOPIC])
        host, _, port = place.broker_url.removeprefix("pulsar://").rpartition(":")
        self._broker = host, int(port)

    async def connect(self, host: str, port: int) -> PulsarClientConnection:
        greeting = CommandConnect(
            client_version="revocation",
            protocol_version=20,
            auth_method_name="token",
            auth_data=self.token,
        )
        return await PulsarClientConnection.open(host, port, connect=greeting)

    async def producing(self) -> Held:
        """Return a connection to the broker with a producer."""
        connection = await self.connect(*self._broker)
        answer = await connection.request(producer())
        assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
        return Held(connection)

    async def looking_up(self, node: int) -> PulsarClientConnection:
        """Return a connection to a discovery node that has looked the topic up."""
        address = self.cluster.plan.of_kind("discovery")[node].pulsar
        host, _, port = address.rpartition(":")
        connection = await self.connect(host, int(port))
        assert await self.is_found(connection)
        return connection

    async def is_found(self, connection: PulsarClientConnection) -> bool:
        lookup = CommandLookupTopic(topic=TOPIC, authoritative=False)
        answer = await connection.request(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup))
        response = answer.lookupTopicResponse.response
        return response == CommandLookupTopicResponse.Connect

    async def may_produce(self) -> bool:
        connection = await self.connect(*self._broker)
        answer = await connection.request(producer())
        connection.close()
        return answer.type == BaseCommand.PRODUCER_SUCCESS

    async def grant(self) -> None:
        await self.client.set_policies(NAMESPACE, MAY_PRODUCE)

    async def revoke_by_grpc(self) -> None:
        await self.client.set_policies(NAMESPACE, NO_POLICIES)

    async def revoke_by_rest(self) -> None:
        address = self.cluster.plan.of_kind("discovery")[0].http
        url = f"http://{address}/admin/v2/namespaces/{NAMESPACE}/permissions/{ROLE}"
        async with self.web.delete(url) as answer:
            assert answer.status == 204, (answer.status, await answer.text())

    async def round(self, revoke: Callable[[], Awaitable[None]], connections: int) -> None:
        await self.grant()
        held = await asyncio.gather(*(self.producing() for _ in range(connections)))
        lookups = await asyncio.gather(*(self.looking_up(node) for node in range(SIZE.discovery)))
        began = time.perf_counter()
        await revoke()
        self.open_at_answer += sum(not each.is_closed() for each in held)
        self.answered.add(time.perf_counter() - began)
        found = await asyncio.gather(*map(self.is_found, lookups))
        self.allowed_after += sum(found) + await self.may_produce()
        await asyncio.wait([each.connection.closed for each in held], timeout=CLOSING_S)
        for each in held:
            self.closed.add((each.ended_at or time.perf_counter()) - began)
            each.close()
        for connection in lookups:
            connection.close()


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nextgen-revoke-")))
        plan = replace(make_plan_on_free_ports(SIZE), authentication=TOKENS)
        cluster = await stack.enter_async_context(LocalCluster(plan, data_dir))
        await cluster.wait_ready()
        use_security(plan, data_dir)
        token = (data_dir / TOKEN_FILE).read_text().strip()
        web = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})
        )
        client = await stack.enter_async_context(
            Client(plan.discovery_endpoints, timeout_ms=30_000, effective=True)
        )
        bench = Bench(cluster, client, web)
        await bench.prepare()
        await bench.round(bench.revoke_by_grpc, 1)
        bench.answered, bench.closed = Latencies(), Latencies()
        ways = (bench.revoke_by_rest, bench.revoke_by_grpc)
        for number in range(arguments.revocations):
            await bench.round(ways[number % 2], arguments.connections)
        return {
            "benchmark": "revocation",
            "answered_ms": bench.answered.summary(),
            "closed_ms": bench.closed.summary(),
            "goal_p99_ms": GOAL_MS,
            "open_at_answer": bench.open_at_answer,
            "allowed_after": bench.allowed_after,
            "load_average": psutil.getloadavg(),
            "run": {
                "revocations": arguments.revocations,
                "connections": arguments.connections,
                "nodes": len(plan.nodes),
                "shards": SIZE.shards,
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--revocations", type=int, default=100)
    parser.add_argument("--connections", type=int, default=10)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
