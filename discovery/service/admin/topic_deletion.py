"""Deletes topics: their owners give them up first, then the shard deletes what was given up.

    delete ─▶ no unit was ever assigned ─────────────────────────────────▶ deleted
       ╰─ STALE_EPOCH ─▶ units ─▶ each owner: in use? ─▶ each owner ends its epoch ─▶ delete again
             ▲                       ╰─ IN_USE ─▶ refused                               │
             ╰──────── a unit was assigned anew meanwhile (STALE_EPOCH) ◀───────────────╯

What an owner has acknowledged it has acknowledged in an epoch that it ended, so no message of a
client that was not told is lost with the topic (ADR 0076).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from discovery.ports import Shards
from discovery.service.admin.deadline import all_of
from nextgen.client.routing.topic_owners import OwnerUnreachable
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import (
    TOPIC_DELETION_ATTEMPTS_MAX,
    TOPIC_DELETION_OWNERS_MAX,
)
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from protos.nextgen.v1.topic_admin_pb2 import EndUnitRequest


class Owners(Protocol):
    """``nextgen.client.routing.topic_owners.TopicOwners`` or a fake."""

    async def call(self, name: TopicName, request: Any) -> Any: ...


Attempt = Callable[[shard_pb.DeleteTopic], Awaitable[pb.WriteResponse]]
"""Sends a deletion to the topic's shard. Raises ``MetadataError``."""


class TopicDeletion:
    """Carries out deletions of topics. Raises ``MetadataError`` kinds only."""

    def __init__(self, shards: Shards, owners: Owners | None) -> None:
        self._shards = shards
        self._owners = owners

    async def delete(
        self,
        name: TopicName,
        *,
        force: bool,
        form: shard_pb.TopicForm,
        attempt: Attempt,
        timeout_ms: int,
    ) -> pb.WriteResponse:
        """Delete a topic with all its partitions, if it has this ``form``.

        Raises:
            Refused: NOT_FOUND; IN_USE; PARTITIONED, NOT_PARTITIONED: it has the other form;
                INVALID_NAME: a partition.
            OwnerUnreachable: An owner cannot be asked. Nothing was deleted.
            MetadataError: Others; of an indefinite one it may have been deleted.
        """
        body = shard_pb.DeleteTopic(name=name.text, force=force, is_checked=True, form=form)
        for _ in range(TOPIC_DELETION_ATTEMPTS_MAX):
            try:
                return await attempt(body)
            except Refused as refused:
                if refused.code != RejectionCode.STALE_EPOCH or self._owners is None:
                    raise
                trouble = refused
            found = await self.units(name, timeout_ms)
            # A unit without an owner acknowledges nothing. Whether it has subscriptions, only an
            # owner can tell: it is assigned for that.
            units = [each for each in found.units if each.broker_id or not force]
            body.topic_id = found.topic_id
            del body.ended[:]
            body.ended.extend(await self._end_all(self._owners, units, force, timeout_ms))
        raise Unavailable(f"the units of {name.text} are assigned again and again: {trouble}")

    async def units(self, name: TopicName, timeout_ms: int) -> shard_pb.TopicUnitsResponse:
        """Return the topic's id, and its units that were ever assigned. Linearizable."""
        request = shard_pb.ShardRequest(topic_units=shard_pb.TopicUnitsRequest(name=name.text))
        response = await self._shards.call_key(name.routing_key, request, timeout_ms=timeout_ms)
        return response.topic_units

    async def _end_all(
        self, owners: Owners, units: Sequence[UnitAssignment], force: bool, timeout_ms: int
    ) -> list[shard_pb.EndedUnit]:
        """Have all owners end their epochs. If one refuses, the others serve on where possible."""
        turns = asyncio.Semaphore(TOPIC_DELETION_OWNERS_MAX)
        if not force and len(units) > 1:
            check = EndUnitRequest(is_check_only=True)
            await all_of([self._end(owners, turns, each, check, timeout_ms) for each in units])
        end = EndUnitRequest(is_forced=force)
        return await all_of([self._end(owners, turns, each, end, timeout_ms) for each in units])

    async def _end(
        self,
        owners: Owners,
        turns: asyncio.Semaphore,
        unit: UnitAssignment,
        wanted: EndUnitRequest,
        timeout_ms: int,
    ) -> shard_pb.EndedUnit:
        name = parse_topic(unit.name)
        async with turns:
            answer = await self.look_up(name, timeout_ms)
            if answer.broker_id and not answer.broker_url:
                # It has neither clients nor messages.
                return shard_pb.EndedUnit(unit=unit.unit, epoch=answer.epoch)
            request = EndUnitRequest()
            request.CopyFrom(wanted)
            try:
                await owners.call(name, request)
            except OwnerUnreachable:
                if not wanted.is_forced:
                    raise
                await self._fence(name, answer, timeout_ms)
                await owners.call(name, request)
        return shard_pb.EndedUnit(unit=unit.unit, epoch=request.unit.epoch)

    async def look_up(self, name: TopicName, timeout_ms: int) -> LookupAnswer:
        """Return who serves a unit, linearizable; an idle one is assigned."""
        request = shard_pb.ShardRequest(lookup=shard_pb.ShardLookupRequest(topics=[name.text]))
        response = await self._shards.call_key(name.routing_key, request, timeout_ms=timeout_ms)
        (answer,) = response.lookup.answers
        return answer

    async def _fence(self, name: TopicName, answer: LookupAnswer, timeout_ms: int) -> None:
        """Move a unit away from an owner that cannot be reached: the next one fences it."""
        move = shard_pb.TopicMove(topic=name.text, expected_epoch=answer.epoch)
        request = shard_pb.ShardRequest(move=shard_pb.MoveRequest(moves=[move]))
        response = await self._shards.call_key(name.routing_key, request, timeout_ms=timeout_ms)
        (moved,) = response.move.answers
        if moved.rejection_code and not moved.under_way:
            raise OwnerUnreachable(
                f"broker {answer.broker_id} has {name.text} and cannot be reached, "
                f"and no other takes it: {moved.message}"
            )
