"""Two stock brokers, the first one with a meddler between its plug-in and its sidecar."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nextgen.cli.local.plan import ClusterSize
from tests.support.callers.stock_client import PulsarSystem, operated
from tests.support.processes.local_cluster import blocking_cluster
from tests.support.stock.cluster import FOR_STOCK, NODE, RunningSidecar, StockCluster
from tests.support.stock.meddler import Meddler, unchanged
from tests.support.stock.plugin import plugin_classpath

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=0, shards=1)
NAMESPACE = "acme/orders"
MEDDLED, PLAIN = BROKERS = 1, 2
COMES_ABOUT_S = 120
PAUSE_S = 0.5
HTTP_S_MAX = 30


@dataclass
class Pair:
    """Both clusters, the operator of each, and who stands before the first stock broker."""

    system: PulsarSystem
    stock: StockCluster
    meddler: Meddler
    others: list[RunningSidecar] = field(default_factory=list)
    """Further sidecars that a test has started."""

    def another_sidecar(self, number: int, node_id: str) -> RunningSidecar:
        """Start one more sidecar of a broker, under any node id."""
        self.others.append(self.stock.start_another_sidecar(number, node_id))
        return self.others[-1]

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

    def broker(self, number: int) -> dict[str, Any]:
        """Return what the cluster knows of a stock broker."""
        (listed,) = self.system.command("brokers", "list")
        wanted = NODE.format(number)
        (found,) = [each for each in listed["brokers"] if each["broker_id"] == wanted]
        return dict(found)

    def place(self, topic: str, number: int) -> None:
        """Have a stock broker serve a topic."""
        # One that began many sessions within a minute gets nothing for a minute.
        until(lambda: self.broker(number)["status"] == "live", f"broker {number} is not live")
        if self.owner(topic) != number:
            self.system.repeated_command("topics", "move", topic, "--to", NODE.format(number))

    def owner(self, topic: str) -> int:
        """Return which stock broker serves a topic; an idle one is assigned."""
        (found,) = self.system.repeated_command("lookup", topic, "--fresh")
        return int(found["answers"][0]["broker_id"].rpartition("-")[2])

    def ledgers(self, topic: str) -> Any:
        """Return what Pulsar has noted of a topic's ledgers and cursors."""
        return self.rest_of_pulsar("GET", topic.replace("://", "/") + "/internalStats")

    def rest(self, method: str, path: str) -> Any:
        """Call discovery's Admin REST and follow its redirects, as an admin library does."""
        return self._call(method, f"{self.system.http_url}/admin/v2/{path}")

    def rest_of_pulsar(self, method: str, path: str) -> Any:
        """Call the Admin REST of the first stock broker, and follow its redirects."""
        return self._call(method, f"{self.stock.web_url(MEDDLED)}/admin/v2/{path}")

    def _call(self, method: str, url: str) -> Any:
        for _ in range(3):
            request = urllib.request.Request(url, method=method)
            try:
                with _OPENER.open(request, timeout=HTTP_S_MAX) as answer:
                    body = answer.read()
                    return json.loads(body) if body else None
            except urllib.error.HTTPError as error:
                if error.code != 307:
                    why = error.read().decode()
                    raise AssertionError(f"{method} {url}: {error.code} {why}") from error
                url = error.headers["Location"]
        raise AssertionError(f"redirected again and again, at last to {url}")

    def greeted_as(self, number: int, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        """Send these lines to a broker's plug-in; return all messages until it closes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(COMES_ABOUT_S)
            connection.connect(str(self.stock.socket(number)))
            connection.sendall(b"".join(lines))
            with connection.makefile("rb") as answers:
                return [json.loads(line) for line in answers]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def until(is_so: Callable[[], object], what: str = "") -> None:
    """Return when ``is_so`` returns what is true."""
    deadline = time.monotonic() + COMES_ABOUT_S
    while not is_so():
        assert time.monotonic() < deadline, what or "it has not come about"
        time.sleep(PAUSE_S)


@contextmanager
def running_pair(directory: Path) -> Iterator[Pair]:
    """Start both clusters with a namespace that is handed over; stop them at the end.

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
        for number in BROKERS:
            stock.start_broker(number)
            stock.start_sidecar(number, socket=meddler.path if number == MEDDLED else None)
            stock.wait_commanded(number)
        stock.hand_over(NAMESPACE)
        system.create_namespace(NAMESPACE, FOR_STOCK)
        yield Pair(system, stock, meddler)
