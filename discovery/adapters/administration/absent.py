"""What Pulsar has and this cluster has not: answered as a Pulsar without it answers.

Reading finds nothing, and writing is 501. So are permissions, until clients are authenticated.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from discovery.adapters.rest.answer import DONE, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Route
from nextgen.runtime.security.authorization import Action

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"

_CLUSTER = "/admin/v2/clusters/{cluster}"
_FUNCTIONS = "the functions worker"

_DEFAULT_QUOTA = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Pulsar's answer while no quota of a bundle is set."""

_NOT_RUN = {"status": "NOT_RUN", "lastError": ""}

_EMPTY: tuple[tuple[str, str, Any], ...] = (
    ("/admin/v2/bookies/all", "Bookies: none", {"bookies": []}),
    ("/admin/v2/bookies/racks-info", "Racks of bookies: none", {}),
    ("/admin/v2/resourcegroups", "Resource groups: none", []),
    ("/admin/v2/broker-stats/metrics", "Metrics: they are at /metrics of each process", []),
    ("/admin/v2/broker-stats/mbeans", "MBeans: none", []),
    ("/admin/v2/broker-stats/topics", "Topics of this process: brokers serve them", {}),
    ("/admin/v2/resource-quotas", "The quota of bundles: the default", _DEFAULT_QUOTA),
    (
        "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}",
        "The quota of a bundle: the default",
        _DEFAULT_QUOTA,
    ),
    (f"{_CLUSTER}/namespaceIsolationPolicies/brokers", "Isolated brokers: none", []),
    (f"{_TOPIC}/compaction", "A topic's compaction: never", _NOT_RUN),
    (f"{_TOPIC}/offload", "A topic's offloading: never", _NOT_RUN),
    (f"{_TOPIC}/shadowTopics", "Shadows of a topic: none", None),
    (f"{_TOPIC}/resourceGroup", "A topic's resource group: none", None),
    ("/admin/v2/brokers/backlog-quota-check", "Each broker checks backlogs itself", None),
)
"""What is read and is never there; None: an answer without content."""

_PERMISSIONS = "permissions are not kept before clients are authenticated"
_NOT_HERE = "is not part of this cluster"
_NOT_SERVED = "is not served here"
_PLACEMENT = "topics are placed one by one here, by placement rules"
_PACKAGES = f"the packages management {_NOT_HERE}"

_WORKER_KINDS = ("functions", "sources", "source", "sinks", "sink")
"""Java's library has the singular."""

