"""Faults by requests to the cluster: nothing breaks, but leaders change and units move.

    transfer   the leader of a shard hands over to another replica
    move       topics of the load go to other brokers, with their clients attached
    unload     topics of the load leave their brokers; their clients look them up again
    drain      a broker is drained for a while; it may or may not be empty when the drain is undone
    reshard    slots go to other shards, of which there may be more or fewer then: ``slot_faults``

It is an error if the cluster does not know one of these requests or keeps refusing it. A temporary
failure, for example of a broker that another fault has just killed, is retried.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol, cast

import grpc
from google.protobuf.message import Message

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.harness.chaos.faults.happened import Happened
from nextgen.harness.chaos.faults.slot_faults import SlotFaults
from nextgen.harness.chaos.faults.targets import Target
from nextgen.harness.chaos.schedule import FaultKind, FaultStep
from nextgen.kernel.errors import (
    DeadlineExceeded,
    Definite,
    InvalidRequest,
    MetadataError,
    Refused,
    Unavailable,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import (
    DrainRequest,
    TopicMove,
    TransferLeadershipRequest,
    UnitCountRequest,
)
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

TRANSFER_TIMEOUT_S = 10
TOPICS_PER_FAULT = 8
CALL_TIMEOUT_MS = 10_000
ATTEMPTS = 30
"""A plan of a new shard is refused until a killed shard node is back: on a slow machine that took
more than eight attempts."""

ATTEMPT_PAUSE_MS = 1_000
DRAIN_KNOWN_MS = 3_000
"""Time until every shard knows of a drain and pending assignments to the broker have arrived."""

UNDO_TIMEOUT_MS = 30_000
"""Time until all shards know of the end of a drain: a shard may be electing a leader."""

UNDO_INTERVAL_MS = 300

AskStatus = Callable[[], Awaitable[dict[str, Any]]]
Connect = Callable[[], AbstractAsyncContextManager["Discovery"]]


class PromiseBroken(Definite):
    """The cluster executed the request, but broke a promise meanwhile."""

    reason = "PROMISE_BROKEN"


class Discovery(Protocol):
    """The part of ``DiscoveryClient`` that is used here."""

    async def call(self, method: str, request: Message) -> Any: ...


class ApiFaults:
    """Makes these faults. ``topics`` are those that may be moved: the load's own."""

    def __init__(
        self, targets: Sequence[str], ask: AskStatus, connect: Connect | None = None
    ) -> None:
        self.topics: Sequence[str] = ()
        self._ask = ask
        self._connect = connect or partial(
            DiscoveryClient, tuple(targets), timeout_ms=CALL_TIMEOUT_MS
        )
        self._draining: dict[str, None] = {}
        self._slots = SlotFaults(targets)

    async def carry_out(self, step: FaultStep) -> Happened:
        """Make one fault, whose ``kind`` is one of ``THROUGH_THE_API``.

        Raises:
            InvalidRequest: The cluster does not know such a request.
            PromiseBroken: A broker got units while it was draining.
            MetadataError: The cluster does not execute the request.
        """
        way = {
            FaultKind.TRANSFER: self._transfer,
            FaultKind.MOVE: self._move,
            FaultKind.UNLOAD: self._unload,
            FaultKind.DRAIN: self._drain,
            FaultKind.RESHARD: self._reshard,
        }[step.kind]
        attempt = 1
        while True:
            began_ns = time.monotonic_ns()
            try:
                async with self._connect() as client:
                    target, took_hold, detail = await way(step, client)
                return Happened(step, target, began_ns, time.monotonic_ns(), took_hold, 1, detail)
            except (InvalidRequest, PromiseBroken):
                raise
            except DeadlineExceeded:
                # A plan has waited long enough by itself.
                if attempt == ATTEMPTS or step.kind is FaultKind.RESHARD:
                    raise
            except MetadataError:
                # Also a plan that is refused: a new shard waits for a node that was killed.
                if attempt == ATTEMPTS:
                    raise
            attempt += 1
            await asyncio.sleep(ATTEMPT_PAUSE_MS / 1000)

    async def undo_all(self) -> None:
        """End every drain that has not ended."""
        if not self._draining:
            return
        async with self._connect() as client:
            for broker_id in list(self._draining):
                await self._undo(client, broker_id)

    # ------------------------------------------------------------------------------------------

    async def _transfer(self, step: FaultStep, _client: Discovery) -> _Outcome:
        status = await self._ask()
        shards = [shard for shard in status["shards"] if shard["leader"]]
        if not shards:
            raise Unavailable("no shard has a leader at the moment")
        shard = shards[step.pick % len(shards)]
        others = [r["node_id"] for r in shard["replicas"] if r["node_id"] != shard["leader"]]
        if not others:
            raise Unavailable(f"shard {shard['shard_id']} has one replica only")
        target = others[step.pick % len(others)]
        addresses = {node["node_id"]: node["grpc"] for node in status["nodes"]}
        request = TransferLeadershipRequest(shard_id=shard["shard_id"], target=target)
        await _call_transfer(addresses[shard["leader"]], request)
        detail = f"shard {shard['shard_id']} handed over to {target}"
        return Target(shard["leader"], (shard["shard_id"],)), True, detail

    async def _move(self, step: FaultStep, client: Discovery) -> _Outcome:
        names = self._chosen(step)
        await client.call("Lookup", pb.LookupRequest(topics=names))
        request = pb.MoveTopicsRequest(moves=[TopicMove(topic=name) for name in names])
        answers = (await client.call("MoveTopics", request)).answers
        moved = sum(not answer.rejection_code for answer in answers)
        why = next((answer.message for answer in answers if answer.rejection_code), "")
        return Target("topics"), moved > 0, _counted(moved, names, "moved to other brokers", why)

    async def _unload(self, step: FaultStep, client: Discovery) -> _Outcome:
        names = self._chosen(step)
        await client.call("Lookup", pb.LookupRequest(topics=names))
        response = await client.call("UnloadTopics", pb.UnloadTopicsRequest(topics=names))
        gone = sum(outcome.unassigned for outcome in response.outcomes)
        why = next((one.message for one in response.outcomes if not one.unassigned), "")
        return Target("topics"), gone > 0, _counted(gone, names, "unloaded", why)

    async def _drain(self, step: FaultStep, client: Discovery) -> _Outcome:
        brokers = (await client.call("GetCluster", pb.GetClusterRequest())).brokers
        able = sorted(each.broker_id for each in brokers if each.is_live and not each.draining)
        if len(able) < 2:
            raise Unavailable(f"{len(able)} brokers are live, a drain needs at least two")
        broker_id = able[step.pick % len(able)]
        session_id = next(each.session_id for each in brokers if each.broker_id == broker_id)
        before = (await _units(client))[session_id]
        rate = cast(int, step.detail["units_per_second"])
        self._draining[broker_id] = None
        try:
            request = DrainRequest(broker_id=broker_id, units_per_second=rate)
            answer = await client.call("DrainBroker", request)
            # A broker that restarted meanwhile has another session, which is not draining.
            session_id = answer.broker.session_id
            known_ms = min(step.for_ms, DRAIN_KNOWN_MS)
            await asyncio.sleep(known_ms / 1000)
            known = (await _units(client))[session_id]
            await asyncio.sleep((step.for_ms - known_ms) / 1000)
            left = (await _units(client))[session_id]
        finally:
            await self._undo(client, broker_id)
        if known_ms == DRAIN_KNOWN_MS and left > known:
            raise PromiseBroken(f"{broker_id} got {left - known} units while it was draining")
        detail = f"{before} units at {rate}/s, {left} left when it was undone"
        took_hold = answer.broker.draining and (not before or left < before)
        return Target(broker_id), took_hold, detail

    async def _reshard(self, step: FaultStep, _client: Discovery) -> _Outcome:
        return await self._slots.carry_out(step)

    async def _undo(self, client: Discovery, broker_id: str) -> None:
        """Return when the cluster state shows that the broker is no longer draining.

        Raises:
            DeadlineExceeded: The broker is still draining.
        """
        try:
            async with timeout(UNDO_TIMEOUT_MS / 1000):
                while True:
                    if await _undone(client, broker_id):
                        self._draining.pop(broker_id, None)
                        return
                    await asyncio.sleep(UNDO_INTERVAL_MS / 1000)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{broker_id} is still draining {UNDO_TIMEOUT_MS} ms after the drain was undone"
            ) from None

    def _chosen(self, step: FaultStep) -> list[str]:
        """Return topics of the load, beginning with another one at each step."""
        first = step.pick % max(1, len(self.topics))
        return [*self.topics[first:], *self.topics[:first]][:TOPICS_PER_FAULT]


