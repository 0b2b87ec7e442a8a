"""Calls of a broker's ``TopicAdmin`` without gRPC, as discovery sends them."""

from __future__ import annotations

from typing import Any

import grpc

from brokers.adapters.broker_service.topic_admin import TopicAdminServicer
from nextgen.client.wire.errors import ERROR_METADATA_KEY, from_detail
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.errors_pb2 import ErrorDetail
from tests.support.brokers.world import TOPIC, BrokerWorld, topic_id_of


class Context:
    """A call's context: ``abort`` raises what a caller would be given."""

    async def abort(self, _code: grpc.StatusCode, _details: str, trailing: Any) -> None:
        ((key, detail),) = trailing
        assert key == ERROR_METADATA_KEY
        raise from_detail(ErrorDetail.FromString(detail))


def unit_of(world: BrokerWorld, name: str = TOPIC, *, epoch: int | None = None) -> wire.AdminUnit:
    """Return a topic's unit as a lookup would; ``epoch`` is another one than the present."""
    parsed = parse_topic(name)
    _, present = world.directory.owners.get(name, ("", 0))
    return wire.AdminUnit(
        topic_id=topic_id_of(parsed.base_text),
        unit=parsed.unit.text,
        epoch=present if epoch is None else epoch,
        name=name,
    )


class Admin:
    """An operator of one topic, whose calls go to its present broker, or to ``broker_id``."""

    def __init__(self, world: BrokerWorld, name: str = TOPIC) -> None:
        self.world = world
        self.name = name
        if not world.directory.owners.get(name, ("", 0))[0]:
            world.assign(name, "a")

    async def call(self, method: str, request: Any, *, broker_id: str = "") -> Any:
        """Call a method; a request without a unit gets the present one."""
        if not request.HasField("unit"):
            request.unit.CopyFrom(unit_of(self.world, self.name))
        owner, _ = self.world.directory.owners[self.name]
        topics = self.world.broker(broker_id or owner).topics
        context: Any = Context()
        return await getattr(TopicAdminServicer(topics), method)(request, context)

    async def refusal(self, method: str, request: Any, *, broker_id: str = "") -> MetadataError:
        """Call a method that refuses; return its error."""
        try:
            await self.call(method, request, broker_id=broker_id)
        except MetadataError as error:
            return error
        raise AssertionError("it was not refused")

    async def create(self, name: str = "sub", **fields: Any) -> Any:
        request = wire.CreateSubscriptionRequest(subscription=name, **fields)
        return await self.call("CreateSubscription", request)

    async def stats(self) -> Any:
        return await self.call("GetStats", wire.GetStatsRequest())
