"""Callers of one operation at a time, in a process of their own: of our cluster, and of etcd.

All callers of a cluster share one client of ``nextgen.client`` at one discovery node; lookups go
over Pulsar connections, one for each caller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import uvloop

from benchmarks.support.block_generator import WrongAnswer, serve_blocks
from benchmarks.support.etcd_cluster import EtcdClient
from nextgen.client import Client
from nextgen.pulsar.client import PulsarClientConnection
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopic, CommandLookupTopicResponse

MODULE = "benchmarks.support.operations.callers"
TIMEOUT_MS = 30_000
VALUE = b"." * 40


def topic_name(namespace: str, stem: str, number: int) -> str:
    return f"persistent://{namespace}/{stem}-{number:07d}"


class ClusterCaller:
    """Operations on topics of one namespace. Raises ``WrongAnswer`` or ``MetadataError``."""

    def __init__(self, client: Client, connection: PulsarClientConnection, namespace: str) -> None:
        self._client = client
        self._connection = connection
        self._namespace = namespace

    async def create(self, number: int) -> None:
        (outcome,) = await self._client.create_topics([self._plain(number)])
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
        (location,) = await self._client.move_topics({self._served(number): ""})
        if location.rejection_code:
            raise WrongAnswer(f"a move is refused: {location.message}")

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
    async with Client([job["target"]], timeout_ms=TIMEOUT_MS) as client:
        connections = [await PulsarClientConnection.open(host, int(port)) for _ in callers]
        await serve_blocks([ClusterCaller(client, one, job["namespace"]) for one in connections])
        for connection in connections:
            connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--generate", required=True, help="the job, as JSON")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(generate(json.loads(parser.parse_args().generate)))


if __name__ == "__main__":
    main()
