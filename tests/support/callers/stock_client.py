"""The stock Python client against a cluster of real processes: what its tests share.

A test is given discovery's address as service URL and nothing else of the cluster; what it needs
of the command line or of processes goes through ``PulsarSystem``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.plan import LEDGERS_FOLDER
from nextgen.client import BlockingClient, Client, NewTopic
from nextgen.client.routing.topic_owners import TopicOwners
from nextgen.kernel.errors import Refused
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1.discovery_service_pb2 import GetCountersRequest
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.callers.cluster_questions import busiest_shard_leader
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import BlockingCluster, ClusterSize, blocking_cluster

RECEIVE_MS = 30_000
"""For a message that must arrive. Only a failing test waits that long."""

QUIET_MS = 300
"""Within this nothing may arrive. A delivery on this machine takes a few milliseconds."""

COMMAND_TIMEOUT_S = 60

REPEATED_S_MAX = 60
"""Time for requests that are refused while a process stalls, and are repeated."""

REPEAT_PAUSE_S = 0.1
ADMIN_TIMEOUT_MS = 30_000

SMALL = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=1)


class PulsarSystem:
    """A running cluster as the operator of a test sees it."""

    def __init__(self, cluster: BlockingCluster, admin: BlockingClient) -> None:
        self._cluster = cluster
        self._admin = admin

    @property
    def service_url(self) -> str:
        return self._cluster.plan.service_url

    @property
    def manager_endpoints(self) -> list[str]:
        return self._cluster.plan.manager_endpoints.split(",")

    @property
    def discovery_endpoints(self) -> list[str]:
        """Where each discovery node answers gRPC calls."""
        return list(self._cluster.plan.discovery_endpoints)

    @property
    def first_service_url(self) -> str:
        """The URL of one discovery node, for clients that take no list of addresses."""
        return self.service_url.partition(",")[0]

    @property
    def http_url(self) -> str:
        return f"http://{self._cluster.plan.of_kind('discovery')[0].http}"

    @property
    def broker_addresses(self) -> dict[str, str]:
        """Broker ids, each with where its Pulsar port is."""
        return {node.node_id: node.pulsar for node in self._cluster.plan.of_kind("broker")}

    @property
    def discovery_nodes(self) -> list[str]:
        return [node.node_id for node in self._cluster.plan.of_kind("discovery")]

    def command(self, *arguments: str) -> list[Any]:
        """Run ``nextgen`` on this cluster; return the JSON lines that it printed."""
        result = self._run(arguments)
        assert result.returncode == 0, result
        return [json.loads(line) for line in result.stdout.splitlines()]

    def repeated_command(self, *arguments: str) -> list[Any]:
        """Run ``nextgen`` as ``command`` does, and again while it is refused or not answered.

        A broker that stands still, or that a shard has leased nothing of yet, is given no topic:
        that is refused, has changed nothing, and passes.
        """
        deadline = time.monotonic() + REPEATED_S_MAX
        while (result := self._run(arguments)).returncode in (ExitCode.REFUSED, ExitCode.NO_ANSWER):
            assert time.monotonic() < deadline, result
            time.sleep(REPEAT_PAUSE_S)
        assert result.returncode == 0, result
        return [json.loads(line) for line in result.stdout.splitlines()]

    def refused_command(self, *arguments: str) -> str:
        """Run ``nextgen`` on this cluster, which must refuse it; return the refusal."""
        result = self._run(arguments)
        assert result.returncode == ExitCode.REFUSED, result
        return result.stderr

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return run_warm(
            "nextgen",
            [*arguments, "--json"],
            environment={**os.environ, "NEXTGEN_DATA_DIR": str(self._cluster.cluster.data_dir)},
            timeout_s=COMMAND_TIMEOUT_S,
        )

    def admin_rest(self, method: str, path: str) -> None:
        """Call the Admin REST below ``/admin/v2``."""
        request = urllib.request.Request(f"{self.http_url}/admin/v2/{path}", method=method)
        with urllib.request.urlopen(request, timeout=COMMAND_TIMEOUT_S):
            pass

    def create_topic(self, name: str, *, partitions: int = 0) -> None:
        """Create a topic, and return when no discovery node remembers that it is absent.

        A client may have looked for it a moment ago, at a node that learns of it later (ADR 0061).
        """
        endpoints = self.discovery_endpoints
        with BlockingClient(endpoints, timeout_ms=ADMIN_TIMEOUT_MS, effective=True) as client:
            (created,) = client.create_topics([NewTopic(name, partitions=partitions)])
        assert created.is_created, created

    def rename_topic(self, name: str, new_name: str, *, grace_ms: int) -> str:
        """Rename a topic, effectively as ``create_topic``; return its id."""
        endpoints = self.discovery_endpoints
        with BlockingClient(endpoints, timeout_ms=ADMIN_TIMEOUT_MS, effective=True) as client:
            return client.rename_topic(name, new_name, grace_ms=grace_ms).id

    def topic_id(self, name: str) -> str:
        """Return the id of the topic that a name leads to, "" if it leads to none."""
        topic = self._admin.get_topic(name)
        return "" if topic is None else topic.topic_id

    def create_shadow(self, name: str, source: str) -> None:
        """Create a shadow that its source lists, effectively as ``create_topic``."""
        endpoints = self.discovery_endpoints
        with BlockingClient(endpoints, timeout_ms=ADMIN_TIMEOUT_MS, effective=True) as client:
            client.create_shadow(name, source)

    def list_shadows(self, source: str, names: list[str]) -> None:
        self._admin.set_shadows(source, names)

    def has_topic(self, name: str) -> bool:
        return self._admin.get_topic(name) is not None

    def create_scalable(self, name: str, segments: int) -> None:
        (created,) = self._admin.create_topics([NewTopic(name, segments=segments)])
        assert created.is_created, created

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        self._admin.set_topic_properties(name, properties)

    def segments_of(self, name: str) -> list[str]:
        """Return the names of a scalable topic's active segments, by id."""
        layout = self._admin.get_scalable_topic(name)
        assert layout is not None, f"{name} does not exist"
        topic = parse_topic(name)
        return [each.name_in(topic) for each in layout.segments if not each.is_sealed]

    def split_first(self, name: str) -> None:
        """Split the first active segment of a scalable topic, by its range."""
        self._admin.split_segment(name, *self._first_segments(name, 1))

    def merge_first(self, name: str) -> None:
        """Merge the first two active segments of a scalable topic, by their ranges."""
        self._admin.merge_segments(name, *self._first_segments(name, 2))

    def split_segment(self, name: str, segment_id: int) -> None:
        self._admin.split_segment(name, segment_id)

    def _first_segments(self, name: str, count: int) -> list[int]:
        layout = self._admin.get_scalable_topic(name)
        assert layout is not None, f"{name} does not exist"
        active = [each for each in layout.segments if not each.is_sealed]
        active.sort(key=lambda each: each.hash_start)
        return [each.segment_id for each in active[:count]]

    def delete_topic(self, name: str) -> None:
        """Delete a topic over the client library, not by force."""
        self._admin.delete_topic(name)

    def busiest_shard_leader(self) -> str:
        """Return the id of the node that leads the most shards."""

        async def find() -> str:
            async with Client(list(self._cluster.plan.discovery_endpoints)) as client:
                return await busiest_shard_leader(client)

        return self._cluster.run(find())

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> None:
        with contextlib.suppress(Refused):  # Another test has made the tenant.
            self._admin.create_tenant(name.partition("/")[0])
        self._admin.create_namespace(name, properties)

    def has_namespace(self, name: str) -> bool:
        return self._admin.get_namespace(name) is not None

    def topics_of(self, namespace: str) -> list[str]:
        return [topic.name for topic in self._admin.list_topics(namespace)]

    def owner(self, topic: str) -> str:
        """Return the id of the broker that serves the topic.

        The shard is asked: a client may have had a broker create the topic a moment ago (ADR 0061).
        """
        (location,) = self._admin.lookup([topic], fresh=True)
        assert location.is_found, location
        return location.broker_id

    def move(self, topic: str) -> None:
        """Have another broker serve the topic: ``nextgen move``.

        It is named, as what is asked for again moves a topic to a named broker once only.
        """
        owner = self.owner(topic)
        others = [node for node in self.broker_addresses if node != owner and self.process_id(node)]
        self.repeated_command("move", topic, "--to", others[0])

    def ledger_folder(self, topic: str) -> Path:
        """Return where the messages of a topic without partitions are."""
        (location,) = self._admin.lookup([topic])
        topic_id = location.topic_id
        return self._cluster.cluster.data_dir / LEDGERS_FOLDER / topic_id[:4] / topic_id

    def operate(self, topic: str, request: Any) -> Any:
        """Send a request of ``TopicAdmin`` to the topic's broker, as discovery does."""

        async def look_up(name: TopicName, _is_fresh: bool) -> LookupAnswer:
            (found,) = await asyncio.to_thread(self._admin.lookup, [name.text])
            return LookupAnswer(
                topic_id=found.topic_id, epoch=found.epoch, broker_grpc=found.broker_grpc
            )

        async def call() -> Any:
            owners = TopicOwners(look_up)
            try:
                return await owners.call(parse_topic(topic), request)
            finally:
                await owners.stop()

        return self._cluster.run(call())

    def pulsar_lookups(self) -> int:
        """Return how many LOOKUP commands the discovery nodes have had."""
        endpoints = self._cluster.plan.discovery_endpoints

        async def count() -> int:
            lookups = 0
            async with DiscoveryClient(endpoints) as client:
                for endpoint in endpoints:
                    request = GetCountersRequest()
                    answer = await client.call_at(endpoint, "GetCounters", request)
                    lookups += answer.counters["pulsar_lookups"]
            return lookups

        return self._cluster.run(count())

    def process_id(self, node_id: str) -> int | None:
        """Return the operating system's id of a running process."""
        return self._cluster.cluster.process_id(node_id)

    def kill(self, node_id: str) -> None:
        self._cluster.kill(node_id)

    def start(self, node_id: str) -> None:
        """Start a process that was killed and wait until it can work."""
        self._cluster.start_node(node_id)
        self._cluster.wait_ready(node_id)

    def add_broker(self) -> str:
        """Start one more broker, wait until it can work, and return its id."""
        cluster = self._cluster.cluster
        plan = cluster.plan.with_node("broker")
        self._cluster.run(cluster.adopt(plan))
        self._cluster.plan = plan
        broker_id = plan.of_kind("broker")[-1].node_id
        self._cluster.wait_ready(broker_id)
        return broker_id

    def owners(self, topics: Sequence[str]) -> list[str]:
        """Return the ids of the brokers that serve the topics, in their order."""
        locations = self._admin.lookup(topics, fresh=True)
        assert all(each.is_found for each in locations), locations
        return [each.broker_id for each in locations]

    def create_topics(self, names: Sequence[str]) -> None:
        created = self._admin.create_topics(names)
        assert all(each.is_created for each in created), created

    def metric(self, node_id: str, name: str) -> float:
        """Return the sum of a metric of one process over its labels."""
        url = f"http://{self._cluster.plan.node(node_id).http}/metrics"
        with urllib.request.urlopen(url, timeout=COMMAND_TIMEOUT_S) as page:
            lines = page.read().decode().splitlines()
        samples = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def start_dead(self) -> None:
        """Start every process that does not run, and wait until it can work."""
        for node in self._cluster.plan.nodes:
            if not self._cluster.cluster.is_running(node.node_id):
                self.start(node.node_id)

    def kill_all_and_restart(self) -> None:
        """Kill every process, one right after the other; start all and wait until they can work."""
        nodes = [node.node_id for node in self._cluster.plan.nodes]
        for node_id in nodes:
            self.kill(node_id)
        for node_id in nodes:
            self._cluster.start_node(node_id)
        self._cluster.wait_ready()

    def client_logger(self) -> pulsar.FileLogger:
        """Return where stock clients write; beside the diagnostics of the processes."""
        path = self._cluster.cluster.data_dir / "logs" / "pulsar-client.log"
        return pulsar.FileLogger(pulsar.LoggerLevel.Info, str(path))

    @contextmanager
    def client(self, service_url: str = "", **options: Any) -> Iterator[pulsar.Client]:
        """Open a stock client and close it, with all that is still open in it."""
        client = pulsar.Client(
            service_url or self.service_url, logger=self.client_logger(), **options
        )
        try:
            yield client
        finally:
            client.close()


