"""A namespace of stock brokers is handed over and back while stock clients use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar import InitialPosition, MessageId

from nextgen.harness.history.check import check
from nextgen.harness.history.model import Run
from nextgen.harness.history.record_file import Recorder, load_history
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.callers.stock_client import (
    ClusterSize,
    PulsarSystem,
    operated,
    read_all,
    received,
    texts,
)
from tests.support.callers.stock_load import (
    SEND_TIMEOUT_MS,
    SteadyProducer,
    assert_stored_once_in_order,
)
from tests.support.processes.local_cluster import BlockingCluster, blocking_cluster
from tests.support.stock.cluster import NODE, StockCluster
from tests.support.stock.plugin import plugin_classpath
from tests.support.stock.recorded_clients import started_clients, wait_progress
from tests.support.stock.world import KEPT_FOR_EVER

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=0, shards=1)
BROKERS = (1, 2)
BUNDLES = 8
COMMAND_S_MAX = 300
LATER_S = 60


@dataclass
class World:
    """Both clusters; the stock one has sidecars, and no namespace is handed over yet."""

    cluster: BlockingCluster
    system: PulsarSystem
    stock: StockCluster

    def adopt(self, verb: str, namespace: str, *options: str) -> subprocess.Popen[str]:
        """Start ``nextgen adopt``; it prints lines of JSON."""
        url = self.stock.web_url(BROKERS[0])
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "nextgen", "adopt", verb, namespace),
                *("--pulsar-admin", url, "--json", *options),
            ],
            env={**os.environ, "NEXTGEN_DATA_DIR": str(self.cluster.cluster.data_dir)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def adopted(self, verb: str, namespace: str, *options: str) -> dict[str, Any]:
        """Run ``nextgen adopt`` to its end; return the last line."""
        process = self.adopt(verb, namespace, *options)
        printed, errors = process.communicate(timeout=COMMAND_S_MAX)
        assert process.returncode == 0, errors
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return found

    @property
    def stock_url(self) -> str:
        """The service URL of clients that know the stock brokers, and nothing of discovery."""
        return self.stock.url(1) + "," + self.stock.url(2).removeprefix("pulsar://")

    def placed_at(self, topic: str) -> set[str]:
        """Return where each broker says that a topic is."""
        path = topic.replace("://", "/")
        return {self.stock.lookup(asked, path)["brokerUrl"] for asked in BROKERS}

    def connected_since(self, topic: str) -> list[str]:
        stats = json.loads(self.stock.admin("GET", f"{topic.replace('://', '/')}/stats"))
        return [each["connectedSince"] for each in stats["publishers"]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    classpath = plugin_classpath()
    with (
        blocking_cluster(tmp_path_factory.mktemp("cluster"), SIZE) as cluster,
        StockCluster(classpath, tmp_path_factory.mktemp("stock"), cluster) as stock,
        operated(cluster) as system,
    ):
        for number in BROKERS:
            stock.start_broker(number)
            stock.start_sidecar(number)
            stock.wait_commanded(number)
        yield World(cluster, system, stock)


@pytest.fixture
def client(world: World) -> Iterator[pulsar.Client]:
    with world.system.client(world.stock_url) as opened:
        yield opened


@pytest.fixture
def namespace(world: World, request: pytest.FixtureRequest) -> str:
    """A namespace of Pulsar alone, of the test's own."""
    name = f"acme/{request.node.name.replace('[', '-').removesuffix(']')}"
    world.stock.create_namespace(name, bundles=BUNDLES)
    return name


class Traffic:
    """Topics of a namespace, each with a producer that never stops, and a consumer."""

    def __init__(self, client: pulsar.Client, topics: Sequence[str]) -> None:
        self._client = client
        self.topics = topics
        self.consumers = [
            client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
            for topic in topics
        ]
        # Pulsar keeps all messages: a subscription has acknowledged none.
        for topic in topics:
            client.subscribe(topic, "keeps", initial_position=InitialPosition.Earliest).close()
        self._ends = ExitStack()
        self.loads: list[SteadyProducer] = []

    def __enter__(self) -> Traffic:
        for topic in self.topics:
            producer = self._client.create_producer(
                topic, send_timeout_millis=SEND_TIMEOUT_MS, max_pending_messages=2_000
            )
            load = SteadyProducer(producer, in_flight_max=50, pause_ms=5)
            self.loads.append(self._ends.enter_context(load))
        self.wait_acknowledged(20)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._ends.__exit__(*exception)

    def wait_acknowledged(self, more: int) -> None:
        for load in self.loads:
            load.wait_acknowledged(more, timeout_s=LATER_S)

    def assert_nothing_lost(self) -> None:
        """Judge all topics; call it behind the end."""
        for topic, load, consumer in zip(self.topics, self.loads, self.consumers, strict=True):
            outcome = load.outcome
            assert outcome.failed == {}, topic
            stored = texts(read_all(self._client.create_reader(topic, MessageId.earliest)))
            assert_stored_once_in_order(list(map(int, stored)), outcome)
            numbers = [int(each.data()) for each in received(consumer, outcome.sent)]
            assert list(dict.fromkeys(numbers)) == list(range(outcome.sent)), topic


