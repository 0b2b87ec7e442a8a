"""Permissions over HTTP, by the table of Pulsar's rules and codes."""

import asyncio
from dataclasses import replace

import pytest

from discovery.adapters.administration.permission_routes import (
    PermissionRoutes,
    TopicRevocation,
)
from discovery.adapters.rest.request import RestRequest
from nextgen.client.wire.policies import policies_from_proto, policies_to_proto
from nextgen.kernel.errors import ConnectionLost
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.governance.permissions import AuthAction, Permission, granted
from nextgen.kernel.limits.placement import (
    NAMESPACE_POLICIES_BYTES_MAX,
    PERMISSIONS_PER_OBJECT_MAX,
)
from nextgen.kernel.limits.rest import REST_CHANGE_ATTEMPTS_MAX, TOPIC_GRANTS_PER_REQUEST_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC
from tests.support.discovery.rest_world import rest_world

NAMESPACES = "/admin/v2/namespaces"
NAMESPACE = f"{NAMESPACES}/acme/orders"
ON_NAMESPACE = f"{NAMESPACE}/permissions"
ON_TOPIC = "/admin/v2/persistent/acme/orders/first/permissions"
TOPIC = "persistent://acme/orders/first"
BOTH = ["produce", "consume"]


@pytest.fixture
async def rest():
    async with rest_world() as world:
        await world.world.create_tenant("acme")
        await world.world.create_namespace("acme/orders")
        await world.call("PUT", "/admin/v2/persistent/acme/orders/first")
        yield world


async def stored(rest, kind=KIND_NAMESPACE, name="acme/orders"):
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=kind, name=name)])
    key = name.removeprefix("persistent://")
    found = (await rest.world.home(key).reader.get(wanted)).items[0]
    held = found.namespace if kind == KIND_NAMESPACE else found.topic
    return policies_from_proto(held.policies), held.policies_version


def writes_of(rest):
    """Return a list that gets every write of policies."""
    writes = []

    def note(request):
        if request.WhichOneof("body") == "execute":
            writes.append(request.execute)

    rest.shards.before = note
    return writes


@pytest.mark.parametrize("at", [ON_NAMESPACE, ON_TOPIC])
async def test_permissions_are_granted_replaced_and_revoked(rest, at):
    assert await rest.get(at) == (200, {})

    first = await rest.call("POST", f"{at}/app", json=["consume", "produce", "consume"])
    both = await rest.get(at)
    await rest.call("POST", f"{at}/other", json=["functions"])
    replaced = await rest.call("POST", f"{at}/app", json=["consume"])
    after = await rest.get(at)
    revoked = await rest.call("DELETE", f"{at}/app")

    assert {answer.status for answer in (first, replaced, revoked)} == {204}
    assert both == (200, {"app": BOTH})
    assert after == (200, {"app": ["consume"], "other": ["functions"]})
    assert await rest.get(at) == (200, {"other": ["functions"]})


@pytest.mark.parametrize("at", [ON_NAMESPACE, ON_TOPIC])
async def test_a_grant_and_a_revocation_are_effective_writes_and_keep_other_policies(rest, at):
    topic = at == ON_TOPIC
    ttl = "messageTTL?messageTTL=7" if topic else "messageTTL"
    await rest.call("POST", f"{at.removesuffix('permissions')}{ttl}", json=7)
    writes = writes_of(rest)

    await rest.call("POST", f"{at}/app", json=BOTH)
    await rest.call("DELETE", f"{at}/app")

    assert [write.consistency for write in writes] == [pb.CONSISTENCY_EFFECTIVE] * 2
    kind = (KIND_TOPIC, TOPIC) if topic else (KIND_NAMESPACE, "acme/orders")
    policies, version = await stored(rest, *kind)
    assert (policies.message_ttl_ms, policies.permissions, version) == (7_000, (), 3)


async def test_a_repeated_revocation_waits_until_it_is_effective(rest):
    """The first attempt may have ended before it was: that nothing changes means nothing."""
    await rest.call("POST", f"{ON_NAMESPACE}/app", json=BOTH)
    writes = writes_of(rest)

    async def lose(request):
        if request.WhichOneof("body") == "execute":
            rest.shards.before_answer = None
            shard = rest.world.shards[request.shard_id]
            await shard.service.execute(request.execute)
            raise ConnectionLost("the answer")

    rest.shards.before_answer = lose
    first = await rest.call("DELETE", f"{ON_NAMESPACE}/app")
    before = await rest.get(ON_NAMESPACE)
    again = await rest.call("DELETE", f"{ON_NAMESPACE}/app")

    assert (first.status, before, again.status) == (503, (200, {}), 204)
    assert [write.consistency for write in writes] == [pb.CONSISTENCY_EFFECTIVE] * 2


