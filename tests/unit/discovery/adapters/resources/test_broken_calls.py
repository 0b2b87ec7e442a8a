"""A broker that dies in the middle of a forwarded call: 503, and a repetition finishes the work.

Two brokers of real gRPC share what is stored, as brokers share the ledger directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from discovery.adapters.resources.topic_catalogue import topic_routes
from nextgen.client.routing import topic_owners
from nextgen.client.routing.topic_owners import TopicOwners
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.topic_admin_pb2_grpc import (
    TopicAdminServicer,
    add_TopicAdminServicer_to_server,
)
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import RestClient, serving

PLAIN = "persistent://acme/orders/plain"
PARTED = "persistent://acme/orders/parted"
PARTITIONS = 3
AT = "/admin/v2/persistent/acme/orders"


class Broker(TopicAdminServicer):
    """A broker that carries operations out on what all brokers share, ``stored``."""

    def __init__(self, stored: set[tuple[str, str]]) -> None:
        self.stored = stored
        self.server: GrpcServer = new_server([])
        self.endpoint = ""
        self.dies_at = ""
        """The unit whose call never ends."""
        self.stores_first = False
        """Whether that call has stored its outcome before."""
        self.is_reached = asyncio.Event()
        add_TopicAdminServicer_to_server(self, self.server.server)

    async def start(self) -> None:
        self.endpoint = f"127.0.0.1:{await self.server.start('127.0.0.1', 0, 'a test')}"

    async def CreateSubscription(self, request: Any, context: Any) -> Any:
        if (request.unit.name, request.subscription) in self.stored:
            await abort(context, Refused(RejectionCode.ALREADY_EXISTS, "it exists"))
        await self._carry_out(request.unit.name, request.subscription)
        return wire.CreateSubscriptionResponse()

    async def SkipMessages(self, request: Any, _context: Any) -> Any:
        await self._carry_out(request.unit.name, "skipped")
        return wire.SkipMessagesResponse()

    async def Terminate(self, request: Any, _context: Any) -> Any:
        await self._carry_out(request.unit.name, "terminated")
        return wire.LastMessageId()

    async def _carry_out(self, unit: str, what: str) -> None:
        is_last = unit == self.dies_at
        if not is_last or self.stores_first:
            self.stored.add((unit, what))
        if is_last:
            self.is_reached.set()
            await asyncio.Event().wait()


class World:
    """Discovery's routes over two brokers, of which the first serves everything at first."""

    def __init__(self, client: RestClient, first: Broker, second: Broker) -> None:
        self.client = client
        self.first = first
        self.second = second

    async def broken(self, method: str, path: str) -> Any:
        """Send a request, and kill the first broker in the middle of it."""
        sent = asyncio.ensure_future(self.client.call(method, AT + path))
        await self.first.is_reached.wait()
        await self.first.server.stop(grace_ms=0)
        return await sent


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(topic_owners, "TOPIC_OWNER_RETRY_MS", 0)
    inventory: Any = FakeInventory()
    inventory.add(PLAIN)
    inventory.add(PARTED, PARTITIONS)
    stored: set[tuple[str, str]] = set()
    first, second = Broker(stored), Broker(stored)
    await first.start()
    await second.start()

    async def look_up(_name: TopicName, _is_fresh: bool) -> LookupAnswer:
        # The shard assigns a lost broker's topics to another one, in a later epoch.
        is_lost = first.is_reached.is_set()
        broker = second if is_lost else first
        return LookupAnswer(topic_id="t-1", broker_grpc=broker.endpoint, epoch=2 if is_lost else 1)

    owners = TopicOwners(look_up)
    async with serving(topic_routes(owners, inventory, inventory, inventory)) as client:
        yield World(client, first, second)
    await owners.stop()
    await first.server.stop(grace_ms=0)
    await second.server.stop(grace_ms=0)


OPERATIONS = [
    ("PUT", "/subscription/sub", "sub"),
    ("POST", "/subscription/sub/skip_all", "skipped"),
    ("POST", "/terminate", "terminated"),
]


@pytest.mark.parametrize(("method", "path", "what"), OPERATIONS)
async def test_a_call_whose_broker_died_is_503_and_its_repetition_is_carried_out(
    world: World, method: str, path: str, what: str
):
    world.first.dies_at = PLAIN

    broken = await world.broken(method, f"/plain{path}")
    repeated = await world.client.call(method, f"{AT}/plain{path}")

    assert (broken.status, int(broken.headers["Retry-After"]) >= 1) == (503, True)
    assert broken.reason
    assert repeated.status in (200, 204)
    assert (PLAIN, what) in world.first.stored


async def test_a_call_that_was_stored_before_its_broker_died_is_not_half_done(world: World):
    world.first.dies_at, world.first.stores_first = PLAIN, True

    broken = await world.broken("PUT", "/plain/subscription/sub")
    repeated = await world.client.call("PUT", f"{AT}/plain/subscription/sub")

    assert (broken.status, repeated.status) == (503, 409)
    assert world.first.stored == {(PLAIN, "sub")}


@pytest.mark.parametrize("dies_at", range(PARTITIONS))
@pytest.mark.parametrize("stores_first", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "what"),
    [OPERATIONS[0], OPERATIONS[1], ("POST", "/terminate/partitions", "terminated")],
)
async def test_what_only_some_partitions_had_is_finished_by_a_repetition(
    world: World, method: str, path: str, what: str, stores_first: bool, dies_at: int
):
    partitions = [f"{PARTED}-partition-{number}" for number in range(PARTITIONS)]
    world.first.dies_at, world.first.stores_first = partitions[dies_at], stores_first

    broken = await world.broken(method, f"/parted{path}")
    repeated = await world.client.call(method, f"{AT}/parted{path}")

    assert (broken.status, "Retry-After" in broken.headers) == (503, True)
    assert repeated.status in (200, 204, 409)
    assert world.first.stored == {(partition, what) for partition in partitions}
