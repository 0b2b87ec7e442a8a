"""clearBacklog and unsubscribe of a namespace reach every persistent topic."""

from __future__ import annotations

from typing import Any

import pytest

from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.rest_world import rest_world

AT = "/admin/v2/namespaces/acme/orders"
WHOLE = "0x00000000_0xffffffff"
UNITS = [
    "persistent://acme/orders/parted-partition-0",
    "persistent://acme/orders/parted-partition-1",
    "persistent://acme/orders/plain",
]


@pytest.fixture
def owners() -> FakeOwners:
    return FakeOwners()


@pytest.fixture
async def rest(owners: FakeOwners):
    async with rest_world(owners=owners) as world:
        await world.world.create_tenant("acme")
        await world.world.create_namespace("acme/orders")
        await world.world.create_namespace("acme/other")
        for path in ("persistent/acme/orders/plain", "persistent/acme/other/plain"):
            await world.call("PUT", f"/admin/v2/{path}")
        await world.call("PUT", "/admin/v2/non-persistent/acme/orders/transient")
        await world.call("PUT", "/admin/v2/persistent/acme/orders/parted/partitions", json=2)
        yield world


def absent_at(names: list[str]) -> Any:
    """Return an answer: these have no such subscription."""

    def answer(name: str, _request: Any) -> Any:
        gone = Refused(RejectionCode.NOT_FOUND, "there is no such subscription")
        return gone if name in names else None

    return answer


@pytest.mark.parametrize("bundle", ["", f"/{WHOLE}"])
async def test_a_namespaces_backlog_is_cleared_in_every_persistent_topic(rest, owners, bundle):
    done = await rest.call("POST", f"{AT}{bundle}/clearBacklog")

    assert done.status == 204
    assert sorted(name for name, _ in owners.calls) == UNITS
    for _, request in owners.calls:
        assert isinstance(request, admin_pb.ExpireMessagesRequest)
        assert request.subscription == ""
        assert (request.up_to.ledger_id, request.up_to.entry_id) == (2**63 - 1, 2**63 - 1)


@pytest.mark.parametrize("bundle", ["", f"/{WHOLE}"])
@pytest.mark.parametrize("absent", [[], UNITS[:1], UNITS])
async def test_one_subscription_is_cleared_wherever_it_is(rest, owners, bundle, absent):
    owners.answer = absent_at(absent)

    done = await rest.call("POST", f"{AT}{bundle}/clearBacklog/sub")

    assert done.status == 204
    assert sorted(name for name, _ in owners.calls) == UNITS
    requests = [request for _, request in owners.calls]
    assert requests == [admin_pb.SkipMessagesRequest(subscription="sub", is_all=True)] * 3


@pytest.mark.parametrize("absent", [[], UNITS])
async def test_a_subscription_is_deleted_wherever_it_is(rest, owners, absent):
    owners.answer = absent_at(absent)

    done = await rest.call("POST", f"{AT}/unsubscribe/sub")

    assert done.status == 204
    requests = [request for _, request in owners.calls]
    assert requests == [admin_pb.DeleteSubscriptionRequest(subscription="sub")] * 3


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused(RejectionCode.NOT_EMPTY, "it has consumers"), 412),
        (Unavailable("its broker is gone"), 503),
    ],
)
async def test_what_one_topic_refuses_fails_the_whole_call(rest, owners, error, status):
    owners.answer = lambda name, _request: error if name == UNITS[1] else None

    failed = await rest.call("POST", f"{AT}/{WHOLE}/unsubscribe/sub")

    assert (failed.status, failed.reason) == (status, str(error))
    assert len(owners.calls) == len(UNITS)


async def test_an_absent_namespace_and_another_bundle_are_refused(rest, owners):
    absent = await rest.call("POST", "/admin/v2/namespaces/acme/absent/clearBacklog")
    bundle = await rest.call("POST", f"{AT}/0x00000000_0x80000000/clearBacklog")

    assert (absent.status, bundle.status, owners.calls) == (404, 412, [])


async def test_topics_are_listed_by_their_properties(rest):
    at = "/admin/v2/persistent/acme/orders"
    await rest.call("PUT", f"{at}/red", json={"color": "red", "size": "5"})
    await rest.call("PUT", f"{at}/green", json={"color": "green", "size": "5"})

    async def listed(properties: str) -> Any:
        return (await rest.get(f"{at}?properties={properties}"))[1]

    assert await listed("color=red") == ["persistent://acme/orders/red"]
    assert await listed("size=5,color=green") == ["persistent://acme/orders/green"]
    assert await listed("size=5,color=blue") == []
    assert len(await listed("")) == len(UNITS) + 2
    assert (await rest.call("GET", f"{at}?properties=color")).status == 412
    assert (await rest.call("GET", f"{at}?properties==red")).status == 412
