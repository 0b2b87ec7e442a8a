"""/admin/v2/clusters: a Pulsar that knows one cluster, its own, whose addresses are configured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, TypeAdapter

from discovery.adapters.rest.answer import Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import Body, Route
from nextgen.kernel.governance.access import Action
from nextgen.kernel.routing.names import parse_tenant
from nextgen.pulsar.service_urls import split_urls

_CLUSTERS = "/admin/v2/clusters"
_CLUSTER = f"{_CLUSTERS}/{{cluster}}"


class ClusterBody(BaseModel):
    """A cluster's addresses."""

    serviceUrl: str | None = None
    serviceUrlTls: str | None = None
    brokerServiceUrl: str | None = None
    brokerServiceUrlTls: str | None = None


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The cluster that this discovery node serves."""

    name: str
    http_url: str
    pulsar_url: str
    """As in ``service_urls``."""

    manager_endpoints: tuple[str, ...] = ()

    @property
    def has_https(self) -> bool:
        """Whether the HTTP ports of the cluster speak TLS."""
        return self.http_url.startswith("https://")


class Clusters:
    """There is no other cluster, and none can be added: topics are not replicated to any."""

    def __init__(self, local: LocalCluster) -> None:
        self._local = local

    def routes(self) -> list[Route]:
        body = Body(TypeAdapter(ClusterBody))
        return [
            Route(
                "GET",
                _CLUSTERS,
                self._list,
                "All clusters: this one",
                Action.CONNECT,  # Everybody with a role, as with Pulsar.
                answers={200: "Its name."},
            ),
            Route(
                "GET",
                _CLUSTER,
                self._get,
                "A cluster's addresses",
                Action.READ,
                answers={200: "Its addresses."},
            ),
            Route(
                "PUT",
                _CLUSTER,
                self._create,
                "Refused: there is one cluster",
                Action.CREATE,
                body=body,
                answers={405: "No cluster can be added.", 409: "It exists."},
            ),
            Route(
                "POST",
                _CLUSTER,
                self._refuse,
                "Refused: its addresses are configured",
                Action.CHANGE,
                body=body,
                answers={405: "The addresses are configured at discovery."},
            ),
            Route(
                "DELETE",
                _CLUSTER,
                self._delete,
                "Refused: the cluster is in use",
                Action.DELETE,
            ),
            *(
                Route(
                    "GET",
                    f"{_CLUSTER}/{part}",
                    partial(self._empty, empty),
                    f"{what} of a cluster: none",
                    Action.READ,
                    answers={200: "None."},
                )
                for part, what, empty in (
                    ("peers", "Peer clusters", []),
                    ("failureDomains", "Failure domains", {}),
                    ("namespaceIsolationPolicies", "Isolation policies", {}),
                )
            ),
        ]

    async def _list(self, _request: RestRequest) -> Answer:
        return content([self._local.name])

    async def _get(self, request: RestRequest) -> Answer:
        self._check_known(request)
        urls, web = split_urls(self._local.pulsar_url), self._local.http_url
        return content(
            {
                "serviceUrl": "" if self._local.has_https else web,
                "serviceUrlTls": web if self._local.has_https else "",
                "brokerServiceUrl": urls.plain,
                "brokerServiceUrlTls": urls.tls,
            }
        )

    async def _create(self, request: RestRequest) -> Answer:
        name = parse_tenant(request.parts["cluster"])  # One rule for both names, as in Pulsar.
        if name == self._local.name:
            raise RestFailure(409, f"cluster {name} exists")
        raise RestFailure(405, f"there is one cluster, {self._local.name}: none can be added")

    async def _refuse(self, request: RestRequest) -> Answer:
        self._check_known(request)
        raise RestFailure(405, "a cluster's addresses are configured at its discovery nodes")

    async def _delete(self, request: RestRequest) -> Answer:
        self._check_known(request)
        raise RestFailure(412, f"cluster {self._local.name} is in use")

    async def _empty(self, empty: Any, request: RestRequest) -> Answer:
        self._check_known(request)
        return content(empty)

    def _check_known(self, request: RestRequest) -> None:
        """Check that the path names this cluster.

        Raises:
            RestFailure: 404.
        """
        name = request.parts["cluster"]
        if name != self._local.name:
            raise RestFailure(404, f"cluster {shown(name)} does not exist")
