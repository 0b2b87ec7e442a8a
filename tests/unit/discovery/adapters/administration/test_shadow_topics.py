"""A source's list of shadows over HTTP, by the table of Pulsar's rules and codes."""

from io import BytesIO

import pytest

from nextgen.kernel.limits.shadow import (
    SHADOW_LIST_BODY_BYTES_MAX,
    SHADOWS_PER_READ,
    SHADOWS_PER_TOPIC_MAX,
)
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from tests.support.discovery.rest_world import rest_world

NAMESPACE = "/admin/v2/persistent/acme/orders"
SOURCE = "persistent://acme/orders/source"
AT = f"{NAMESPACE}/source/shadowTopics"
FIRST, SECOND = "persistent://acme/orders/first", "persistent://acme/other/second"


@pytest.fixture
async def rest():
    async with rest_world() as world:
        await world.world.create_tenant("acme")
        await world.world.create_namespace("acme/orders")
        await world.world.create_namespace("acme/other")
        await world.call("PUT", f"{NAMESPACE}/source")
        for name in (FIRST, SECOND):
            assert (await create_shadow(world, name)).status == 204
        yield world


async def create_shadow(rest, name, source=SOURCE, **properties):
    path = name.replace("persistent://", "/admin/v2/persistent/")
    return await rest.call("PUT", path, json={SHADOW_SOURCE_PROPERTY: source, **properties})


async def listed(rest):
    answer = await rest.call("GET", AT)
    return answer.json if answer.status == 200 else answer.status


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_list_is_set_replaced_and_removed(rest, method):
    assert await listed(rest) == 204

    assert (await rest.call(method, AT, json=[FIRST, SECOND])).status == 204
    both = await listed(rest)
    assert (await rest.call(method, AT, json=[SECOND])).status == 204
    one = await listed(rest)
    assert (await rest.call("DELETE", AT)).status == 204

    assert (both, one, await listed(rest)) == ([FIRST, SECOND], [SECOND], 204)
    assert (await rest.call("DELETE", AT)).status == 204, "a repetition changes nothing"


async def test_list_may_repeat_names_and_spell_them_in_any_form(rest):
    done = await rest.call("PUT", AT, json=["acme/orders/first", FIRST, SECOND, SECOND])

    assert (done.status, await listed(rest)) == (204, [FIRST, SECOND])


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ([], 412, "the list is empty"),
        (["persistent://acme/orders/"], 403, "a name in the list is invalid"),
        ([FIRST, "a b/c"], 403, "a name in the list is invalid"),
        (["non-persistent://acme/orders/first"], 412, "is not persistent"),
        (["topic://acme/orders/first"], 412, "is not persistent"),
        ([f"{FIRST}-partition-0"], 412, "is a partition"),
        (["persistent://acme/orders/absent"], 412, "which does not exist"),
        (["persistent://nobody/there/absent"], 412, "which does not exist"),
        ([SOURCE], 412, "which is the topic itself"),
        (["persistent://acme/orders/plain"], 412, "which is no shadow"),
        (["persistent://acme/orders/foreign"], 412, "which is a shadow of persistent://acme/other"),
        ([FIRST, "persistent://acme/orders/plain"], 412, "which is no shadow"),
        (None, 400, ""),
        ({"a": 1}, 400, ""),
        ([1], 400, ""),
    ],
)
async def test_what_no_shadow_can_be_is_refused_and_nothing_changes(rest, body, status, reason):
    await rest.call("PUT", f"{NAMESPACE}/plain")
    await rest.call("PUT", "/admin/v2/persistent/acme/other/source")
    await create_shadow(rest, "persistent://acme/orders/foreign", "persistent://acme/other/source")
    await rest.call("PUT", AT, json=[SECOND])

    refused = await rest.call("PUT", AT, json=body)

    assert refused.status == status
    assert reason in refused.reason
    assert await listed(rest) == [SECOND]


@pytest.mark.parametrize("count", [SHADOWS_PER_TOPIC_MAX + 1, 10_000])
async def test_list_that_is_too_long_is_refused_before_anything_is_read(rest, count):
    names = [f"persistent://acme/orders/s-{number}" for number in range(count)]
    reads = []
    rest.shards.before = lambda request: reads.extend(request.get.names)

    refused = await rest.call("PUT", AT, json=names)

    assert refused.status == 412
    assert f"the list has {count} names, at most {SHADOWS_PER_TOPIC_MAX}" in refused.reason
    assert reads == []