async def test_permissions_of_a_topic_are_shown_with_those_of_its_namespace(rest):
    await rest.call("POST", f"{ON_NAMESPACE}/app", json=["produce"])
    await rest.call("POST", f"{ON_NAMESPACE}/all", json=["produce"])
    await rest.call("POST", f"{ON_TOPIC}/app", json=["consume"])

    assert await rest.get(ON_TOPIC) == (200, {"all": ["produce"], "app": BOTH})
    assert await rest.get(ON_NAMESPACE) == (200, {"all": ["produce"], "app": ["produce"]})


async def test_a_role_that_the_topic_itself_permits_nothing_is_refused_as_by_pulsar(rest):
    await rest.call("POST", f"{ON_NAMESPACE}/app", json=["produce"])

    refused = await rest.call("DELETE", f"{ON_TOPIC}/app")
    of_namespace = await rest.call("DELETE", f"{ON_NAMESPACE}/nobody")

    assert (refused.status, refused.reason) == (412, "Permissions are not set at the topic level")
    assert of_namespace.status == 204
    assert await rest.get(ON_NAMESPACE) == (200, {"app": ["produce"]})


async def test_subscriptions_are_for_certain_roles_only(rest):
    at = f"{ON_NAMESPACE}/subscription"
    assert await rest.get(at) == (200, {})

    first = await rest.call("POST", f"{at}/s%2F1", json=["b", "a", "b"])
    await rest.call("POST", f"{at}/other", json=["c"])
    both = await rest.get(at)
    revoked = await rest.call("DELETE", f"{ON_NAMESPACE}/s%2F1/a")
    await rest.call("DELETE", f"{ON_NAMESPACE}/s%2F1/nobody")
    after = await rest.get(at)
    await rest.call("DELETE", f"{ON_NAMESPACE}/s%2F1/b")
    await rest.call("POST", f"{at}/other", json=[])

    assert (first.status, revoked.status) == (204, 204)
    assert both == (200, {"other": ["c"], "s/1": ["a", "b"]})
    assert after == (200, {"other": ["c"], "s/1": ["b"]})
    assert await rest.get(at) == (200, {})


