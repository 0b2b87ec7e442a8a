"""Stock brokers on one metadata store and one bookie, each in a process of its own.

    ZooKeeper and a bookie (Pulsar's standalone, without its broker)
    broker 1 ── sidecar 1
    broker 2 ── sidecar 2 ...

A broker needs a processor to itself for half a minute while it starts. At the end all are killed:
in order it would take as long.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.support.stock.standalone import OPENED
from nextgen.cli.local.cluster import child_environment
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY, BrokerKind
from nextgen.runtime.security.cluster_secret import SECRET_FILE
from tests.support.callers.foreign_client import SHORT_LIVED
from tests.support.processes.fork_server import WarmProcess, start_warm
from tests.support.processes.free_ports import free_ports
from tests.support.processes.local_cluster import BlockingCluster

HEAP_MB = 400
START_S_MAX = 240
STOP_S_MAX = 20
HTTP_S_MAX = 30
REDIRECTS_MAX = 3
STARTER = "org.apache.pulsar.PulsarBrokerStarter"
"""Not Pulsar's standalone, which sends clients through the address that they asked."""

ENSEMBLE = """clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
allowLoopback=true
"""
BROKER = (
    ENSEMBLE
    + """brokerServicePort={pulsar}
webServicePort={http}
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
metadataStoreUrl={store}
configurationMetadataStoreUrl={store}
loadManagerClassName=nextgen.pulsar.loadmanager.TopicLoadManager
loadManagerServiceUnitStateTableViewClassName={table}
loadBalancerSheddingEnabled=false
brokerDeduplicationEnabled=true
nextgenSidecarSocket={socket}
"""
)
LISTENERS = """advertisedListeners=outside:pulsar://localhost:{pulsar}\
,outside:pulsar+ssl://localhost:{tls}
"""
"""Beside ``internal``, the listener of every broker. Clients from outside may come by TLS that
somebody in front of the broker ends."""

TABLE = (
    "org.apache.pulsar.broker.loadbalance.extensions.channel"
    ".ServiceUnitStateMetadataStoreTableViewImpl"
)
"""Bundles' owners in the metadata store: a broker then starts without topics of its own."""

NODE = "stock-{}"
PROPERTY = "property/nextgen.placement/topic"
FOR_STOCK = {BROKER_KIND_PROPERTY: BrokerKind.STOCK.value}
"""Of a namespace in our cluster whose topics stock brokers serve."""


FAILED = "Failed to start Pulsar service"
CAUSES = FAILED, "Caused by:", " ERROR "
LINES_MAX = 40


class NotStarted(Exception):
    """Why a stock process does not run: the causes in its log, and the log's end."""


