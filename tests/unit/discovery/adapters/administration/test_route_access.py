"""What each of all routes needs, decided by the real rules: who gets what."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from discovery.adapters.administration.catalogue import all_routes
from discovery.adapters.rest.frame import asked
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Route
from nextgen.kernel.governance.access import Action, Resource, ResourceKind
from nextgen.kernel.governance.access_rules import AccessFacts, AccessRules, may
from nextgen.kernel.governance.permissions import AuthAction, Permission
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY

RULES = AccessRules(frozenset({"root"}))
ROUTES = all_routes(MagicMock())

ANY_ROLE = {
    "GET /admin/v2/clusters",
    "GET /admin/v2/brokers/ready",
    "GET /admin/v2/brokers/version",
}
"""What a role without any permission gets, as docs/security.md says."""

BY_THE_BODY = {
    "POST /admin/v2/namespaces/grantPermissionsOnTopics",
    "POST /admin/v2/namespaces/revokePermissionsOnTopics",
}
"""What names its namespace in the body, and is for its tenant's admins."""

PRODUCING = {
    "GET /lookup/v2/topic/{topic-domain}/{tenant}/{namespace}/{topic}",
    "GET /lookup/v2/topic/{topic-domain}/{tenant}/{namespace}/{topic}/bundle",
    "POST /admin/v2/schemas/{tenant}/{namespace}/{topic}/schema",
    "POST /admin/v2/schemas/{tenant}/{namespace}/{topic}/version",
}
"""Beside reads of topics, what a role that may produce in the namespace gets."""

SUPERUSERS = (
    "PUT /admin/v2/tenants/{tenant}",
    "GET /admin/v2/tenants",
    "POST /admin/v2/scalable/{tenant}/{namespace}/{topic}/split/{segment}",
    "POST /admin/v2/scalable/{tenant}/{namespace}/{topic}/merge/{segment}/{other}",
    "POST /admin/v2/scalable/{tenant}/{namespace}/{topic}/rebucket/{segment}",
    "GET /admin/v2/brokers/configuration/runtime",
    "POST /admin/v2/brokers/configuration/{name}/{value}",
    "GET /admin/v2/brokers",
)
"""Some of what is for superusers only."""

ADMINS = (
    "GET /admin/v2/tenants/{tenant}",
    "PUT /admin/v2/namespaces/{tenant}/{namespace}",
    "GET /admin/v2/namespaces/{tenant}/{namespace}/permissions",
    "POST /admin/v2/namespaces/{tenant}/{namespace}/permissions/{role}",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/permissions",
    "POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/permissions/{role}",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/retention",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/backlogQuotaMap",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/shadowTopics",
    "POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/terminate",
    "PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}",
    "DELETE /admin/v2/schemas/{tenant}/{namespace}/{topic}/schema",
    "POST /admin/v2/schemas/{tenant}/{namespace}/{topic}/compatibility",
)
"""Some of what is for the tenant's admins, and for no role with permissions."""


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


BY_NAME = {name_of(route): route for route in ROUTES}


def needs(route: Route) -> tuple[Action, Resource]:
    named = {"domain": "persistent", "topic-domain": "persistent"}
    parts = {variable: named.get(variable, "x") for variable in route.variables}
    request = RestRequest(parts, topic_domain=route.topic_domain)
    (need,) = asked(route, request)
    return need


def gets(route: Route, role: str, *actions: AuthAction) -> bool:
    """Return whether a role with these actions on the namespace gets a route."""
    action, resource = needs(route)
    held = Policies(permissions=(Permission(role, actions),)) if actions else NO_POLICIES
    facts = AccessFacts(frozenset({"keeper"}), held, NO_POLICIES)
    return may(RULES, [role], action, resource.kind, facts) is True


def routes_of(role: str, *actions: AuthAction) -> set[str]:
    return {name_of(route) for route in ROUTES if gets(route, role, *actions)} - (
        BY_THE_BODY if role != "root" else set()
    )


@pytest.mark.parametrize("name", sorted(BY_THE_BODY))
def test_topics_of_a_body_are_granted_by_whoever_may_change_their_namespace(name: str) -> None:
    route = BY_NAME[name]
    assert route.body is not None
    assert route.besides is not None
    body = [{"topic": "persistent://acme/orders/paid", "role": "ada", "actions": ["produce"]}]
    request = RestRequest({}, body=route.body.type.validate_python(body))

    assert list(route.besides(request)) == [(Action.CHANGE, Resource.namespace("acme/orders"))]


def test_a_role_without_permissions_gets_these_routes_only() -> None:
    assert routes_of("nobody") == ANY_ROLE


def test_a_superuser_gets_every_route() -> None:
    assert routes_of("root") == {*BY_NAME}
    assert len(BY_NAME) > 450


def test_a_role_that_may_produce_reads_topics_and_adds_schemas() -> None:
    found = routes_of("writer", AuthAction.PRODUCE) - ANY_ROLE

    for name in found - PRODUCING:
        action, resource = needs(BY_NAME[name])
        assert (action, resource.kind) == (Action.READ, ResourceKind.TOPIC), name
        assert name.startswith("GET "), name
    assert found >= PRODUCING


def test_a_role_that_may_consume_lists_topics_and_works_with_subscriptions() -> None:
    found = routes_of("reader", AuthAction.CONSUME) - routes_of("writer", AuthAction.PRODUCE)
    kinds = {needs(BY_NAME[name]) for name in found}

    assert {action for action, _ in kinds} == {Action.CONSUME, Action.LIST}
    changes = {name.lower() for name in found if not name.startswith("GET ")}
    assert {name for name in changes if "subscri" not in name and "backlog" not in name} == set()


@pytest.mark.parametrize("name", ADMINS)
def test_what_admins_do_nobody_does_by_permissions(name: str) -> None:
    route = BY_NAME[name]

    assert gets(route, "keeper")
    assert not gets(route, "user", AuthAction.PRODUCE, AuthAction.CONSUME)


@pytest.mark.parametrize("name", SUPERUSERS)
def test_what_superusers_do_no_admin_does(name: str) -> None:
    route = BY_NAME[name]

    assert gets(route, "root")
    assert not gets(route, "keeper", AuthAction.PRODUCE, AuthAction.CONSUME)


SOURCE = "persistent://other/secret/orders"
OF_SHADOW = {SHADOW_SOURCE_PROPERTY: SOURCE}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}", OF_SHADOW),
        (
            "PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions",
            {"partitions": 1, "properties": OF_SHADOW},
        ),
        ("PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}/shadowTopics", [SOURCE]),
        ("POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/shadowTopics", [SOURCE]),
        ("PUT /admin/v2/scalable/{tenant}/{namespace}/{topic}", OF_SHADOW),
    ],
)
def test_a_shadow_needs_the_permission_for_its_source(name: str, body: Any) -> None:
    route = BY_NAME[name]
    assert route.body is not None
    assert route.besides is not None
    request = RestRequest({}, body=route.body.type.validate_python(body))

    assert list(route.besides(request)) == [(Action.CHANGE, Resource.topic(SOURCE))]


@pytest.mark.parametrize("body", [None, {"a": "b"}])
def test_a_topic_that_is_no_shadow_needs_nothing_besides(body: Any) -> None:
    route = BY_NAME["PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}"]
    assert route.besides is not None

    assert list(route.besides(RestRequest({}, body=body))) == []
