"""Requests drains and rebalances, and follows their progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from nextgen.kernel.errors import DeadlineExceeded
from protos.nextgen.v1.shard_service_pb2 import (
    DrainRequest,
    DrainResponse,
    RebalanceRequest,
    RebalanceResponse,
    SetCapacityRequest,
    SetCapacityResponse,
    UnitCountRequest,
    UnitCountResponse,
)

LOOK_MS = 500
"""Interval of polls, each of which sends a request to every shard."""

_DRAIN_GOES_ON = (
    "the drain goes on, --undo ends it; what stays may be allowed at no other broker by its rules, "
    "or no other has room"
)
_SHRINK_GOES_ON = (
    "units go on leaving, a larger capacity ends it; what stays may be allowed at no other broker "
    "by its rules, or no other has room"
)
_REBALANCE_GOES_ON = "the rebalance goes on, nextgen rebalance --stop gives up what is left"


class Caller(Protocol):
    """The way to discovery; ``DiscoveryClient`` is one."""

    async def call(self, method: str, request: Message) -> Any: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress: all units, and the units that are left.

    ``idle_seconds`` have passed since the number last reached a new minimum.
    """

    total: int
    left: int
    seconds: float
    idle_seconds: float = 0.0


OnProgress = Callable[[Progress], None]


async def drain(
    client: Caller, broker_id: str, *, units_per_second: int = 0, undo: bool = False
) -> DrainResponse:
    """Begin or cancel the broker's drain.

    Raises:
        Refused: The broker is not live, or is the last one that may get units.
    """
    request = DrainRequest(broker_id=broker_id, units_per_second=units_per_second, undo=undo)
    response: DrainResponse = await client.call("DrainBroker", request)
    return response


async def set_capacity(client: Caller, broker_id: str, units: int) -> SetCapacityResponse:
    """Change the broker's capacity.

    Raises:
        Refused: The broker is not live, or never announced that much.
    """
    request = SetCapacityRequest(broker_id=broker_id, capacity_units=units)
    response: SetCapacityResponse = await client.call("SetBrokerCapacity", request)
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
        DeadlineExceeded: Units are left; the drain continues.
    """

    async def left() -> int:
        brokers = (await count_units(client)).brokers
        return sum(each.units for each in brokers if each.session_id == session_id)

    return await _follow(left, on_progress, timeout_ms, _DRAIN_GOES_ON)


async def follow_shrink(
    client: Caller, session_id: str, units: int, on_progress: OnProgress, *, timeout_ms: int
) -> Progress:
    """Return when the session has at most ``units`` units. The progress counts those above.

    Raises:
        DeadlineExceeded: More are left; they go on leaving.
    """

    async def left() -> int:
        brokers = (await count_units(client)).brokers
        held = sum(each.units for each in brokers if each.session_id == session_id)
        return max(0, held - units)

    return await _follow(left, on_progress, timeout_ms, _SHRINK_GOES_ON)


async def follow_rebalance(client: Caller, on_progress: OnProgress, *, timeout_ms: int) -> Progress:
    """Return when no shard has units left to rebalance; drains and lost brokers do not count.

    Raises:
        DeadlineExceeded: Units are left; the rebalance continues.
    """

    async def left() -> int:
        return rebalancing(await count_units(client))

    return await _follow(left, on_progress, timeout_ms, _REBALANCE_GOES_ON)


def rebalancing(answer: UnitCountResponse | RebalanceResponse) -> int:
    """Return how many units a rebalance has still to move, without those of drains, which may be
    stuck."""
    return max(0, answer.under_way - answer.evacuating)


async def _follow(
    left: Callable[[], Awaitable[int]], on_progress: OnProgress, timeout_ms: int, goes_on: str
) -> Progress:
    began = fewer_at = time.monotonic()
    total, fewest = 0, sys.maxsize
    while True:
        units = await left()
        now = time.monotonic()
        total = max(total, units)
        if units < fewest:
            fewest, fewer_at = units, now
        progress = Progress(total, units, round(now - began, 3), round(now - fewer_at, 3))
        on_progress(progress)
        if not units:
            return progress
        if progress.seconds * 1000 >= timeout_ms:
            why = f"{units} of {total} units are left after {timeout_ms} ms"
            raise DeadlineExceeded(f"{why}, none left for {progress.idle_seconds} s; {goes_on}")
        await asyncio.sleep(LOOK_MS / 1000)
