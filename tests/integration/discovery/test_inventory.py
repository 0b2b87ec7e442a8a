"""Tenants, namespaces and topics through a discovery node with fake shards behind it."""

import asyncio
from contextlib import aclosing

import grpc
import pytest

from nextgen.client.blocking import BlockingClient
from nextgen.client.client import Client
from nextgen.client.model import NewTopic
from nextgen.client.wire.command_ids import derived_command_id
from nextgen.kernel.errors import (
    ConnectionLost,
    Indefinite,
    InvalidRequest,
    ProposalLost,
    Refused,
    Unavailable,
)
from nextgen.kernel.limits.cluster import (
    PAGE_ITEMS_MAX,
    SHARDS_MAX,
    SLOT_COUNT,
    TOPICS_PER_CREATE_MAX,
)
from nextgen.kernel.routing.hashing import slot_of
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from tests.integration.discovery.conftest import TIMEOUT_MS, started_node
from tests.support.callers.member_channel import member_channel


async def call(site, method, request, response_type):
    return await site.client._nodes.call(method, request, response_type, timeout_ms=TIMEOUT_MS)


async def test_a_tenant_that_was_created_is_there(site):
    written = await site.client.create_tenant("acme", {"owner": "ada"})

    tenant = await site.client.get_tenant("acme")

    assert written.version == 1
    assert written.shard_id == site.node.core.router.shard_of_key("acme")
    assert (tenant.name, tenant.properties, tenant.is_deleting) == ("acme", {"owner": "ada"}, False)
    assert await site.client.get_tenant("nobody") is None


async def test_what_the_rules_refuse_is_raised_with_its_code(site):
    await site.client.create_tenant("acme")

    with pytest.raises(Refused, match="acme exists") as caught:
        await site.client.create_tenant("acme")

    assert caught.value.code == "ALREADY_EXISTS"


async def test_a_bad_name_is_refused_with_the_parsers_sentence(site):
    with pytest.raises(InvalidRequest, match="has a character other than"):
        await site.client.create_tenant("no spaces")
    with pytest.raises(InvalidRequest, match="not of the form tenant/namespace"):
        await site.client.create_namespace("acme")
    assert site.server.requests == []


async def test_topics_go_to_their_shards_and_come_back_in_order(site):
    topics = [NewTopic(f"persistent://t/n/x{number}", number % 3) for number in range(100)]

    created = await site.client.create_topics(topics)

    assert [topic.name for topic in created] == [topic.name for topic in topics]
    assert [topic.topic_id for topic in created] == [f"id-of-{topic.name}" for topic in topics]
    for shard in site.server.shards.values():
        for name in shard.items:
            assert site.shard_of(name) is shard
    topic = await site.client.get_topic("t/n/x5")
    assert (topic.name, topic.partitions) == ("persistent://t/n/x5", 2)
    assert (await site.client.counters())["topics_created"] == 100


async def test_a_bad_name_in_a_batch_is_refused_alone(site):
    good, bad = await site.client.create_topics(["t/n/good", "a/b"])

    assert good.is_created
    assert bad.rejection_code == "INVALID_NAME"


@pytest.mark.parametrize("count", [0, TOPICS_PER_CREATE_MAX + 1])
async def test_no_topics_and_too_many_are_refused(site, count):
    request = pb.CreateTopicsRequest(topics=[{"name": f"t/n/x{n}"} for n in range(count)])
    with pytest.raises(InvalidRequest, match=f"has {count} topics"):
        await call(site, "CreateTopics", request, pb.CreateTopicsResponse)


async def test_more_topics_than_fit_into_one_request_are_sent_in_several(site):
    names = [f"persistent://t/n/x{number}" for number in range(TOPICS_PER_CREATE_MAX + 1)]

    created = await site.client.create_topics(names)

    assert all(topic.is_created for topic in created)
    assert len(created) == TOPICS_PER_CREATE_MAX + 1


async def test_a_command_id_of_the_wrong_length_is_refused(site):
    request = pb.CreateTenantRequest(command_id=b"short", name="acme")
    with pytest.raises(InvalidRequest, match="5 bytes"):
        await call(site, "CreateTenant", request, pb.WriteResponse)


