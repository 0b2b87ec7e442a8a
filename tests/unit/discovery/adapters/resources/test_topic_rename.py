"""POST {topic}/rename: every case with its code, and who may."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.adapters.resources.topic_catalogue import topic_routes
from discovery.adapters.rest.request import RestRequest
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.write import RENAME_GRACE_MS_MAX
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import serving

PATH = "/admin/v2/persistent/acme/orders/paid"
OLD, NEW = "persistent://acme/orders/paid", "persistent://acme/archive/paid"
WEEK_S = RENAME_GRACE_MS_MAX // 1_000


@pytest.fixture
def inventory() -> FakeInventory:
    inventory = FakeInventory()
    inventory.add(OLD)
    inventory.add("persistent://acme/orders/taken")
    return inventory


@pytest.fixture
async def client(inventory: FakeInventory):
    port: Any = inventory
    async with serving(topic_routes(FakeOwners(), port, port, port)) as client:
        yield client


@pytest.mark.parametrize(
    ("more", "grace_ms"),
    [({}, None), ({"graceSeconds": 0}, 0), ({"graceSeconds": 90}, 90_000)],
)
async def test_a_topic_is_renamed_with_its_grace(client, inventory, more, grace_ms):
    answer = await client.call("POST", f"{PATH}/rename", json={"newName": NEW, **more})

    assert answer.status == 204
    assert NEW in inventory.topics
    assert OLD not in inventory.topics
    assert inventory.graces == [grace_ms]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"newName": "persistent://acme/orders/taken"}, 409),
        ({"newName": NEW, "graceSeconds": WEEK_S}, 204),
        ({"newName": NEW, "graceSeconds": WEEK_S + 1}, 400),
        ({"newName": NEW, "graceSeconds": -1}, 400),
        ({"newName": ""}, 400),
        ({}, 400),
        (NEW, 400),
    ],
)
async def test_what_a_body_gets(client, body, status):
    assert (await client.call("POST", f"{PATH}/rename", json=body)).status == status


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (RejectionCode.ALREADY_EXISTS, 409),
        (RejectionCode.NOT_ALLOWED, 409),
        (RejectionCode.PARENT_NOT_FOUND, 404),
        (RejectionCode.LIMIT_EXCEEDED, 412),
    ],
)
async def test_what_a_refusal_gets(client, inventory, code, status):
    inventory.rename_refusal = code
    assert (await client.call("POST", f"{PATH}/rename", json={"newName": NEW})).status == status


async def test_a_topic_that_is_not_there_has_no_name(client):
    path = "/admin/v2/persistent/acme/orders/none/rename"
    assert (await client.call("POST", path, json={"newName": NEW})).status == 404


def test_the_client_administers_the_tenants_of_both_names() -> None:
    port: Any = FakeInventory()
    (route,) = [
        route
        for route in topic_routes(FakeOwners(), port, port, port)
        if route.path.endswith("/rename")
    ]
    parts = {"domain": "persistent", "tenant": "acme", "namespace": "orders", "topic": "paid"}
    body = route.body.type.validate_python({"newName": "other/archive/paid"})
    assert route.besides is not None

    assert route.action is Action.DELETE
    assert [*route.besides(RestRequest(parts, body=body))] == [
        (Action.DELETE, Resource.topic(OLD)),
        (Action.CREATE, Resource.topic("persistent://other/archive/paid")),
    ]
