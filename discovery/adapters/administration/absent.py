"""What Pulsar has and this cluster has not: answered as a Pulsar without it answers.

What can be turned off in Pulsar has Pulsar's own answer for that (ADR 0090). Of the rest, reading
finds nothing, and writing is 501.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from discovery.adapters.rest.answer import DONE, Answer, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Route
from nextgen.kernel.governance.access import Action

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"

_CLUSTER = "/admin/v2/clusters/{cluster}"

_TURNED_OFF = "this cluster has none, as a Pulsar"
_NO_WORKER = f"the functions worker is not enabled: {_TURNED_OFF} with functionsWorkerEnabled=false"
_NO_PACKAGES = (
    f"the packages management is not enabled: {_TURNED_OFF} with enablePackagesManagement=false"
)
_NO_TRANSACTIONS = (
    f"the transaction coordinator is not enabled: {_TURNED_OFF} with "
    "transactionCoordinatorEnabled=false"
)
_NO_GROUP = "there is no such resource group"

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
    (f"{_TOPIC}/resourceGroup", "A topic's resource group: none", None),
    ("/admin/v2/brokers/backlog-quota-check", "Each broker checks backlogs itself", None),
)
"""What is read and is never there; None: an answer without content."""

_NOT_HERE = "is not part of this cluster"
_NOT_SERVED = "is not served here"
_PLACEMENT = "topics are placed one by one here, by placement rules"

_WORKER_KINDS = ("functions", "sources", "source", "sinks", "sink")
"""Java's library has the singular."""

_UNSERVED: tuple[tuple[str, str, str], ...] = (
    ("PUT", "/admin/v2/resourcegroups/{group}", f"a resource group {_NOT_HERE}"),
    ("POST", "/admin/v2/bookies/racks-info/{bookie}", f"a bookie {_NOT_HERE}"),
    *(
        (method, f"{_TOPIC}/{path}", f"{what} {_NOT_HERE}")
        for method, path, what in (
            ("PUT", "compaction", "compaction"),
            ("PUT", "offload", "offloading"),
            ("POST", "resourceGroup", "a resource group"),
            ("DELETE", "resourceGroup", "a resource group"),
            ("POST", "subscription/{subscription}/replicatedSubscriptionStatus", "replication"),
            ("GET", "subscription/{subscription}/replicatedSubscriptionStatus", "replication"),
        )
    ),
    ("GET", f"{_NAMESPACE}/scanOffloadedLedgers", f"offloading {_NOT_HERE}"),
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
)

_CONNECTORS = {"sources": "Sources", "source": "Sources", "sinks": "Sinks", "sink": "Sinks"}

_FUNCTION_PATHS: tuple[tuple[str, str], ...] = (
    ("GET", ""),
    *((method, "/{name}") for method in ("GET", "POST", "PUT", "DELETE")),
    *(("GET", f"/{{name}}/{what}") for what in ("status", "stats")),
    *(("GET", f"/{{name}}/{{instance}}/{what}") for what in ("status", "stats")),
    *(
        ("POST", f"/{{name}}{instance}/{what}")
        for what in ("start", "stop", "restart")
        for instance in ("", "/{instance}")
    ),
)

_OF_TOPIC = "{tenant}/{namespace}/{topic}"
_ID = "{most}/{least}"
_TRANSACTION_PATHS = (
    "coordinators",
    "coordinatorStats",
    "coordinatorInternalStats/{coordinator}",
    f"transactionMetadata/{_ID}",
    "slowTransactions/{timeout}",
    f"transactionInBufferStats/{_OF_TOPIC}/{_ID}",
    f"transactionBufferStats/{_OF_TOPIC}",
    f"transactionBufferInternalStats/{_OF_TOPIC}",
    f"transactionInPendingAckStats/{_OF_TOPIC}/{{subscription}}/{_ID}",
    f"pendingAckStats/{_OF_TOPIC}/{{subscription}}",
    f"pendingAckInternalStats/{_OF_TOPIC}/{{subscription}}",
    f"positionStatsInPendingAck/{_OF_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}",
)

