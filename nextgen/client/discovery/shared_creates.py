"""Single creates of one client: those that meet at a shard share its next request.

    create ──▶ none under way to the shard? ──▶ sent alone, at once
                     │ one is
                     ▼
               waits, and is sent with all that wait when that one is answered

A create that meets no other is sent as if this module were not there. Under load a client has one
request under way to each shard, however many callers it has, and the shard decides the creates of
a request together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nextgen.client.model import CreatedTopic, NewTopic
from nextgen.kernel.errors import (
    ConnectionLost,
    Forbidden,
    InvalidRequest,
    MetadataError,
    Refused,
    Unavailable,
)
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.tasks.background import cancel_and_wait, start

SendTopics = Callable[[list[NewTopic], int], Awaitable[list[CreatedTopic]]]
"""Sends one request within a time-out in milliseconds; returns the outcomes in order."""

ShardOf = Callable[[str], int | None]
"""Returns the shard of a routing key, None while the shard map is unknown."""

_ANOTHERS_FAULT = (Refused, InvalidRequest, Forbidden)
"""Errors of a whole request that only one of its topics may have caused. Nothing was created."""


@dataclass(slots=True, eq=False)
class _Waiting:
    topic: NewTopic
    deadline: float
    created: asyncio.Future[CreatedTopic]

    def settle(self, outcome: CreatedTopic | MetadataError) -> None:
        if self.created.done():
            return  # Its caller has given up.
        if isinstance(outcome, MetadataError):
            self.created.set_exception(outcome)
            self.created.exception()  # Mark it as retrieved: its caller may be cancelled now.
        else:
            self.created.set_result(outcome)


class SharedCreates:
    """Owned by one event loop; ``stop`` it at the end.

    ``shard_of`` need not be up to date: a request for topics of several shards is only slower.
    """

    def __init__(self, send: SendTopics, shard_of: ShardOf, timeout_ms: int) -> None:
        self._send = send
        self._shard_of = shard_of
        self._timeout_ms = timeout_ms
        self._lines: dict[int, deque[_Waiting]] = {}
        """By shard that a request is under way to: the creates that wait for its answer."""
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<SharedCreates under_way={self._under_way} shards={len(self._lines)}>"

    async def create(self, topic: NewTopic) -> CreatedTopic:
        """Create one topic, within the time-out; a caller may give up.

        Raises:
            MetadataError: The error of the request that the topic was sent with.
        """
        shard_id = self._shard(topic) if self._under_way else None
        self._under_way += 1
        try:
            if shard_id is None:
                return await self._alone(topic, self._timeout_ms)
            line = self._lines.get(shard_id)
            if line is not None:
                return await self._together(topic, line)
            line = self._lines[shard_id] = deque()
            try:
                return await self._alone(topic, self._timeout_ms)
            finally:
                self._send_next(shard_id, line)
        finally:
            self._under_way -= 1

    async def stop(self) -> None:
        """Cancel the shared requests under way; their callers get ``ConnectionLost``. What waits
        is not sent, and gets ``Unavailable``."""
        self._is_stopped = True
        await cancel_and_wait(*self._tasks)

    def _shard(self, topic: NewTopic) -> int | None:
        """Return the shard whose line a create joins; None: it is sent alone."""
        if topic.properties:
            return None  # They may be large: shared requests stay small.
        try:
            return self._shard_of(parse_topic(topic.name).routing_key)
        except InvalidName:
            return None  # The answer says what is wrong with it.

    async def _alone(self, topic: NewTopic, timeout_ms: int) -> CreatedTopic:
        (created,) = await self._send([topic], timeout_ms)
        return created

    async def _together(self, topic: NewTopic, line: deque[_Waiting]) -> CreatedTopic:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1_000
        waiting = _Waiting(topic, deadline, loop.create_future())
        line.append(waiting)
        return await waiting.created

    def _send_next(self, shard_id: int, line: deque[_Waiting]) -> None:
        """Send what waits in ``line``; without any, the shard has no request under way."""
        if line and not self._is_stopped:
            start("shared_creates", self._send_line(shard_id, line), self._tasks)
        else:
            self._end_line(shard_id, line)

    def _end_line(self, shard_id: int, line: deque[_Waiting]) -> None:
        del self._lines[shard_id]
        for each in line:
            each.settle(Unavailable("the client was closed before a create was sent"))

    async def _send_line(self, shard_id: int, line: deque[_Waiting]) -> None:
        batch: list[_Waiting] = []
        try:
            while line:
                batch = [line.popleft() for _ in range(min(len(line), TOPICS_PER_CREATE_MAX))]
                # A create whose caller gave up before it was sent is not carried out.
                batch = [each for each in batch if not each.created.done()]
                await self._send_batch(batch)
        finally:
            self._end_line(shard_id, line)
            for each in batch:
                each.settle(ConnectionLost("the client was closed while it waited for a create"))

    async def _send_batch(self, batch: list[_Waiting]) -> None:
        now = asyncio.get_running_loop().time()
        late = [each for each in batch if each.deadline - now < 1e-3]
        for each in late:
            each.settle(Unavailable(f"a create waited {self._timeout_ms} ms for another"))
        sent = [each for each in batch if each not in late]
        if not sent:
            return
        timeout_ms = int(1_000 * (min(each.deadline for each in sent) - now))
        try:
            outcomes = await self._send([each.topic for each in sent], timeout_ms)
        except MetadataError as error:
            if len(sent) > 1 and isinstance(error, _ANOTHERS_FAULT):
                await asyncio.gather(*(self._send_batch([each]) for each in sent))
                return
            for each in sent:
                each.settle(error)
        else:
            for each, outcome in zip(sent, outcomes, strict=True):
                each.settle(outcome)