@pytest.mark.parametrize("excess", [0, 1])
async def test_shadow_list_body_bytes_max_are_read_and_one_more_refused(rest, excess):
    body = f'["{FIRST}"]'.rjust(SHADOW_LIST_BODY_BYTES_MAX + excess).encode()

    answer = await rest.call(
        "PUT", AT, data=BytesIO(body), headers={"Content-Type": "application/json"}
    )

    assert answer.status == (413 if excess else 204)


@pytest.mark.parametrize("excess", [0, 1])
async def test_list_is_checked_by_requests_whose_answers_fit(rest, excess):
    """Shadows are read as many at a time as ``SHADOWS_PER_READ`` + 1 do not fit."""
    home = rest.shards.shard_of_key("acme/orders/source")
    names = []
    for number in range(10 * SHADOWS_PER_READ):
        if rest.shards.shard_of_key(f"acme/orders/s-{number}") == home:
            names.append(f"persistent://acme/orders/s-{number}")
    names = names[: SHADOWS_PER_READ + excess]
    for name in names:
        await create_shadow(rest, name)
    reads = []
    rest.shards.before = lambda request: reads.append(list(request.get.names))

    assert (await rest.call("PUT", AT, json=names)).status == 204

    sizes = [len(read) for read in reads if read and read[0].name != SOURCE]
    assert sizes == [SHADOWS_PER_READ, 1][: 1 + excess]


async def test_listed_topic_that_is_gone_hinders_no_other_change_of_policies(rest):
    await rest.call("PUT", AT, json=[FIRST, SECOND])
    rest.shards.before = None
    await rest.call("DELETE", f"{NAMESPACE}/first")

    done = await rest.call("POST", f"{NAMESPACE}/source/messageTTL?messageTTL=60")

    assert done.status == 204
    assert SECOND in await listed(rest)


async def test_partition_and_absent_topic_have_no_list(rest):
    await rest.call("PUT", f"{NAMESPACE}/parted/partitions", json=2)
    for method, body in (("GET", None), ("PUT", [FIRST]), ("DELETE", None)):
        of_partition = f"{NAMESPACE}/parted-partition-0/shadowTopics"
        of_absent = f"{NAMESPACE}/absent/shadowTopics"

        assert (await rest.call(method, of_partition, json=body)).status == 405
        assert (await rest.call(method, of_absent, json=body)).status == 404


async def test_source_that_is_not_persistent_has_no_list(rest):
    volatile = "/admin/v2/non-persistent/acme/orders/volatile"
    await rest.call("PUT", volatile)

    refused = await rest.call("PUT", f"{volatile}/shadowTopics", json=[FIRST])

    assert (refused.status, "is not persistent" in refused.reason) == (412, True)
    assert (await rest.call("GET", f"{volatile}/shadowTopics")).status == 204


async def test_source_of_a_shadow_is_stored_in_canonical_form(rest):
    name = "persistent://acme/orders/short"

    assert (await create_shadow(rest, name, "acme/orders/source", team="a")).status == 204

    _, properties = await rest.get(f"{NAMESPACE}/short/properties")
    assert properties == {SHADOW_SOURCE_PROPERTY: SOURCE, "team": "a"}


async def test_source_that_is_no_topics_name_is_refused(rest):
    for source in ("", "a b/c", "persistent://acme/orders"):
        refused = await create_shadow(rest, "persistent://acme/orders/wrong", source)

        assert refused.status == 412, source
        assert SHADOW_SOURCE_PROPERTY in refused.reason


SCALABLE = "topic://acme/orders/scaled"


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("persistent://acme/orders/absent", 404, "absent"),
        ("persistent://acme/orders/refused", 412, "itself"),
        (FIRST, 412, "itself a shadow"),
        (f"{SOURCE}-partition-0", 412, "partition"),
        ("non-persistent://acme/orders/source", 412, "not persistent"),
        (SCALABLE, 412, "scalable"),
        ("persistent://acme/orders/parted", 412, "partitions"),
    ],
)
async def test_shadow_of_what_cannot_be_a_source_is_not_created(rest, source, status, reason):
    await rest.call("PUT", f"{NAMESPACE}/parted/partitions", json=2)
    await rest.call("PUT", "/admin/v2/scalable/acme/orders/scaled?numInitialSegments=1")

    refused = await create_shadow(rest, "persistent://acme/orders/refused", source)

    assert (refused.status, reason in refused.reason) == (status, True), refused.reason
    assert (await rest.call("GET", f"{NAMESPACE}/refused/properties")).status == 404


