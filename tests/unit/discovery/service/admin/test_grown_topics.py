"""Growth of a topic: its new partitions have the subscriptions of the first one, also when broken
off in the middle and repeated."""

from __future__ import annotations

import asyncio
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
    Unavailable,
)
from nextgen.kernel.limits.rest import TOPIC_UNITS_CALLED_MAX
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from tests.support.discovery.fake_cluster import StaticLink

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
        self.calls_at_once = self.calls_at_once_max = 0
        self.service = InventoryService(
            self,  # type: ignore[arg-type]
            StaticLink(),  # type: ignore[arg-type]
            DiscoveryCounters(),
            self._unused,
            lambda *_created: None,
            owners=self,
        )

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

    async def call(self, name: TopicName, request: Any) -> Any:
        self.calls.append(name.text)
        self.calls_at_once += 1
        self.calls_at_once_max = max(self.calls_at_once_max, self.calls_at_once)
        await asyncio.sleep(0)
        self.calls_at_once -= 1
        if name.text in self.unreachable:
            raise OwnerUnreachable(f"the broker of {name.text} could not be reached")
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
            served = [parse_topic(each) for each in self.subscriptions]
            units = [UnitAssignment(name=each.text, unit=each.unit.text) for each in served]
            response.topic_units.units.extend(units)
        else:
            (command,) = request.execute.commands
            self.partitions = command.grow_topic.partitions
            response.execute.results.add()
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
