"""Asks for drains and rebalances, and follows how far they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from nextgen.kernel.errors import DeadlineExceeded
from protos.nextgen.v1.shard_service_pb2 import (
    DrainRequest,
    DrainResponse,
    RebalanceRequest,
    RebalanceResponse,
    UnitCountRequest,
    UnitCountResponse,
)

LOOK_MS = 500
"""Between two looks: each asks every shard."""


class Caller(Protocol):
    """The way to discovery; ``DiscoveryClient`` is one."""

    async def call(self, method: str, request: Message) -> Any: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: of so many units, so many are left."""

    total: int
    left: int
    seconds: float


OnProgress = Callable[[Progress], None]


async def drain(
    client: Caller, broker_id: str, *, units_per_second: int = 0, undo: bool = False
) -> DrainResponse:
    """Have the broker emptied, or no longer.

    Raises:
        Refused: It is not alive, or the last that may be given units.
    """
    request = DrainRequest(broker_id=broker_id, units_per_second=units_per_second, undo=undo)
    response: DrainResponse = await client.call("DrainBroker", request)
    return response


async def count_units(client: Caller) -> UnitCountResponse:
    response: UnitCountResponse = await client.call("CountUnits", UnitCountRequest())
    return response


async def rebalance(client: Caller, request: RebalanceRequest) -> RebalanceResponse:
    response: RebalanceResponse = await client.call("Rebalance", request)
    return response


async def follow_drain(
    client: Caller, session_id: str, on_progress: OnProgress, *, timeout_ms: int
) -> Progress:
    """Return when the session has no units any more.

    Raises:
        DeadlineExceeded: It still has some; the drain goes on.
    """

    async def left() -> int:
        brokers = (await count_units(client)).brokers
        return sum(each.units for each in brokers if each.session_id == session_id)

    return await _follow(left, on_progress, timeout_ms)


async def follow_rebalance(client: Caller, on_progress: OnProgress, *, timeout_ms: int) -> Progress:
    """Return when nothing is under way any more in any shard, drains included.

    Raises:
        DeadlineExceeded: Something still is; it goes on.
    """

    async def left() -> int:
        return (await count_units(client)).under_way

    return await _follow(left, on_progress, timeout_ms)


async def _follow(left: Callable[[], Any], on_progress: OnProgress, timeout_ms: int) -> Progress:
    began = time.monotonic()
    total = 0
    while True:
        units = await left()
        total = max(total, units)
        progress = Progress(total, units, round(time.monotonic() - began, 3))
        on_progress(progress)
        if not units:
            return progress
        if progress.seconds * 1000 >= timeout_ms:
            raise DeadlineExceeded(f"{units} of {total} units are left after {timeout_ms} ms")
        await asyncio.sleep(LOOK_MS / 1000)
