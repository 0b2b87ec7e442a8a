"""The clusters that are measured: stock brokers with Pulsar's own settings, and ours around them.

    ZooKeeper and one bookie · stock brokers 1, 2, 3 with the plug-in, each with its sidecar
    cluster manager · three shard nodes · two discovery nodes · three embedded brokers

Topics of a namespace that is handed over are placed by topic, all others by bundles, by Pulsar's
own ``ExtensibleLoadManagerImpl``: both in the same processes, at the same time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nextgen.cli.local.plan import ClusterSize
from nextgen.client import BlockingClient
from tests.support.processes.local_cluster import BlockingCluster, blocking_cluster
from tests.support.stock.cluster import ENSEMBLE, FOR_STOCK, StockCluster
from tests.support.stock.plugin import plugin_classpath

BROKERS = (1, 2, 3)
# As many embedded brokers as stock ones: first lookups go to each of them in turn.
SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=len(BROKERS), shards=1)
HEAP_MB = 1_000
CREATE_TIMEOUT_MS = 60_000
TENANT = "bench"
CONFIGURATION = (
    ENSEMBLE
    + """brokerServicePort={pulsar}
webServicePort={http}
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
metadataStoreUrl={store}
configurationMetadataStoreUrl={store}
loadManagerClassName=nextgen.pulsar.loadmanager.TopicLoadManager
nextgenSidecarSocket={socket}
"""
)
"""What one bookie and the plug-in need. All else, time-outs too, is as Pulsar has it."""


class NoStockBrokers(Exception):
    """Why no stock brokers run here."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """Both clusters. ``admin`` is a client of ours that waits for effects."""

    ours: BlockingCluster
    stock: StockCluster
    admin: BlockingClient

    @property
    def targets(self) -> tuple[str, ...]:
        """Where our discovery nodes answer gRPC calls."""
        return self.ours.plan.discovery_endpoints

    @property
    def stock_url(self) -> str:
        """The service URL of the stock brokers, as Pulsar's clients know them."""
        addresses = [self.stock.url(number).removeprefix("pulsar://") for number in BROKERS]
        return "pulsar://" + ",".join(addresses)

    def http(self, number: int) -> str:
        """Return host:port of a broker's Admin REST, which is also its id in Pulsar's cluster."""
        return self.stock.web_url(number).removeprefix("http://")

    def number_at(self, url: str) -> int:
        """Return the number of the stock broker with this URL, 0 for any other."""
        return next((number for number in BROKERS if self.stock.url(number) == url), 0)

    def by_topic(self, name: str) -> str:
        """Create a namespace in both clusters and hand it over; return its full name."""
        namespace = f"{TENANT}/{name}"
        self.stock.hand_over(namespace)
        self.admin.create_namespace(namespace, FOR_STOCK)
        return namespace

    def by_bundle(self, name: str) -> str:
        """Create a namespace in Pulsar's cluster; return its full name."""
        namespace = f"{TENANT}/{name}"
        self.stock.create_namespace(namespace)
        return namespace

    def embedded(self, name: str) -> str:
        """Create a namespace that our embedded brokers serve; return its full name."""
        namespace = f"{TENANT}/{name}"
        self.admin.create_namespace(namespace)
        return namespace

    def deduplicate(self, namespace: str) -> None:
        """Have Pulsar store a message that is sent again only once."""
        self.stock.admin("POST", f"namespaces/{namespace}/deduplication", True)


@contextmanager
def running_clusters(directory: Path, settings: str = "") -> Iterator[Clusters]:
    """Start everything; end it at the end. ``settings``: more lines of each broker's.

    Raises:
        NoStockBrokers: There is no Java or Maven.
    """
    if missing := [name for name in ("java", "mvn") if shutil.which(name) is None]:
        raise NoStockBrokers(f"there is no {' and no '.join(missing)}")
    classpath = plugin_classpath()
    for name in ("ours", "stock"):
        (directory / name).mkdir()
    with (
        blocking_cluster(directory / "ours", SIZE) as ours,
        StockCluster(
            classpath,
            directory / "stock",
            ours,
            configuration=CONFIGURATION + settings,
            flags=(),
            heap_mb=HEAP_MB,
        ) as stock,
        BlockingClient(
            list(ours.plan.discovery_endpoints), timeout_ms=CREATE_TIMEOUT_MS, effective=True
        ) as admin,
    ):
        for number in BROKERS:
            stock.start_broker(number)
            stock.start_sidecar(number)
            stock.wait_commanded(number)
        admin.create_tenant(TENANT)
        yield Clusters(ours, stock, admin)
