"""Questions to shards: one per key at a time, many per request.

A caller whose question is under way already waits for that answer. Questions that come while
``in_flight_max`` requests to their shard are under way share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from nextgen.client.routing.shard_batches import ShardBatches
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.tasks.background import start

Answer = TypeVar("Answer")

Question = tuple[str, int]

CarryOut = Callable[[int, list[Question]], Awaitable[Sequence[Answer | MetadataError]]]
"""Sends a shard (key, number) pairs; returns their answers or errors, in order."""


class _Line:
    """Questions for one shard, in the order in which they came."""

    def __init__(self, batch_max: int, in_flight_max: int) -> None:
        self.waiting: dict[Question, None] = {}
        self.requests = 0
        self._batch_max = batch_max
        self._in_flight_max = in_flight_max

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def has_room(self) -> bool:
        return self.requests < self._in_flight_max

    def take(self) -> list[Question] | None:
        if not self.has_room:
            return None
        batch = list(islice(self.waiting, self._batch_max))
        for question in batch:
            del self.waiting[question]
        self.requests += 1
        return batch


class SharedQuestions(Generic[Answer]):
    """One kind of question. Owned by one event loop; ``stop`` it at the end."""

    def __init__(
        self, carry_out: CarryOut[Answer], *, batch_max: int, in_flight_max: int, waiting_max: int
    ) -> None:
        self._carry_out = carry_out
        self._waiting_max = waiting_max
        self._flights: dict[Question, asyncio.Future[Answer]] = {}
        self._batches: ShardBatches[_Line, list[Question]] = ShardBatches(
            partial(_Line, batch_max, in_flight_max), self._begin
        )

    def __repr__(self) -> str:
        return f"<SharedQuestions waiting={len(self._flights)} requests={len(self._batches)}>"

    async def ask(self, shard_id: int, key: str, number: int = 0) -> Answer:
        """Return the shard's answer about ``key``; ``number`` is part of the question.

        Raises:
            Overloaded: Too many questions wait.
            MetadataError: The shard refused, or could not be reached.
        """
        question = (key, number)
        flight = self._flights.get(question)
        if flight is None:
            flight = self._board(shard_id, question)
        # Unlike await, wait leaves the shared future alone when this is cancelled.
        await asyncio.wait((flight,))
        return flight.result()

    async def stop(self) -> None:
        """Give up what is under way; its callers get ``Unavailable``."""
        await self._batches.stop()
        for question in tuple(self._flights):
            self._settle(question, Unavailable("this process is stopping"))

    def _board(self, shard_id: int, question: Question) -> asyncio.Future[Answer]:
        if len(self._flights) >= self._waiting_max:
            raise Overloaded(f"{self._waiting_max} questions wait for shards")
        if self._batches.is_stopped:
            raise Unavailable("this process is stopping")
        flight: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._flights[question] = flight
        self._batches.line(shard_id).waiting[question] = None
        self._batches.send_soon(shard_id)
        return flight

    def _begin(
        self, shard_id: int, line: _Line, batch: list[Question], tasks: set[asyncio.Task[None]]
    ) -> None:
        start("shared_questions", self._run(shard_id, line, batch), tasks)

    async def _run(self, shard_id: int, line: _Line, batch: list[Question]) -> None:
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
            line.requests -= 1
            for question in batch:
                self._settle(question, Unavailable(f"shard {shard_id} was not asked to the end"))
            self._batches.send_soon(shard_id)

    def _settle(self, question: Question, answer: Answer | MetadataError) -> None:
        flight = self._flights.pop(question, None)
        if flight is None or flight.done():
            return
        if isinstance(answer, MetadataError):
            flight.set_exception(answer)
            flight.exception()  # Mark it as retrieved: all its callers may be cancelled.
        else:
            flight.set_result(answer)
