"""The Admin REST over shards in this process: routes, services, and a real inventory below them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from cluster_manager.domain.configuration import Configuration, SetConfiguration, decide
from cluster_manager.wire import configuration_from_proto, configuration_to_proto
from discovery.adapters.administration.catalogue import AdminServices, all_routes
from discovery.adapters.administration.clusters import LocalCluster
from discovery.service.admin.capacity_shares import CapacityShares
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.policies import PoliciesService
from discovery.service.counters import DiscoveryCounters
from discovery.service.tenancy.parent_renames import ParentRenames
from nextgen.client.cluster.configuration import change_settings
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import Rejected
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import ConfigurationSet
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.discovery.fake_cluster import StaticLink, broker, full_update
from tests.support.discovery.rest_server import RestClient, serving
from tests.support.shards.world import World

LOCAL = LocalCluster("local", "http://d-1:8080", "pulsar://d-1:6650", ("m-1:6700", "m-2:6700"))


class WorldShards:
    """The ``Shards`` of discovery over a ``World``; a test scripts the answers to moves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.before: Callable[[pb.ShardRequest], None] | None = None
        """Called with each request; an exception of it reaches the caller."""
        self.before_answer: Callable[[pb.ShardRequest], Awaitable[None]] | None = None
        """The same, and awaited."""
        self.unloaded: list[str] = []
        self.moved: list[tuple[str, str]] = []
        self.units: pb.TopicUnitsResponse | None = None
        """The units of every topic, if a test sets them."""
        self.unload_outcome = pb.UnassignOutcome(unassigned=True)

    def shard_of_key(self, routing_key: str) -> int:
        return self.world.home(routing_key).shard_id

    async def call_key(
        self, routing_key: str, request: pb.ShardRequest, **more: Any
    ) -> pb.ShardResponse:
        return await self.call(self.shard_of_key(routing_key), request, **more)

    async def call_any(
        self, shard_id: int, request: pb.ShardRequest, **more: Any
    ) -> pb.ShardResponse:
        return await self.call(shard_id, request, **more)

    async def call(self, shard_id: int, request: pb.ShardRequest, **_: Any) -> pb.ShardResponse:
        if self.before is not None:
            self.before(request)
        request.shard_id = shard_id
        if self.before_answer is not None:
            await self.before_answer(request)
        shard = self.world.shards[shard_id]
        match request.WhichOneof("body"):
            case "execute":
                return pb.ShardResponse(execute=await shard.service.execute(request.execute))
            case "get":
                return pb.ShardResponse(get=await shard.reader.get(request.get))
            case "list":
                found = await shard.reader.list(request.list)
                return pb.ShardResponse(list=found, position=shard.reader.position)
            case "topic_units":
                units = await shard.service.units_of_topic(request.topic_units.name)
                return pb.ShardResponse(topic_units=self.units or units)
            case "unassign":
                names = [unit.name for unit in request.unassign.units]
                self.unloaded += names
                outcomes = [_named(self.unload_outcome, name) for name in names]
                return pb.ShardResponse(unassign=pb.UnassignResponse(outcomes=outcomes))
            case "move":
                moves = request.move.moves
                self.moved += [(move.topic, move.target_broker_id) for move in moves]
                answers = [LookupAnswer(topic=move.topic) for move in moves]
                return pb.ShardResponse(move=pb.MoveResponse(answers=answers))
        raise AssertionError(f"no shard here answers {request}")


class RestWorld:
    """``client`` sends requests; ``world`` and ``shards`` serve them."""

    def __init__(self, client: RestClient, world: World, shards: WorldShards, link: StaticLink):
        self.client = client
        self.call = client.call
        self.world = world
        self.shards = shards
        self.link = link
        self.missing: list[str] = []

    async def get(self, path: str, **more: Any) -> tuple[int, Any]:
        answer = await self.call("GET", path, **more)
        return answer.status, answer.json if answer.json is not None else answer.body.decode()


class DecidedConfiguration:
    """The configuration by the cluster manager's rules, pushed at once."""

    def __init__(self, link: StaticLink) -> None:
        self._link = link
        self.held = Configuration()

    async def change(self, changes: Mapping[str, str | None]) -> None:
        await change_settings(self, changes)

    async def get(self) -> ConfigurationSet:
        return configuration_to_proto(self.held)

    async def set(self, configuration: ConfigurationSet) -> ConfigurationSet:
        wanted = SetConfiguration(
            configuration_from_proto(configuration), len(configuration.settings)
        )
        decision = decide(self.held, wanted)
        if isinstance(decision, Rejected):
            raise Refused(decision.code, decision.message)
        self.held = wanted.configuration
        self._link.push(ClusterUpdate(configuration=configuration))
        return configuration


class HeldNothing:
    """Brokers without topics."""

    async def at(self, _endpoint: str) -> list[str]:
        return []


@asynccontextmanager
async def rest_world(
    topics: Any = None, owners: Any = None, held: Any = None
) -> AsyncIterator[RestWorld]:
    """Serve all routes, with two brokers of which one lives."""
    world = World(shards=2)
    shards = WorldShards(world)
    update = full_update(dict.fromkeys(world.shard_ids(), "node-1:1"))
    update.brokers.append(broker("b-2", "s-2"))
    update.brokers[-1].endpoints.http = "b-2.example:8080"
    update.brokers.append(broker("b-1", "s-1", is_live=False))
    link = StaticLink(update)
    missing: list[str] = []

    async def nothing() -> None:
        return None

    counters = DiscoveryCounters()
    port: Any = shards
    inventory = InventoryService(port, link, counters, nothing, lambda *_created: None)
    listing = ListingService(port, link, counters)
    services = AdminServices(
        topics,
        owners,
        link,
        held or HeldNothing(),
        inventory,
        ParentRenames(inventory, listing, lambda: 0),
        listing,
        PoliciesService(port, inventory, counters, CapacityShares(inventory, listing, lambda: 0)),
        MoveService(port, counters),
        LOCAL,
        lambda: (not missing, missing),
        "1.2.3",
        DecidedConfiguration(link),
    )
    async with serving(all_routes(services)) as client:
        made = RestWorld(client, world, shards, link)
        made.missing = missing
        try:
            yield made
        finally:
            world.close()


def _named(outcome: pb.UnassignOutcome, name: str) -> pb.UnassignOutcome:
    named = pb.UnassignOutcome(name=name)
    named.MergeFrom(outcome)
    return named
