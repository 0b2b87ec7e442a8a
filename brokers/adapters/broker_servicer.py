"""BrokerService over gRPC: is this topic served here?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from brokers.ports.manager import Clock
from brokers.service.agent import BrokerAgent
from brokers.wire import serving
from nextgen.client.errors_wire import abort
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits import SERVES_NAMES_MAX
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceServicer

_Context = grpc.aio.ServicerContext[Any, Any]


class BrokerServicer(BrokerServiceServicer):
    """Answers from what the agent holds; never waits for anything."""

    def __init__(
        self, agent: BrokerAgent, *, broker_id: str, capacity_units: int, clock: Clock
    ) -> None:
        self._agent = agent
        self._broker_id = broker_id
        self._capacity_units = capacity_units
        self._clock = clock

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
            counters=self._agent.counters.as_dict() | {"tombstones": holding.tombstones},
        )

    async def _answer(self, request: wire.ServesRequest, context: _Context) -> wire.ServesResponse:
        if len(request.topics) > SERVES_NAMES_MAX:
            message = f"{len(request.topics)} names in one message, at most {SERVES_NAMES_MAX}"
            await abort(context, InvalidRequest(message))
        holding = self._agent.session.holding
        now_ms = self._clock()
        self._agent.counters.names_checked += len(request.topics)
        return wire.ServesResponse(
            answers=[serving(holding, topic, now_ms) for topic in request.topics],
            broker_id=self._broker_id,
            session_id=self._agent.session.session_id,
        )
