"""Renames across the shards of a ``World``: a client with a real router, and what must always hold.

The router calls the shards directly, and their answers pass through what a node does with names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from nextgen.client.routing.router import LocalShard, ShardRouter
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import slot_of_id
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import ShardMapChanged, ShardPlacement
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Topic
from shards.node.asked_names import carried_out
from shards.projections.rows import unpack_id
from tests.support.discovery.fake_cluster import StaticLink
from tests.support.shards.world import ShardReplica, World, create_topics

TIMEOUT_MS = 60_000
NAMESPACE = "acme/orders"
_IDS = itertools.count(1)


class Renamer:
    """A client of a world's shards."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._owned: tuple[bytes, ...] = ()
        self.link = StaticLink()
        self._push_map(world.table.owners)
        self.router = ShardRouter(self.link, None, self._local)  # type: ignore[arg-type]
        self.asked: list[int] = []
        """The shards that were asked, in order."""

    async def execute(self, name: str, command: pb.Command) -> pb.CommandResult:
        """Carry out a command about a topic, with an id."""
        command.command_id = command.command_id or next(_IDS).to_bytes(16, "big")
        request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
        response = await self._call(name, request)
        return response.execute.results[0]

    async def rename(self, name: str, new_name: str, grace_ms: int | None = None) -> str:
        """Return the rejection code of a rename, "" if the topic was renamed."""
        order = pb.RenameTopic(name=name, new_name=new_name, grace_ms=grace_ms)
        return (await self.execute(name, pb.Command(rename_topic=order))).rejection_code

    async def create(self, name: str) -> str:
        """Return the id of a new topic, or the code for which there is none."""
        result = await self.execute(name, create_topics([name]))
        (outcome,) = result.topics
        return outcome.rejection_code or outcome.topic_id

    async def delete(self, name: str) -> str:
        """Return the rejection code of a deletion, "" if there is no topic of the name now."""
        order = pb.DeleteTopic(name=name)
        return (await self.execute(name, pb.Command(delete_topic=order))).rejection_code

    async def deleted(self, name: str) -> str:
        """Return the id of the topic that a deletion removed, "" if there was none."""
        order = pb.DeleteTopic(name=name)
        result = await self.execute(name, pb.Command(delete_topic=order))
        return "" if result.rejection_code else result.id

    async def get(self, name: str) -> Topic | None:
        wanted = pb.GetRequest(names=[pb.ObjectName(kind=KIND_TOPIC, name=name)])
        response = await self._call(name, pb.ShardRequest(get=wanted))
        (item,) = response.get.items
        assert item.name == name
        return item.topic if item.HasField("topic") else None

    async def use(self, name: str) -> pb.TopicOutcome:
        request = pb.ShardRequest(use_topics=pb.UseTopicsRequest(names=[name]))
        return (await self._call(name, request)).use_topics.topics[0]

    def _push_map(self, owners: Sequence[int]) -> None:
        table = SlotTable(self.link.view.shard_map_version + 1, tuple(owners))
        shard_map = ShardMapChanged(
            version=table.version,
            slot_owners=table.to_bytes(),
            shards=[ShardPlacement(shard_id=each) for each in self.world.shards],
        )
        self.link.push(ClusterUpdate(shard_map=shard_map))

    def _follow_moves(self) -> None:
        """Have the map that the cluster manager publishes once slots have moved."""
        shards = self.world.shards.values()
        if any(shard.state.term.is_over for shard in shards):
            return
        owned = tuple([shard.state.slots.owned() for shard in shards])
        if owned != self._owned and sum(map(sum, owned)) == SLOT_COUNT:
            self._owned = owned
            self._push_map([1 + list(each).index(1) for each in zip(*owned, strict=True)])

    async def _call(self, name: str, request: pb.ShardRequest) -> pb.ShardResponse:
        self._follow_moves()
        key = parse_topic(name).routing_key
        return await self.router.call_key(key, request, timeout_ms=TIMEOUT_MS)

    def _local(self, shard_id: int) -> LocalShard:
        return partial(self._ask, self.world.shards[shard_id])

    async def _ask(self, shard: ShardReplica, request: pb.ShardRequest) -> pb.ShardResponse:
        self.asked.append(shard.shard_id)
        state, service = shard.state, shard.service

        async def carry_out(admitted: pb.ShardRequest) -> pb.ShardResponse:
            match admitted.WhichOneof("body"):
                case "get":
                    return pb.ShardResponse(get=await shard.reader.get(admitted.get))
                case "list":
                    found = await shard.reader.list(admitted.list)
                    return pb.ShardResponse(list=found, position=shard.reader.position)
                case "use_topics":
                    used = await service.use_topics(admitted.use_topics)
                    return pb.ShardResponse(use_topics=used)
                case _:
                    return pb.ShardResponse(execute=await service.execute(admitted.execute))

        return await carried_out(request, state.names, service.pointers, carry_out)


async def make_namespaces(world: World, *names: str) -> None:
    for name in names or (NAMESPACE,):
        await world.create_tenant(name.partition("/")[0])
        await world.create_namespace(name)


def living(world: World) -> dict[str, str]:
    """Return the ids of the topics of all shards by name, as their homes have them.

    No topic may have two homes, and no name two topics.
    """
    found: dict[str, str] = {}
    for shard in world.shards.values():
        if not shard.log.is_leader:
            continue
        for name, topic_id in _rows(shard, "topics"):
            home = slot_of_id(topic_id)
            if not shard.state.slots.has(home):
                continue  # Its slot has left, the row is about to.
            assert name not in found, f"{name} is the name of two topics"
            assert topic_id not in found.values(), f"{topic_id} has two homes"
            found[name] = topic_id
    return found


def formers(world: World, for_ms: int = 0) -> dict[str, str]:
    """Return the ids of topics by former names that lead to them for some time yet, as their homes
    have them."""
    found: dict[str, str] = {}
    for shard in world.shards.values():
        for name, topic_id in _rows(shard, "former_names"):
            former = shard.state.names.former(name)
            assert former is not None
            if (
                shard.state.slots.has(slot_of_id(topic_id))
                and shard.clock() + for_ms < former.until_ms
            ):
                assert name not in found, f"{name} leads to two topics"
                found[name] = topic_id
    return found


def check_names(world: World) -> None:
    """Check what is stored: each topic that is not found by its name's hash has a pointer there."""
    topics = living(world)
    for name, topic_id in topics.items():
        slot = slot_of(parse_topic(name).routing_key)
        if slot == slot_of_id(topic_id):
            continue
        pointers = dict(_rows(world.home_of_slot(slot), "topic_names"))
        assert pointers.get(name) == topic_id, f"{name} has no pointer to its topic"


def _rows(shard: ShardReplica, table: str) -> list[tuple[str, str]]:
    rows = shard.view.reader().exec_driver_sql(f"SELECT name, topic_id FROM {table}")
    return [(name, unpack_id(topic_id)) for name, topic_id in rows]
