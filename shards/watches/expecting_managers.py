"""Sends assignments to broker managers, and has effective writes wait for the metadata in them.

A topic's metadata leaves with its assignment, before the broker's manager watches the topic. A
change that is committed in between is effective only when that watch has delivered it. Each attempt
sends the topic as it is at that moment.
"""

from __future__ import annotations

from nextgen.client.changes.index import Change
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import (
    AssignRequest,
    AssignResponse,
    FollowRequest,
    FollowResponse,
    ReleaseRequest,
    ReleaseResponse,
)
from shards.ports import BrokerManagers, HomeShards
from shards.state.shard_state import ShardState
from shards.watches.effective_writes import EffectiveWrites
from shards.wire.inventory import topic_message


class ExpectingManagers:
    """``BrokerManagers`` as a shard's leader uses them."""

    def __init__(
        self,
        state: ShardState,
        managers: BrokerManagers,
        effective: EffectiveWrites,
        homes: HomeShards,
    ) -> None:
        self._state = state
        self._managers = managers
        self._effective = effective
        self._homes = homes

    async def assign(self, request: AssignRequest, *, timeout_ms: int) -> AssignResponse:
        request.term = self._state.term.number
        if not request.assignments:
            # A unit that a broker only prepares is sent again, with its present topic, when it is
            # assigned.
            return await self._managers.assign(request, timeout_ms=timeout_ms)
        shard_id = self._homes.manager_shard(request.broker_id)
        changes: list[Change] = [(KIND_TOPIC, each.topic.name) for each in request.assignments]
        self._effective.expect(changes, shard_id)
        are_watched = False
        try:
            await self._bring_up_to_date(request)
            response = await self._managers.assign(request, timeout_ms=timeout_ms)
            are_watched = response.watched
        finally:
            self._effective.stop_expecting(changes, shard_id, are_watched=are_watched)
        return response

    async def release(self, request: ReleaseRequest, *, timeout_ms: int) -> ReleaseResponse:
        return await self._managers.release(request, timeout_ms=timeout_ms)

    async def follow(
        self, shard_id: int, request: FollowRequest, *, timeout_ms: int
    ) -> FollowResponse:
        return await self._managers.follow(shard_id, request, timeout_ms=timeout_ms)

    async def _bring_up_to_date(self, request: AssignRequest) -> None:
        """Put the present version of each topic into its assignment; later changes wait for the
        watch."""
        topics = self._state.reads.load_topics([each.topic.name for each in request.assignments])
        is_changed = False
        for each, topic in zip(request.assignments, topics, strict=True):
            if topic is None or topic.topic_id != each.topic.topic_id:
                continue
            if topic.version > each.topic.version:
                each.topic.CopyFrom(topic_message(topic))
                is_changed = True
        if is_changed:
            # It may be pending: a broker gets nothing that a later leader may not have.
            await self._state.proposer.confirm()
