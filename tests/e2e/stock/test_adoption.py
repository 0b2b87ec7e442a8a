"""A namespace of stock brokers is handed over and back while stock clients use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
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
    numbered,
    read_all,
    received,
    send_all,
    texts,
)
from tests.support.callers.stock_load import (
    SEND_TIMEOUT_MS,
    SteadyProducer,
    assert_stored_once_in_order,
)
from tests.support.processes.fork_server import run_warm
from tests.support.stock.cluster import NODE
from tests.support.stock.recorded_clients import started_clients, wait_progress
from tests.support.stock.world import KEPT_FOR_EVER, OPERATION_S_MAX, PLAIN, STOCK, World, until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

BUNDLES = 8
COMMAND_S_MAX = 300


def command(world: World, verb: str, namespace: str, *options: str) -> list[str]:
    return ["adopt", verb, namespace, "--pulsar-admin", world.stock.web_url(PLAIN), *options]


def environment(world: World) -> dict[str, str]:
    return {**os.environ, "NEXTGEN_DATA_DIR": str(world.cluster.cluster.data_dir)}


def adopt(
    world: World, verb: str, namespace: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run ``nextgen adopt`` to its end."""
    return run_warm(
        "nextgen",
        command(world, verb, namespace, "--json", *options),
        environment=environment(world),
        timeout_s=COMMAND_S_MAX,
    )


