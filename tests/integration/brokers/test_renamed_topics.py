"""Topics and namespaces that are renamed while the stock Python client uses them, on embedded
brokers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pulsar
import pytest
from pulsar.schema import Record, String

from nextgen.client import BlockingClient
from nextgen.client.discovery.write_requests import RenameProgress
from tests.support.callers.stock_client import (
    RECEIVE_MS,
    PulsarSystem,
    numbered,
    received,
    running_system,
    send_all,
    texts,
)
from tests.support.processes.local_cluster import ClusterSize

pytestmark = pytest.mark.integration

T = TypeVar("T")

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=3)
NAMESPACE = "public/renames"
OTHERS = "others/place"
EARLIEST = pulsar.InitialPosition.Earliest
HOUR_MS = 3_600_000
GRACE_MS = 10_000
COMES_ABOUT_S = 150
PAUSE_S = 0.2
AROUND_RENAME = 20
"""Messages that are sent before and behind a rename, at least."""

MANY = 800
"""Topics that take longer to be renamed than it takes to notice that it began."""

RENAME_TIMEOUT_MS = 60_000
"""Of one turn, the start of a discovery node included."""


class Order(Record):  # type: ignore[misc]
    item = String()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SIZE) as system:
        system.create_namespace(NAMESPACE, {})
        system.command("tenants", "create", OTHERS.partition("/")[0])
        system.create_namespace(OTHERS, {})
        yield system


def until(look: Callable[[], T]) -> T:
    """Return what ``look`` finds, as soon as it finds something."""
    deadline = time.monotonic() + COMES_ABOUT_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(PAUSE_S)
    return found


class Flow:
    """Clients that produce and consume without a pause, by one name of a topic."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.sent: list[str] = []
        self.got: list[str] = []
        self._consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
        self._producer = client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=RECEIVE_MS
        )
        self._stops = threading.Event()
        self._sender = threading.Thread(target=self._send)
        self._receiver = threading.Thread(target=self._receive)

    def __enter__(self) -> Flow:
        self._sender.start()
        self._receiver.start()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.send_more()
        self._stops.set()
        self._sender.join()
        self._receiver.join()
        self._producer.close()
        self._consumer.close()

    def send_more(self) -> None:
        """Return once some more messages are acknowledged, on a busy machine as well."""
        wanted = len(self.sent) + AROUND_RENAME
        until(lambda: len(self.sent) >= wanted)

    def _send(self) -> None:
        for number in itertools.count():
            if self._stops.is_set():
                return
            self._producer.send(str(number).encode(), partition_key=str(number % 5))
            self.sent.append(str(number))

    def _receive(self) -> None:
        heard_at = time.monotonic()
        while self._sender.is_alive() or len(set(self.got)) < len(self.sent):
            try:
                message = self._consumer.receive(timeout_millis=round(1_000 * PAUSE_S))
            except pulsar.Timeout:
                assert time.monotonic() - heard_at < RECEIVE_MS / 1_000, "a message is missing"
                continue
            heard_at = time.monotonic()
            self.got.append(message.data().decode())
            self._consumer.acknowledge(message)


def in_order(texts: list[str]) -> list[str]:
    """Return what came for the first time. An unload may deliver again what was not acknowledged
    yet."""
    return list(dict.fromkeys(texts))


@pytest.mark.parametrize("namespace", [NAMESPACE, OTHERS])
def test_clients_of_a_topic_that_is_renamed_lose_nothing_and_keep_the_order(
    system: PulsarSystem, namespace: str
) -> None:
    name = f"persistent://{NAMESPACE}/flowing-to-{namespace.replace('/', '-')}"
    new_name = f"persistent://{namespace}/flowing-on"
    with system.client() as client:
        with Flow(client, name) as flow:
            before = system.topic_id(name)
            flow.send_more()
            topic_id = system.rename_topic(name, new_name, grace_ms=HOUR_MS)

        assert in_order(flow.got) == flow.sent
        assert topic_id == before == system.topic_id(name) == system.topic_id(new_name)
        consumer = client.subscribe(new_name, "sub")
        producers = [client.create_producer(each) for each in (name, new_name)]
        send_all(producers[0], ["by the former name"])
        send_all(producers[1], ["by the new name"])
        assert texts(received(consumer, 2)) == ["by the former name", "by the new name"]


def test_a_partitioned_topic_keeps_the_order_of_each_key(system: PulsarSystem) -> None:
    name = f"persistent://{NAMESPACE}/parts"
    new_name = f"persistent://{OTHERS}/moved-parts"
    system.create_topic(name, partitions=3)
    with system.client() as client:
        with Flow(client, name) as flow:
            flow.send_more()
            system.rename_topic(name, new_name, grace_ms=HOUR_MS)

        assert sorted(in_order(flow.got), key=int) == flow.sent
        for key in range(5):
            of_key = [each for each in in_order(flow.got) if int(each) % 5 == key]
            assert of_key == sorted(of_key, key=int)
        for each in (name, new_name):
            partitions = [f"{each}-partition-{number}" for number in range(3)]
            assert client.get_topic_partitions(each) == partitions