_TURNED_OFF_ROUTES: tuple[tuple[int, str, str, str], ...] = (
    *(
        (409, "GET", f"/admin/v2/{path}", _NO_WORKER)
        for path in (
            "worker/cluster",
            "worker/cluster/leader",
            "worker/assignments",
            "worker-stats/metrics",
            "worker-stats/functionsmetrics",
        )
    ),
    (409, "PUT", "/admin/v2/worker/rebalance", _NO_WORKER),
    (409, "GET", "/admin/v3/functions/connectors", _NO_WORKER),
    (409, "GET", "/admin/v3/functions/download", _NO_WORKER),
    (409, "POST", "/admin/v3/functions/upload", _NO_WORKER),
    *(
        (409, method, f"/admin/v3/functions/{{tenant}}/{{namespace}}/{{name}}/{path}", _NO_WORKER)
        for method, path in (
            ("POST", "trigger"),
            ("GET", "download"),
            ("GET", "state/{key}"),
            ("POST", "state/{key}"),
        )
    ),
    (409, "GET", "/admin/v3/functions/builtins", _NO_WORKER),
    *(
        (409, method, f"/admin/v3/{kind}/{path}", _NO_WORKER)
        for kind, each in _CONNECTORS.items()
        for method, path in (
            ("GET", f"builtin{each.lower()}"),
            ("GET", f"builtin{each.lower()}/{{name}}/configdefinition"),
            ("POST", f"reloadBuiltIn{each}"),
        )
    ),
    (409, "POST", "/admin/v3/functions/builtins/reload", _NO_WORKER),
    *(
        (409, method, f"/admin/v3/{kind}/{{tenant}}/{{namespace}}{path}", _NO_WORKER)
        for kind in _WORKER_KINDS
        for method, path in _FUNCTION_PATHS
    ),
    *(
        (503, method, f"/admin/v3/packages/{{type}}/{{tenant}}/{{namespace}}{path}", _NO_PACKAGES)
        for method, path in (
            ("GET", ""),
            ("GET", "/{name}"),
            *((method, "/{name}/{version}") for method in ("GET", "POST", "DELETE")),
            *((method, "/{name}/{version}/metadata") for method in ("GET", "PUT")),
        )
    ),
    *(
        (503, "GET", f"/admin/v3/transactions/{path}", _NO_TRANSACTIONS)
        for path in _TRANSACTION_PATHS
    ),
    (503, "POST", "/admin/v3/transactions/transactionCoordinator/replicas", _NO_TRANSACTIONS),
    (404, "GET", "/admin/v2/resourcegroups/{group}", _NO_GROUP),
    (404, "DELETE", "/admin/v2/resourcegroups/{group}", _NO_GROUP),
    (412, "POST", f"{_NAMESPACE}/resourcegroup/{{group}}", _NO_GROUP),
)
"""Status, method, path and reason; the statuses are Pulsar's."""


def absent_routes() -> list[Route]:
    return [
        *(
            Route("GET", path, partial(_empty, value), what, Action.READ, answers=_answers(value))
            for path, what, value in _EMPTY
        ),
        Route(
            "DELETE",
            f"{_NAMESPACE}/resourcegroup",
            partial(_empty, None),
            "Leave a resource group: there is none",
            Action.CHANGE,
            answers={204: "It is in none."},
        ),
        *(_refusing(501, *each) for each in _UNSERVED),
        *(_refusing(*each) for each in _TURNED_OFF_ROUTES),
    ]


def _refusing(status: int, method: str, path: str, reason: str) -> Route:
    return Route(
        method,
        path,
        partial(_refuse, status, reason),
        f"Not served: {reason}",
        Action.READ if method == "GET" else Action.CHANGE,
        answers={status: reason},
    )


def _answers(value: Any) -> dict[int, str]:
    return {204: "None."} if value is None else {200: "Nothing."}


async def _empty(value: Any, _request: RestRequest) -> Answer:
    return DONE if value is None else content(value)


async def _refuse(status: int, reason: str, _request: RestRequest) -> Answer:
    # Not raised: a 503 that is raised invites the client to repeat it.
    return content({"reason": reason}, status)