_UNSERVED: tuple[tuple[str, str, str], ...] = (
    ("GET", f"{_NAMESPACE}/permissions", _PERMISSIONS),
    ("GET", f"{_NAMESPACE}/permissions/subscription", _PERMISSIONS),
    ("POST", f"{_NAMESPACE}/permissions/{{role}}", _PERMISSIONS),
    ("DELETE", f"{_NAMESPACE}/permissions/{{role}}", _PERMISSIONS),
    ("POST", f"{_NAMESPACE}/permissions/subscription/{{subscription}}", _PERMISSIONS),
    ("DELETE", f"{_NAMESPACE}/permissions/{{subscription}}/{{role}}", _PERMISSIONS),
    ("GET", f"{_TOPIC}/permissions", _PERMISSIONS),
    ("POST", f"{_TOPIC}/permissions/{{role}}", _PERMISSIONS),
    ("DELETE", f"{_TOPIC}/permissions/{{role}}", _PERMISSIONS),
    ("PUT", "/admin/v2/resourcegroups/{group}", f"a resource group {_NOT_HERE}"),
    ("POST", f"{_NAMESPACE}/resourcegroup/{{group}}", f"a resource group {_NOT_HERE}"),
    ("POST", "/admin/v2/bookies/racks-info/{bookie}", f"a bookie {_NOT_HERE}"),
    *(
        (method, f"{_TOPIC}/{path}", f"{what} {_NOT_HERE}")
        for method, path, what in (
            ("PUT", "compaction", "compaction"),
            ("PUT", "offload", "offloading"),
            ("PUT", "shadowTopics", "a shadow topic"),
            ("DELETE", "shadowTopics", "a shadow topic"),
            ("POST", "resourceGroup", "a resource group"),
            ("DELETE", "resourceGroup", "a resource group"),
            ("POST", "subscription/{subscription}/replicatedSubscriptionStatus", "replication"),
            ("GET", "subscription/{subscription}/replicatedSubscriptionStatus", "replication"),
        )
    ),
    *(
        (method, f"{_TOPIC}/{path}", f"this {_NOT_SERVED}")
        for method, path in (
            ("GET", "messageid/{timestamp}"),
            ("PUT", "backlogSize"),
            ("POST", "subscription/{subscription}/analyzeBacklog"),
            ("POST", "trim"),
        )
    ),
    ("GET", "/admin/v2/schemas/{tenant}/{namespace}/{topic}/metadata", f"this {_NOT_SERVED}"),
    ("GET", f"{_NAMESPACE}/scanOffloadedLedgers", f"offloading {_NOT_HERE}"),
    ("DELETE", f"{_NAMESPACE}/resourcegroup", f"a resource group {_NOT_HERE}"),
    ("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}", _PLACEMENT),
    ("POST", "/admin/v2/brokers/shutdown", f"this {_NOT_SERVED}: drain the broker"),
    ("POST", f"{_CLUSTER}/migrate", f"another cluster {_NOT_HERE}"),
    ("POST", "/admin/v2/resource-quotas", _PLACEMENT),
    *(
        (method, "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}", _PLACEMENT)
        for method in ("POST", "DELETE")
    ),
    *(
        (method, f"{_CLUSTER}/{kind}/{{name}}", _PLACEMENT)
        for kind in ("namespaceIsolationPolicies", "failureDomains")
        for method in ("POST", "DELETE")
    ),
    ("POST", f"{_CLUSTER}/peers", f"another cluster {_NOT_HERE}"),
    ("GET", "/admin/v2/broker-stats/load-report", _PLACEMENT),
    ("GET", "/admin/v2/broker-stats/allocator-stats/{allocator}", f"the JVM {_NOT_HERE}"),
    *(
        ("GET", f"/admin/v2/{path}", f"a functions worker {_NOT_HERE}")
        for path in (
            "worker/cluster",
            "worker/cluster/leader",
            "worker/assignments",
            "worker-stats/metrics",
            "worker-stats/functionsmetrics",
        )
    ),
    *(
        ("GET", f"/admin/v3/{path}", f"{_FUNCTIONS} {_NOT_HERE}")
        for path in ("functions/connectors", "sources/builtinsources", "sinks/builtinsinks")
    ),
    *(
        (method, f"/admin/v3/{kind}/{{tenant}}/{{namespace}}{path}", f"{_FUNCTIONS} {_NOT_HERE}")
        for kind in _WORKER_KINDS
        for method, path in (
            ("GET", ""),
            *((method, "/{name}") for method in ("GET", "POST", "PUT", "DELETE")),
            *(("GET", f"/{{name}}/{what}") for what in ("status", "stats")),
            *(("POST", f"/{{name}}/{what}") for what in ("start", "stop", "restart")),
        )
    ),
    *(
        (method, f"/admin/v3/packages/{{type}}/{{tenant}}/{{namespace}}{path}", _PACKAGES)
        for method, path in (
            ("GET", ""),
            ("GET", "/{name}"),
            *((method, "/{name}/{version}") for method in ("GET", "POST", "DELETE")),
            *((method, "/{name}/{version}/metadata") for method in ("GET", "PUT")),
        )
    ),
    *(
        ("GET", f"/admin/v3/transactions/{path}", f"the transaction coordinator {_NOT_HERE}")
        for path in ("coordinators", "coordinatorStats", "slowTransactions/{timeout}")
    ),
)


def absent_routes() -> list[Route]:
    return [
        *(
            Route("GET", path, partial(_empty, value), what, Action.READ, answers=_answers(value))
            for path, what, value in _EMPTY
        ),
        *(
            Route(
                method,
                path,
                partial(_refuse, reason),
                f"Not served: {reason}",
                Action.READ if method == "GET" else Action.CHANGE,
                answers={501: reason},
            )
            for method, path, reason in _UNSERVED
        ),
    ]


def _answers(value: Any) -> dict[int, str]:
    return {204: "None."} if value is None else {200: "Nothing."}


async def _empty(value: Any, _request: RestRequest) -> Answer:
    return DONE if value is None else content(value)


async def _refuse(reason: str, _request: RestRequest) -> Answer:
    raise RestFailure(501, reason)
