"""Questions to shards: one per key at a time, many per request.

Whoever asks what is being asked already waits for that answer. Questions that come while
``in_flight_max`` requests to their shard are under way share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.tasks.background import start

Answer = TypeVar("Answer")

CarryOut = Callable[[int, list[tuple[str, int]]], Awaitable[Sequence[Answer | MetadataError]]]
"""Asks a shard (key, number) pairs; returns their answers or errors, in order."""


class _Shard(Generic[Answer]):
    """Questions for one shard that were not sent yet."""

    __slots__ = ("flush_is_due", "requests", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, int], asyncio.Future[Answer]] = {}
        self.requests = 0
        self.flush_is_due = False


class SharedQuestions(Generic[Answer]):
    """One kind of question. Owned by one event loop; ``stop`` it at the end."""

    def __init__(
        self, carry_out: CarryOut[Answer], *, batch_max: int, in_flight_max: int, waiting_max: int
    ) -> None:
        self._carry_out = carry_out
        self._batch_max = batch_max
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max
        self._flights: dict[tuple[str, int], asyncio.Future[Answer]] = {}
        self._shards: dict[int, _Shard[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<SharedQuestions waiting={len(self._flights)} requests={len(self._tasks)}>"

    async def ask(self, shard_id: int, key: str, number: int = 0) -> Answer:
        """Return the shard's answer about ``key``; ``number`` is part of the question.

        Raises:
            Overloaded: Too many questions wait.
            MetadataError: The shard said so, or could not be asked.
        """
        question = (key, number)
        flight = self._flights.get(question)
        if flight is None:
            flight = self._board(shard_id, question)
        # Unlike await, wait leaves the shared future alone when this is cancelled.
        await asyncio.wait((flight,))
        return flight.result()

    async def stop(self) -> None:
        """Give up what is under way; whoever waits is told so."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for question in tuple(self._flights):
            self._settle(question, Unavailable("this process is stopping"))

    def _board(self, shard_id: int, question: tuple[str, int]) -> asyncio.Future[Answer]:
        if len(self._flights) >= self._waiting_max:
            raise Overloaded(f"{self._waiting_max} questions wait for shards")
        if self._is_stopped:
            raise Unavailable("this process is stopping")
        flight: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._flights[question] = flight
        shard = self._shards.setdefault(shard_id, _Shard())
        shard.waiting[question] = flight
        self._flush_soon(shard_id, shard)
        return flight

    def _flush_soon(self, shard_id: int, shard: _Shard[Answer]) -> None:
        """Send what waits once whoever is ready to ask has asked, so that they share it."""
        if shard.waiting and not shard.flush_is_due and shard.requests < self._in_flight_max:
            shard.flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush, shard_id, shard)

    def _flush(self, shard_id: int, shard: _Shard[Answer]) -> None:
        shard.flush_is_due = False
        while not self._is_stopped and shard.waiting and shard.requests < self._in_flight_max:
            batch = list(shard.waiting)[: self._batch_max]
            for question in batch:
                del shard.waiting[question]
            shard.requests += 1
            start("shared_questions", self._run(shard_id, shard, batch), self._tasks)

    async def _run(
        self, shard_id: int, shard: _Shard[Answer], batch: list[tuple[str, int]]
    ) -> None:
        try:
            answers = await self._carry_out(shard_id, batch)
            if len(answers) != len(batch):
                raise Unavailable(
                    f"shard {shard_id} gave {len(answers)} answers to {len(batch)} questions"
                )
            for question, answer in zip(batch, answers, strict=True):
                self._settle(question, answer)
        except MetadataError as error:
            for question in batch:
                self._settle(question, error)
        finally:
            shard.requests -= 1
            for question in batch:
                self._settle(question, Unavailable(f"shard {shard_id} was not asked to the end"))
            self._flush_soon(shard_id, shard)

    def _settle(self, question: tuple[str, int], answer: Answer | MetadataError) -> None:
        flight = self._flights.pop(question, None)
        if flight is None or flight.done():
            return
        if isinstance(answer, MetadataError):
            flight.set_exception(answer)
            flight.exception()  # Looked at, should everybody who waited be gone.
        else:
            flight.set_result(answer)
