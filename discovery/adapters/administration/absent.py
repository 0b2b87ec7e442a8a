"""What Pulsar has and this cluster has not: answered as a Pulsar without it answers.

Reading finds nothing, and writing is 501. So are permissions, until clients are authenticated.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from discovery.adapters.rest.answer import Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Route
from nextgen.runtime.security.authorization import Action

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"

_EMPTY: tuple[tuple[str, str, Any], ...] = (
    ("/admin/v2/bookies/all", "Bookies: none", {"bookies": []}),
    ("/admin/v2/bookies/racks-info", "Racks of bookies: none", {}),
    ("/admin/v2/resourcegroups", "Resource groups: none", []),
)

_PERMISSIONS = "permissions are not kept before clients are authenticated"
_NOT_HERE = "is not part of this cluster"

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
    ("GET", "/admin/v2/worker/cluster", f"a functions worker {_NOT_HERE}"),
    *(
        ("GET", f"/admin/v3/{kind}/{{tenant}}/{{namespace}}", f"the functions worker {_NOT_HERE}")
        for kind in ("functions", "sources", "sinks")
    ),
    *(
        (method, f"/admin/v3/{kind}/{{tenant}}/{{namespace}}/{{name}}", f"{what} {_NOT_HERE}")
        for kind, what in (
            ("functions", "the functions worker"),
            ("sources", "the functions worker"),
            ("sinks", "the functions worker"),
        )
        for method in ("GET", "POST", "PUT", "DELETE")
    ),
    (
        "GET",
        "/admin/v3/packages/{type}/{tenant}/{namespace}",
        f"the packages management {_NOT_HERE}",
    ),
)


def absent_routes() -> list[Route]:
    return [
        *(
            Route("GET", path, partial(_empty, value), what, Action.READ, answers={200: "Nothing."})
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


async def _empty(value: Any, _request: RestRequest) -> Answer:
    return content(value)


async def _refuse(reason: str, _request: RestRequest) -> Answer:
    raise RestFailure(501, reason)