@dataclass
class Running:
    """One process and its log."""

    process: subprocess.Popen[bytes] | WarmProcess
    log: Path
    begin: int = field(default=0, kw_only=True)
    """How many bytes of the log are of processes before it."""

    def lines(self) -> list[str]:
        """Return what it has written so far."""
        with self.log.open("rb") as written:
            written.seek(self.begin)
            return written.read().decode(errors="replace").splitlines()

    def has_failed(self) -> bool:
        """Whether it has ended or, which takes it minutes, is about to end."""
        return self.process.poll() is not None or any(FAILED in line for line in self.lines())

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class RunningSidecar(Running):
    """A sidecar and where its metrics are."""

    http: str

    def faults(self, kind: str) -> int:
        """Return how many faults of a kind it has counted, 0 while it starts."""
        wanted = f'nextgen_broker_stock_faults_total{{kind="{kind}"}} '
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=HTTP_S_MAX) as page:
                lines = page.read().decode().splitlines()
        except urllib.error.URLError:
            return 0
        (found,) = [line for line in lines if line.startswith(wanted)]
        return int(float(found.removeprefix(wanted)))

    def sessions(self) -> int:
        """Return how many sessions it has begun or resumed."""
        return self.log.read_text(errors="replace").count("session is up")

    def reasons(self, kind: str) -> list[str]:
        """Return the lines of its log about faults of a kind."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [each for each in lines if "stock broker fault" in each and kind in each]


class StockCluster:
    """Starts its parts on demand; a context that ends all of them."""

    def __init__(
        self,
        classpath: str,
        directory: Path,
        cluster: BlockingCluster,
        *,
        configuration: str = BROKER,
        flags: Sequence[str] = SHORT_LIVED,
        heap_mb: int = HEAP_MB,
    ) -> None:
        """``configuration``: of a broker, with the names in ``BROKER`` to fill in. ``flags`` and
        ``heap_mb``: of each JVM."""
        self._classpath = classpath
        self._configuration = configuration
        self._flags = (*flags, f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={heap_mb}m")
        self._directory = directory
        self._cluster = cluster
        (self._store_port,) = free_ports(1)
        self._http: dict[int, int] = {}
        self._pulsar: dict[int, int] = {}
        self._tls: dict[int, int] = {}
        self._sessions: dict[int, int] = {}
        self._ends = ExitStack()
        # The path of a socket has 107 bytes at most.
        self._sockets = Path(self._ends.enter_context(TemporaryDirectory(dir="/tmp")))
        self.brokers: dict[int, Running] = {}
        self.sidecars: dict[int, RunningSidecar] = {}

    def __enter__(self) -> StockCluster:
        try:
            self._start_store()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ends.close()

    def start_broker(self, number: int, more: str = "") -> None:
        """Start a broker, with ``more`` in its configuration; ``wait_commanded`` returns when it
        works. It keeps its ports."""
        self._expect_session(number)
        folder = self._folder(f"broker-{number}")
        if number not in self._pulsar:
            self._http[number], self._pulsar[number], self._tls[number] = free_ports(3)
        (folder / "broker.conf").write_text(
            (self._configuration + more).format(
                pulsar=self._pulsar[number],
                tls=self._tls[number],
                http=self._http[number],
                store=self._store_url,
                table=TABLE,
                socket=self.socket(number),
            )
        )
        self.brokers[number] = self._java(folder, STARTER, "-c", "broker.conf")

    def start_sidecar(self, number: int, *, socket: Path | None = None) -> None:
        """Start the sidecar of a broker, whether that runs or not. ``socket``: of another process
        between the two."""
        self._expect_session(number)
        node_id = NODE.format(number)
        self.sidecars[number] = self._sidecar(
            f"sidecar-{number}", node_id, socket or self.socket(number)
        )

    def start_another_sidecar(self, number: int, node_id: str) -> RunningSidecar:
        """Start one more sidecar of a broker, under any node id."""
        return self._sidecar(f"another-{number}-{node_id}", node_id, self.socket(number))

    def _sidecar(self, folder: str, node_id: str, socket: Path) -> RunningSidecar:
        plan, data = self._cluster.plan, self._cluster.cluster.data_dir
        port, http_port = free_ports(2)
        http = f"127.0.0.1:{http_port}"
        begun = self._folder(folder)
        with (begun / "log").open("ab") as output:
            process = start_warm(
                "brokers",
                [
                    *("--sidecar", str(socket), "--node-id", node_id),
                    *("--cluster-id", plan.cluster_id),
                    *("--listen", f"127.0.0.1:{port}", "--http-listen", http),
                    *("--cluster-managers", plan.manager_endpoints),
                    *("--cluster-secret-file", str(data / SECRET_FILE)),
                ],
                environment=child_environment(lifeline=False),
                directory=begun,
                stdout=output,
                stderr=output,
            )
        running = RunningSidecar(process, begun / "log", http)
        self._ends.callback(running.kill)
        return running

    def wait_commanded(self, number: int) -> None:
        """Return when the broker's sidecar has a session that began after one of the two was
        started or frozen for the last time.

        Raises:
            NotStarted: One of the two has failed, or it took too long. Neither runs any more.
        """
        broker, sidecar = self.brokers[number], self.sidecars[number]
        before = self._sessions[number]
        try:
            self.wait(lambda: sidecar.sessions() > before, broker, sidecar)
        except NotStarted:
            broker.kill()
            sidecar.kill()
            raise

    def _expect_session(self, number: int) -> None:
        """Have ``wait_commanded`` wait for a session that has not begun yet."""
        sidecar = self.sidecars.get(number)
        self._sessions[number] = sidecar.sessions() if sidecar else 0

    def logged(self, number: int, text: str) -> int:
        """Return how often a broker has written ``text`` to its log."""
        return self.brokers[number].log.read_text(errors="replace").count(text)

    def wait_logged(self, number: int, text: str, *, more_than: int) -> None:
        """Return when a broker has written ``text`` more than so often."""
        self.wait(lambda: self.logged(number, text) > more_than, self.brokers[number])

    def hand_over(self, namespace: str) -> None:
        """Create a namespace in Pulsar's cluster, and have its topics placed one by one."""
        self.create_namespace(namespace)
        self.admin("PUT", f"namespaces/{namespace}/{PROPERTY}")

    def admin(self, method: str, path: str, body: object = None) -> bytes:
        """Call the Admin REST of the first running broker, below ``/admin/v2``.

        Raises:
            urllib.error.HTTPError: It was refused.
        """
        number = next(each for each, it in self.brokers.items() if it.process.poll() is None)
        return self._call(number, method, f"admin/v2/{path}", body)

    def lookup(self, number: int, path: str, listener: str = "") -> dict[str, str]:
        """Return what a broker answers to a lookup over HTTP; ``path``: domain and the rest."""
        query = f"?listenerName={listener}" if listener else ""
        answer = self._call(number, "GET", f"lookup/v2/topic/{path}{query}", None)
        found: dict[str, str] = json.loads(answer)
        return found

    def url(self, number: int) -> str:
        """Return where Pulsar clients reach a broker."""
        return f"pulsar://127.0.0.1:{self._pulsar[number]}"

    def web_url(self, number: int) -> str:
        """Return where a broker's Admin REST is."""
        return f"http://127.0.0.1:{self._http[number]}"

    def create_namespace(self, namespace: str, *, bundles: int = 4) -> None:
        """Create a namespace in Pulsar's cluster, with its tenant; it is placed by bundles."""
        tenant = namespace.partition("/")[0]
        if tenant not in json.loads(self.admin("GET", "tenants")):
            self.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
        self.admin("PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": bundles}})

    def outside_urls(self, number: int) -> tuple[str, str]:
        """Return where clients from outside reach a broker, and by TLS."""
        at = "localhost"
        return f"pulsar://{at}:{self._pulsar[number]}", f"pulsar+ssl://{at}:{self._tls[number]}"

    def _call(self, number: int, method: str, path: str, body: object) -> bytes:
        return call_admin_rest(method, f"{self.web_url(number)}/{path}", body)

    def freeze(self, number: int) -> None:
        """Stop a broker's process with SIGSTOP, for longer than its session lasts."""
        self._expect_session(number)
        self.brokers[number].process.send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen broker go on."""
        self.brokers[number].process.send_signal(signal.SIGCONT)

    def _start_store(self) -> None:
        folder = self._folder("store")
        (folder / "store.conf").write_text(ENSEMBLE)
        store = self._java(
            folder,
            "org.apache.pulsar.PulsarStandaloneStarter",
            *("--config", "store.conf", "--no-broker", "-nss", "-nfw"),
            *("--zookeeper-port", str(self._store_port)),
            *("--zookeeper-dir", "zookeeper", "--bookkeeper-dir", "bookkeeper"),
        )
        self.wait(lambda: "Local BK started" in store.log.read_text(errors="replace"), store)
        setup = self._java(
            self._folder("setup"),
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            *("--cluster", "standalone", "--metadata-store", self._store_url),
            *("--configuration-metadata-store", self._store_url),
            *(
                "--web-service-url",
                "http://127.0.0.1:1",
                "--broker-service-url",
                "pulsar://127.0.0.1:1",
            ),
        )
        if setup.process.wait(START_S_MAX):
            raise NotStarted(setup.log.read_text(errors="replace")[-2_000:])

    @property
    def _store_url(self) -> str:
        return f"zk:127.0.0.1:{self._store_port}"

    def _java(self, folder: Path, program: str, *options: str) -> Running:
        return self._run(
            folder,
            [
                *("java", *self._flags),
                *(part for name in OPENED for part in ("--add-opens", f"{name}=ALL-UNNAMED")),
                "-Dio.netty.tryReflectionSetAccessible=true",
                *(program, *options),
            ],
            os.environ | {"CLASSPATH": self._classpath, "PULSAR_STANDALONE_USE_ZOOKEEPER": "1"},
        )

    def _run(self, folder: Path, command: Sequence[str], environment: dict[str, str]) -> Running:
        log = folder / "log"
        with log.open("ab") as output:
            begin = output.tell()
            running = Running(
                subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=output, stderr=output
                ),
                log,
                begin=begin,
            )
        self._ends.callback(running.kill)
        return running

    def wait(self, is_done: Callable[[], bool], *needed: Running) -> None:
        """Return when ``is_done`` returns so.

        Raises:
            NotStarted: One of ``needed`` has failed, or it took too long.
        """
        deadline = time.monotonic() + START_S_MAX
        while not is_done():
            failed = [each for each in needed if each.has_failed()]
            if failed or time.monotonic() > deadline:
                if not needed:
                    raise NotStarted("it has not come about")
                lines = (failed or list(needed))[0].lines()
                causes = [each for each in lines if any(part in each for part in CAUSES)]
                raise NotStarted("\n".join([*causes[-LINES_MAX:], "...", *lines[-LINES_MAX:]]))
            time.sleep(0.2)

    def _folder(self, name: str) -> Path:
        folder = self._directory / name
        folder.mkdir(exist_ok=True)
        return folder

    def socket(self, number: int) -> Path:
        """Return the path of the socket of a broker's plug-in."""
        return self._sockets / f"{number}.sock"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def call_admin_rest(method: str, url: str, body: object = None) -> bytes:
    """Call an Admin REST and follow its redirects, as an admin library does, whatever the method.

    Raises:
        urllib.error.HTTPError: It was refused.
    """
    for _ in range(REDIRECTS_MAX):
        request = urllib.request.Request(
            url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _OPENER.open(request, timeout=HTTP_S_MAX) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.TEMPORARY_REDIRECT:
                raise
            url = error.headers["Location"]
    raise AssertionError(f"redirected again and again, at last to {url}")
