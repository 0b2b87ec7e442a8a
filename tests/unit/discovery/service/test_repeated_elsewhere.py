"""A write whose answer was lost at one discovery node, repeated at another: carried out once.

Client, discovery's services, router and shard are the real ones; only the wires are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.positions import PositionService
from discovery.service.counters import DiscoveryCounters
from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.discovery.nodes import DiscoveryNodes, Response
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import ConnectionLost, OutcomeForgotten
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from shards.projections import outcomes
from shards.state import outcome_retention
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard

WINDOW, WINDOW_MS = 20, 30_000
SHARD = 1


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (outcomes, outcome_retention):
        monkeypatch.setattr(module, "OUTCOME_WINDOW_POSITIONS", WINDOW)
    monkeypatch.setattr(outcome_retention, "OUTCOME_WINDOW_MS", WINDOW_MS)


class Link:
    """A discovery node's link, which knows the cluster from the start."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def on_change(self, listener: ChangeListener) -> None:
        pass

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        return predicate(self.view)


class Node:
    """One discovery node."""

    def __init__(self, shard: Harness) -> None:
        link = Link(shard.cluster_view)
        unused: Any = None

        async def answer(request: ShardRequest) -> ShardResponse:
            return await shard.dispatcher.answer(request)

        router = ShardRouter(link, unused, local=lambda _shard_id: answer)
        self.counters = DiscoveryCounters()
        inventory = InventoryService(router, link, self.counters, unused, unused)
        positions = PositionService(router, link, asyncio.get_running_loop().time)
        self.methods: dict[str, Callable[[Any, int], Awaitable[Message]]] = {
            "SetTopicProperties": inventory.set_topic_properties,
            "GetTopic": inventory.get_topic,
            "GetPositions": positions.positions,
        }


class Nodes(DiscoveryNodes):
    """A client's discovery nodes. After ``lose_answer_of`` the next answer to it is lost, and
    the client gives up."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        super().__init__(list(nodes), in_order=True)
        self._nodes = nodes
        self.lose_answer_of = ""

    async def call_at(
        self,
        endpoint: str,
        method: str,
        request: Message,
        response_type: type[Response],
        *,
        timeout_ms: float,
    ) -> Response:
        copy = type(request).FromString(request.SerializeToString())
        response: Any = await self._nodes[endpoint].methods[method](copy, int(timeout_ms))
        if method == self.lose_answer_of:
            self.lose_answer_of = ""
            raise ConnectionLost("the answer was lost")
        return response

    async def set_colour(self, request: Message, *, gives_up: bool = False) -> None:
        if gives_up:
            self.lose_answer_of = "SetTopicProperties"
        await self.call(
            "SetTopicProperties",
            request,
            pb.WriteResponse,
            timeout_ms=10_000,
            is_repeatable=not gives_up,
        )

    async def colour(self, topic: str) -> str:
        found = await self.call(
            "GetTopic", pb.GetObjectRequest(name=topic), pb.GetObjectResponse, timeout_ms=5_000
        )
        return str(found.item.topic.properties["colour"])


class World:
    """A shard, two discovery nodes, and a client of both that writes "blue" and hears nothing."""

    def __init__(self, shard: Harness, topic: str) -> None:
        self.shard = shard
        self.topic = topic
        self.nodes = {"discovery-1": Node(shard), "discovery-2": Node(shard)}
        self.client = Nodes(self.nodes)
        self.other = Nodes({"discovery-2": self.nodes["discovery-2"]})
        self.blue = self.setting("blue", 0)

    def setting(self, colour: str, number: int) -> pb.SetPropertiesRequest:
        return pb.SetPropertiesRequest(
            command_id=number.to_bytes(16, "big"), name=self.topic, properties={"colour": colour}
        )

    async def write_blue_and_give_up(self) -> None:
        with pytest.raises(ConnectionLost):
            await self.client.set_colour(self.blue, gives_up=True)
        assert await self.client.colour(self.topic) == "blue"

    async def others_write_red(self, times: int, seconds: float) -> None:
        for number in range(1, times + 1):
            await self.other.set_colour(self.setting(f"red {number}", number))
            await asyncio.sleep(seconds / times)
        await self.shard.log.wait_applied(self.shard.log.status.commit_index)

    async def repeat_blue_elsewhere(self) -> None:
        self.client.fail_over("discovery-1")
        await self.client.set_colour(self.blue)


def run(directory: Path, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(shard: Harness) -> None:
        (topic,) = await shard.create_topics("orders")
        await scenario(World(shard, topic))

    in_shard(directory, main)


@run_by(run)
async def test_a_repetition_elsewhere_gets_the_first_outcome_within_the_window(
    world: World,
) -> None:
    await world.write_blue_and_give_up()
    await world.others_write_red(3 * WINDOW, seconds=WINDOW_MS / 1_000 - 2)

    await world.repeat_blue_elsewhere()

    assert await world.client.colour(world.topic) == f"red {3 * WINDOW}"


@run_by(run)
async def test_a_repetition_elsewhere_behind_the_window_is_refused_as_unknown(world: World) -> None:
    """The second node knows the shard's position of now, and would take it for a new command."""
    await world.write_blue_and_give_up()
    await world.others_write_red(3 * WINDOW, seconds=2 * WINDOW_MS / 1_000)

    with pytest.raises(OutcomeForgotten, match="first sent at position"):
        await world.repeat_blue_elsewhere()

    assert await world.client.colour(world.topic) == f"red {3 * WINDOW}"


@run_by(run)
async def test_a_client_that_says_nothing_is_served_as_before_and_counted(world: World) -> None:
    """It sends no positions: what comes behind the window counts as a new command."""
    node = world.nodes["discovery-2"]
    request = world.setting("blue", 0)
    await node.methods["SetTopicProperties"](request, 5_000)
    await world.others_write_red(3 * WINDOW, seconds=2 * WINDOW_MS / 1_000)

    await node.methods["SetTopicProperties"](world.setting("blue", 0), 5_000)

    assert await world.client.colour(world.topic) == "blue"
    assert node.counters.as_map()["writes_without_positions"] == 2