@pytest.mark.parametrize("at", [ON_NAMESPACE, ON_TOPIC])
@pytest.mark.parametrize(
    ("role", "body", "status", "reason"),
    [
        ("app", [], 412, "no action is named"),
        ("app", ["fly"], 400, ""),
        ("app", "produce", 400, ""),
        ("app", None, 400, ""),
        ("a%0Ab", BOTH, 412, "control characters"),
        ("%20a", BOTH, 412, "spaces around it"),
        ("a" * 257, BOTH, 412, "more than 256 bytes"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_nothing_changes(
    rest, at, role, body, status, reason
):
    await rest.call("POST", f"{at}/app", json=["consume"])

    refused = await rest.call("POST", f"{at}/{role}", json=body)

    assert refused.status == status
    assert reason in refused.reason
    assert await rest.get(at) == (200, {"app": ["consume"]})


async def test_a_role_that_nobody_has_uses_no_subscription(rest):
    refused = await rest.call("POST", f"{ON_NAMESPACE}/subscription/s", json=["a", "b\n"])

    assert (refused.status, "control characters" in refused.reason) == (412, True)
    assert await rest.get(f"{ON_NAMESPACE}/subscription") == (200, {})


@pytest.mark.parametrize(
    "at",
    [
        f"{NAMESPACES}/acme/absent/permissions",
        f"{NAMESPACES}/nobody/absent/permissions",
        "/admin/v2/persistent/acme/orders/absent/permissions",
        "/admin/v2/non-persistent/acme/orders/first/permissions",
    ],
)
async def test_what_is_absent_is_404(rest, at):
    answers = [
        await rest.call("GET", at),
        await rest.call("POST", f"{at}/app", json=BOTH),
        await rest.call("DELETE", f"{at}/app"),
    ]

    assert [answer.status for answer in answers] == [404] * 3


async def test_a_partition_has_no_permissions_of_its_own(rest):
    at = "/admin/v2/persistent/acme/orders/first-partition-0/permissions"

    answers = [
        await rest.call("GET", at),
        await rest.call("POST", f"{at}/app", json=BOTH),
        await rest.call("DELETE", f"{at}/app"),
    ]

    assert [answer.status for answer in answers] == [405] * 3


async def test_no_grant_of_many_at_a_time_is_lost(rest):
    """More than ``REST_CHANGE_ATTEMPTS_MAX``: in one process they take turns."""
    roles = [f"role-{number:02d}" for number in range(30)]

    answers = await asyncio.gather(
        *(rest.call("POST", f"{ON_NAMESPACE}/{role}", json=BOTH) for role in roles)
    )

    assert {answer.status for answer in answers} == {204}
    assert await rest.get(ON_NAMESPACE) == (200, dict.fromkeys(roles, BOTH))


async def grant_elsewhere(rest, role):
    """Grant as another node does, which has turns of its own."""
    policies, version = await stored(rest)
    after = replace(policies, permissions=granted(policies.permissions, role, [AuthAction.CONSUME]))
    body = pb.SetPolicies(
        kind=KIND_NAMESPACE,
        name="acme/orders",
        policies=policies_to_proto(after),
        expected_version=version,
        expects_none=not version,
    )
    command = pb.Command(command_id=role.rjust(16).encode(), set_policies=body)
    done = await rest.world.home("acme/orders").service.execute(
        pb.ExecuteRequest(commands=[command])
    )
    assert not done.results[0].rejection_code


@pytest.mark.parametrize("times", [1, REST_CHANGE_ATTEMPTS_MAX - 1, REST_CHANGE_ATTEMPTS_MAX])
async def test_a_grant_that_others_overtake_keeps_theirs(rest, times):
    """Between its read and its write, so often that at last it is refused."""
    others = [f"other-{number}" for number in range(times)]
    left = iter(others)

    async def overtake(request):
        if request.WhichOneof("body") == "execute" and (other := next(left, "")):
            await grant_elsewhere(rest, other)

    rest.shards.before_answer = overtake
    answer = await rest.call("POST", f"{ON_NAMESPACE}/app", json=BOTH)
    rest.shards.before_answer = None

    expected = {other: ["consume"] for other in others}
    if times < REST_CHANGE_ATTEMPTS_MAX:
        expected["app"] = BOTH
    assert answer.status == (204 if "app" in expected else 409)
    assert await rest.get(ON_NAMESPACE) == (200, expected)


async def test_changes_of_one_object_wait_for_each_other_and_not_for_another(rest):
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(request):
        if request.WhichOneof("body") == "execute":
            rest.shards.before_answer = None
            held.set()
            await release.wait()

    rest.shards.before_answer = hold
    first = asyncio.ensure_future(rest.call("POST", f"{ON_NAMESPACE}/first", json=BOTH))
    await held.wait()
    writes = writes_of(rest)
    second = asyncio.ensure_future(rest.call("POST", f"{ON_NAMESPACE}/second", json=BOTH))
    of_topic = await rest.call("POST", f"{ON_TOPIC}/app", json=BOTH)
    waiting = len(writes)
    release.set()

    assert of_topic.status == 204
    assert waiting == 1
    assert {(await first).status, (await second).status} == {204}
    assert (await rest.get(ON_NAMESPACE))[1] == {"first": BOTH, "second": BOTH}


async def test_permissions_per_object_max_roles_are_granted_and_one_more_refused(rest):
    """A body of all of them is larger than other bodies may be."""
    roles = {f"{number:04d}".rjust(50, "r"): BOTH for number in range(PERMISSIONS_PER_OBJECT_MAX)}
    body = {"auth_policies": {"namespace_auth": roles}}

    created = await rest.call("PUT", f"{NAMESPACES}/acme/large", json=body)
    refused = await rest.call("POST", f"{NAMESPACES}/acme/large/permissions/more", json=BOTH)

    assert (created.status, refused.status) == (204, 412)
    assert "4001 roles, at most 4000" in refused.reason
    assert await rest.get(f"{NAMESPACES}/acme/large/permissions") == (200, roles)
    assert len(str(roles)) // 2 < NAMESPACE_POLICIES_BYTES_MAX


async def test_a_namespace_is_created_with_permissions_and_read_as_a_whole(rest):
    auth = {
        "namespace_auth": {"app": BOTH, "none": []},
        "destination_auth": {},
        "subscription_auth_roles": {"s": ["b", "a"], "all": []},
    }
    body = {"auth_policies": auth, "subscription_auth_mode": "Prefix"}

    created = await rest.call("PUT", f"{NAMESPACES}/acme/made", json=body)
    whole = (await rest.get(f"{NAMESPACES}/acme/made"))[1]
    copied = await rest.call("PUT", f"{NAMESPACES}/acme/copy", json=whole)

    assert (created.status, copied.status) == (204, 204)
    for name in ("made", "copy"):
        found = (await rest.get(f"{NAMESPACES}/acme/{name}"))[1]
        assert found["auth_policies"] == {
            "namespace_auth": {"app": BOTH},
            "destination_auth": {},
            "subscription_auth_roles": {"s": ["a", "b"]},
        }
        assert found["subscription_auth_mode"] == "Prefix"


@pytest.mark.parametrize(
    ("auth", "status", "reason"),
    [
        ({"destination_auth": {TOPIC: {"app": BOTH}}}, 412, "once it exists"),
        ({"topicAuthentication": {TOPIC: {"app": BOTH}}}, 412, "once it exists"),
        ({"namespace_auth": {"a\n": BOTH}}, 412, "control characters"),
        ({"subscriptionAuthentication": {"s": [" a"]}}, 412, "spaces around it"),
        ({"namespaceAuthentication": {"a": ["fly"]}}, 400, ""),
    ],
)
async def test_a_namespace_is_not_created_with_other_permissions(rest, auth, status, reason):
    refused = await rest.call("PUT", f"{NAMESPACES}/acme/new", json={"auth_policies": auth})

    assert refused.status == status
    assert reason in refused.reason
    assert (await rest.call("GET", f"{NAMESPACES}/acme/new")).status == 404


async def test_a_topic_that_is_created_again_permits_nobody(rest):
    await rest.call("POST", f"{ON_TOPIC}/app", json=BOTH)
    assert (await stored(rest, KIND_TOPIC, TOPIC))[0].permissions == (
        Permission("app", (AuthAction.PRODUCE, AuthAction.CONSUME)),
    )

    await rest.call("DELETE", "/admin/v2/persistent/acme/orders/first")
    await rest.call("PUT", "/admin/v2/persistent/acme/orders/first")

    assert await rest.get(ON_TOPIC) == (200, {})


GRANT_TOPICS = f"{NAMESPACES}/grantPermissionsOnTopics"
REVOKE_TOPICS = f"{NAMESPACES}/revokePermissionsOnTopics"


def on(topic, role="app", actions=BOTH):
    return {"topic": topic, "role": role, "actions": actions}


async def test_roles_are_permitted_on_many_topics_at_once(rest):
    names = [f"persistent://acme/orders/t-{number}" for number in range(40)]
    for name in names:
        await rest.call("PUT", name.replace("persistent://", "/admin/v2/persistent/"))
    body = [on(name) for name in names] + [on("acme/orders/t-0", "other", ["consume"])]

    first = await rest.call("POST", GRANT_TOPICS, json=body)
    given = [(await stored(rest, KIND_TOPIC, name))[0].permissions for name in names]
    revoked = await rest.call(
        "POST", REVOKE_TOPICS, json=[{"topic": name, "role": "app"} for name in names]
    )
    left = [(await stored(rest, KIND_TOPIC, name))[0].permissions for name in names]

    assert (first.status, revoked.status) == (204, 204)
    app = Permission("app", (AuthAction.PRODUCE, AuthAction.CONSUME))
    other = Permission("other", (AuthAction.CONSUME,))
    assert given == [(app, other), *[(app,)] * 39]
    assert left == [(other,), *[()] * 39]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ([on(TOPIC), on("persistent://acme/other/first")], 400),
        ([on(TOPIC), on("persistent://acme/orders/gone")], 404),
        ([on(TOPIC), on(f"{TOPIC}-partition-0")], 405),
        ([on(TOPIC), on("persistent://acme/orders/")], 412),
        ([on(TOPIC), on(TOPIC, "a\n")], 412),
        ([on(TOPIC), on(TOPIC, "other", [])], 412),
        ([on(TOPIC), on(TOPIC, "other", ["fly"])], 400),
        ([on(TOPIC), {"topic": TOPIC}], 400),
        ([on(TOPIC)] * (TOPIC_GRANTS_PER_REQUEST_MAX + 1), 412),
    ],
)
async def test_if_one_of_many_cannot_be_none_is_permitted(rest, body, status):
    refused = await rest.call("POST", GRANT_TOPICS, json=body)

    assert refused.status == status
    assert await rest.get(ON_TOPIC) == (200, {})


async def test_topic_grants_per_request_max_are_carried_out(rest):
    body = [on(TOPIC, f"role-{number}") for number in range(TOPIC_GRANTS_PER_REQUEST_MAX)]

    assert (await rest.call("POST", GRANT_TOPICS, json=body)).status == 204
    assert len((await rest.get(ON_TOPIC))[1]) == TOPIC_GRANTS_PER_REQUEST_MAX


def test_many_topics_are_changed_by_whoever_may_change_their_namespace():
    routes = {route.path: route for route in PermissionRoutes(None).routes()}

    for path in (GRANT_TOPICS, REVOKE_TOPICS):
        request = RestRequest({}, body=[TopicRevocation(topic=TOPIC, role="r")])
        assert routes[path].besides(request) == [(Action.CHANGE, Resource.namespace("acme/orders"))]
