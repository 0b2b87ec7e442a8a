"""How many topics a namespace may have, shard by shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.inventory import topic_bounds
from shards.inventory.service import InventoryService
from shards.inventory.topic_bounds import ServedBy, TopicBounds
from tests.support.shards.world import ShardReplica, World, create_topics, names_in

NAMESPACE = "acme/orders"
OTHER = "acme/other"
TURNS_MAX = 100
"""Of the event loop, until policies are read that may not be read yet."""


class ObjectPolicies:
    """What namespaces say. It is known here once it was read, unless ``forgets``."""

    def __init__(self) -> None:
        self.said: dict[str, Policies] = {}
        self.error: MetadataError | None = None
        self.reads: list[str] = []
        self.held: list[str] = []
        self.forgets = False
        self.may_be_read: Callable[[], bool] = lambda: True
        self.world: World

    def known(self, namespace: str) -> Policies | None:
        if self.forgets or namespace not in self.reads:
            return None
        return self.said.get(namespace, NO_POLICIES)

    @asynccontextmanager
    async def deciding(self, namespaces: Iterable[str]) -> AsyncIterator[ObjectPolicies]:
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if self.may_be_read():
                break
        names = list(namespaces)
        self.reads += names
        self.held += names
        yield self

    def of(self, namespace: str) -> Policies | MetadataError:
        return self.error or self.said.get(namespace, NO_POLICIES)

    def served_by(self, namespace: str) -> ServedBy | MetadataError:
        return self.error or self.world.served_by(namespace)


@pytest.fixture
def policies() -> ObjectPolicies:
    return ObjectPolicies()


@pytest.fixture(params=[1, 4], ids=["one shard", "four shards"])
async def world(request: pytest.FixtureRequest, policies: ObjectPolicies) -> AsyncIterator[World]:
    made = await make_world(request.param, policies)
    yield made
    made.close()


@pytest.fixture
async def apart(policies: ObjectPolicies) -> AsyncIterator[World]:
    """Two shards: a name's pointer is in the one, its topic at home in the other."""
    made = await make_world(2, policies)
    yield made
    made.close()


async def make_world(shards: int, policies: ObjectPolicies) -> World:
    made = policies.world = World(shards)
    for shard in made.shards.values():
        shard.service = InventoryService(shard.state, made, policies=policies)
    await made.create_tenant("acme")
    await made.create_namespace(NAMESPACE)
    await made.create_namespace(OTHER)
    return made


