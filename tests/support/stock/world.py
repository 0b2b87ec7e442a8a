"""Both clusters side by side: ours, with embedded brokers of its own, and three stock brokers.

broker 1 ── meddler ── sidecar 1
broker 2 ── sidecar 2
broker 3 ── sidecar 3, with a listener beside the one that all have

It takes more than a minute of two processors to start, so all tests of a process share one.
"""

from __future__ import annotations

import json
import socket
import time
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.callers.stock_client import ClusterSize, PulsarSystem, operated
from tests.support.processes.local_cluster import BlockingCluster, blocking_cluster
from tests.support.stock.cluster import (
    FOR_STOCK,
    LISTENERS,
    NODE,
    RunningSidecar,
    StockCluster,
    call_admin_rest,
)
from tests.support.stock.meddler import Meddler, unchanged
from tests.support.stock.plugin import plugin_classpath

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=1)
STOCK = MEDDLED, PLAIN, WITH_LISTENERS = 1, 2, 3
KEPT_FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
COMES_ABOUT_S = 180
"""For what must come about. Only a failing test waits that long."""

OPERATION_S_MAX = 60
"""Of a stock client, whose default is half of it: a broker may open its first topic while another
process of the tests is busy."""

PAUSE_S = 0.5


@dataclass
class World:
    """Both clusters, the operator of each, and who stands before the first stock broker."""

    cluster: BlockingCluster
    system: PulsarSystem
    stock: StockCluster
    meddler: Meddler
    others: list[RunningSidecar] = field(default_factory=list)
    """Further sidecars that a test has started."""

    def start_broker(self, number: int) -> None:
        """Start a stock broker; ``StockCluster.wait_commanded`` returns when it works."""
        self.stock.start_broker(number, LISTENERS if number == WITH_LISTENERS else "")

    def start_sidecar(self, number: int) -> None:
        """Start the sidecar of a stock broker."""
        self.stock.start_sidecar(number, socket=self.meddler.path if number == MEDDLED else None)

    def heal(self) -> None:
        """Undo what a test has done, or one that failed: start what is dead, end what is more."""
        self.meddler.down = self.meddler.up = unchanged
        while self.others:
            self.others.pop().stop()
        started = set()
        for number in STOCK:
            if self.stock.brokers[number].process.poll() is not None:
                self.start_broker(number)
                started.add(number)
            self.stock.thaw(number)
            if self.stock.sidecars[number].process.poll() is not None:
                self.start_sidecar(number)
                started.add(number)
        for number in started:
            self.stock.wait_commanded(number)

    def hand_over(self, namespace: str) -> None:
        """Create a namespace whose topics are placed one by one, at stock brokers."""
        self.stock.hand_over(namespace)
        self.system.create_namespace(namespace, FOR_STOCK)

    def move(self, topic: str) -> str:
        """Have the stock broker behind its owner serve a topic; return its id."""
        owner = self.number_of_owner(topic)
        return self.move_to(topic, STOCK[STOCK.index(owner) - len(STOCK) + 1])

    def move_to(self, topic: str, number: int) -> str:
        """Have a stock broker serve a topic; return its id."""
        target = NODE.format(number)
        # One that began many sessions within a minute gets nothing for a minute.
        until(lambda: self.broker(number)["status"] == "live", f"{target} is not live")
        if self.number_of_owner(topic) != number:
            self.system.repeated_command("topics", "move", topic, "--to", target)
        return target

    def number_of_owner(self, topic: str) -> int:
        """Return which stock broker serves a topic; it is assigned if that is idle."""
        (found,) = self.system.repeated_command("lookup", topic, "--fresh")
        return int(found["answers"][0]["broker_id"].rpartition("-")[2])

    def wait_other_owner(self, topic: str, former: int) -> None:
        """Return when another broker serves a topic than before."""
        until(lambda: self.number_of_owner(topic) != former, f"{topic} is still at {former}")

    def first_at(self, number: int, topics: Sequence[str]) -> str:
        """Return one of the topics that a stock broker serves; one is moved there if none is."""
        for topic in topics:
            if self.number_of_owner(topic) == number:
                return topic
        self.move_to(topics[0], number)
        return topics[0]

    def broker(self, number: int) -> dict[str, Any]:
        """Return what the cluster knows of a stock broker."""
        (listed,) = self.system.command("brokers", "list")
        wanted = NODE.format(number)
        (found,) = [each for each in listed["brokers"] if each["broker_id"] == wanted]
        return dict(found)

    @property
    def meddled(self) -> RunningSidecar:
        """The sidecar of the first stock broker."""
        return self.stock.sidecars[MEDDLED]

    def restore(self) -> None:
        """Let both sides of the first broker talk again, and return when it is commanded."""
        self.meddler.down = self.meddler.up = unchanged
        self.begin_anew()

    def begin_anew(self) -> None:
        """Break the first broker's connection; return when its sidecar has a session again."""
        before = self.meddled.sessions()
        self.meddler.break_off()
        until(lambda: self.meddled.sessions() > before, "the first broker is not commanded")

    def another_sidecar(self, number: int, node_id: str) -> RunningSidecar:
        """Start one more sidecar of a broker, under any node id."""
        self.others.append(self.stock.start_another_sidecar(number, node_id))
        return self.others[-1]

    def greeted_as(self, number: int, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        """Send these lines to a broker's plug-in; return all messages until it closes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(COMES_ABOUT_S)
            connection.connect(str(self.stock.socket(number)))
            connection.sendall(b"".join(lines))
            with connection.makefile("rb") as answers:
                return [json.loads(line) for line in answers]

    def rest(self, method: str, path: str) -> Any:
        """Call discovery's Admin REST and follow its redirects."""
        return _call(method, f"{self.system.http_url}/admin/v2/{path}")

    def rest_of_pulsar(self, method: str, path: str) -> Any:
        """Call the Admin REST of the first stock broker, and follow its redirects."""
        return _call(method, f"{self.stock.web_url(MEDDLED)}/admin/v2/{path}")


def _call(method: str, url: str) -> Any:
    try:
        content = call_admin_rest(method, url)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {url}: {error.code} {error.read().decode()}") from error
    return json.loads(content) if content else None


def until(is_so: Callable[[], object], what: str = "") -> None:
    """Return when ``is_so`` returns what is true."""
    deadline = time.monotonic() + COMES_ABOUT_S
    while not is_so():
        assert time.monotonic() < deadline, what or "it has not come about"
        time.sleep(PAUSE_S)


@contextmanager
def running_world(directory: Path) -> Iterator[World]:
    """Start both clusters; stop them at the end.

    Skips the test by name where Java or Maven is missing.
    """
    classpath = plugin_classpath()
    for name in ("cluster", "stock"):
        (directory / name).mkdir()
    with (
        TemporaryDirectory(dir="/tmp") as sockets,
        blocking_cluster(directory / "cluster", SIZE) as cluster,
        StockCluster(classpath, directory / "stock", cluster) as stock,
        Meddler(Path(sockets) / "m.sock", stock.socket(MEDDLED)) as meddler,
        operated(cluster) as system,
    ):
        world = World(cluster, system, stock, meddler)
        # The first one makes what all share. The others start at the same time: each needs a
        # processor to itself for half a minute.
        for numbers in (STOCK[:1], STOCK[1:]):
            for number in numbers:
                world.start_broker(number)
                world.start_sidecar(number)
            for number in numbers:
                stock.wait_commanded(number)
        # A test that swallows a message must not meet that of another test's topic.
        system.command("brokers", "settings", "set", "loadBalancerIdleUnloadSeconds=0")
        yield world
