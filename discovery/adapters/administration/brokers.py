"""/admin/v2/brokers: who serves, and whether this node can answer.

Broker ids are those of the cluster's directory, as in lookups and moves. No broker leads the
others: the first by id stands for the leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from discovery.adapters.administration.clusters import LocalCluster
from discovery.adapters.administration.configuration import ConfigurationRoutes
from discovery.adapters.rest.answer import TEXT, Answer, RestFailure, content, text
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import TEXT_VALUE, Route, Work
from discovery.ports import Directory, ServiceConfiguration
from nextgen.kernel.governance.access import Action
from nextgen.pulsar.policies.whole_policies import WHOLE_BUNDLE


class HeldNamespaces(Protocol):
    """``nextgen.client.brokers.namespaces.BrokerNamespaces`` or a fake."""

    async def at(self, endpoint: str) -> list[str]: ...


Readiness = Callable[[], tuple[bool, list[str]]]
"""Returns whether any topic can be answered, and what is missing."""

_BROKERS = "/admin/v2/brokers"


class Brokers:
    """Answers from the directory of brokers that every discovery node has."""

    def __init__(
        self,
        directory: Directory,
        held: HeldNamespaces,
        local: LocalCluster,
        readiness: Readiness,
        version: str,
        configuration: ServiceConfiguration,
    ) -> None:
        self._directory = directory
        self._held = held
        self._local = local
        self._readiness = readiness
        self._version = version
        fixed = {"clusterName": local.name, "metadataStoreUrl": self._metadata_url}
        self._configuration = ConfigurationRoutes(directory, configuration, fixed)

    def routes(self) -> list[Route]:
        return [
            _read(_BROKERS, self._list, "The live brokers"),
            _read(f"{_BROKERS}/leaderBroker", self._leader, "The first live broker by id"),
            _read(
                f"{_BROKERS}/health",
                self._health,
                "Whether topics are served, or one broker lives",
                query={"brokerId": TEXT_VALUE},
                media_type=TEXT,
            ),
            _read(
                f"{_BROKERS}/ready",
                self._ready,
                "Whether this node can answer for any topic",
                Action.CONNECT,
                media_type=TEXT,
            ),
            _read(
                f"{_BROKERS}/version",
                self._served_version,
                "The version",
                Action.CONNECT,
                media_type=TEXT,
            ),
            *self._configuration.routes(),
            _read(
                f"{_BROKERS}/internal-configuration",
                self._internal,
                "Where metadata are kept",
            ),
            _read(f"{_BROKERS}/{{cluster}}", self._list, "The live brokers of a cluster"),
            _read(
                f"{_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces",
                self._owned,
                "The namespaces that have topics at a broker, each as its one bundle",
            ),
        ]

    @property
    def _live(self) -> list[str]:
        brokers = self._directory.view.brokers
        return sorted(broker_id for broker_id, broker in brokers.items() if broker.is_live)

    async def _list(self, request: RestRequest) -> Answer:
        self._check_cluster(request)
        return content(self._live)

    async def _leader(self, _request: RestRequest) -> Answer:
        live = self._live
        if not live:
            raise RestFailure(404, "no broker lives")
        http = self._directory.view.brokers[live[0]].endpoints.http
        scheme = "https" if self._local.has_https else "http"
        return content({"brokerId": live[0], "serviceUrl": f"{scheme}://{http}" if http else ""})

    async def _health(self, request: RestRequest) -> Answer:
        broker_id = request.query.get("brokerId", "")
        if broker_id and broker_id not in self._directory.view.brokers:
            raise RestFailure(404, f"broker {shown(broker_id)} is not known")
        live = self._live
        if not live or (broker_id and broker_id not in live):
            raise RestFailure(503, f"broker {broker_id} is dead" if live else "no broker lives")
        return await self._ready(request)

    async def _ready(self, _request: RestRequest) -> Answer:
        is_ready, reasons = self._readiness()
        if not is_ready:
            raise RestFailure(503, "; ".join(reasons))
        return text("ok")

    async def _served_version(self, _request: RestRequest) -> Answer:
        return text(self._version)

    async def _internal(self, _request: RestRequest) -> Answer:
        return content(
            {
                "metadataStoreUrl": self._metadata_url,
                "configurationMetadataStoreUrl": self._metadata_url,
                "bookkeeperMetadataServiceUri": "",
                "stateStorageServiceUrl": "",
            }
        )

    async def _owned(self, request: RestRequest) -> Answer:
        self._check_cluster(request)
        broker_id = request.parts["broker"]
        if broker_id not in self._live:
            raise RestFailure(404, f"broker {shown(broker_id)} is not alive")
        names = await self._held.at(self._directory.view.brokers[broker_id].endpoints.grpc)
        # Other brokers have topics of the same namespaces: a bundle here is nobody's alone.
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        return content({f"{name}/{WHOLE_BUNDLE}": status for name in names})

    @property
    def _metadata_url(self) -> str:
        return f"nextgen:{','.join(self._local.manager_endpoints)}"

    def _check_cluster(self, request: RestRequest) -> None:
        """Check that a cluster, if the path names one, is this one.

        Raises:
            RestFailure: 404.
        """
        cluster = request.parts.get("cluster", self._local.name)
        if cluster != self._local.name:
            raise RestFailure(404, f"cluster {shown(cluster)} does not exist")


def _read(path: str, work: Work, summary: str, action: Action = Action.READ, **more: Any) -> Route:
    return Route("GET", path, work, summary, action, answers={200: f"{summary}."}, **more)
