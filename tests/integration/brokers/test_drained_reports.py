"""A broker's connection to its manager carries reports of drained units, in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from brokers.adapters.cluster.manager_connection import GrpcManagerDialer
from brokers.ports.session import DrainedSettled, DrainedUnit, Greeting
from nextgen.kernel.limits.scalable import DRAINED_UNITS_PER_MESSAGE_MAX
from nextgen.runtime.servers.grpc_server import new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import (
    BrokerSessionServiceServicer,
    add_BrokerSessionServiceServicer_to_server,
)

WAIT_S = 30


class Manager(BrokerSessionServiceServicer):
    """Greets, and keeps what is reported."""

    def __init__(self) -> None:
        self.drained: asyncio.Queue[wire.DrainedUnits] = asyncio.Queue()

    async def Connect(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for message in request_iterator:
            if message.HasField("hello"):
                established = wire.SessionEstablished(session_id="s-1", takes_drained=True)
                yield wire.ManagerMessage(established=established)
            elif message.HasField("drained"):
                self.drained.put_nowait(message.drained)
                yield wire.ManagerMessage(drained_settled=message.drained)


def unit(number: int) -> DrainedUnit:
    return DrainedUnit("id-1", f"s{number}", f"segment://t/n/x/0000-ffff-{number}", 7, "sub")


async def test_drained_units_per_message_max_are_sent_in_one_message_and_one_more_in_another():
    manager, server = Manager(), new_server([])
    add_BrokerSessionServiceServicer_to_server(manager, server.server)
    port = await server.start("127.0.0.1", 0, "the test")
    dialer = GrpcManagerDialer(wire.BrokerHello(broker_id="b-1"), lambda: 0)
    connection = dialer.dial(f"127.0.0.1:{port}", "", 0, 0)
    try:
        async with timeout(WAIT_S):
            greeting = await connection.receive()
            assert isinstance(greeting, Greeting)
            assert greeting.takes_drained
            units = [unit(number) for number in range(DRAINED_UNITS_PER_MESSAGE_MAX + 1)]
            connection.report_drained(units)
            connection.report_drained(units[:1])
            first, second = await manager.drained.get(), await manager.drained.get()
            settled = await connection.receive()
    finally:
        connection.close()
        await server.stop(0)

    assert settled == DrainedSettled(units[:DRAINED_UNITS_PER_MESSAGE_MAX])
    assert len(first.units) == DRAINED_UNITS_PER_MESSAGE_MAX
    assert first.units[3] == wire.DrainedUnit(
        topic_id="id-1",
        unit="s3",
        name="segment://t/n/x/0000-ffff-3",
        epoch=7,
        subscription="sub",
    )
    assert [each.unit for each in second.units] == [f"s{DRAINED_UNITS_PER_MESSAGE_MAX}"]
