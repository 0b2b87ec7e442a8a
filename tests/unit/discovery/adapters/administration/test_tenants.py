"""/admin/v2/tenants: every case with its code."""

import pytest

from nextgen.kernel.limits.rest import REST_CHANGE_ATTEMPTS_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.discovery.rest_world import rest_world

TENANTS = "/admin/v2/tenants"
INFO = {"adminRoles": ["b", "a", "b"], "allowedClusters": ["local"]}


@pytest.fixture
async def rest():
    async with rest_world() as world:
        yield world


async def test_a_tenant_is_created_read_listed_changed_and_deleted(rest):
    created = await rest.call("PUT", f"{TENANTS}/acme", json=INFO)
    read = await rest.get(f"{TENANTS}/acme")
    changed = await rest.call(
        "POST", f"{TENANTS}/acme", json={"adminRoles": [], "allowedClusters": ["local"]}
    )
    after = await rest.get(f"{TENANTS}/acme")
    listed = await rest.get(TENANTS)
    deleted = await rest.call("DELETE", f"{TENANTS}/acme?force=false")

    assert (created.status, changed.status, deleted.status) == (204, 204, 204)
    assert read == (200, {"adminRoles": ["a", "b"], "allowedClusters": ["local"]})
    assert after == (200, {"adminRoles": [], "allowedClusters": ["local"]})
    assert listed == (200, ["acme"])
    assert await rest.get(TENANTS) == (200, [])


async def test_a_tenant_of_another_client_has_no_roles_and_this_cluster(rest):
    await rest.world.create_tenant("acme")

    assert await rest.get(f"{TENANTS}/acme") == (
        200,
        {"adminRoles": [], "allowedClusters": ["local"]},
    )


async def test_a_property_that_is_no_list_counts_as_not_set_and_others_are_kept(rest):
    properties = {"adminRoles": "{", "allowedClusters": "[1]", "owner": "ann"}
    home = rest.world.home("acme")
    await rest.world.run(
        home, pb.Command(create_tenant=pb.CreateTenant(name="acme", properties=properties))
    )

    odd = await rest.get(f"{TENANTS}/acme")
    await rest.call("POST", f"{TENANTS}/acme", json=INFO)

    assert odd == (200, {"adminRoles": [], "allowedClusters": ["local"]})
    kept = await home.reader.get(pb.GetRequest(names=[pb.ObjectName(kind=1, name="acme")]))
    assert kept.items[0].tenant.properties["owner"] == "ann"


async def test_a_thousand_tenants_and_more_are_all_listed(rest):
    names = sorted(f"t-{number:04}" for number in range(1_003))
    for name in names:
        await rest.world.create_tenant(name)

    assert await rest.get(TENANTS) == (200, names)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "nobody", None, 404),
        ("POST", "nobody", INFO, 404),
        ("DELETE", "nobody", None, 404),
        ("PUT", "there", INFO, 409),
        ("DELETE", "there", None, 409),
        ("DELETE", "there?force=true", None, 405),
        ("PUT", "a%20b", INFO, 412),
        ("PUT", "new", {}, 412),
        ("PUT", "new", {"allowedClusters": []}, 412),
        ("PUT", "new", {"allowedClusters": [" "]}, 412),
        ("PUT", "new", {"allowedClusters": ["local", "elsewhere"]}, 412),
        ("POST", "there", {"allowedClusters": ["elsewhere"]}, 412),
        ("PUT", "new", {"adminRoles": ["r" * 5_000], "allowedClusters": ["local"]}, 412),
        ("PUT", "new", {"adminRoles": "r", "allowedClusters": ["local"]}, 400),
        ("PATCH", "there", None, 405),
    ],
)
async def test_what_is_refused_has_its_code_and_changes_nothing(rest, method, path, body, status):
    await rest.world.create_tenant("there")
    await rest.world.create_namespace("there/ns")

    answer = await rest.call(method, f"{TENANTS}/{path}", json=body)

    assert (answer.status, bool(answer.reason)) == (status, True)
    assert await rest.get(TENANTS) == (200, ["there"])


async def test_a_create_without_a_body_names_no_cluster(rest):
    assert (await rest.call("PUT", f"{TENANTS}/acme")).status == 412


def lose(rest, times):
    """Let another change of the tenant come before each of the next sets."""
    left = [times]

    def before(request):
        if not request.HasField("execute"):
            return
        body = request.execute.commands[0].set_tenant_properties
        if body.expected_version and left[0]:
            left[0] -= 1
            body.expected_version += 100

    rest.shards.before = before
    return left


async def test_rest_change_attempts_max_are_made_and_one_more_is_not(rest):
    await rest.world.create_tenant("acme")

    left = lose(rest, REST_CHANGE_ATTEMPTS_MAX - 1)
    won = await rest.call("POST", f"{TENANTS}/acme", json=INFO)
    assert (won.status, left) == (204, [0])

    left = lose(rest, REST_CHANGE_ATTEMPTS_MAX + 1)
    lost = await rest.call("POST", f"{TENANTS}/acme", json={"allowedClusters": ["local"]})
    assert (lost.status, left) == (409, [1])