async def test_a_write_whose_answer_was_lost_is_carried_out_once(site):
    """1. A shard commits and its answer is lost. 2. It is asked again with the same command id."""
    other = await started_node(site.manager, "discovery-2")
    await site.until(lambda: other.core.readiness()[0])
    lost = []

    async def lose_first_answer(request):
        if request.HasField("execute") and not lost:
            lost.append(request.execute.commands[0].command_id)
            site.server._answer_from_dictionaries(request)
            raise ProposalLost("leadership moved")
        return

    site.server.hook = lose_first_answer
    client = Client([site.endpoint, f"127.0.0.1:{other.grpc_port}"], timeout_ms=5_000)
    await client.create_tenant("acme")
    await client.close()
    await other.stop()

    executed = [c for shard in site.server.shards.values() for c in shard.executed]
    assert [command.command_id for command in executed] == lost


async def test_a_retry_of_a_batch_finds_the_outcomes_of_the_shards_that_did_their_part(site):
    failed = []

    async def fail_shard_two_once(request):
        if request.HasField("execute") and request.shard_id == 2 and not failed:
            failed.append(request.shard_id)
            raise ConnectionLost("gone")
        return

    site.server.hook = fail_shard_two_once
    names = [f"persistent://t/n/x{number}" for number in range(60)]
    request = pb.CreateTopicsRequest(
        command_id=b"0123456789abcdef", topics=[{"name": name} for name in names]
    )

    first = await call(site, "CreateTopics", request, pb.CreateTopicsResponse)
    second = await call(site, "CreateTopics", request, pb.CreateTopicsResponse)

    assert first.topics == second.topics
    for shard in site.server.shards.values():
        (command,) = shard.executed
        assert command.command_id == derived_command_id(b"0123456789abcdef", shard.shard_id)


async def test_a_batch_that_only_some_shards_took_is_indefinite(site):
    async def refuse_shard_two(request):
        if request.HasField("execute") and request.shard_id == 2:
            raise Unavailable("no quorum")
        return

    site.server.hook = refuse_shard_two
    hasty = Client([site.endpoint], timeout_ms=3_000)
    with pytest.raises(Indefinite):
        await hasty.create_topics([f"persistent://t/n/x{number}" for number in range(60)])
    await hasty.close()


async def test_a_listing_merges_all_shards_by_name_over_pages(site):
    names = [f"persistent://t/n/x{number:03}" for number in range(95)]
    await site.client.create_topics(list(reversed(names)))

    listed = [topic.name async for topic in site.client.list_topics("t/n")]
    pages, token = [], ""
    while True:
        request = pb.ListObjectsRequest(parent="t/n", page_size=10, page_token=token)
        page = await call(site, "ListTopics", request, pb.ListObjectsResponse)
        pages.append([item.name for item in page.items])
        token = page.next_page_token
        if not token:
            break

    assert listed == names
    assert [len(page) for page in pages] == [10] * 9 + [5]
    assert [name for page in pages for name in page] == names


async def test_a_search_finds_a_prefix_in_all_shards_and_counts_it(site):
    names = [f"persistent://t/n/x{number:03}" for number in range(95)]
    await site.client.create_topics([NewTopic(name, 2) for name in names])

    found = [topic.name async for topic in site.client.list_topics("t/n", prefix="x01")]
    first = await site.client.topic_names_page("t/n", prefix="x01", page_size=6)
    second = await site.client.topic_names_page(
        "t/n", prefix="x01", page_size=6, page_token=first.next_page_token
    )
    count = await site.client.count_topics("t/n", prefix="x01")

    assert found == names[10:20]
    assert [*first.partitions, *second.partitions] == names[10:20]
    assert set(first.partitions.values()) == {2}
    assert not second.next_page_token
    assert (count.topics, count.units) == (10, 20)


async def test_pages_that_are_too_big_and_foreign_tokens_are_refused(site):
    request = pb.ListObjectsRequest(page_size=PAGE_ITEMS_MAX + 1)
    with pytest.raises(InvalidRequest, match="at most 1000"):
        await call(site, "ListTenants", request, pb.ListObjectsResponse)
    request = pb.ListObjectsRequest(page_token="!!")
    with pytest.raises(InvalidRequest, match="page token"):
        await call(site, "ListTenants", request, pb.ListObjectsResponse)
    request = pb.ListObjectsRequest(parent="t/n", domain="segment")
    with pytest.raises(InvalidRequest, match="cannot be listed"):
        await call(site, "ListTopics", request, pb.ListObjectsResponse)


