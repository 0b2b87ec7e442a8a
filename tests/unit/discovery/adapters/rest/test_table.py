"""The table of routes: which one serves a path."""

import pytest

from discovery.adapters.rest.answer import DONE
from discovery.adapters.rest.route import Route
from discovery.adapters.rest.table import RouteTable, variables
from nextgen.kernel.governance.access import Action


async def nothing(_request):
    return DONE


def route(path, method="GET"):
    return Route(method, path, nothing, path, Action.READ)


TABLE = RouteTable(
    [
        route("/admin/v2/namespaces/{tenant}/{namespace}"),
        route("/admin/v2/namespaces/{tenant}/{namespace}", "PUT"),
        route("/admin/v2/namespaces/{tenant}/{namespace}/topics"),
        route("/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/split"),
        route("/admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions"),
        route("/lookup/v2/topic/{topic-domain}/{tenant}/{namespace}/{topic}"),
    ]
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/admin/v2/namespaces/a/b", "/admin/v2/namespaces/{tenant}/{namespace}"),
        ("/admin/v2/namespaces/a/b/", "/admin/v2/namespaces/{tenant}/{namespace}"),
        ("/admin/v2/namespaces/a/b/topics", "/admin/v2/namespaces/{tenant}/{namespace}/topics"),
        (
            "/admin/v2/namespaces/a/b/topics/split",
            "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/split",
        ),
        (
            "/admin/v2/non-persistent/a/b/c/partitions",
            "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions",
        ),
        ("/admin/v2/schemas/a/b/c/partitions", None),
        ("/admin/v2/namespaces/a//topics", None),
        ("/admin/v2/namespaces//b", None),
        ("/admin/v2/namespaces/a/b//", None),
        ("/", None),
        ("", None),
        ("admin", None),
    ],
)
def test_a_literal_goes_before_a_variable_and_a_part_is_never_empty(path, found):
    routes, _parts = TABLE.find(path)

    assert (routes["GET"].path if routes else None) == found


def test_variables_are_decoded_after_the_path_is_cut():
    routes, parts = TABLE.find("/lookup/v2/topic/persistent/acme/orders/a%2Fb+c")

    assert variables(routes["GET"], parts) == {
        "topic-domain": "persistent",
        "tenant": "acme",
        "namespace": "orders",
        "topic": "a/b c",
    }


def test_a_domain_in_the_path_is_a_variable_too():
    routes, parts = TABLE.find("/admin/v2/persistent/acme/orders/paid/partitions")

    assert variables(routes["GET"], parts)["domain"] == "persistent"


def test_methods_of_one_path_are_routes_of_their_own_and_none_is_there_twice():
    assert set(TABLE.find("/admin/v2/namespaces/a/b")[0]) == {"GET", "PUT"}
    with pytest.raises(AssertionError, match="twice"):
        RouteTable([route("/admin/v2/a"), route("/admin/v2/a")])
