"""Which requests a client of the Admin REST may make."""

import pytest
from pydantic import TypeAdapter

from discovery.adapters.rest.answer import DONE
from discovery.adapters.rest.route import Body, Route
from nextgen.kernel.governance.access import CLUSTER, Action, Resource, ResourceKind
from tests.support.authorization import AllowList
from tests.support.callers.role_proofs import authenticator, token_of
from tests.support.discovery.rest_server import serving

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
AT = "/admin/v2/persistent/acme/orders/paid"
PAID = Resource.topic("persistent://acme/orders/paid")
OTHER = Resource.topic("persistent://acme/orders/other")
NAMESPACE = Resource.namespace("acme/orders")


class Service:
    """Remembers what it was given."""

    def __init__(self):
        self.given = []

    async def work(self, request):
        self.given.append(request.body)
        return DONE


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def allow():
    return AllowList()


@pytest.fixture
async def client(service, allow):
    names = Body(TypeAdapter(list[str]))
    routes = [
        Route("GET", TOPIC, service.work, "Read", Action.READ),
        Route(
            "PUT",
            TOPIC,
            service.work,
            "Set",
            Action.CHANGE,
            body=names,
            besides=lambda request: [
                (Action.CHANGE, Resource.topic(name)) for name in request.body
            ],
        ),
        Route(
            "GET",
            f"{TOPIC}/policy",
            service.work,
            "Policy",
            Action.READ,
            scope=ResourceKind.NAMESPACE,
        ),
        Route(
            "POST",
            f"{TOPIC}/split",
            service.work,
            "Split",
            Action.CHANGE,
            scope=ResourceKind.CLUSTER,
        ),
        Route(
            "POST",
            f"{TOPIC}/subscription/{{subscription}}/skip",
            service.work,
            "Skip",
            Action.CONSUME,
        ),
        Route("GET", "/admin/v2/tenants/{tenant}", service.work, "Tenant", Action.READ),
        Route("GET", "/admin/v2/clusters", service.work, "Clusters", Action.CONNECT),
    ]
    async with serving(routes, authenticator(proxy_roles=frozenset({"proxy"})), allow) as client:
        yield client


def bearer(role="ada", **more):
    return {"Authorization": f"Bearer {token_of(role).decode()}", **more}


@pytest.mark.parametrize(
    ("method", "path", "body", "action", "resource", "subscription"),
    [
        ("GET", AT, None, Action.READ, PAID, ""),
        ("GET", f"{AT}/policy", None, Action.READ, NAMESPACE, ""),
        ("POST", f"{AT}/split", None, Action.CHANGE, CLUSTER, ""),
        ("POST", f"{AT}/subscription/mine/skip", None, Action.CONSUME, PAID, "mine"),
        ("GET", "/admin/v2/tenants/acme", None, Action.READ, Resource.tenant("acme"), ""),
        ("GET", "/admin/v2/clusters", None, Action.CONNECT, CLUSTER, ""),
    ],
)
async def test_a_request_needs_an_action_on_what_its_path_names(
    client, service, allow, method, path, body, action, resource, subscription
):
    refused = await client.call(method, path, json=body, headers=bearer())
    assert refused.status == 403
    assert str(action) in refused.reason
    assert service.given == []

    allow.allow("ada", action, resource)
    assert (await client.call(method, path, json=body, headers=bearer())).status == 204
    assert allow.checked[-1] == ("ada", action, resource, subscription)


async def test_the_body_of_a_request_that_is_refused_is_not_read(client, service):
    refused = await client.call("PUT", AT, data=b"{", headers=bearer())

    assert refused.status == 403


async def test_what_the_body_names_has_to_be_allowed_too(client, service, allow):
    allow.allow("ada", Action.CHANGE, PAID)
    refused = await client.call("PUT", AT, json=[OTHER.name], headers=bearer())
    assert (refused.status, service.given) == (403, [])

    allow.allow("ada", Action.CHANGE, OTHER)
    done = await client.call("PUT", AT, json=[OTHER.name], headers=bearer())
    assert (done.status, service.given) == (204, [[OTHER.name]])


async def test_while_permissions_cannot_be_read_a_client_is_told_to_come_back(client, allow):
    allow.unavailable.add(PAID)

    assert (await client.call("GET", AT, headers=bearer())).status == 503


async def test_every_request_is_asked_for_anew(client, allow):
    allow.allow("ada", Action.READ, PAID)
    before = await client.call("GET", AT, headers=bearer())
    allow.revoke("ada", Action.READ, PAID)
    after = await client.call("GET", AT, headers=bearer())

    assert (before.status, after.status) == (204, 403)


async def test_a_proxy_and_its_client_have_to_be_allowed(client, allow):
    behind = bearer("proxy", **{"X-Original-Principal": "ada"})
    allow.allow("ada", Action.READ, PAID)
    assert (await client.call("GET", AT, headers=behind)).status == 403

    allow.allow("proxy", Action.READ, PAID)
    assert (await client.call("GET", AT, headers=behind)).status == 204

    alone = await client.call("GET", AT, headers=bearer("proxy"))
    stranger = await client.call(
        "GET", AT, headers=bearer("ada", **{"X-Original-Principal": "root"})
    )
    assert (alone.status, stranger.status) == (403, 403)
    assert "cannot act for another role" in stranger.reason


async def test_a_path_that_names_nothing_is_told_as_ever(client):
    assert (await client.call("GET", "/admin/v2/nothing", headers=bearer())).status == 404
    assert (await client.call("DELETE", AT, headers=bearer())).status == 405
    assert (
        await client.call("GET", "/admin/v2/persistent/acme/or%2Fders/x", headers=bearer())
    ).status == 412


async def test_without_an_authorizer_every_client_with_a_role_may_do_everything(service):
    routes = [Route("GET", TOPIC, service.work, "Read", Action.READ)]
    async with serving(routes, authenticator()) as client:
        assert (await client.call("GET", AT, headers=bearer())).status == 204