async def create(world: World, shard: ShardReplica, count: int, namespace: str = NAMESPACE):
    """Create topics of which the shard is the home; return the codes of their outcomes."""
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"persistent://{namespace}/t-{number}"
        number += 1
        if world.home_of_topic(name) is shard and shard.state.reads.load_topic(name) is None:
            names.append(name)
    result = await world.run(shard, create_topics(names))
    return [outcome.rejection_code for outcome in result.topics]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_shard_creates_its_share_and_not_one_more(world, policies, is_known):
    policies.said[NAMESPACE] = Policies(topics_max=10)
    policies.forgets = not is_known
    shard = world.home_of_topic(f"persistent://{NAMESPACE}/t-0")
    share = -(-10 // len(world.shards))

    codes = await create(world, shard, share + 1)

    assert codes == [""] * share + ["LIMIT_EXCEEDED"]
    assert await create(world, shard, 1) == ["LIMIT_EXCEEDED"]
    assert await create(world, shard, 1, OTHER) == [""], "another namespace has no bound"


async def test_a_topic_that_goes_makes_room(world, policies):
    policies.said[NAMESPACE] = Policies(topics_max=1)
    name = f"persistent://{NAMESPACE}/t-0"
    shard = world.home_of_topic(name)
    assert await create(world, shard, 1) == [""]
    assert await create(world, shard, 1) == ["LIMIT_EXCEEDED"]

    await world.delete_topic(name)

    assert await create(world, shard, 2) == ["", "LIMIT_EXCEEDED"]


async def test_topics_that_were_there_before_the_bound_count(world, policies):
    shard = world.home_of_topic(f"persistent://{NAMESPACE}/t-0")
    assert await create(world, shard, 3) == [""] * 3

    policies.said[NAMESPACE] = Policies(topics_max=3 * len(world.shards))

    assert await create(world, shard, 1) == ["LIMIT_EXCEEDED"]
    policies.said[NAMESPACE] = Policies(topics_max=0)
    assert await create(world, shard, 1) == [""], "0 is no bound"


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_bound_that_comes_while_the_namespace_is_asked_for_counts(
    world, policies, is_known, monkeypatch
):
    """1. Nobody bounds the namespace. 2. Its home is asked whether it exists, and meanwhile a bound
    is set. 3. It does, and what is created is decided by the bound."""
    if is_known:
        policies.reads.append(NAMESPACE)
    read_parent = world.read_parent

    async def read_slowly(kind, name):
        policies.said[NAMESPACE] = Policies(topics_max=1)
        return await read_parent(kind, name)

    monkeypatch.setattr(world, "read_parent", read_slowly)
    shard = world.home_of_topic(f"persistent://{NAMESPACE}/t-0")

    assert await create(world, shard, 2) == ["", "LIMIT_EXCEEDED"]


async def test_a_topic_that_exists_is_no_topic_more(world, policies):
    policies.said[NAMESPACE] = Policies(topics_max=1)
    name = f"persistent://{NAMESPACE}/t-0"
    shard = world.home_of_topic(name)
    assert await create(world, shard, 1) == [""]

    result = await world.run(shard, create_topics([name]))

    assert [outcome.rejection_code for outcome in result.topics] == ["ALREADY_EXISTS"]


async def test_what_cannot_be_read_creates_nothing(world, policies):
    policies.error = Unavailable("no home shard answers")
    shard = world.home_of_topic(f"persistent://{NAMESPACE}/t-0")

    with pytest.raises(Unavailable):
        await create(world, shard, 1)

    policies.error = None
    policies.said[NAMESPACE] = Policies(topics_max=1)
    assert await create(world, shard, 1) == [""]


async def moved_name(world: World) -> tuple[str, str]:
    """Return the name of a new topic of shard 1, and one for it in the other namespace, which shard
    2 has. The shard has a topic in either namespace."""
    assert await create(world, world.shards[1], 1, OTHER) == [""]
    name, new_name = next(names_in(world, 1, NAMESPACE)), next(names_in(world, 2, OTHER))
    await world.create_topic(name)
    return name, new_name


async def rename(world: World, name: str, new_name: str) -> str:
    order = pb.RenameTopic(name=name, new_name=new_name)
    return (await world.run(world.shards[1], pb.Command(rename_topic=order))).rejection_code


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_rename_holds_policies_only_if_they_have_to_be_read(apart, policies, is_known):
    name, new_name = await moved_name(apart)
    policies.forgets = not is_known
    policies.held.clear()

    assert await rename(apart, name, new_name) == ""

    assert policies.held == [OTHER] * (not is_known)


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_bound_that_comes_while_a_name_is_reserved_counts(apart, policies, is_known):
    name, new_name = await moved_name(apart)
    policies.forgets = not is_known
    apart.after_point = lambda _: policies.said.update({OTHER: Policies(topics_max=2)})

    assert await rename(apart, name, new_name) == "LIMIT_EXCEEDED"


async def test_policies_that_have_to_be_read_are_read_while_the_name_is_reserved(apart, policies):
    name, new_name = await moved_name(apart)
    policies.forgets = True
    pointed: list[str] = []
    apart.after_point = pointed.append
    were_pointed: list[bool] = []

    def may_be_read() -> bool:
        were_pointed.append(bool(pointed))
        return bool(pointed)

    policies.may_be_read = may_be_read

    assert await rename(apart, name, new_name) == ""

    assert were_pointed[-1], "nobody reserves the name before the policies are there"


async def test_policies_that_are_not_known_any_more_once_a_name_is_reserved_are_read(
    apart, policies
):
    name, new_name = await moved_name(apart)
    policies.held.clear()

    def lose(_: str) -> None:
        policies.forgets = True
        policies.said[OTHER] = Policies(topics_max=2)

    apart.after_point = lose

    assert await rename(apart, name, new_name) == "LIMIT_EXCEEDED"
    assert policies.held == [OTHER]


async def test_namespaces_counted_max_are_remembered_and_one_more_pushes_out_the_oldest(
    world, policies, monkeypatch
):
    monkeypatch.setattr(topic_bounds, "NAMESPACES_COUNTED_MAX", 2)
    shard = world.shards[1]
    counted: list[str] = []
    scan = shard.state.scans.count_topics

    def counting(namespace: str) -> int:
        counted.append(namespace)
        return int(scan(namespace))

    monkeypatch.setattr(shard.state.scans, "count_topics", counting)
    bounds = TopicBounds(shard.state, policies)
    bounded = Policies(topics_max=1)
    for namespace in ("acme/a", "acme/b", "acme/a", "acme/b"):
        bounds.check(namespace, bounded, 0)
    assert counted == ["acme/a", "acme/b"]

    for namespace in ("acme/c", "acme/b", "acme/a"):
        bounds.check(namespace, bounded, 0)

    assert counted[2:] == ["acme/c", "acme/a"]