def test_what_is_kept_of_a_topic_is_found_by_its_new_name(system: PulsarSystem) -> None:
    """Backlog, the position and properties of a subscription, the schema, a reader's last id."""
    name, new_name = f"persistent://{NAMESPACE}/kept", f"persistent://{OTHERS}/kept-on"
    schema = pulsar.schema.AvroSchema(Order)
    with system.client() as client:
        producer = client.create_producer(name, schema=schema, batching_enabled=False)
        consumer = client.subscribe(name, "sub", schema=schema, initial_position=EARLIEST)
        for number in range(6):
            producer.send(Order(item=str(number)))
        for message in received(consumer, 2):
            consumer.acknowledge(message)
        producer.close()
        consumer.close()
        folder = system.ledger_folder(name)

        system.rename_topic(name, new_name, grace_ms=HOUR_MS)

        later = client.subscribe(new_name, "sub", schema=schema)
        assert [each.value().item for each in received(later, 4)] == ["2", "3", "4", "5"]
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        assert reader.has_message_available()
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(new_name, schema=pulsar.schema.StringSchema())
    assert system.ledger_folder(new_name) == folder


@pytest.mark.slow  # The former name rests for a minute before somebody else gets it.
def test_behind_its_grace_the_former_name_is_another_topics(system: PulsarSystem) -> None:
    name, new_name = f"persistent://{NAMESPACE}/short", f"persistent://{NAMESPACE}/short-on"
    with system.client() as client:
        producer = client.create_producer(name, batching_enabled=False)
        send_all(producer, numbered(3))
        producer.close()
        topic_id = system.rename_topic(name, new_name, grace_ms=GRACE_MS)
        assert "renamed" in system.refused_command("topics", "create", name)

        def subscribed() -> pulsar.Consumer | None:
            try:
                return client.subscribe(name, "sub", initial_position=EARLIEST)
            except pulsar.TopicNotFound:
                return None

        until(lambda: not system.has_topic(name))
        consumer = until(subscribed)

        assert consumer is not None
        send_all(client.create_producer(name), ["of the other topic"])
        assert texts(received(consumer, 1)) == ["of the other topic"]
        assert system.topic_id(name) != topic_id == system.topic_id(new_name)
        kept = client.subscribe(new_name, "sub", initial_position=EARLIEST)
        assert texts(received(kept, 3)) == numbered(3)


# Namespaces ---------------------------------------------------------------------------------------


def test_clients_of_a_namespace_that_is_renamed_lose_nothing_and_keep_the_order(
    system: PulsarSystem,
) -> None:
    """1. Clients use two topics, one with partitions. 2. Their namespace is renamed, by the command
    line, into another tenant. 3. They go on by the former names, others by the new ones."""
    old, new = "public/moving", f"{OTHERS.partition('/')[0]}/moved"
    system.create_namespace(old, {"owner": "ada"})
    names = [f"persistent://{old}/whole", f"persistent://{old}/parts"]
    new_names = [name.replace(old, new) for name in names]
    system.create_topic(names[1], partitions=2)
    with system.client() as client:
        with Flow(client, names[0]) as whole, Flow(client, names[1]) as parts:
            ids = [system.topic_id(name) for name in names]
            whole.send_more()
            parts.send_more()
            (renamed,) = system.command("namespaces", "rename", old, new)

        assert (renamed["renamed"], renamed["checked"]) == (2, 2)
        assert in_order(whole.got) == whole.sent
        assert sorted(in_order(parts.got), key=int) == parts.sent
        assert [system.topic_id(name) for name in (*names, *new_names)] == ids * 2
        assert sorted(system.topics_of(new)) == sorted(new_names)
        assert not system.has_namespace(old)
        consumer = client.subscribe(new_names[0], "sub")
        send_all(client.create_producer(names[0]), ["by the former name"])
        send_all(client.create_producer(new_names[0]), ["by the new name"])
        assert texts(received(consumer, 2)) == ["by the former name", "by the new name"]
    assert "does not exist" in system.refused_command("namespaces", "rename", old, f"{new}-on")


def test_a_rename_whose_discovery_node_dies_goes_on_at_the_next(system: PulsarSystem) -> None:
    """1. A tenant with many topics is being renamed. 2. The node that renames is killed, and
    started. 3. The same call of the client comes to the end: no topic is lost."""
    old, new, local = "leaving", "arrived", "many"
    system.create_namespace(f"{old}/{local}", {})
    names = [f"persistent://{old}/{local}/t-{number:04}" for number in range(MANY)]
    system.create_topics(names)
    ids = sorted(map(system.topic_id, names[:: MANY // 10]))
    done: list[RenameProgress] = []

    def rename() -> None:
        with BlockingClient(system.discovery_endpoints, timeout_ms=RENAME_TIMEOUT_MS) as client:
            done.append(client.rename_tenant(old, new))

    thread = threading.Thread(target=rename)
    thread.start()
    until(lambda: system.has_namespace(f"{new}/{local}") and system.topics_of(f"{new}/{local}"))
    (node,) = system.discovery_nodes
    system.kill(node)
    system.start(node)
    thread.join()

    (progress,) = done
    assert 0 < progress.renamed < MANY, "the killed turn answered nothing"
    new_names = [name.replace(f"//{old}/", f"//{new}/") for name in names]
    assert system.topics_of(f"{new}/{local}") == new_names
    assert sorted(map(system.topic_id, new_names[:: MANY // 10])) == ids
    assert not system.has_namespace(f"{old}/{local}")
    assert "does not exist" in system.refused_command("tenants", "delete", old)
