"""Calls to the brokers of many units, for one request: a few at a time, in turns of tenants.

    request ──▶ TOPIC_UNITS_CALLED_MAX units at a time ──▶ a turn of their tenant ──▶ broker

A topic has up to ten thousand partitions and a namespace a million topics. Each call costs this
process, a shard and a broker about a millisecond. Without turns some such requests of one tenant
would take the loop from everybody's lookups.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from typing import TypeVar

from google.protobuf.message import Message

from discovery.service.admin.deadline import all_of
from nextgen.kernel.errors import Definite, MetadataError, Overloaded, Unavailable
from nextgen.kernel.input.fair_queue import FairQueue
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_MAX_MS
from nextgen.kernel.limits.rest import (
    TENANT_UNITS_CALLED_MAX,
    TOPIC_UNITS_CALLED_MAX,
    UNIT_ANSWERS_BYTES,
    UNITS_CALLED_MAX,
    UNITS_WAITING_MAX,
)
from nextgen.kernel.routing.names import TopicName
from nextgen.tasks.background import cancel_and_wait, start
from nextgen.tasks.timeouts import timeout

Answer = TypeVar("Answer", bound=Message)


class _Tenant:
    """The calls of one tenant: running, waiting for a turn, or waiting for the tenant's room."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(TENANT_UNITS_CALLED_MAX)
        self.users = 0


class UnitCalls:
    """Bounds the calls of one process. Owned by one event loop."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(
            TENANT_UNITS_CALLED_MAX, UNITS_WAITING_MAX
        )
        self._running = 0

    def __repr__(self) -> str:
        return f"<UnitCalls running={self._running} tenants={len(self._tenants)}>"

    async def each(
        self, units: Sequence[TopicName], call: Callable[[TopicName], Awaitable[None]]
    ) -> None:
        """Await ``call`` for all units, those behind a failure too.

        Raises:
            MetadataError: The worst of what was raised: an indefinite error before a definite one.
            Unavailable: ``REQUEST_TIMEOUT_MAX_MS`` are over. Some units may not be called.
        """
        pending = iter(units)
        worst: MetadataError | None = None

        async def work() -> None:
            nonlocal worst
            for unit in pending:
                try:
                    async with self._turn(unit.tenant):
                        await call(unit)
                except MetadataError as error:
                    if worst is None or isinstance(worst, Definite) > isinstance(error, Definite):
                        worst = error

        workers = min(len(units), TOPIC_UNITS_CALLED_MAX)
        with _time_is_over():
            async with timeout(REQUEST_TIMEOUT_MAX_MS / 1_000):
                await all_of([work() for _ in range(workers)])
        if worst is not None:
            raise worst

    async def in_order(
        self, units: Sequence[TopicName], call: Callable[[TopicName], Awaitable[Answer]]
    ) -> AsyncGenerator[tuple[TopicName, Answer]]:
        """Yield each unit with its answer, in the order of ``units``; close the generator.

        ``TOPIC_UNITS_CALLED_MAX`` answers at most are held, fewer if they are long: about
        ``UNIT_ANSWERS_BYTES``. The rest of the units is not called behind a failure.

        Raises:
            MetadataError: A call failed.
            Unavailable: As ``each``, for the next answer.
        """
        pending = iter(units)
        ahead: deque[tuple[TopicName, asyncio.Task[Answer]]] = deque()
        window = 1

        async def answer_of(unit: TopicName) -> Answer:
            async with self._turn(unit.tenant):
                return await call(unit)

        try:
            while True:
                for unit in islice(pending, window - len(ahead)):
                    task = start("unit_call", answer_of(unit), expected=MetadataError)
                    ahead.append((unit, task))
                if not ahead:
                    return
                unit, task = ahead[0]
                with _time_is_over():
                    async with timeout(REQUEST_TIMEOUT_MAX_MS / 1_000):
                        answer = await task
                ahead.popleft()
                room = UNIT_ANSWERS_BYTES // max(1, answer.ByteSize())
                window = max(1, min(2 * window, TOPIC_UNITS_CALLED_MAX, room))
                yield unit, answer
        finally:
            await cancel_and_wait(*(task for _, task in ahead))

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        tenant = self._tenants.setdefault(name, _Tenant())
        tenant.users += 1
        try:
            async with tenant.room:
                await self._enter(name)
                try:
                    yield
                finally:
                    self._leave()
        finally:
            tenant.users -= 1
            if not tenant.users:
                del self._tenants[name]

    async def _enter(self, tenant: str) -> None:
        if self._running < UNITS_CALLED_MAX:
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        if not self._queue.put(tenant, turn):
            raise Overloaded(f"{len(self._queue)} calls to brokers wait for their turn")
        try:
            await turn
        except asyncio.CancelledError:
            if not self._queue.discard(tenant, turn):
                self._leave()
            raise

    def _leave(self) -> None:
        self._running -= 1
        while self._running < UNITS_CALLED_MAX and (taken := self._queue.take()):
            self._running += 1
            _, turn = taken
            # A cancelled one, whose task has not run since, finds itself out of the queue.
            if not turn.done():
                turn.set_result(None)


@contextmanager
def _time_is_over() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        why = f"not all units were called within {REQUEST_TIMEOUT_MAX_MS} ms: repeat it"
        raise Unavailable(why) from None
