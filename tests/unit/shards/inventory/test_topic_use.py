"""Topics that clients begin to use: found, or created by the policies of their namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

import pytest

from nextgen.kernel.errors import InvalidRequest, MetadataError, StaleShardMap, Unavailable
from nextgen.kernel.governance.auto_creation import AutoCreation
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.inventory.service import InventoryService
from shards.inventory.topic_bounds import OnDemand, ServedBy
from tests.support.shards.world import ShardReplica, World, create_topics

NAMESPACE = "acme/orders"
TOPIC = f"persistent://{NAMESPACE}/paid"


class NamespaceRules:
    """The rules of namespaces. ``is_followed``: they are known here without a read."""

    def __init__(self, world: World) -> None:
        self.rules: dict[str, AutoCreation] = {}
        self.policies = NO_POLICIES
        self.is_followed = True
        self.error: MetadataError | None = None
        self.reads: list[str] = []
        self.namespace_id: str | None = None
        """Of the namespace that the rules are of, if it is not the present one."""
        self._world = world

    def known(self, _namespace: str) -> Policies | None:
        return self.policies if self.is_followed else None

    def on_demand(self, namespace: str) -> OnDemand:
        state = self._world.home(namespace).state.reads.load_namespace(namespace)
        present_id = "" if state is None else state.namespace_id
        namespace_id = present_id if self.namespace_id is None else self.namespace_id
        return OnDemand(namespace_id, self.rules.get(namespace, AutoCreation(True, 0)))

    def served_by(self, namespace: str) -> ServedBy:
        return ServedBy(self.on_demand(namespace).namespace_id, "")

    @asynccontextmanager
    async def deciding(self, namespaces: Iterable[str]) -> AsyncIterator[ReadRules]:
        await asyncio.sleep(0)
        self.reads += namespaces
        yield ReadRules(self)


class ReadRules:
    def __init__(self, rules: NamespaceRules) -> None:
        self._rules = rules

    def of(self, _namespace: str) -> Policies | MetadataError:
        return self._rules.error or self._rules.policies

    def on_demand(self, namespace: str) -> OnDemand | MetadataError:
        return self._rules.error or self._rules.on_demand(namespace)

    def served_by(self, namespace: str) -> ServedBy | MetadataError:
        return self._rules.error or self._rules.served_by(namespace)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=1)
    await made.create_tenant("acme")
    await made.create_namespace(NAMESPACE)
    yield made
    made.close()


@pytest.fixture
def rules(world: World) -> NamespaceRules:
    return NamespaceRules(world)


@pytest.fixture
def shard(world: World, rules: NamespaceRules) -> Iterator[ShardReplica]:
    shard = world.shards[1]
    shard.service = InventoryService(shard.state, world, policies=rules)
    yield shard
    shard.service.close()


async def use(shard: ShardReplica, *names: str) -> list[tuple[str, int]]:
    """Use topics; return code and partitions of each outcome."""
    response = await shard.service.use_topics(pb.UseTopicsRequest(names=names))
    return [(each.rejection_code, each.partitions) for each in response.topics]


@pytest.mark.parametrize("is_followed", [True, False])
async def test_an_absent_topic_is_created_as_the_policies_have_it_and_then_found(
    shard, rules, is_followed
):
    await use(shard, f"{TOPIC}-first")
    rules.reads.clear()
    rules.is_followed = is_followed
    rules.rules[NAMESPACE] = AutoCreation(True, 3)

    assert await use(shard, TOPIC) == [("", 3)]
    assert await use(shard, TOPIC) == [("ALREADY_EXISTS", 3)]

    topic = shard.state.reads.load_topic(TOPIC)
    assert topic is not None
    assert topic.partitions == 3
    assert len(rules.reads) == (0 if is_followed else 1)


async def test_outcomes_are_in_the_order_of_the_names(world, shard, rules):
    there = [f"persistent://{NAMESPACE}/there-{number}" for number in range(2)]
    await world.run(shard, create_topics(there))
    rules.rules[NAMESPACE] = AutoCreation(True, 2)

    outcomes = await use(shard, TOPIC, there[0], "a//b", there[1], f"{TOPIC}-more")

    assert outcomes == [
        ("", 2),
        ("ALREADY_EXISTS", 0),
        ("INVALID_NAME", 0),
        ("ALREADY_EXISTS", 0),
        ("", 2),
    ]


async def test_a_refusal_names_the_property_that_cannot_be_understood(shard, rules):
    rules.rules[NAMESPACE] = AutoCreation(False, 0, "property x is y, it must be z")

    (outcome,) = (await shard.service.use_topics(pb.UseTopicsRequest(names=[TOPIC]))).topics

    assert (outcome.rejection_code, outcome.topic_id) == ("NOT_FOUND", "")
    assert outcome.message.endswith(
        "does not create topics on demand: property x is y, it must be z"
    )
    assert shard.state.reads.load_topic(TOPIC) is None


async def test_what_exists_is_found_though_its_namespace_forbids_it_and_cannot_be_read(
    shard, rules
):
    await use(shard, TOPIC)
    rules.reads.clear()
    rules.rules[NAMESPACE] = AutoCreation(False, 0)
    rules.is_followed, rules.error = False, Unavailable("no leader")

    assert await use(shard, TOPIC) == [("ALREADY_EXISTS", 0)]
    assert rules.reads == []


async def test_policies_that_cannot_be_read_create_nothing(shard, rules):
    rules.is_followed, rules.error = False, Unavailable("no leader")

    with pytest.raises(Unavailable, match="no leader"):
        await use(shard, TOPIC)
    assert shard.state.reads.load_topic(TOPIC) is None


@pytest.mark.parametrize("known_as", ["", "of-an-earlier-one"])
async def test_rules_of_an_earlier_namespace_of_the_name_decide_nothing(shard, rules, known_as):
    """The namespace was created a moment ago, with policies, and the watch does not say so yet."""
    rules.namespace_id = known_as

    with pytest.raises(Unavailable, match="not known here yet"):
        await use(shard, TOPIC)

    rules.namespace_id, rules.rules[NAMESPACE] = None, AutoCreation(True, 7)
    assert await use(shard, TOPIC) == [("", 7)]


async def test_a_topic_does_not_get_the_brokers_of_a_namespace_that_is_gone(world, shard, rules):
    """1. A namespace is created for other brokers than the one of its name before. 2. The watch has
    not brought it yet. Whatever creates a topic waits for it."""
    rules.namespace_id = "of the one before"
    bulk = pb.BulkCreateRequest(names=[TOPIC])

    with pytest.raises(Unavailable, match="which brokers serve"):
        await shard.service.execute(pb.ExecuteRequest(commands=[create_topics([TOPIC])]))
    with pytest.raises(Unavailable, match="which brokers serve"):
        await shard.service.create_in_bulk(bulk)
    assert shard.state.reads.load_topic(TOPIC) is None

    rules.namespace_id = None
    assert (await shard.service.create_in_bulk(bulk)).created == 1


async def test_a_namespace_that_does_not_exist_is_named(shard):
    (outcome,) = (await shard.service.use_topics(pb.UseTopicsRequest(names=["no/where/x"]))).topics

    assert outcome.rejection_code == "PARENT_NOT_FOUND"


async def test_two_that_use_a_topic_at_once_get_the_same(shard, rules):
    """1. Both find it absent. 2. One creates it while the other one reads the policies."""
    rules.is_followed = False
    rules.rules[NAMESPACE] = AutoCreation(True, 4)

    outcomes = await asyncio.gather(use(shard, TOPIC), use(shard, TOPIC))

    assert sorted(outcomes) == [[("", 4)], [("ALREADY_EXISTS", 4)]]


async def test_a_full_namespace_gets_no_topic_on_demand(shard, rules):
    rules.policies = Policies(topics_max=1)
    await use(shard, TOPIC)

    assert await use(shard, f"{TOPIC}-2") == [("LIMIT_EXCEEDED", 0)]


async def test_a_scalable_topic_is_created_without_partitions(shard, rules):
    rules.rules[NAMESPACE] = AutoCreation(True, 4)

    assert await use(shard, f"topic://{NAMESPACE}/paid") == [("", 0)]
    assert shard.state.reads.load_scalable(f"topic://{NAMESPACE}/paid") is not None


async def test_no_outcome_is_kept_for_a_use(shard):
    await use(shard, TOPIC)

    assert shard.view.dump()["outcomes"] == []


async def test_a_name_of_another_shard_is_refused(rules):
    world = World(shards=2)
    other = next(each for each in world.shards.values() if each is not world.home_of_topic(TOPIC))

    with pytest.raises(StaleShardMap):
        await use(other, TOPIC)
    world.close()


@pytest.mark.parametrize(
    ("count", "is_taken"), [(0, False), (1, True), (1_000, True), (1_001, False)]
)
async def test_topics_per_create_max_are_used_at_once_and_one_more_is_refused(
    shard, count, is_taken
):
    assert TOPICS_PER_CREATE_MAX == 1_000
    names = [f"{TOPIC}-{number}" for number in range(count)]
    if is_taken:
        assert await use(shard, *names) == [("", 0)] * count
    else:
        with pytest.raises(InvalidRequest):
            await use(shard, *names)
