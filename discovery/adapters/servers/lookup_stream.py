"""One ``LookupStream`` call: messages are answered as soon as they can be, in any order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

import grpc.aio
import structlog

from discovery.adapters.servers.permitted_lookups import answer_permitted, may_look_up_all
from discovery.service.lookups.lookup import LookupService, OpenLookup
from nextgen.kernel.errors import InvalidRequest, MetadataError, Unavailable
from nextgen.kernel.limits.cluster import LOOKUP_MESSAGES_IN_FLIGHT_MAX
from nextgen.runtime.security.authorization.authorizer import Access
from nextgen.tasks.background import join, start

_logger = structlog.get_logger(__name__)


class LookupStreamCall:
    """Reads, answers and writes until the caller is done or ``drain`` is called.

    At most ``LOOKUP_MESSAGES_IN_FLIGHT_MAX`` messages wait for shards or to be written; then
    reading stops, and flow control slows the caller down.
    """

    def __init__(
        self,
        service: LookupService,
        context: grpc.aio.ServicerContext[bytes, bytes],
        access: Access | None = None,
    ) -> None:
        """``access``: what the caller may look up; None: everything."""
        self._service = service
        self._access = access
        self._context: Any = context
        self._outbox: deque[bytes] = deque()
        self._has_output = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the call to its end. Requests that were read are answered, unless the caller went
        away."""
        self._reading = join(self._read())
        writing = join(self._write())
        try:
            await asyncio.wait({self._reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if self._waiting and not writing.done():
                await asyncio.wait(set(self._waiting))
            if not writing.done():
                self._outbox.append(b"")  # The writer's sign to end.
                self._has_output.set()
                await writing
        finally:
            for task in (self._reading, writing, *self._waiting):
                task.cancel()
            await asyncio.gather(self._reading, writing, *self._waiting, return_exceptions=True)

    def drain(self) -> None:
        """Stop reading; ``run`` returns when everything read has been answered."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        read = self._context.read
        while True:
            data = await read()
            if not isinstance(data, bytes):  # The stream's end.
                return
            self._take(data)
            if len(self._waiting) + len(self._outbox) >= LOOKUP_MESSAGES_IN_FLIGHT_MAX:
                self._has_room.clear()
                await self._has_room.wait()

    def _take(self, data: bytes) -> None:
        access = self._access
        if access is not None and not may_look_up_all(access, data):
            self._wait_for(self._answer_permitted(data, access))
            return
        try:
            answer = self._service.answer_at_once(data)
        except InvalidRequest as error:
            answer = self._service.refusal(data, error)
        if isinstance(answer, bytes):
            self._put(answer)
            return
        self._wait_for(self._answer_later(data, answer))

    def _wait_for(self, answering: Coroutine[Any, Any, None]) -> None:
        task = start("lookup_answer", answering)
        self._waiting.add(task)
        task.add_done_callback(self._waited)

    async def _answer_permitted(self, data: bytes, access: Access) -> None:
        try:
            self._put(await answer_permitted(self._service, access, data))
        except MetadataError as error:
            self._put(self._service.refusal(data, error))
        except Exception as error:
            # The caller must get an answer even if this is a mistake of ours.
            _logger.exception("a lookup failed")
            self._put(self._service.refusal(data, Unavailable(repr(error))))

    async def _answer_later(self, data: bytes, lookup: OpenLookup) -> None:
        try:
            self._put(await self._service.answer_later(lookup))
        except Exception as error:
            # The caller must get an answer even if this is a mistake of ours.
            _logger.exception("a lookup failed")
            self._put(self._service.refusal(data, Unavailable(repr(error))))

    def _waited(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        self._make_room()

    def _put(self, answer: bytes) -> None:
        self._outbox.append(answer)
        self._has_output.set()

    def _make_room(self) -> None:
        if len(self._waiting) + len(self._outbox) < LOOKUP_MESSAGES_IN_FLIGHT_MAX:
            self._has_room.set()

    async def _write(self) -> None:
        write = self._context.write
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            while self._outbox:
                answer = self._outbox.popleft()
                if not answer:
                    return
                await write(answer)
                self._make_room()
