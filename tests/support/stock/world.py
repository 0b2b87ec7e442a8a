"""Both clusters side by side: ours, with embedded brokers of its own, and three stock brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.callers.stock_client import ClusterSize, PulsarSystem, operated
from tests.support.processes.local_cluster import BlockingCluster, blocking_cluster
from tests.support.stock.cluster import FOR_STOCK, LISTENERS, NODE, StockCluster
from tests.support.stock.plugin import plugin_classpath

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=1)
STOCK = (1, 2, 3)
WITH_LISTENERS = 3
HANDED_OVER = "acme/orders"
EMBEDDED = "acme/embedded"
KEPT_FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
OWNER_S_MAX = 60


@dataclass
class World:
    """Both clusters, and the operator of each."""

    cluster: BlockingCluster
    system: PulsarSystem
    stock: StockCluster

    def move(self, topic: str) -> str:
        """Have the stock broker behind its owner serve a topic; return its id."""
        owner = self.number_of_owner(topic)
        return self.move_to(topic, STOCK[STOCK.index(owner) - len(STOCK) + 1])

    def move_to(self, topic: str, number: int) -> str:
        """Have a stock broker serve a topic; return its id."""
        target = NODE.format(number)
        if self.number_of_owner(topic) != number:
            self.system.repeated_command("topics", "move", topic, "--to", target)
        return target

    def number_of_owner(self, topic: str) -> int:
        """Return which stock broker serves a topic; it is assigned if that is idle."""
        (found,) = self.system.repeated_command("lookup", topic, "--fresh")
        return int(found["answers"][0]["broker_id"].rpartition("-")[2])

    def wait_other_owner(self, topic: str, former: int) -> None:
        """Return when another broker serves a topic than before."""
        deadline = time.monotonic() + OWNER_S_MAX
        while self.number_of_owner(topic) == former:
            assert time.monotonic() < deadline, f"{topic} is still at broker {former}"

    def first_at(self, number: int, topics: Sequence[str]) -> str:
        """Return one of the topics that a stock broker serves; one is moved there if none is."""
        for topic in topics:
            if self.number_of_owner(topic) == number:
                return topic
        self.move_to(topics[0], number)
        return topics[0]


@contextmanager
def running_world(directory: Path) -> Iterator[World]:
    """Start both clusters, with a namespace for each kind of broker; stop them at the end.

    Skips the test by name where Java or Maven is missing.
    """
    classpath = plugin_classpath()
    for name in ("cluster", "stock"):
        (directory / name).mkdir()
    with (
        blocking_cluster(directory / "cluster", SIZE) as cluster,
        StockCluster(classpath, directory / "stock", cluster) as stock,
        operated(cluster) as system,
    ):
        # The first one makes what all share. The others start at the same time: each needs a
        # processor to itself for half a minute.
        for numbers in (STOCK[:1], STOCK[1:]):
            for number in numbers:
                stock.start_broker(number, LISTENERS if number == WITH_LISTENERS else "")
                stock.start_sidecar(number)
            for number in numbers:
                stock.wait_commanded(number)
        stock.hand_over(HANDED_OVER)
        # The history checker needs every message, also those that consumers have acknowledged.
        stock.admin("POST", f"namespaces/{HANDED_OVER}/retention", KEPT_FOR_EVER)
        system.create_namespace(HANDED_OVER, FOR_STOCK)
        system.create_namespace(EMBEDDED, {})
        yield World(cluster, system, stock)
