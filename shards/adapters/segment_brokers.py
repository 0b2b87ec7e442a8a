"""``SegmentBrokers`` over the ``TopicAdmin`` service of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from nextgen.client.brokers.channels import BrokerChannels
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.scalable.segments import SegmentEnd
from protos.nextgen.v1 import topic_admin_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import TopicStats
from shards.domain.scalable.retention import SegmentUsage
from shards.domain.scalable.vocabulary import SubscriptionType
from shards.ports import SealedUnit, SegmentUnit

_SERVICE = "/nextgen.v1.TopicAdmin"

_CURSORS_AT_ONCE = 16
"""Cursors that one call of ``ready`` makes at one time: brokers share the writes of some."""


class CalledSegmentBrokers:
    """Calls the broker of each unit. ``channels`` are shared by all shards of the node."""

    def __init__(self, channels: BrokerChannels) -> None:
        self._channels = channels

    async def ready(
        self, unit: SegmentUnit, subscriptions: Sequence[str], *, timeout_ms: int
    ) -> None:
        # Any operation opens the unit.
        await self._call(unit, "GetLastMessageId", pb.GetLastMessageIdRequest(), timeout_ms)
        for start in range(0, len(subscriptions), _CURSORS_AT_ONCE):
            chunk = subscriptions[start : start + _CURSORS_AT_ONCE]
            outcomes = await asyncio.gather(
                *(self._create(unit, name, timeout_ms) for name in chunk), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def seal(self, unit: SegmentUnit, *, timeout_ms: int) -> SealedUnit:
        last = await self._call(unit, "Terminate", pb.TerminateRequest(), timeout_ms)
        end = SegmentEnd(last.position.ledger_id, last.position.entry_id)
        return SealedUnit(end, last.stored_bytes, last.subscriptions)

    async def usage(self, unit: SegmentUnit, *, timeout_ms: int) -> SegmentUsage:
        request = pb.GetInternalStatsRequest()
        stats = await self._call(unit, "GetInternalStats", request, timeout_ms)
        if not stats.HasField("retention"):
            raise Unavailable(f"the broker of {unit.name} is of a release that does not say")
        return SegmentUsage(
            is_drained=not any(each.backlog_entries for each in stats.cursors),
            retention_ms=stats.retention.time_ms,
            retention_bytes=stats.retention.size_bytes,
        )

    async def subscriptions(
        self, unit: SegmentUnit, *, timeout_ms: int
    ) -> Mapping[str, SubscriptionType]:
        stats = await self._call(unit, "GetStats", pb.GetStatsRequest(), timeout_ms)
        return {
            each.name: SubscriptionType.QUEUE if each.kind in _SHARED else SubscriptionType.STREAM
            for each in stats.subscriptions
            if each.is_durable
        }

    async def seek(
        self, unit: SegmentUnit, subscription: str, to_ms: int | None, *, timeout_ms: int
    ) -> None:
        if to_ms is None:
            skip = pb.SkipMessagesRequest(subscription=subscription, is_all=True)
            await self._call(unit, "SkipMessages", skip, timeout_ms)
            return
        earliest = pb.TopicPlace(earliest=pb.Earliest())
        place = pb.TopicPlace(publish_time_ms=to_ms) if to_ms else earliest
        reset = pb.ResetCursorRequest(subscription=subscription, place=place)
        await self._call(unit, "ResetCursor", reset, timeout_ms)

    async def drop(self, unit: SegmentUnit, subscription: str, *, timeout_ms: int) -> None:
        request = pb.DeleteSubscriptionRequest(subscription=subscription, is_forced=True)
        try:
            await self._call(unit, "DeleteSubscription", request, timeout_ms)
        except Refused as refused:
            if refused.code != RejectionCode.NOT_FOUND:
                raise

    async def remove(self, unit: SegmentUnit, *, timeout_ms: int) -> None:
        await self._call(unit, "RemoveUnit", pb.RemoveUnitRequest(), timeout_ms)

    async def _create(self, unit: SegmentUnit, subscription: str, timeout_ms: int) -> None:
        start = pb.TopicPlace(earliest=pb.Earliest())
        request = pb.CreateSubscriptionRequest(subscription=subscription, start=start)
        try:
            await self._call(unit, "CreateSubscription", request, timeout_ms)
        except Refused as refused:
            if refused.code != RejectionCode.ALREADY_EXISTS:
                raise

    async def _call(self, unit: SegmentUnit, method: str, request: Any, timeout_ms: int) -> Any:
        request.unit.CopyFrom(
            pb.AdminUnit(topic_id=unit.topic_id, unit=unit.unit, epoch=unit.epoch, name=unit.name)
        )
        return await self._channels.call(
            unit.endpoint,
            f"{_SERVICE}/{method}",
            request,
            _ANSWERS[method],
            timeout_ms=timeout_ms,
        )


_SHARED = frozenset({"SHARED", "KEY_SHARED"})

_ANSWERS: dict[str, Any] = {
    "GetStats": TopicStats,
    "GetLastMessageId": pb.LastMessageId,
    "CreateSubscription": pb.CreateSubscriptionResponse,
    "DeleteSubscription": pb.DeleteSubscriptionResponse,
    "SkipMessages": pb.SkipMessagesResponse,
    "ResetCursor": pb.ResetCursorResponse,
    "Terminate": pb.LastMessageId,
    "GetInternalStats": pb.TopicInternalStats,
    "RemoveUnit": pb.RemoveUnitResponse,
}
