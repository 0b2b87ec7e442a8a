"""Reads of a broker manager that are shared, and as of when what they say is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Item, Namespace, Tenant
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.sessions.metadata_reads import MetadataReads
from tests.support.scenarios import run_by
from tests.support.shards.harness import VirtualClock
from tests.support.simulated.virtual_time import run_virtual

TENANT = ObjectName(kind=KIND_TENANT, name="acme")
NAMESPACE = ObjectName(kind=KIND_NAMESPACE, name="acme/orders")


class SlowHomes:
    """Homes whose answers take a second."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        self.asked.append([name.name for name in names])
        await asyncio.sleep(1.0)
        return [
            Item(kind=KIND_TENANT, name=name.name, tenant=Tenant(name=name.name))
            if name.kind == KIND_TENANT
            else Item(kind=KIND_NAMESPACE, name=name.name, namespace=Namespace(name=name.name))
            for name in names
        ]


@run_by(run_virtual)
async def test_what_others_asked_for_earlier_is_as_old_as_their_question() -> None:
    homes, clock = SlowHomes(), VirtualClock()
    reads = MetadataReads(homes, "node-1/broker-manager-1/1", clock)
    began = clock.monotonic()
    first = asyncio.create_task(reads.read([TENANT]))
    await asyncio.sleep(0.6)
    second = asyncio.create_task(reads.read([TENANT, NAMESPACE]))
    third = asyncio.create_task(reads.read([NAMESPACE]))
    await asyncio.sleep(0)

    assert (await first).asked_at == began
    assert (await second).asked_at == began, "the tenant was asked for then"
    assert [item.name for item in (await second).items] == ["acme", "acme/orders"]
    assert (await third).asked_at == began + 0.6
    assert homes.asked == [["acme"], ["acme/orders"]]
    fourth = await reads.read([TENANT])
    assert fourth.asked_at == began + 1.6, "nothing is kept"


@run_by(run_virtual)
async def test_nothing_has_to_be_asked_for_nothing() -> None:
    homes, clock = SlowHomes(), VirtualClock()
    read = await MetadataReads(homes, "node-1/broker-manager-1/1", clock).read([])

    assert (read.items, read.asked_at, homes.asked) == ([], clock.monotonic(), [])
