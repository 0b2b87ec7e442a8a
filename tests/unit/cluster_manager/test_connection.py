"""A node's outbox: in order, bounded, with an end."""

from __future__ import annotations

import asyncio

from cluster_manager.service.connection import NodeConnection
from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.kernel.limits.cluster import JOIN_OUTBOX_UPDATES_MAX
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate


def _update(sequence: int) -> ClusterUpdate:
    return ClusterUpdate(heartbeat_sequence=sequence)


async def test_updates_come_out_in_the_order_they_went_in() -> None:
    connection = NodeConnection("a", "shard", 0)
    waiting = asyncio.ensure_future(connection.next_update())
    await asyncio.sleep(0)
    assert not waiting.done()

    connection.push(_update(1))
    connection.push(_update(2))

    assert await waiting == _update(1)
    assert await connection.next_update() == _update(2)


async def test_an_end_wakes_waiters_and_drops_unsent_messages() -> None:
    connection = NodeConnection("a", "shard", 0)
    ending = asyncio.ensure_future(connection.wait_ended())
    connection.push(_update(1))
    error = NotLeader(0, "b:1")

    connection.end(error)
    connection.end(None)
    connection.push(_update(2))

    await ending
    assert await connection.next_update() is None
    assert connection.error is error
    assert repr(connection) == "<NodeConnection a ended waiting=0>"


async def test_the_outbox_has_a_limit() -> None:
    connection = NodeConnection("a", "shard", 0)
    for sequence in range(JOIN_OUTBOX_UPDATES_MAX):
        connection.push(_update(sequence))
    assert not connection.has_ended

    connection.push(_update(0))

    assert connection.has_ended
    assert isinstance(connection.error, Overloaded)
