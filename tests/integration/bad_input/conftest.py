"""One small cluster for each kind of bad input, and a good client that must not notice any."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nextgen.client import BlockingClient
from nextgen.kernel.errors import MetadataError
from tests.support.processes.local_cluster import MINIMAL, BlockingCluster, blocking_cluster

# Not among the names that random messages carry: those may well delete what they name.
TOPIC = "persistent://well/kept/topic"
NAMESPACE = "limits/tested"
ROUND_S_MAX = 60
PAUSE_S = 0.2
"""Between two rounds: without it the good client keeps the whole cluster busy. A test waits for two
rounds after what it did, and those are made at once."""

LOOK_S = 0.01


@dataclass
class GoodClient:
    """Looks up, reads and checks over connections of its own until it is stopped."""

    endpoints: list[str]
    rounds: int = 0
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_stopping = False
        self._wake = threading.Event()
        self._wanted = 0
        self._thread = threading.Thread(target=self._run, name="good client")
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()
        self._thread.join()

    def finish_round(self) -> None:
        """Return when a whole round was made after this call."""
        self._wanted = self.rounds + 2
        self._wake.set()
        deadline = time.monotonic() + ROUND_S_MAX
        while self.rounds < self._wanted and not self.troubles:
            assert time.monotonic() < deadline, "the good client gets no answers any more"
            time.sleep(LOOK_S)

    def _run(self) -> None:
        with BlockingClient(self.endpoints, timeout_ms=20_000) as client:
            while not self._is_stopping:
                if self.rounds >= self._wanted:
                    self._wake.wait(PAUSE_S)
                    self._wake.clear()
                try:
                    location = client.lookup([TOPIC])[0]
                    topic = client.get_topic(TOPIC)
                    client.set_topic_properties(TOPIC, {"round": str(self.rounds)})
                except MetadataError as error:
                    self.troubles.append(repr(error))
                    continue
                if location.broker_id != "broker-1" or topic is None:
                    self.troubles.append(f"{location} {topic}")
                self.rounds += 1


@dataclass
class Site:
    """What a test may talk to."""

    cluster: BlockingCluster
    directory: Path

    @property
    def discovery(self) -> str:
        return self.cluster.plan.node("discovery-1").grpc

    @property
    def shard(self) -> str:
        return self.cluster.plan.node("shard-node-1").grpc

    @property
    def manager(self) -> str:
        return self.cluster.plan.node("cluster-manager-1").grpc

    @property
    def broker(self) -> str:
        return self.cluster.plan.node("broker-1").grpc

    def endpoint(self, kind: str) -> str:
        return str(getattr(self, kind))

    def process_ids(self) -> dict[str, int | None]:
        return {
            node.node_id: self.cluster.cluster.process_id(node.node_id)
            for node in self.cluster.plan.nodes
        }

    def tracebacks(self) -> list[str]:
        """Return the lines of the processes' logs that speak of a mistake of ours."""
        marks = ("Traceback", '"level": "error"', '"level": "critical"', "AssertionError")
        return [
            f"{log.name}: {line[:2_000]}"
            for log in sorted((self.directory / "logs").glob("*.log"))
            for line in log.read_text(errors="replace").splitlines()
            if any(mark in line for mark in marks)
        ]


# Of a file, not of all of them: a worker runs other tests between two files, and the simulation
# replaces the clocks and gRPC of its whole process, under the good client's thread too.
@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, GoodClient]]:
    directory = tmp_path_factory.mktemp("bad-input")
    with blocking_cluster(directory, MINIMAL) as cluster:
        endpoints = list(cluster.plan.discovery_endpoints)
        with BlockingClient(endpoints) as client:
            for namespace in (NAMESPACE, "well/kept"):
                client.create_tenant(namespace.partition("/")[0])
                client.create_namespace(namespace)
            client.create_topics([TOPIC])
            client.lookup([TOPIC])
        good = GoodClient(endpoints)
        try:
            yield Site(cluster, directory), good
        finally:
            good.stop()


@pytest.fixture
def site(running: tuple[Site, GoodClient]) -> Iterator[Site]:
    """The cluster. After the test everybody else must be as well as before."""
    site, good = running
    before = site.process_ids()
    good.troubles.clear()
    yield site
    good.finish_round()
    assert good.troubles == []
    assert site.process_ids() == before
    assert None not in before.values()
    assert site.tracebacks() == []