def adopted(world: World, verb: str, namespace: str, *options: str) -> dict[str, Any]:
    """Run ``nextgen adopt``, which must do it; return the last line."""
    ended = adopt(world, verb, namespace, *options)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def kill_at(world: World, namespace: str, step: str) -> None:
    """Begin to hand a namespace over, and kill that as soon as it takes a step."""
    with subprocess.Popen(
        [sys.executable, "-m", "nextgen", *command(world, "run", namespace, "--json")],
        env=environment(world),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("step") == step:
                break
        process.kill()


def placed_at(world: World, topic: str) -> set[str]:
    """Return where each broker says that a topic is."""
    path = topic.replace("://", "/")
    return {world.stock.lookup(asked, path)["brokerUrl"] for asked in STOCK}


def connected_since(world: World, topic: str) -> list[str]:
    stats = json.loads(world.stock.admin("GET", f"{topic.replace('://', '/')}/stats"))
    return [each["connectedSince"] for each in stats["publishers"]]


def stock_url(world: World) -> str:
    """Return the service URL of clients that know the stock brokers, and nothing of discovery."""
    return "pulsar://" + ",".join(
        world.stock.url(number).removeprefix("pulsar://") for number in STOCK
    )


@pytest.fixture
def client(world: World) -> Iterator[pulsar.Client]:
    url = stock_url(world)
    with world.system.client(url, operation_timeout_seconds=OPERATION_S_MAX) as opened:
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
            load.wait_acknowledged(more)

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
    # Pulsar deletes a topic that has had neither client nor subscription for a minute.
    client.subscribe(idle, "keeps").close()
    began_ns = time.monotonic_ns()
    with ExitStack() as ends:
        clients = started_clients(stock_url(world), topics, tmp_path, ends)
        wait_progress(clients, 100)
        since = {topic: connected_since(world, topic) for topic in topics}
        planned = adopted(world, "plan", namespace)
        assert not world.system.has_topic(topics[0])

        handed = adopted(world, "run", namespace)
        wait_progress(clients, 100)

        assert {topic: connected_since(world, topic) for topic in topics} == since
        again = adopted(world, "run", namespace)
        for topic in (*topics, idle, f"persistent://{namespace}/parts-partition-2"):
            assert placed_at(world, topic) == {world.stock.url(world.number_of_owner(topic))}
        owner = world.system.owner(moved)
        other = next(node for node in map(NODE.format, STOCK) if node != owner)
        world.system.repeated_command("move", moved, "--to", other)
        wait_progress(clients, 100)

        back = adopted(world, "undo", namespace)
        wait_progress(clients, 100)
        for topic in topics[1:]:
            assert connected_since(world, topic) == since[topic]
        for topic in topics:
            assert len(placed_at(world, topic)) == 1
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
        kill_at(world, namespace, step)
        traffic.wait_acknowledged(20)

        handed = adopted(world, "run", namespace)
        traffic.wait_acknowledged(20)
        world.system.repeated_command("move", topics[0])
        traffic.wait_acknowledged(20)

        adopted(world, "undo", namespace, "--forget")
        traffic.wait_acknowledged(20)

    traffic.assert_nothing_lost()
    assert handed["placement"] == "topic"
    assert not world.system.has_topic(topics[0])
    assert not world.system.has_namespace(namespace)


def test_partitions_that_only_pulsar_has_are_named_until_a_run_brings_them(
    world: World, client: pulsar.Client, namespace: str
) -> None:
    adopted(world, "run", namespace)
    path = f"persistent/{namespace}/late"
    topic = path.replace("/", "://", 1)
    world.stock.admin("PUT", f"{path}/partitions", 2)

    assert f"nextgen adopt run {namespace}" in refusal(world, f"{path}-partition-1")
    asked = world.stock.sidecars[PLAIN]
    assert asked.faults("unknown_topic") > 0
    assert f"nextgen adopt run {namespace}" in asked.reasons("unknown_topic")[-1]
    (remark,) = adopted(world, "plan", namespace)["remarks"]
    assert remark.startswith(f"{topic} has 2 partitions and is served by no broker")
    assert adopted(world, "run", namespace)["created"] == 1
    received_by(client, topic, 4)

    # Pulsar creates the subscription first, at the brokers of the new partitions.
    with pytest.raises(urllib.error.HTTPError) as refused:
        world.stock.admin("POST", f"{path}/partitions", 3)
    assert "Can't find owner" in refused.value.read().decode()
    world.system.command("topics", "grow", topic, "3")
    world.stock.admin("POST", f"{path}/partitions", 3)
    received_by(client, topic, 6)


def test_a_topic_that_discovery_took_for_another_one_is_named(
    world: World, client: pulsar.Client, namespace: str
) -> None:
    """Of its partitions, which are in Pulsar alone, discovery knows nothing."""
    adopted(world, "run", namespace)
    topic = f"persistent://{namespace}/taken"
    world.stock.admin("PUT", f"persistent/{namespace}/taken/partitions", 2)
    with (
        world.system.client(operation_timeout_seconds=5) as of_discovery,
        pytest.raises(pulsar.PulsarException) as refused,
    ):
        of_discovery.create_producer(topic)
    print(f"discovery's client is refused: {refused.value!r}")
    owner = world.stock.sidecars[world.number_of_owner(topic)]
    until(lambda: [each for each in owner.reasons("absent_topic") if topic in each])

    ended = adopt(world, "plan", namespace)
    assert ended.returncode == ExitCode.REFUSED, ended.stderr
    assert f"'nextgen topics delete {topic} --force'" in ended.stdout
    world.system.command("topics", "unload", topic)
    world.system.command("topics", "delete", topic, "--force")

    assert adopted(world, "run", namespace)["created"] == 1
    received_by(client, topic, 4)


def refusal(world: World, path: str) -> str:
    """Return why a stock broker does not say where a topic is."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        world.stock.lookup(PLAIN, path)
    return refused.value.read().decode()


def received_by(client: pulsar.Client, topic: str, count: int) -> None:
    """Send messages to a topic, and read them."""
    consumer = client.subscribe(topic, f"of-{count}", initial_position=InitialPosition.Latest)
    producer = client.create_producer(topic)
    send_all(producer, numbered(count))
    assert sorted(texts(received(consumer, count))) == numbered(count)
    producer.close()
    consumer.close()


def test_what_hinders_a_handover_is_named_and_changes_nothing(
    world: World, client: pulsar.Client, namespace: str
) -> None:
    taken = f"persistent://{namespace}/taken"
    world.stock.admin("PUT", f"persistent/{namespace}/taken/partitions", 3)
    world.system.create_namespace(namespace, {})
    world.system.create_topic(taken, partitions=2)

    for verb in ("plan", "run"):
        ended = adopt(world, verb, namespace)
        assert ended.returncode == ExitCode.REFUSED, ended.stderr
        assert "has 3 partitions in Pulsar and 2 here" in ended.stdout + ended.stderr

    policies = json.loads(world.stock.admin("GET", f"namespaces/{namespace}"))
    assert "nextgen.placement" not in (policies.get("properties") or {})
