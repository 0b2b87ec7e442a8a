"""Callers of one operation at a time, in a process of their own: of our cluster, and of etcd.

All callers of a cluster share one client of ``nextgen.client`` at one discovery node, except those
of ``apart``: a client may share requests among its callers. Lookups go over Pulsar connections, one
for each caller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import uvloop

from benchmarks.support.block_generator import WrongAnswer, serve_blocks
from benchmarks.support.etcd_cluster import EtcdClient
from nextgen.client import Client, TopicLocation
from nextgen.pulsar.client import PulsarClientConnection
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopic, CommandLookupTopicResponse

MODULE = "benchmarks.support.operations.callers"
TIMEOUT_MS = 30_000
RETRY_PAUSE_S = 0.1
VALUE = b"." * 40


def topic_name(namespace: str, stem: str, number: int) -> str:
    return f"persistent://{namespace}/{stem}-{number:07d}"


class ClusterCaller:
    """Operations on topics of one namespace. Raises ``WrongAnswer`` or ``MetadataError``."""

    def __init__(
        self,
        client: Client,
        own_client: Client,
        connection: PulsarClientConnection,
        namespace: str,
    ) -> None:
        self._client = client
        self._own_client = own_client
        self._connection = connection
        self._namespace = namespace

    def close(self) -> None:
        self._connection.close()

    async def create(self, number: int) -> None:
        await self._create(self._client, number)

    async def apart(self, number: int) -> None:
        """Create by a client of its own."""
        await self._create(self._own_client, number)

    async def _create(self, client: Client, number: int) -> None:
        (outcome,) = await client.create_topics([self._plain(number)])
        if not outcome.is_created:
            raise WrongAnswer(f"a create is refused: {outcome.message}")

    async def change(self, number: int) -> None:
        await self._client.set_topic_properties(self._plain(number), {"number": str(number)})

    async def delete(self, number: int) -> None:
        await self._client.delete_topic(self._plain(number))

    async def lookup(self, number: int) -> None:
        lookup = CommandLookupTopic(topic=self._served(number), authoritative=False)
        answer = await self._connection.request(
            BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup), timeout_ms=TIMEOUT_MS
        )
        found = answer.lookupTopicResponse
        is_named = found.brokerServiceUrl.startswith("pulsar://")
        if found.response != CommandLookupTopicResponse.Connect or not is_named:
            raise WrongAnswer(f"a lookup is answered with {answer}")

    async def move(self, number: int) -> None:
        location = await self._moved(number)
        while location.retryable:
            await asyncio.sleep(RETRY_PAUSE_S)
            location = await self._moved(number)
        if location.rejection_code:
            raise WrongAnswer(f"a move is refused: {location.message}")

    async def _moved(self, number: int) -> TopicLocation:
        (location,) = await self._client.move_topics({self._served(number): ""})
        return location

    def _plain(self, number: int) -> str:
        return topic_name(self._namespace, "plain", number)

    def _served(self, number: int) -> str:
        return topic_name(self._namespace, "served", number)


class EtcdCaller:
    """Puts over one connection that all callers share."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def create(self, number: int) -> None:
        await self._client.put(topic_name("peer/keys", "plain", number).encode(), VALUE)


async def generate(job: dict[str, Any]) -> None:
    callers = range(job["callers"])
    if job["way"] == "etcd":
        peer = EtcdClient(job["target"])
        try:
            await serve_blocks([EtcdCaller(peer) for _ in callers])
        finally:
            await peer.close()
        return
    host, _, port = job["pulsar"].rpartition(":")
    clients = [Client([job["target"]], timeout_ms=TIMEOUT_MS) for _ in range(1 + job["callers"])]
    started = []
    for own_client in clients[1:]:
        connection = await PulsarClientConnection.open(host, int(port))
        started.append(ClusterCaller(clients[0], own_client, connection, job["namespace"]))
    try:
        await serve_blocks(started)
    finally:
        for caller in started:
            caller.close()
        for client in clients:
            await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--generate", required=True, help="the job, as JSON")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(generate(json.loads(parser.parse_args().generate)))


if __name__ == "__main__":
    main()
