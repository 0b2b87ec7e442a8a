"""Shadows in other shards than their sources: created, grown and deleted, in any order."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.shadow import SHADOWS_PER_TOPIC_MAX
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.policies_pb2 import Policies
from shards.domain.assignment import TopicAssigned
from shards.domain.shadows.source import ShadowSourceCreated
from shards.domain.states import StateKind
from shards.projections.tables import SHADOWS_BY_SOURCE, SOURCE_OF_TOPIC
from shards.state.event_levels import EVENT_LEVELS
from tests.support.shards.world import World, names_in, namespace_at, unreachable

ID_1 = b"command-00000001"


@pytest.fixture
async def world():
    made = World()
    for shard in made.shards.values():
        await shard.state.proposer.confirm()
    await made.create_tenant("acme")
    await made.create_namespace(namespace_at(made, 1, "acme"))
    yield made
    made.close()


@pytest.fixture
def names(world):
    """A source at home in shard 1, and names of shadows: two in shard 2, one in shard 1."""
    namespace = namespace_at(world, 1, "acme")
    source, beside = itertools.islice(names_in(world, 1, namespace), 2)
    far, farther = itertools.islice(names_in(world, 2, namespace), 2)
    return source, far, farther, beside


async def create(world, name, source="", partitions=0, command_id=b""):
    properties = {SHADOW_SOURCE_PROPERTY: source} if source else {}
    spec = pb.TopicSpec(name=name, partitions=partitions, properties=properties)
    command = pb.Command(command_id=command_id, create_topics=pb.CreateTopics(topics=[spec]))
    (outcome,) = (await world.run(world.home_of_topic(name), command)).topics
    return outcome


async def grow(world, name, partitions, command_id=b""):
    body = pb.GrowTopic(name=name, partitions=partitions)
    command = pb.Command(command_id=command_id, grow_topic=body)
    return await world.run(world.home_of_topic(name), command)


def topic(world, name):
    return world.home_of_topic(name).state.reads.load_topic(name)


def source_of(world, name):
    return world.home_of_topic(name).state.reads.load_shadow_source(name)


async def test_a_shadow_is_created_in_another_shard_which_its_source_knows_from_then_on(
    world, names
):
    source, far, *_ = names
    created = await create(world, source)

    outcome = await create(world, far, source)

    assert not outcome.rejection_code
    assert topic(world, far).source == source
    recorded = source_of(world, source)
    assert (recorded.topic_id, recorded.shards) == (created.topic_id, (2,))


async def test_topics_without_shadows_have_no_record_and_need_no_other_shard(world, names):
    source, *_ = names
    await create(world, source)
    world.reads.clear()

    assert not (await world.delete_topic(source)).rejection_code

    assert world.reads == []
    assert source_of(world, source) is None


async def test_the_source_of_a_shadow_is_kept_as_its_name_is_spelled_out(world, names):
    source, far, *_ = names
    await create(world, source)

    outcome = await create(world, far, source.removeprefix("persistent://"))

    assert not outcome.rejection_code
    assert topic(world, far).source == source


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("non-persistent://acme/a/b", "INVALID_NAME"),
        ("topic://acme/a/b", "SCALABLE"),
        ("segment://acme/a/b/0000-ffff-0", "SCALABLE"),
        ("persistent://acme/a/b-partition-0", "INVALID_NAME"),
        ("a/b", "INVALID_NAME"),
        ("persistent://acme/a/absent", "PARENT_NOT_FOUND"),
    ],
)
async def test_a_source_that_none_can_have_is_refused(world, names, source, code):
    _, far, *_ = names

    assert (await create(world, far, source)).rejection_code == code
    assert topic(world, far) is None


async def test_a_shadow_of_itself_or_of_a_shadow_is_refused(world, names):
    source, far, farther, _ = names
    await create(world, source)
    await create(world, far, source)

    assert (await create(world, farther, farther)).rejection_code == "INVALID_NAME"
    assert (await create(world, farther, far)).rejection_code == "NOT_ALLOWED"


@pytest.mark.parametrize("domain", ["non-persistent", "topic"])
async def test_only_a_persistent_topic_is_a_shadow(world, names, domain):
    source, far, *_ = names
    await create(world, source)
    name = f"{domain}://" + far.partition("://")[2]

    assert (await create(world, name, source)).rejection_code == "INVALID_NAME"


async def test_a_scalable_topic_is_no_source_under_its_classic_name_either(world, names):
    source, far, *_ = names
    assert not (await create(world, source.replace("persistent", "topic"))).rejection_code

    outcome = await create(world, far, source)

    assert outcome.rejection_code == "SCALABLE"


async def test_a_shadow_has_as_many_partitions_as_its_source(world, names):
    source, far, farther, _ = names
    await create(world, source, partitions=4)

    assert (await create(world, far, source, 3)).rejection_code == "PARTITIONS_DIFFER"
    assert (await create(world, far, source, 0)).rejection_code == "PARTITIONS_DIFFER"
    assert not (await create(world, far, source, 4)).rejection_code
    # Behind an open gate, too.
    assert (await create(world, farther, source, 5)).rejection_code == "PARTITIONS_DIFFER"


async def test_the_source_of_a_topic_never_changes(world, names):
    source, far, *_ = names
    await create(world, source)
    await create(world, far, source)

    async def set_properties(name, **properties):
        body = pb.SetTopicProperties(name=name, properties=properties)
        return await world.run(world.home_of_topic(name), pb.Command(set_topic_properties=body))

    key = {SHADOW_SOURCE_PROPERTY: source}
    for refused in (
        await set_properties(far),
        await set_properties(far, **{SHADOW_SOURCE_PROPERTY: far}),
        await set_properties(source, **{SHADOW_SOURCE_PROPERTY: far}),
        await set_properties(source, **{SHADOW_SOURCE_PROPERTY: ""}),
    ):
        assert refused.rejection_code == "NOT_ALLOWED"
        assert SHADOW_SOURCE_PROPERTY in refused.message
    assert not (await set_properties(far, owner="me", **key)).rejection_code


async def test_a_shard_that_is_none_is_not_recorded(world, names):
    source, *_ = names
    await create(world, source)

    with pytest.raises(InvalidRequest):
        await world.admit_shadow(source, 3, 0)

    assert source_of(world, source) is None


@pytest.mark.parametrize("behind", [1, 2], ids=["source's shard", "shadow's shard"])
async def test_no_shadow_is_created_before_every_replica_knows_of_shadows(world, names, behind):
    source, far, *_ = names
    await create(world, source)
    levels = world.shards[behind].log.event_levels
    levels[NodeId("node-1")] = EVENT_LEVELS[ShadowSourceCreated] - 1
    properties = {SHADOW_SOURCE_PROPERTY: source}
    spec = pb.TopicSpec(name=far, properties=properties)
    command = pb.Command(create_topics=pb.CreateTopics(topics=[spec]))

    refused = await world.run(world.shards[2], command)
    codes = [refused.rejection_code, *(each.rejection_code for each in refused.topics)]
    assert "NOT_ALLOWED" in codes
    assert topic(world, far) is None
    assert not (await create(world, far)).rejection_code, "an ordinary topic is none of these"
    assert not (await world.delete_topic(far)).rejection_code

    levels.clear()
    assert not (await create(world, far, source)).rejection_code


# Deletion -------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
async def test_a_source_with_a_shadow_is_not_deleted_and_names_it(world, names, force):
    source, far, farther, beside = names
    await create(world, source)
    for name in (far, beside):
        await create(world, name, source)

    body = pb.DeleteTopic(name=source, force=force)
    result = await world.run(world.home_of_topic(source), pb.Command(delete_topic=body))

    assert result.rejection_code == "NOT_EMPTY"
    assert far in result.message or beside in result.message
    assert topic(world, source) is not None
    assert not source_of(world, source).is_held
    assert not (await create(world, farther, source)).rejection_code


async def test_owners_are_not_asked_to_end_a_source_that_has_a_shadow(world, names):
    """STALE_EPOCH would have its clients disconnected before the refusal comes."""
    source, far, *_ = names
    created = await create(world, source)
    await create(world, far, source)
    _assign(world, source, created.topic_id)
    checked = pb.Command(delete_topic=pb.DeleteTopic(name=source, is_checked=True, force=True))

    refused = await world.run(world.home_of_topic(source), checked)
    await world.delete_topic(far)
    unchecked = await world.run(world.home_of_topic(source), checked)

    assert (refused.rejection_code, unchecked.rejection_code) == ("NOT_EMPTY", "STALE_EPOCH")


async def test_a_source_goes_when_its_last_shadow_has_gone(world, names):
    source, far, farther, _ = names
    await create(world, source)
    for name in (far, farther):
        await create(world, name, source)
        assert not (await world.delete_topic(name)).rejection_code

    assert not (await world.delete_topic(source)).rejection_code

    assert topic(world, source) is None
    assert source_of(world, source) is None
    assert world.home_of_topic(source).state.reads.total(StateKind.SHADOW_SOURCE) == 0
    assert (await create(world, far, source)).rejection_code == "PARENT_NOT_FOUND"


async def test_a_source_that_comes_again_gets_shadows_again(world, names):
    source, far, *_ = names
    await create(world, source)
    await create(world, far, source)
    await world.delete_topic(far)
    await world.delete_topic(source)

    await create(world, source)

    assert not (await create(world, far, source)).rejection_code
    assert (await world.delete_topic(source)).rejection_code == "NOT_EMPTY"


async def test_a_shadow_whose_source_was_read_before_it_went_comes_too_late(world, names):
    """1. A create has its source admit it. 2. The source is deleted. 3. The create goes on."""
    source, far, *_ = names
    await create(world, source)
    was_read, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_):
        was_read.set()
        await go_on.wait()

    world.after_read = pause
    late = asyncio.ensure_future(create(world, far, source))
    await was_read.wait()
    world.after_read = None
    deleted = await world.delete_topic(source)
    go_on.set()

    assert not deleted.rejection_code
    assert (await late).rejection_code == "PARENT_NOT_FOUND"
    assert topic(world, far) is None


async def test_a_deletion_that_stops_half_way_is_given_up_by_the_next_shadow(world, names):
    """The gate of shard 2 is closed, that of shard 1 cannot be reached."""
    source, far, _, beside = names
    await create(world, source)
    for name in (far, beside):
        await create(world, name, source)
        await world.delete_topic(name)
    with unreachable(world, 1), pytest.raises(DeadlineExceeded):
        await world.delete_topic(source, ID_1)
    assert source_of(world, source).is_deleting
    world.home_of_topic(source).next_term()

    outcome = await create(world, far, source)

    assert not outcome.rejection_code
    assert not source_of(world, source).is_held
    assert (await world.delete_topic(source, ID_1)).rejection_code == "NOT_EMPTY"


async def test_a_deletion_that_stops_half_way_is_ended_by_its_repetition(world, names):
    source, far, *_ = names
    await create(world, source)
    await create(world, far, source)
    await world.delete_topic(far)
    with unreachable(world, 2), pytest.raises(DeadlineExceeded):
        await world.delete_topic(source, ID_1)
    world.home_of_topic(source).next_term()

    assert not (await world.delete_topic(source, ID_1)).rejection_code

    assert topic(world, source) is None


# Unlisting ------------------------------------------------------------------------------------


async def list_shadows(world, source, shadows, ttl=0):
    policies = Policies(shadow_topics=shadows)
    if ttl:
        policies.message_ttl_ms = ttl
    body = pb.SetPolicies(kind=KIND_TOPIC, name=source, policies=policies)
    result = await world.run(world.home_of_topic(source), pb.Command(set_policies=body))
    assert not result.rejection_code, result.message


def listed(world, source):
    return policies_from_proto(Policies.FromString(topic(world, source).policies))


async def test_a_deleted_shadow_is_no_longer_listed_by_its_source(world, names):
    source, far, farther, _ = names
    await create(world, source)
    for name in (far, farther):
        await create(world, name, source)
    await list_shadows(world, source, [far, farther], ttl=5_000)

    await world.delete_topic(far)

    assert listed(world, source).shadow_topics == (farther,)
    assert listed(world, source).message_ttl_ms == 5_000
    await world.delete_topic(farther)
    assert listed(world, source).shadow_topics == ()


async def test_an_order_that_is_late_does_not_unlist_a_shadow_of_the_same_name(world, names):
    source, far, *_ = names
    await create(world, source)
    first = await create(world, far, source)
    await list_shadows(world, source, [far])
    await world.delete_topic(far)
    second = await create(world, far, source)
    await list_shadows(world, source, [far])

    assert await world.unlist_shadow(source, far, first.topic_id) is None
    assert listed(world, source).shadow_topics == (far,)

    assert await world.unlist_shadow(source, far, second.topic_id) is None
    assert listed(world, source).shadow_topics == ()


async def test_a_shadow_whose_source_cannot_be_reached_stays(world, names):
    source, far, *_ = names
    await create(world, source)
    await create(world, far, source)
    await list_shadows(world, source, [far])

    def refuse(_):
        raise Unavailable("the source's shard cannot be reached")

    world.before_read = refuse
    with pytest.raises(Unavailable):
        await world.delete_topic(far)
    world.before_read = None

    assert topic(world, far) is not None
    assert listed(world, source).shadow_topics == (far,)


async def test_a_shadow_that_is_not_deleted_stays_listed(world, names):
    source, far, *_ = names
    await create(world, source)
    created = await create(world, far, source)
    await list_shadows(world, source, [far])
    _assign(world, far, created.topic_id)

    body = pb.DeleteTopic(name=far, is_checked=True)
    result = await world.run(world.home_of_topic(far), pb.Command(delete_topic=body))

    assert result.rejection_code == "STALE_EPOCH"
    assert listed(world, source).shadow_topics == (far,)


# Growth ---------------------------------------------------------------------------------------


async def test_shadows_grow_with_their_source_and_before_it(world, names):
    source, far, _, beside = names
    await create(world, source, partitions=2)
    for name in (far, beside):
        await create(world, name, source, 2)
    seen = []

    def look(shard_id):
        seen.append(topic(world, source).partitions)

    world.before_close = look
    result = await grow(world, source, 5, ID_1)

    assert not result.rejection_code
    assert result.version == topic(world, source).version
    assert result.has_shadows
    assert [topic(world, name).partitions for name in (source, far, beside)] == [5, 5, 5]
    assert seen == [2, 2]
    assert not source_of(world, source).is_held


async def test_a_growth_that_stops_half_way_leaves_the_source_as_it_is_and_goes_on(world, names):
    source, far, _, beside = names
    await create(world, source, partitions=2)
    for name in (far, beside):
        await create(world, name, source, 2)
    with unreachable(world, 2), pytest.raises(DeadlineExceeded):
        await grow(world, source, 5, ID_1)
    assert [topic(world, name).partitions for name in (source, far, beside)] == [2, 2, 5]
    world.home_of_topic(source).next_term()

    fewer = await grow(world, source, 3)
    assert fewer.rejection_code == RejectionCode.FEWER_PARTITIONS
    assert not (await grow(world, source, 5, ID_1)).rejection_code

    assert [topic(world, name).partitions for name in (source, far, beside)] == [5, 5, 5]


async def test_a_shadow_that_comes_behind_a_broken_growth_ends_it(world, names):
    source, far, farther, beside = names
    await create(world, source, partitions=2)
    for name in (far, beside):
        await create(world, name, source, 2)
    with unreachable(world, 2), pytest.raises(DeadlineExceeded):
        await grow(world, source, 5)

    outcome = await create(world, farther, source, 5)

    assert not outcome.rejection_code
    assert [topic(world, name).partitions for name in (source, far, beside)] == [5, 5, 5]


async def test_a_shadow_whose_source_grows_meanwhile_is_not_left_behind(world, names):
    """1. A create has its source, with two partitions, admit it. 2. The source grows. 3. The create
    goes on with two."""
    source, far, *_ = names
    await create(world, source, partitions=2)
    was_read, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_):
        was_read.set()
        await go_on.wait()

    world.after_read = pause
    late = asyncio.ensure_future(create(world, far, source, 2))
    await was_read.wait()
    world.after_read = None
    grown = await grow(world, source, 3)
    go_on.set()

    assert not grown.rejection_code
    assert (await late).rejection_code == "PARTITIONS_DIFFER"


async def test_a_shadow_does_not_grow_by_itself(world, names):
    source, far, *_ = names
    await create(world, source, partitions=2)
    await create(world, far, source, 2)

    result = await grow(world, far, 3)

    assert result.rejection_code == "NOT_ALLOWED"
    assert source in result.message


async def test_a_source_with_its_present_number_of_partitions_is_left_alone(world, names):
    source, far, *_ = names
    await create(world, source, partitions=2)
    await create(world, far, source, 2)
    positions = [shard.log.status.commit_position for shard in world.shards.values()]

    assert not (await grow(world, source, 2)).rejection_code

    assert positions == [shard.log.status.commit_position for shard in world.shards.values()]


# Listing --------------------------------------------------------------------------------------


async def test_shadows_of_a_source_are_listed_page_by_page_listed_by_it_or_not(world, names):
    source, far, farther, _ = names
    await create(world, source, partitions=2)
    for name in (far, farther):
        await create(world, name, source, 2)
    reader, found, after = world.shards[2].reader, [], ""

    while True:
        request = pb.ListRequest(kind=KIND_TOPIC, shadows_of=source, limit=1, after=after)
        page = await reader.list(request)
        found += zip(page.names, page.partitions, strict=True)
        if not page.more_items:
            break
        after = page.names[-1]

    assert found == [(name, 2) for name in sorted((far, farther))]
    of_none = await reader.list(pb.ListRequest(kind=KIND_TOPIC, shadows_of=far))
    assert list(of_none.names) == []


async def test_shadows_are_found_by_an_index_and_not_by_a_look_at_every_topic(world):
    plan = world.shards[1].query(
        f"EXPLAIN QUERY PLAN SELECT name FROM topics WHERE {SOURCE_OF_TOPIC} = ? AND name > ? "
        "ORDER BY name LIMIT ?",
        ("x", "", 1),
    )

    assert [row[3] for row in plan] == [
        f"SEARCH topics USING INDEX {SHADOWS_BY_SOURCE.name} (<expr>=? AND name>?)"
    ]


# Scalable topics ------------------------------------------------------------------------------


async def test_neither_a_source_nor_a_shadow_becomes_scalable(world, names):
    source, far, *_ = names
    await create(world, source)
    await create(world, far, source)

    for name in (source, far):
        spec = pb.TopicSpec(name=name.replace("persistent", "topic"), migrates=True)
        command = pb.Command(create_topics=pb.CreateTopics(topics=[spec]))
        (outcome,) = (await world.run(world.home_of_topic(name), command)).topics
        assert outcome.rejection_code == "NOT_ALLOWED"
        assert "cannot become scalable" in outcome.message


# Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("excess", [0, 1])
async def test_a_shard_has_shadows_per_topic_max_shadows_of_a_source_and_no_more(
    world, names, excess
):
    source = names[0]
    await create(world, source)
    key = {SHADOW_SOURCE_PROPERTY: source}
    candidates = names_in(world, 2, namespace_at(world, 1, "acme"))
    some = itertools.islice(candidates, SHADOWS_PER_TOPIC_MAX - 1 + excess)
    body = pb.CreateTopics(topics=[pb.TopicSpec(name=name, properties=key) for name in some])
    first = await world.run(world.shards[2], pb.Command(create_topics=body))
    assert not any(each.rejection_code for each in first.topics)

    last = await create(world, next(candidates), source)

    assert last.rejection_code == ("LIMIT_EXCEEDED" if excess else "")


async def test_a_batch_of_shadows_of_one_source_has_them_all(world, names):
    source, far, farther, _ = names
    await create(world, source)
    key = {SHADOW_SOURCE_PROPERTY: source}
    specs = [pb.TopicSpec(name=name, properties=key) for name in (far, farther, far)]

    command = pb.Command(create_topics=pb.CreateTopics(topics=specs))
    outcomes = (await world.run(world.shards[2], command)).topics

    assert [each.rejection_code for each in outcomes] == ["", "", "ALREADY_EXISTS"]
    assert source_of(world, source).shards == (2,)


def _assign(world, name, topic_id):
    shard = world.home_of_topic(name)
    shard.state.proposer.propose(
        [TopicAssigned(topic_id, "", name, 1, "broker-1", "s-1", "first_lookup")]
    )