def names(namespace: str, count: int) -> list[str]:
    return [f"persistent://{namespace}/topic-{number}" for number in range(count)]


def test_java_python_and_go_clients_notice_nothing_of_a_handover_and_the_way_back(
    world: World, client: pulsar.Client, namespace: str, tmp_path: Path
) -> None:
    topics = [f"persistent://{namespace}/{each}" for each in ("java", "python", "go")]
    moved = topics[0]
    idle = f"persistent://{namespace}/idle"
    world.stock.admin("POST", f"namespaces/{namespace}/retention", KEPT_FOR_EVER)
    world.stock.admin("PUT", f"persistent/{namespace}/parts/partitions", 3)
    client.create_producer(idle).close()
    began_ns = time.monotonic_ns()
    with ExitStack() as ends:
        clients = started_clients(world.stock_url, topics, tmp_path, ends)
        wait_progress(clients, 100)
        since = {topic: world.connected_since(topic) for topic in topics}
        planned = world.adopted("plan", namespace)
        assert not world.system.has_topic(topics[0])

        handed = world.adopted("run", namespace)
        wait_progress(clients, 100)

        assert {topic: world.connected_since(topic) for topic in topics} == since
        again = world.adopted("run", namespace)
        for topic in (*topics, idle, f"persistent://{namespace}/parts-partition-2"):
            (found,) = world.system.repeated_command("lookup", topic, "--fresh")
            assert {found["answers"][0]["broker_url"]} == world.placed_at(topic)
        owner = world.system.owner(moved)
        (other,) = (node for node in map(NODE.format, BROKERS) if node != owner)
        world.system.repeated_command("move", moved, "--to", other)
        wait_progress(clients, 100)

        back = world.adopted("undo", namespace)
        wait_progress(clients, 100)
        for topic in topics[1:]:
            assert world.connected_since(topic) == since[topic]
        for topic in topics:
            assert len(world.placed_at(topic)) == 1
        for each in clients:
            each.end()

    with Recorder(tmp_path / "run.jsonl") as recorder:
        recorder.write(Run("adoption", began_ns, time.monotonic_ns(), scopes=topics))
    verdict = check(load_history(tmp_path))
    print(f"{[each.acked for each in clients]} acknowledged, {verdict.counts()}")
    print("\n".join(each.message for each in verdict.findings))
    assert verdict.is_green
    assert verdict.acked >= 400 * len(clients)
    assert planned["hindrances"] == []
    assert planned["creates"]["topics"] == len(topics) + 2
    assert planned["open_topics"] >= len(topics)  # Pulsar has one of its own besides.
    assert handed["placement"] == "topic"
    assert handed["created"] == len(topics) + 2
    assert handed["moved"] == 0
    assert handed["kept"] >= len(topics)
    assert (again["created"], again["moved"], again["different"]) == (0, 0, [])
    assert (back["placement"], back["moved"]) == ("bundle", 1)
    assert back["assigned_again"] == 0
    assert world.system.topics_of(namespace)
    print(f"handed over in {handed['seconds']} s, back in {back['seconds']} s")


@pytest.mark.parametrize("step", ["importing", "claiming", "switching", "settling"])
def test_a_run_that_was_killed_is_finished_by_the_next_one(
    world: World, client: pulsar.Client, namespace: str, step: str
) -> None:
    topics = names(namespace, 3)
    with Traffic(client, topics) as traffic:
        with world.adopt("run", namespace) as first:
            assert first.stdout is not None
            for line in first.stdout:
                if json.loads(line).get("step") == step:
                    break
            first.kill()
        traffic.wait_acknowledged(20)

        handed = world.adopted("run", namespace)
        traffic.wait_acknowledged(20)
        world.system.repeated_command("move", topics[0])
        traffic.wait_acknowledged(20)

        world.adopted("undo", namespace, "--forget")
        traffic.wait_acknowledged(20)

    traffic.assert_nothing_lost()
    assert handed["placement"] == "topic"
    assert not world.system.has_topic(topics[0])
    assert not world.system.has_namespace(namespace)


def test_what_hinders_a_handover_is_named_and_changes_nothing(
    world: World, client: pulsar.Client, namespace: str
) -> None:
    taken = f"persistent://{namespace}/taken"
    world.stock.admin("PUT", f"persistent/{namespace}/taken/partitions", 3)
    world.system.create_namespace(namespace, {})
    world.system.create_topic(taken, partitions=2)

    for verb in ("plan", "run"):
        process = world.adopt(verb, namespace)
        printed, errors = process.communicate(timeout=COMMAND_S_MAX)
        assert process.returncode == ExitCode.REFUSED, errors
        assert "has 3 partitions in Pulsar and 2 here" in printed + errors

    policies = json.loads(world.stock.admin("GET", f"namespaces/{namespace}"))
    assert "nextgen.placement" not in (policies.get("properties") or {})