async def test_a_client_that_reads_its_own_writes_says_how_far_the_replica_must_be(site):
    client = Client([site.endpoint], read_your_writes=True)
    written = await client.create_tenant("acme")

    tenant = await client.get_tenant("acme")
    await client.close()

    assert tenant is not None
    reads = [request.get for request in site.server.requests if request.HasField("get")]
    assert [read.min_position for read in reads] == [written.position]


async def test_a_client_reads_a_renamed_topic_at_a_leader_behind_its_own_write(site):
    """Its position is of the topic's home, and another node may not know yet where that is."""
    view = site.node.core.link.view
    name = "persistent://t/n/renamed"
    key = "t/n/renamed"
    at_name = view.shard_for_key(key)
    home = next(slot for slot in range(SLOT_COUNT) if view.slot_table.shard_of(slot) != at_name)
    client = Client([site.endpoint], read_your_writes=True)
    await client.create_topics([f"t/n/beside-{number}" for number in range(50)])
    view.learn_names({key: home})
    written = await client.set_topic_properties(name, {"a": "b"})
    view.learn_names({key: slot_of(key)})

    await client.get_topic(name)
    await client.close()

    assert written.shard_id != at_name
    reads = [request.get for request in site.server.requests if request.HasField("get")]
    assert [read.min_position for read in reads] == [0]


async def test_topics_are_moved_each_for_itself(site):
    site.assign("persistent://t/n/x")

    moved, unknown, bad = await site.client.move_topics(
        {"t/n/x": "broker-2", "t/n/y": "broker-2", "a/b": ""}
    )

    assert (moved.broker_id, moved.epoch) == ("broker-2", 2)
    assert unknown.rejection_code == "NOT_FOUND"
    assert bad.rejection_code == "INVALID_NAME"


async def test_the_cluster_is_described(site):
    cluster = await site.client.cluster()

    assert [shard.shard_id for shard in cluster.shards] == [1, 2, 3]
    assert sum(shard.slots for shard in cluster.shards) == 16_384
    assert {shard.leader_grpc for shard in cluster.shards} == {site.server.endpoint}
    assert [broker.broker_id for broker in cluster.brokers] == ["broker-1"]


async def test_the_shard_map_is_watched_leaders_and_all(site):
    async with aclosing(site.client.watch_shard_map()) as states:
        first = await anext(states)
        site.manager.push(
            ClusterUpdate(leaders=[LeaderReport(shard_id=2, term=9, node_id="x", grpc="x:1")])
        )
        second = await anext(states)

    assert [shard.shard_id for shard in first.shards] == [1, 2, 3]
    assert {shard.leader_grpc for shard in first.shards} == {site.server.endpoint}
    assert [(shard.term, shard.leader_grpc) for shard in second.shards][1] == (9, "x:1")
    assert second.version == first.version


async def test_a_watch_that_cannot_be_is_refused_at_once(site):
    for method, request in (
        ("WatchTopics", pb.WatchRequest(prefix="acme/orders/")),
        ("WatchTenants", pb.WatchRequest(names=["a/b"])),
        ("WatchShardMap", pb.WatchRequest(prefix="acme")),
    ):
        async with member_channel(site.endpoint) as channel:
            call = channel.unary_stream(
                f"/nextgen.v1.DiscoveryService/{method}",
                request_serializer=pb.WatchRequest.SerializeToString,
                response_deserializer=pb.WatchUpdate.FromString,
            )(request)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_blocking_client_does_the_same_from_a_thread(site):
    import asyncio

    def use() -> list[str]:
        with BlockingClient([site.endpoint]) as client:
            client.create_tenant("acme")
            client.create_topics(["t/n/a", "t/n/b"])
            assert client.get_tenant("nobody") is None
            with client.lookup_stream() as stream:
                (answer,) = stream.lookup(["t/n/a"])
                assert answer.rejection_code == "NOT_FOUND"
            return [topic.name for topic in client.list_topics("t/n")]

    names = await asyncio.to_thread(use)

    assert names == ["persistent://t/n/a", "persistent://t/n/b"]


async def test_the_default_namespace_is_there_for_its_first_topic(site):
    assert await site.client.get_namespace("public/default") is None

    (created,) = await site.client.create_topics(["orders"])

    assert created.rejection_code == ""
    assert await site.client.get_topic("persistent://public/default/orders") is not None
    assert await site.client.get_tenant("public") is not None
    assert await site.client.get_namespace("public/default") is not None


