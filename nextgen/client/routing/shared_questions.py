"""Questions to shards: one per key at a time, many per request.

A caller whose question is already under way shares its answer. Questions that arrive while
``in_flight_max`` requests to their shard are under way share the next request. Only a group (a
tenant) with many questions does not share: it has requests of its own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from nextgen.client.routing.shard_batches import ShardBatches
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.pulsar import GROUP_QUESTIONS_SHARED_MAX
from nextgen.tasks.background import start

Answer = TypeVar("Answer")

GroupOf = Callable[[str], str]

Question = tuple[str, int]

CarryOut = Callable[[int, list[Question]], Awaitable[Sequence[Answer | MetadataError]]]
"""Sends a shard (key, number) pairs; returns their answers or errors, in order."""


class _Line:
    """Questions for one shard: those of a group in the order of their arrival, groups in turn.

    A group with more than ``GROUP_QUESTIONS_SHARED_MAX`` questions has requests of its own, so that
    other groups do not wait for its answers.
    """

    def __init__(self, batch_max: int, in_flight_max: int, group_of: GroupOf) -> None:
        self.requests = 0
        self._groups: OrderedDict[str, dict[Question, None]] = OrderedDict()
        """The questions of each group; the group whose turn is next comes first."""
        self._length = 0
        self._batch_max = batch_max
        self._in_flight_max = in_flight_max
        self._group_of = group_of

    def __len__(self) -> int:
        return self._length

    @property
    def has_room(self) -> bool:
        return self.requests < self._in_flight_max

    def put(self, question: Question) -> None:
        self._groups.setdefault(self._group_of(question[0]), {})[question] = None
        self._length += 1

    def take(self) -> list[Question] | None:
        if not self.has_room:
            return None
        first = next(iter(self._groups))
        if len(self._groups[first]) > GROUP_QUESTIONS_SHARED_MAX:
            batch = self._take_of(first, self._batch_max)
        else:
            batch = self._take_small_groups()
        self._length -= len(batch)
        self.requests += 1
        return batch

    def _take_small_groups(self) -> list[Question]:
        batch: list[Question] = []
        for group in tuple(islice(self._groups, self._batch_max)):
            room = self._batch_max - len(batch)
            if room and len(self._groups[group]) <= GROUP_QUESTIONS_SHARED_MAX:
                batch += self._take_of(group, room)
        return batch

    def _take_of(self, group: str, room: int) -> list[Question]:
        waiting = self._groups[group]
        taken = list(islice(waiting, room))
        for question in taken:
            del waiting[question]
        if waiting:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return taken


class SharedQuestions(Generic[Answer]):
    """One kind of question. Owned by one event loop; ``stop`` it at the end."""

    def __init__(
        self,
        carry_out: CarryOut[Answer],
        *,
        batch_max: int,
        in_flight_max: int,
        waiting_max: int,
        group_of: GroupOf | None = None,
    ) -> None:
        """Without ``group_of``, which returns the group of a key, all questions are of one."""
        self._carry_out = carry_out
        self._waiting_max = waiting_max
        self._flights: dict[Question, asyncio.Future[Answer]] = {}
        self._batches: ShardBatches[_Line, list[Question]] = ShardBatches(
            partial(_Line, batch_max, in_flight_max, group_of or _one_group), self._begin
        )

    def __repr__(self) -> str:
        return f"<SharedQuestions waiting={len(self._flights)} requests={len(self._batches)}>"

    async def ask(self, shard_id: int, key: str, number: int = 0) -> Answer:
        """Return the shard's answer about ``key``; ``number`` is part of the question.

        Raises:
            Overloaded: Too many questions are queued.
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
        """Cancel the requests under way; their callers get ``Unavailable``."""
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
        self._batches.line(shard_id).put(question)
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
                self._settle(
                    question, Unavailable(f"the request to shard {shard_id} was cancelled")
                )
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


def _one_group(_key: str) -> str:
    return ""
