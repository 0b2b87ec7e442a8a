"""Sends operations on a topic to the broker that serves it, over ``TopicAdmin``.

look up (assigns an idle topic) ──▶ call with the assignment's epoch ──▶ answer
    ▲                                        │
    └──── the broker no longer has it, or cannot be reached
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nextgen.client.brokers.channels import BrokerChannels
from nextgen.client.routing.topic_answers import checked
from nextgen.kernel.errors import ConnectionLost, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.pulsar import (
    TOPIC_ADMIN_RETRY_AFTER_MS,
    TOPIC_OWNER_LOOKUPS_MAX,
    TOPIC_OWNER_RETRY_MS,
)
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import topic_admin_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import TopicStats
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

OwnerLookup = Callable[[TopicName, bool], Awaitable[LookupAnswer]]
"""Looks a unit up, which assigns it if it is idle. With True the answer MUST be one that the shard
gives after the call: an earlier one has been found wrong."""

_SERVICE = "/nextgen.v1.TopicAdmin"

_METHODS: dict[Any, tuple[str, Any]] = {
    pb.GetStatsRequest: ("GetStats", TopicStats),
    pb.GetInternalStatsRequest: ("GetInternalStats", pb.TopicInternalStats),
    pb.CreateSubscriptionRequest: ("CreateSubscription", pb.CreateSubscriptionResponse),
    pb.DeleteSubscriptionRequest: ("DeleteSubscription", pb.DeleteSubscriptionResponse),
    pb.UpdateSubscriptionRequest: ("UpdateSubscription", pb.UpdateSubscriptionResponse),
    pb.SkipMessagesRequest: ("SkipMessages", pb.SkipMessagesResponse),
    pb.ResetCursorRequest: ("ResetCursor", pb.ResetCursorResponse),
    pb.ExpireMessagesRequest: ("ExpireMessages", pb.ExpireMessagesResponse),
    pb.PeekMessageRequest: ("PeekMessage", pb.StoredEntry),
    pb.GetMessageRequest: ("GetMessage", pb.StoredEntry),
    pb.ExamineMessageRequest: ("ExamineMessage", pb.StoredEntry),
    pb.GetLastMessageIdRequest: ("GetLastMessageId", pb.LastMessageId),
    pb.TerminateRequest: ("Terminate", pb.LastMessageId),
    pb.TruncateRequest: ("Truncate", pb.TruncateResponse),
    pb.TrimRequest: ("Trim", pb.TrimResponse),
    pb.FindByTimeRequest: ("FindByTime", pb.FoundPosition),
    pb.AnalyzeBacklogRequest: ("AnalyzeBacklog", pb.BacklogAnalysis),
    pb.EndUnitRequest: ("EndUnit", pb.EndUnitResponse),
    pb.ListSchemasRequest: ("ListSchemas", pb.ListSchemasResponse),
    pb.CheckSchemaRequest: ("CheckSchema", pb.CheckSchemaResponse),
    pb.AddSchemaRequest: ("AddSchema", pb.AddSchemaResponse),
    pb.DeleteSchemaRequest: ("DeleteSchema", pb.DeleteSchemaResponse),
}


class OwnerUnreachable(Unavailable):
    """The operation was not carried out: no broker that has the topic could be reached."""

    retry_after_ms = TOPIC_ADMIN_RETRY_AFTER_MS


class TopicOwners:
    """The brokers of topics. Owned by one event loop; ``stop`` it at the end."""

    def __init__(self, look_up: OwnerLookup) -> None:
        self._look_up = look_up
        self._channels = BrokerChannels()

    def __repr__(self) -> str:
        return f"<TopicOwners {self._channels!r}>"

    async def call(self, name: TopicName, request: Any) -> Any:
        """Send one of the requests of ``TopicAdmin`` to the owner of ``name``; return its answer.

        The request's ``unit`` is filled in here. ``name`` is a topic without partitions, or one
        partition. A broker that no longer has the topic, or that cannot be reached, is looked up
        again, ``TOPIC_OWNER_LOOKUPS_MAX`` lookups in all.

        Raises:
            Refused: The topic does not exist (NOT_FOUND), has partitions (PARTITIONED), or its
                broker refuses the operation: see ``topic_admin.proto``.
            OwnerUnreachable: Nothing was done. Repeat it after ``retry_after_ms``.
            Indefinite: The operation may have been carried out, or not.
            MetadataError: Others of the lookup; nothing was done.
        """
        method, response_type = _METHODS[type(request)]
        trouble: Exception | None = None
        for attempt in range(TOPIC_OWNER_LOOKUPS_MAX):
            if attempt:
                await asyncio.sleep(TOPIC_OWNER_RETRY_MS / 1_000)
            try:
                answer = checked(await self._look_up(name, attempt > 0))
                if not answer.broker_grpc:
                    raise Unavailable(f"broker {answer.broker_id} gives no address for calls")
                request.unit.CopyFrom(
                    pb.AdminUnit(
                        topic_id=answer.topic_id,
                        unit=name.unit.text,
                        epoch=answer.epoch,
                        name=name.text,
                    )
                )
                return await self._channels.call(
                    answer.broker_grpc,
                    f"{_SERVICE}/{method}",
                    request,
                    response_type,
                    timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS,
                )
            except Refused as refused:
                if refused.code != RejectionCode.STALE_EPOCH:
                    raise
                trouble = refused
            except Unavailable as error:
                trouble = error
        raise OwnerUnreachable(f"the broker of {name.text} could not be reached: {trouble}")

    async def entry(self, name: TopicName, request: Any) -> pb.StoredEntry:
        """Send one of the requests that are answered with an entry; return it with all its bytes.

        Raises:
            As ``call``. Refused with NOT_FOUND also if the entry was dropped meanwhile.
        """
        entry: pb.StoredEntry = await self.call(name, request)
        while len(entry.payload) < entry.payload_bytes:
            rest: pb.StoredEntry = await self.call(
                name, pb.GetMessageRequest(position=entry.position, offset=len(entry.payload))
            )
            if not rest.payload:
                raise ConnectionLost(f"the entry of {name.text} ends in its middle")
            entry.payload += rest.payload
        return entry

    async def stop(self) -> None:
        """Close the channels to brokers; calls on them end."""
        await self._channels.stop()
