"""Topics are deleted while stock producers send to them, and while processes die in the middle.

Refused, a deletion changes nothing. Carried out, every message that was acknowledged is of a topic
that was deleted after it, or can be read from the one that has the name now.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar import InitialPosition, MessageId

from nextgen.kernel.errors import Refused
from tests.support.callers.stock_client import ClusterSize, PulsarSystem, read_all, running_system
from tests.support.callers.stock_load import Outcome, SteadyProducer

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=3, shards=1)
SEND_TIMEOUT_MS = 30_000
SENDS = 50
FEW = 8
IN_USE = "is in use: 1 producers, 1 consumers, 1 subscriptions"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    """A cluster of its own: these tests kill what others rely on."""
    with running_system(tmp_path_factory.mktemp("cluster"), SIZE) as running:
        yield running


@pytest.fixture(autouse=True)
def all_alive(system: PulsarSystem) -> None:
    system.start_dead()


def producer_of(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(
        topic, send_timeout_millis=SEND_TIMEOUT_MS, batching_enabled=False
    )


def stored(system: PulsarSystem, topic: str) -> list[int]:
    """Return what a client that knows nothing yet finds in the topic."""
    with system.client() as client:
        return [
            int(one.data()) for one in read_all(client.create_reader(topic, MessageId.earliest))
        ]


def delete_over_rest(system: PulsarSystem, topic: str, *, more: str = "") -> tuple[int, str]:
    """Return the status and reason of a deletion."""
    path = topic.replace("://", "/")
    request = urllib.request.Request(f"{system.http_url}/admin/v2/{path}{more}", method="DELETE")
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, ""
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())["reason"]


class Deletion:
    """``nextgen topics delete --force`` on a thread, repeated while it is not answered."""

    def __init__(self, system: PulsarSystem, topic: str) -> None:
        self._system = system
        self._topic = topic
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def _run(self) -> None:
        try:
            self._system.repeated_command("topics", "delete", self._topic, "--force")
        except BaseException as error:
            self._trouble = error


def disturb(system: PulsarSystem, disturbance: str, topic: str) -> None:
    if disturbance == "owner dies":
        system.kill(system.owner(topic))
    elif disturbance == "shard leader dies":
        system.kill(system.busiest_shard_leader())


@pytest.mark.parametrize("partitions", [0, 3], ids=["plain", "partitioned"])
def test_every_interface_refuses_to_delete_a_topic_in_use_and_it_keeps_everything(
    system: PulsarSystem, topic: str, partitions: int
):
    system.create_topic(topic, partitions=partitions)
    with system.client() as client:
        consumer = client.subscribe(topic, "sub", initial_position=InitialPosition.Earliest)
        producer = producer_of(client, topic)
        acknowledged = []
        for number in range(FEW):
            producer.send(b"%d" % number)
            acknowledged.append(number)
            if number == FEW // 2:
                by_command = system.refused_command("topics", "delete", topic)
                status, by_rest = delete_over_rest(
                    system, topic, more="/partitions" if partitions else ""
                )
                with pytest.raises(Refused) as by_library:
                    system.delete_topic(topic)
        received = [int(consumer.receive(30_000).data()) for _ in range(FEW)]

    assert status == 412
    for reason in (by_command, by_rest, str(by_library.value)):
        assert "is in use: " in reason
    assert sorted(received) == acknowledged == list(range(FEW))
    assert len(stored(system, topic)) == FEW
    print(f"{len(received)} of {len(acknowledged)} acknowledged messages can be read: refused")


@pytest.mark.parametrize("disturbance", ["nothing dies", "owner dies", "shard leader dies"])
def test_a_forced_deletion_under_load_loses_nothing_silently(
    system: PulsarSystem, topic: str, disturbance: str
):
    with system.client() as client:
        with SteadyProducer(producer_of(client, topic), in_flight_max=1, pause_ms=1) as load:
            client.subscribe(topic, "sub")
            load.wait_acknowledged(SENDS)
            before = list(load.outcome.acknowledged)
            deletion = Deletion(system, topic)
            disturb(system, disturbance, topic)
            deletion.wait()
            load.wait_acknowledged(SENDS)
        kept = stored(system, topic)

    acknowledged = load.outcome.acknowledged
    assert kept == acknowledged[-len(kept) :], "the topic that is there has all since it began"
    assert kept[0] > before[-1], "what was acknowledged before went with the deleted topic"
    print(_summary(disturbance, load.outcome, kept))


@pytest.mark.parametrize("disturbance", ["nothing dies", "owner dies", "shard leader dies"])
def test_a_partitioned_topic_is_deleted_under_load_and_does_not_come_back(
    system: PulsarSystem, topic: str, disturbance: str
):
    system.create_topic(topic, partitions=3)
    with system.client() as client:
        producer = client.create_producer(topic, send_timeout_millis=5_000, batching_enabled=False)
        # The last flush fails with the messages that have no topic any more.
        with (
            contextlib.suppress(pulsar.Timeout),
            SteadyProducer(producer, in_flight_max=3, pause_ms=1) as load,
        ):
            load.wait_acknowledged(SENDS)
            deletion = Deletion(system, topic)
            disturb(system, disturbance, f"{topic}-partition-0")
            deletion.wait()
            assert "there is no topic" in system.refused_command("topics", "get", topic)
            at_deletion = len(load.outcome.acknowledged)

    assert load.outcome.failed, "its producers learn that it is gone"
    late = load.outcome.acknowledged[at_deletion:]
    assert not late, "nothing is acknowledged for a topic that is not there"

    system.start_dead()
    system.create_topic(topic, partitions=3)
    with system.client() as client:
        producer = producer_of(client, topic)
        for number in range(FEW):
            producer.send(b"%d" % number)
    assert sorted(stored(system, topic)) == list(range(FEW)), "nothing of the deleted one"
    print(_summary(disturbance, load.outcome, []))


def _summary(disturbance: str, outcome: Outcome, kept: list[Any]) -> str:
    return (
        f"{disturbance}: {len(outcome.acknowledged)} acknowledged, {len(kept)} of them in "
        f"the topic of this name, {len(outcome.failed)} refused to their producer"
    )
