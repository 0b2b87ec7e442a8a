"""A real cluster audits itself while a topic moves under load, and tells its minutes of lookups."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.callers.stock_client import PulsarSystem, running_system
from tests.support.callers.stock_load import SteadyProducer
from tests.support.processes.local_cluster import BlockingCluster, ClusterSize

pytestmark = pytest.mark.integration

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=2, shards=1)
TOPIC = "persistent://public/default/audited"
MOVES = 3
EPOCHS = MOVES + 1
AUDITS_MAX = 4


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("audited"), SIZE) as made:
        yield made


class Audit:
    """``nextgen audit --follow`` beside what a test does."""

    def __init__(self, system: PulsarSystem) -> None:
        self._told: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(system,))

    def _run(self, system: PulsarSystem) -> None:
        self._told = system.command("audit", "--follow", "--for-s", "6")

    def __enter__(self) -> Audit:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._thread.join()

    @property
    def verdict(self) -> Any:
        (verdict,) = self._told
        return verdict


def verdict_of_all(system: PulsarSystem) -> Any:
    """Return what an audit finds that has heard every broker and read every log to its end.

    Who stands still for the seconds that an audit takes is not heard: then there is another one.
    """
    wanted = {"brokers": ["broker-1", "broker-2"], "unreached": {}, "unknown": 0}
    for _ in range(AUDITS_MAX):
        (verdict,) = system.command("audit", "--follow", "--for-s", "6")
        assert verdict["findings"] == []
        if wanted.items() <= verdict.items():
            return verdict
    raise AssertionError(verdict)


@pytest.mark.slow
def test_owners_of_a_topic_that_moves_under_load_never_overlap(system: PulsarSystem) -> None:
    with Audit(system) as beside, system.client() as client:
        producer = client.create_producer(TOPIC)
        with SteadyProducer(producer, in_flight_max=50) as load:
            for _ in range(MOVES):
                load.wait_acknowledged(50)
                system.move(TOPIC)
            load.wait_acknowledged(50)

    assert beside.verdict["findings"] == []
    # Brokers remember when they acknowledged: one that comes afterwards is told of every epoch.
    verdict = verdict_of_all(system)
    assert (verdict["units"], verdict["unjudged"]) == (1, 0)
    assert verdict["assignments"] == EPOCHS
    assert verdict["intervals"] >= EPOCHS, "each epoch was told of"


def test_lookups_are_in_the_cluster_managers_log_minute_by_minute(system: PulsarSystem) -> None:
    """A node that stops reports the minute in progress, so the test need not wait for its end."""
    cluster: BlockingCluster = system._cluster
    first, second = cluster.plan.of_kind("discovery")
    names = [f"persistent://public/default/metered-{number}" for number in range(20)]
    system.command("topics", "create", *names)
    for _ in range(2):
        system.command("lookup", *names, "--target", first.grpc)
    system.command("lookup", "--target", first.grpc, *names[:1])

    cluster.run(cluster.cluster.kill(first.node_id, signal.SIGTERM))
    cluster.start_node(first.node_id)
    cluster.wait_ready(first.node_id)

    (told,) = system.command("slo", "--target", second.grpc)
    of_first = told["nodes"][first.node_id]
    assert sum(window["lookups"] for window in of_first) >= 41
    assert sum(window["errors"] for window in of_first) == 0
    # How many of them are bad is a matter of the machine's pace.
    assert 0 <= told["bad_minutes"] <= len(told["minutes"])
    events = system.command("events", "0", "--type", "lookup_window_recorded")
    recorded = [event["lookup_window_recorded"] for event in events]
    assert {window["node_id"] for window in recorded} >= {first.node_id}
