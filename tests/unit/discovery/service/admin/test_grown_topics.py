"""Growth of a topic: its new partitions have the subscriptions of the first one, also when broken
off in the middle and repeated."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from discovery.service.admin.inventory import InventoryService
from discovery.service.counters import DiscoveryCounters
from nextgen.client.routing.topic_owners import OwnerUnreachable
from nextgen.kernel.errors import (
    ConnectionLost,
    MetadataError,
    Overloaded,
    Refused,
    ServedElsewhere,
    Unavailable,
)
from nextgen.kernel.limits.rest import TOPIC_UNITS_CALLED_MAX
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from tests.support.discovery.fake_cluster import StaticLink, full_update

TOPIC = "persistent://acme/orders/paid"
AUDIT = {"audit": {"team": "risk"}, "ship": {}}


class World:
    """One partitioned topic: its shard, and the brokers with the subscriptions of each partition.

    A subscription is kept with its properties and with where it began.
    """

    def __init__(self, name: str = TOPIC, partitions: int = 2) -> None:
        self.name = name
        self.partitions = partitions
        self.subscriptions: dict[str, dict[str, tuple[dict[str, str], str]]] = {}
        """By the name of a partition that was ever served."""
        self.calls: list[str] = []
        self.unreachable: set[str] = set()
        self.is_stock = False
        self.shadows: dict[int, list[str]] = {}
        """By shard; with None of them the topic is no source."""
        self.lost_shards: set[int] = set()
        self.created: list[tuple[int, int, str]] = []
        self.calls_at_once = self.calls_at_once_max = 0
        self.service = InventoryService(
            self,  # type: ignore[arg-type]
            StaticLink(full_update({1: "a", 2: "b"})),  # type: ignore[arg-type]
            DiscoveryCounters(),
            self._unused,
            self._note_created,
            owners=self,
        )

    def _note_created(self, shard_id: int, position: int, names: Iterable[str]) -> None:
        self.created += [(shard_id, position, name) for name in names]

    async def _unused(self) -> None:
        raise AssertionError("no default namespace is needed")

    def partition(self, number: int) -> str:
        return f"{self.name}-partition-{number}"

    def subscribe(self, number: int, **subscriptions: dict[str, str]) -> None:
        of_unit = self.subscriptions.setdefault(self.partition(number), {})
        of_unit.update({each: (more, "latest") for each, more in subscriptions.items()})

    async def grow(self, partitions: int) -> Any:
        request = pb.UpdatePartitionsRequest(name=self.name, partitions=partitions)
        return await self.service.update_partitions(request, 5_000)

    # The brokers' side ----------------------------------------------------------------------------

    async def call(self, name: TopicName | int, request: Any, **_: Any) -> Any:
        if isinstance(name, int):
            return self._page_of_shadows(name, request.list)
        self.calls.append(name.text)
        self.calls_at_once += 1
        self.calls_at_once_max = max(self.calls_at_once_max, self.calls_at_once)
        await asyncio.sleep(0)
        self.calls_at_once -= 1
        if name.text in self.unreachable:
            raise OwnerUnreachable(f"the broker of {name.text} could not be reached")
        if self.is_stock:
            raise ServedElsewhere("http://b1:8080")
        assert name.partition is not None
        assert name.partition < self.partitions, "there is no such partition yet"
        of_unit = self.subscriptions.setdefault(name.text, {})
        if isinstance(request, admin_pb.GetInternalStatsRequest):
            return admin_pb.TopicInternalStats(
                cursors=[
                    admin_pb.CursorStats(subscription=each, properties=properties)
                    for each, (properties, _) in of_unit.items()
                ]
            )
        if request.subscription in of_unit:
            raise Refused("ALREADY_EXISTS", "it is there")
        start = request.start.WhichOneof("place")
        of_unit[request.subscription] = (dict(request.properties), start)
        return admin_pb.CreateSubscriptionResponse()

    def _page_of_shadows(
        self, shard_id: int, request: shard_pb.ListRequest
    ) -> shard_pb.ShardResponse:
        """Return one shadow a page."""
        assert request.shadows_of == self.name
        if shard_id in self.lost_shards:
            raise Unavailable("the shard cannot be reached")
        names = [each for each in self.shadows.get(shard_id, ()) if each > request.after]
        page = shard_pb.ListResponse(names=names[:1], more_items=len(names) > 1)
        return shard_pb.ShardResponse(list=page, position=70 + shard_id)

    # The shard's side -----------------------------------------------------------------------------

    def shard_of_key(self, _routing_key: str) -> int:
        return 1

    async def call_key(
        self, _routing_key: str, request: shard_pb.ShardRequest, *, timeout_ms: int, **_: Any
    ) -> shard_pb.ShardResponse:
        response = shard_pb.ShardResponse()
        body = request.WhichOneof("body")
        if body == "get":
            response.get.items.add().topic.partitions = self.partitions
        elif body == "topic_units":
            wanted = parse_topic(request.topic_units.name).base_text
            served = [
                name for name in map(parse_topic, self.subscriptions) if name.base_text == wanted
            ]
            units = [UnitAssignment(name=each.text, unit=each.unit.text) for each in served]
            response.topic_units.units.extend(units)
        else:
            (command,) = request.execute.commands
            self.partitions = command.grow_topic.partitions
            response.execute.results.add().has_shadows = bool(self.shadows)
        return response


@pytest.fixture
def world() -> World:
    world = World()
    world.subscribe(0, **AUDIT)
    world.subscribe(1, audit={})
    return world


async def test_new_partitions_have_the_subscriptions_of_the_first_from_their_beginning(
    world: World,
) -> None:
    await world.grow(4)

    copies = {each: (properties, "earliest") for each, properties in AUDIT.items()}
    assert world.subscriptions[world.partition(2)] == copies
    assert world.subscriptions[world.partition(3)] == copies
    assert list(world.subscriptions[world.partition(1)]) == ["audit"], "it is none of the new ones"


async def test_a_growth_that_was_broken_off_is_finished_by_its_repetition(world: World) -> None:
    world.unreachable = {world.partition(3)}
    with pytest.raises(ConnectionLost, match="not all partitions"):
        await world.grow(4)
    assert world.partitions == 4
    assert world.partition(3) not in world.subscriptions

    world.unreachable = set()
    await world.grow(4)

    assert [list(world.subscriptions[world.partition(number)]) for number in (2, 3)] == [
        ["audit", "ship"],
        ["audit", "ship"],
    ]


@pytest.mark.parametrize(
    "trouble",
    [
        Overloaded("NO_CAPACITY: no broker has units left", 500),
        Unavailable("NO_BROKER: no broker is here"),
        Refused("NOT_ALLOWED", "the broker refuses it"),
    ],
)
async def test_a_growth_that_is_committed_is_never_answered_as_if_nothing_had_happened(
    world: World, trouble: MetadataError
) -> None:
    """A definite error has the client issue its command anew, and it is carried out twice."""

    async def troubled(_name: TopicName, _request: Any) -> Any:
        raise trouble

    world.call = troubled  # type: ignore[method-assign]

    with pytest.raises(ConnectionLost, match="not all partitions"):
        await world.grow(4)
    assert world.partitions == 4


async def test_missed_subscriptions_are_created_without_a_growth(world: World) -> None:
    await world.service.complete_partitions(parse_topic(TOPIC), 5_000)

    assert list(world.subscriptions[world.partition(1)]) == ["audit", "ship"]
    assert world.partitions == 2


@pytest.mark.parametrize(
    ("name", "served"), [(TOPIC, False), (TOPIC.replace("persistent", "non-persistent"), True)]
)
async def test_a_topic_without_durable_subscriptions_grows_without_its_brokers(
    name: str, served: bool
) -> None:
    world = World(name)
    if served:
        world.subscribe(0, **AUDIT)

    await world.grow(4)

    assert world.partitions == 4
    assert world.calls == []


async def test_a_deletion_meanwhile_is_refused_as_such(world: World) -> None:
    async def gone(_name: TopicName, _request: Any) -> Any:
        raise Refused("NOT_FOUND", "there is no such topic")

    world.call = gone  # type: ignore[method-assign]

    with pytest.raises(Refused, match="no such topic"):
        await world.grow(4)


async def test_only_some_partitions_are_called_at_once(world: World) -> None:
    await world.grow(3 * TOPIC_UNITS_CALLED_MAX)

    assert world.calls_at_once_max == TOPIC_UNITS_CALLED_MAX


SHADOWS = {
    1: ["persistent://acme/orders/a-shadow", "persistent://acme/orders/b-shadow"],
    2: ["persistent://acme/orders/c-shadow"],
}


async def test_new_partitions_of_each_shadow_have_its_own_subscriptions(world: World) -> None:
    world.shadows = SHADOWS
    for number, name in enumerate(itertools.chain(*SHADOWS.values())):
        world.subscriptions[f"{name}-partition-0"] = {f"own-{number}": ({}, "latest")}

    await world.grow(4)

    for number, name in enumerate(itertools.chain(*SHADOWS.values())):
        for partition in (2, 3):
            own = {f"own-{number}": ({}, "earliest")}
            assert world.subscriptions[f"{name}-partition-{partition}"] == own


async def test_the_former_partitions_of_shadows_are_not_remembered(world: World) -> None:
    """A client that looks a shadow up next finds all partitions."""
    world.shadows = SHADOWS

    await world.grow(4)

    of_shadows = [each for each in world.created if each[2] != TOPIC]
    assert of_shadows == [
        (shard_id, 70 + shard_id, name) for shard_id, names in SHADOWS.items() for name in names
    ]


async def test_a_growth_whose_shadows_are_not_known_is_finished_by_its_repetition(
    world: World,
) -> None:
    world.shadows, world.lost_shards = SHADOWS, {2}
    (name,) = SHADOWS[2]
    world.subscriptions[f"{name}-partition-0"] = {"own": ({}, "latest")}
    with pytest.raises(ConnectionLost, match="shadows"):
        await world.grow(4)

    world.lost_shards = set()
    await world.grow(4)

    assert list(world.subscriptions[f"{name}-partition-3"]) == ["own"]


async def test_a_shadow_that_was_deleted_meanwhile_is_passed_over(world: World) -> None:
    world.shadows = SHADOWS
    for name in itertools.chain(*SHADOWS.values()):
        world.subscriptions[f"{name}-partition-0"] = {"own": ({}, "latest")}
    gone, kept = SHADOWS[1]
    call = world.call

    async def call_unless_gone(name: Any, request: Any, **more: Any) -> Any:
        if isinstance(name, TopicName) and name.base_text == gone:
            raise Refused("NOT_FOUND", "there is no such topic")
        return await call(name, request, **more)

    world.call = call_unless_gone  # type: ignore[method-assign]
    await world.grow(4)

    assert list(world.subscriptions[f"{kept}-partition-3"]) == ["own"]


async def test_a_topic_of_stock_brokers_grows_and_pulsar_creates_its_subscriptions() -> None:
    world = World()
    world.subscribe(0, **AUDIT)
    world.is_stock = True

    await world.grow(4)

    assert world.partitions == 4
    assert world.calls == [world.partition(0)]
