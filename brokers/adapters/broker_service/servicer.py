"""``BrokerService`` over gRPC: the topics that this broker serves, and their statistics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from heapq import nsmallest
from typing import Any

import grpc.aio

from brokers.adapters.broker_service.acknowledgement_reports import AcknowledgementReports
from brokers.adapters.broker_service.source_streams import follow_sources
from brokers.adapters.broker_service.topic_statistics import topic_stats
from brokers.adapters.pulsar.directory import held_schema
from brokers.adapters.pulsar.front import wall_clock_ms
from brokers.domain.acknowledgements import Acknowledgements
from brokers.ports.session import Clock
from brokers.service.feeds.source_sessions import SourceSessions
from brokers.service.session.agent import BrokerAgent
from brokers.service.topics.open_topics import Topics
from brokers.wire import held_item, serving
from nextgen.client.transport.caller import OPERATOR, caller
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import Forbidden, InvalidRequest, MetadataError, Unavailable
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.cluster import (
    NAMES_PER_GET_MAX,
    SERVES_NAMES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
)
from nextgen.kernel.limits.pulsar import TOPIC_STATS_NAMES_MAX
from nextgen.kernel.limits.rest import HELD_NAMESPACES_PAGE_MAX, HELD_UNITS_PER_TURN
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.runtime.security.authorization.authorizer import Authorizer
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceServicer

_Context = grpc.aio.ServicerContext[Any, Any]


class BrokerServicer(BrokerServiceServicer):
    """Answers from the agent's assignments and, if the broker serves clients, its open topics."""

    def __init__(
        self,
        agent: BrokerAgent,
        topics: Topics | None,
        *,
        broker_id: str,
        capacity_units: int,
        clock: Clock,
        acknowledgements: Acknowledgements | None = None,
        sources: SourceSessions | None = None,
        authorizer: Authorizer | None = None,
        wall_clock: Clock = wall_clock_ms,
    ) -> None:
        """``authorizer``: decides what clients may look up; None: everything."""
        self._wall_clock = wall_clock
        self._authorizer = authorizer
        self._agent = agent
        self._topics = topics
        self._sources = sources
        self._broker_id = broker_id
        self._capacity_units = capacity_units
        self._clock = clock
        self._reports = AcknowledgementReports(
            Acknowledgements() if acknowledgements is None else acknowledgements,
            broker_id=broker_id,
            session_id=lambda: agent.session.session_id,
        )

    async def Serves(self, request: wire.ServesRequest, context: _Context) -> wire.ServesResponse:
        return await self._answer(request, context)

    async def ServesStream(
        self, request_iterator: AsyncIterator[wire.ServesRequest], context: _Context
    ) -> AsyncIterator[wire.ServesResponse]:
        async for request in request_iterator:
            yield await self._answer(request, context)

    async def GetBrokerStatus(
        self, request: wire.GetBrokerStatusRequest, context: _Context
    ) -> wire.BrokerStatus:
        session = self._agent.session
        holding = session.holding
        return wire.BrokerStatus(
            broker_id=self._broker_id,
            session_id=session.session_id,
            epoch=session.epoch,
            applied_sequence=session.applied_sequence,
            topics=len(holding.assignments),
            namespaces=len(holding.namespaces),
            tenants=len(holding.tenants),
            capacity_units=self._capacity_units,
            counters=self._counters(),
        )

    async def GetSchema(
        self, request: wire.GetSchemaRequest, context: _Context
    ) -> wire.GetSchemaResponse:
        try:
            if self._topics is None:
                raise Unavailable("this broker serves no clients")
            found = await held_schema(
                self._topics, parse_topic(request.topic), request.version or None
            )
        except InvalidName as error:
            await abort(context, InvalidRequest(str(error)))
        except MetadataError as error:
            await abort(context, error)
        if found is None:
            return wire.GetSchemaResponse(found=False)
        return wire.GetSchemaResponse(
            found=True,
            version=found.version,
            name=found.name,
            kind=found.kind,
            data=found.data,
            properties=dict(found.properties),
        )

    async def GetTopicStats(
        self, request: wire.GetTopicStatsRequest, context: _Context
    ) -> wire.GetTopicStatsResponse:
        if len(request.topics) > TOPIC_STATS_NAMES_MAX:
            message = f"{len(request.topics)} names, at most {TOPIC_STATS_NAMES_MAX}"
            await abort(context, InvalidRequest(message))
        if self._topics is None:
            return wire.GetTopicStatsResponse()
        return wire.GetTopicStatsResponse(topics=topic_stats(self._topics, request.topics))

    async def GetMetadata(
        self, request: wire.GetMetadataRequest, context: _Context
    ) -> wire.GetMetadataResponse:
        if len(request.names) > NAMES_PER_GET_MAX:
            message = f"{len(request.names)} names in one request, at most {NAMES_PER_GET_MAX}"
            await abort(context, InvalidRequest(message))
        if any(len(each.name) > TOPIC_TEXT_CHARACTERS_MAX for each in request.names):
            # The answer repeats the names, and would be too large for a message.
            message = f"a name has at most {TOPIC_TEXT_CHARACTERS_MAX} characters"
            await abort(context, InvalidRequest(message))
        session = self._agent.session
        return wire.GetMetadataResponse(
            items=[held_item(session.holding, each.kind, each.name) for each in request.names],
            broker_id=self._broker_id,
            session_id=session.session_id,
            applied_sequence=session.applied_sequence,
        )

    async def ListHeldNamespaces(
        self, request: wire.ListHeldNamespacesRequest, context: _Context
    ) -> wire.ListHeldNamespacesResponse:
        held = list(self._agent.session.holding.assignments.values())
        names: set[str] = set()
        for start in range(0, len(held), HELD_UNITS_PER_TURN):
            units = held[start : start + HELD_UNITS_PER_TURN]
            names.update(parse_topic(each.name).namespace_text for each in units)
            await asyncio.sleep(0)
        page = nsmallest(
            HELD_NAMESPACES_PAGE_MAX + 1, (name for name in names if name > request.after)
        )
        return wire.ListHeldNamespacesResponse(
            names=page[:HELD_NAMESPACES_PAGE_MAX], more=len(page) > HELD_NAMESPACES_PAGE_MAX
        )

    async def WatchAcknowledgements(
        self, request: wire.WatchAcknowledgementsRequest, context: _Context
    ) -> AsyncIterator[wire.AcknowledgementReport]:
        try:
            async with aclosing(self._reports.watch()) as reports:
                async for report in reports:
                    yield report
        except MetadataError as error:
            await abort(context, error)

    async def FollowSources(
        self, request_iterator: AsyncIterator[wire.SourceRequests], context: _Context
    ) -> None:
        try:
            if self._sources is None:
                raise Unavailable("this broker serves no clients")
            await follow_sources(self._sources, request_iterator, context)
        except MetadataError as error:
            await abort(context, error)

    def _counters(self) -> dict[str, int]:
        counters = self._agent.counters.as_dict()
        counters["tombstones"] = self._agent.session.holding.tombstones
        if self._topics is not None:
            counters["open_topics"] = len(self._topics)
            counters["producers"] = sum(len(topic.producers) for topic in self._topics)
            counters["consumers"] = sum(topic.consumers for topic in self._topics)
        if self._sources is not None:
            counters["source_streams"] = self._sources.stream_count
            counters["sources_followed"] = self._sources.source_count
        return counters

    async def _authorize(self, topics: Iterable[str]) -> None:
        """Return if the caller may look up all of ``topics``.

        Raises:
            Forbidden: It may not, or one is no topic's name.
            Unavailable: Permissions cannot be read at the moment.
        """
        principal = caller()
        if self._authorizer is None or principal is OPERATOR:
            return
        for topic in topics:
            try:
                name = parse_topic(topic)
            except InvalidName as error:
                raise Forbidden(str(error)) from error
            await self._authorizer.check(principal, Action.LOOK_UP, Resource.topic(name.text))

    async def _answer(self, request: wire.ServesRequest, context: _Context) -> wire.ServesResponse:
        if len(request.topics) > SERVES_NAMES_MAX:
            message = f"{len(request.topics)} names in one message, at most {SERVES_NAMES_MAX}"
            await abort(context, InvalidRequest(message))
        try:
            await self._authorize(request.topics)
        except MetadataError as error:
            await abort(context, error)
        holding = self._agent.session.holding
        now_ms, unix_ms = self._clock(), self._wall_clock()
        self._agent.counters.names_checked += len(request.topics)
        return wire.ServesResponse(
            answers=[serving(holding, topic, now_ms, unix_ms) for topic in request.topics],
            broker_id=self._broker_id,
            session_id=self._agent.session.session_id,
        )