async def test_what_a_client_says_of_when_it_issued_a_command_reaches_the_shard_unchanged(site):
    await site.client.create_tenant("other")  # The node knows the shard's position from it.
    shard_id = site.node.core.router.shard_of_key("acme")
    request = pb.CreateTenantRequest(
        command_id=bytes(16), name="acme", issued=[{"shard_id": shard_id, "position": 3}]
    )

    await call(site, "CreateTenant", request, pb.WriteResponse)

    assert site.server.requests[-1].execute.issued_position == 3
    counters = await site.client.counters()
    assert counters["writes_without_positions"] == 0


async def test_a_create_in_several_shards_carries_the_position_of_each(site):
    topics = [{"name": f"t/n/x{number}"} for number in range(50)]
    issued = [{"shard_id": shard_id, "position": 3 + shard_id} for shard_id in site.server.shards]

    request = pb.CreateTopicsRequest(command_id=bytes(16), topics=topics, issued=issued)
    await call(site, "CreateTopics", request, pb.CreateTopicsResponse)

    said = {each.shard_id: each.execute.issued_position for each in site.server.requests}
    assert said == {shard_id: 3 + shard_id for shard_id in site.server.shards}


async def test_a_command_without_a_position_of_its_shard_is_sent_nowhere(site):
    others = set(site.server.shards) - {site.node.core.router.shard_of_key("acme")}
    issued = [{"shard_id": shard_id, "position": 3} for shard_id in others]
    request = pb.CreateTenantRequest(command_id=bytes(16), name="acme", issued=issued)

    with pytest.raises(Unavailable, match="without a position of shard"):
        await site.client._nodes.call_at(
            site.endpoint, "CreateTenant", request, pb.WriteResponse, timeout_ms=TIMEOUT_MS
        )

    assert site.server.requests == []


async def test_a_create_without_a_position_of_one_of_its_shards_is_sent_to_none(site):
    topics = [{"name": f"t/n/x{number}"} for number in range(50)]
    *known, _ = site.server.shards
    issued = [{"shard_id": shard_id, "position": 3} for shard_id in known]
    request = pb.CreateTopicsRequest(command_id=bytes(16), topics=topics, issued=issued)

    with pytest.raises(Unavailable, match="without a position of shard"):
        await site.client._nodes.call_at(
            site.endpoint, "CreateTopics", request, pb.CreateTopicsResponse, timeout_ms=TIMEOUT_MS
        )

    assert site.server.requests == []


async def test_shards_max_positions_may_come_with_a_command_and_not_one_more(site):
    await site.client.create_tenant("other")
    shard_id = site.node.core.router.shard_of_key("acme")
    most = [{"shard_id": shard_id, "position": 3}] * SHARDS_MAX
    name = {"command_id": bytes(16), "name": "acme"}

    await call(site, "CreateTenant", pb.CreateTenantRequest(**name, issued=most), pb.WriteResponse)

    with pytest.raises(InvalidRequest, match=f"positions of {SHARDS_MAX + 1} shards"):
        await call(
            site,
            "CreateTenant",
            pb.CreateTenantRequest(**name, issued=[*most, most[0]]),
            pb.WriteResponse,
        )


async def created_at_once(client, count):
    """Create ``count`` topics by calls for one each, once the client knows which shard has what."""
    await client.cluster()
    names = [f"persistent://t/n/x{number}" for number in range(count)]
    created = await asyncio.gather(*(client.create_topics([name]) for name in names))
    assert [each.topic_id for (each,) in created] == [f"id-of-{name}" for name in names]


async def test_creates_at_once_share_the_requests_to_their_shards(site):
    await created_at_once(site.client, 30)

    # Each shard has one create under way, and then the rest. The very first is in no line.
    assert len(site.server.requests) <= 1 + 2 * len(site.server.shards)
    assert (await site.client.counters())["topics_created"] == 30


async def test_effective_creates_share_no_request(site):
    """Each waits for the readers of its own topic alone."""
    async with Client([site.endpoint], timeout_ms=TIMEOUT_MS, effective=True) as client:
        await created_at_once(client, 5)

    assert len(site.server.requests) == 5