_Outcome = tuple[Target, bool, str]
"""The target of a fault, whether the fault took effect, and a description."""


async def _units(client: Discovery) -> Counter[str]:
    """Return the units of each session, over all shards."""
    counted: Counter[str] = Counter()
    for each in (await client.call("CountUnits", UnitCountRequest())).brokers:
        counted[each.session_id] += each.units
    return counted


async def _undone(client: Discovery, broker_id: str) -> bool:
    try:
        await client.call("DrainBroker", DrainRequest(broker_id=broker_id, undo=True))
    except InvalidRequest:
        return True  # The drain cannot have begun.
    except Refused:
        pass  # The broker has no session at the moment: its drain ended with the last one.
    except MetadataError:
        return False
    try:
        brokers = (await client.call("GetCluster", pb.GetClusterRequest())).brokers
    except MetadataError:
        return False
    return not any(each.broker_id == broker_id and each.draining for each in brokers)


def _counted(count: int, names: Sequence[str], what: str, why: str) -> str:
    return f"{count} of {len(names)} topics {what}" + (f", the others: {why}" if why else "")


async def _call_transfer(endpoint: str, request: TransferLeadershipRequest) -> None:
    channel = open_channel(endpoint)
    try:
        await ShardServiceStub(channel).TransferLeadership(request, timeout=TRANSFER_TIMEOUT_S)
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    finally:
        await close_channel(channel)