async def test_shadow_has_as_many_partitions_as_its_source(rest):
    await rest.call("PUT", f"{NAMESPACE}/parted/partitions", json=2)
    properties = {SHADOW_SOURCE_PROPERTY: "persistent://acme/orders/parted"}
    path = f"{NAMESPACE}/parted-shadow/partitions"

    too_many = await rest.call("PUT", path, json={"partitions": 3, "properties": properties})
    done = await rest.call("PUT", path, json={"partitions": 2, "properties": properties})

    assert (too_many.status, done.status) == (412, 204)


async def test_shadow_that_is_not_persistent_is_not_created(rest):
    path = "/admin/v2/non-persistent/acme/orders/volatile"

    refused = await rest.call("PUT", path, json={SHADOW_SOURCE_PROPERTY: SOURCE})

    assert (refused.status, "not persistent" in refused.reason) == (412, True)


@pytest.mark.parametrize("force", ["", "?force=true"])
@pytest.mark.parametrize("is_listed", [True, False])
async def test_source_with_shadows_is_not_deleted(rest, force, is_listed):
    if is_listed:
        await rest.call("PUT", AT, json=[FIRST, SECOND])

    refused = await rest.call("DELETE", f"{NAMESPACE}/source{force}")

    assert refused.status == 422
    assert any(shadow in refused.reason for shadow in (FIRST, SECOND))
    assert (await rest.call("GET", f"{NAMESPACE}/source/properties")).status == 200


async def test_deleted_shadow_is_listed_no_more_and_the_last_one_frees_its_source(rest):
    await rest.call("PUT", AT, json=[FIRST, SECOND])

    assert (await rest.call("DELETE", f"{NAMESPACE}/first")).status == 204
    assert await listed(rest) == [SECOND]
    assert (await rest.call("DELETE", f"{NAMESPACE}/source")).status == 422
    assert (await rest.call("DELETE", "/admin/v2/persistent/acme/other/second")).status == 204
    assert (await rest.call("DELETE", f"{NAMESPACE}/source")).status == 204


async def test_source_of_a_topic_never_changes(rest):
    await rest.call("PUT", f"{NAMESPACE}/plain")
    at = f"{NAMESPACE}/first/properties"
    other = {SHADOW_SOURCE_PROPERTY: "persistent://acme/orders/plain"}

    for refused in (
        await rest.call("PUT", at, json=other),
        await rest.call("DELETE", f"{at}?key={SHADOW_SOURCE_PROPERTY}"),
        await rest.call("PUT", f"{NAMESPACE}/plain/properties", json=other),
    ):
        assert (refused.status, SHADOW_SOURCE_PROPERTY in refused.reason) == (409, True)
    assert (await rest.call("PUT", at, json={"team": "a"})).status == 204
    assert (await rest.get(at))[1] == {SHADOW_SOURCE_PROPERTY: SOURCE, "team": "a"}


async def test_shadow_grows_with_its_source_only(rest):
    await rest.call("PUT", f"{NAMESPACE}/parted/partitions", json=2)
    properties = {SHADOW_SOURCE_PROPERTY: "persistent://acme/orders/parted"}
    path = f"{NAMESPACE}/parted-shadow/partitions"
    await rest.call("PUT", path, json={"partitions": 2, "properties": properties})

    alone = await rest.call("POST", path, json=4)
    together = await rest.call("POST", f"{NAMESPACE}/parted/partitions", json=4)
    after = await create_shadow(rest, "persistent://acme/orders/late", properties.popitem()[1])

    assert (alone.status, together.status, after.status) == (409, 204, 412)
    name = "persistent://acme/orders/parted-shadow"
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=KIND_TOPIC, name=name)])
    found = await rest.world.home_of_topic(name).reader.get(wanted)
    assert found.items[0].topic.partitions == 4
