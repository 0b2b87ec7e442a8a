"""``FollowSources`` over gRPC: the sources here of other brokers' shadows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from brokers.adapters.cluster.source_wire import messages_of, requests_from_proto
from brokers.service.feeds.source_session import SourceSession
from brokers.service.feeds.source_sessions import SourceSessions
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.shadow import FEED_PAUSE_MS
from nextgen.tasks.background import cancel_and_wait, join
from protos.nextgen.v1 import broker_service_pb2 as wire

Context = grpc.aio.ServicerContext[Any, Any]
Requests = AsyncIterator[wire.SourceRequests]


async def follow_sources(sessions: SourceSessions, requests: Requests, context: Context) -> None:
    """Serve one stream until the broker with the shadows ends it.

    Raises:
        InvalidRequest: It sent nonsense.
        Overloaded: There are too many streams.
    """
    first = await anext(aiter(requests), None)
    if first is None:
        return
    if not first.broker_id:
        raise InvalidRequest("a stream begins with the id of the broker that has the shadows")
    with sessions.opened(first.broker_id) as session:
        _take(session, first)
        reading = join(_read(session, requests))
        try:
            while True:
                await session.ready()
                if reading.done():
                    await reading
                    return
                for message in messages_of(session.updates()):
                    await context.write(message)
                await asyncio.sleep(FEED_PAUSE_MS / 1_000)
        finally:
            await cancel_and_wait(reading)


async def _read(session: SourceSession, requests: Requests) -> None:
    try:
        async for message in requests:
            _take(session, message)
    finally:
        session.wake()


def _take(session: SourceSession, message: wire.SourceRequests) -> None:
    for request in requests_from_proto(message):
        session.take(request)