@contextmanager
def running_system(data_dir: Path, size: ClusterSize = SMALL) -> Iterator[PulsarSystem]:
    """Start a cluster with Pulsar ports; stop it at the end."""
    with blocking_cluster(data_dir, size) as cluster, operated(cluster) as system:
        yield system


@contextmanager
def operated(cluster: BlockingCluster) -> Iterator[PulsarSystem]:
    """Operate a running cluster."""
    admin = BlockingClient(list(cluster.plan.discovery_endpoints), timeout_ms=ADMIN_TIMEOUT_MS)
    try:
        yield PulsarSystem(cluster, admin)
    finally:
        admin.close()


def received(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[pulsar.Message]:
    """Return the next ``count`` messages, which must come; acknowledges them by default."""
    messages = []
    for _ in range(count):
        message = consumer.receive(timeout_millis=RECEIVE_MS)
        messages.append(message)
        if ack:
            consumer.acknowledge(message)
    return messages


def read(reader: pulsar.Reader, count: int) -> list[pulsar.Message]:
    """Return the next ``count`` messages of a reader; fails if there are fewer."""
    return [reader.read_next(timeout_millis=RECEIVE_MS) for _ in range(count)]


def read_all(reader: pulsar.Reader) -> list[pulsar.Message]:
    """Return all messages until the reader reports the end."""
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(timeout_millis=RECEIVE_MS))
    return messages


def texts(messages: list[pulsar.Message]) -> list[str]:
    return [message.data().decode() for message in messages]


def numbered(count: int, *, first: int = 0) -> list[str]:
    return [f"message-{number}" for number in range(first, first + count)]


def send_all(producer: pulsar.Producer, contents: list[str]) -> list[pulsar.MessageId]:
    """Send them one by one, each acknowledged before the next."""
    return [producer.send(content.encode()) for content in contents]


def nothing_arrives(consumer: pulsar.Consumer | pulsar.Reader) -> bool:
    """Return whether the consumer stays without a message for ``QUIET_MS``."""
    receive: Callable[..., pulsar.Message] = (
        consumer.receive if isinstance(consumer, pulsar.Consumer) else consumer.read_next
    )
    try:
        receive(timeout_millis=QUIET_MS)
    except pulsar.Timeout:
        return True
    return False
