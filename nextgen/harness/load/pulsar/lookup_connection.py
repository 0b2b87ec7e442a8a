"""One connection of the lookup generator: a window of requests that is always full.

It shares the machine with the measured process, so it handles an answer by a slice and three
look-ups in dictionaries. An answer is parsed when its bytes are seen for the first time; ids belong
to topics for the whole run, so the same bytes are the same answer afterwards.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import cast

from nextgen.harness.load.pulsar.lookup_requests import (
    Answer,
    RequestDeck,
    answer_of,
    command_of,
    connect_frame,
    pong_frame,
)
from nextgen.kernel.limits.pulsar import PULSAR_FRAME_BYTES_MAX
from nextgen.pulsar.frames import SIZE_BYTES, MalformedFrame
from protos.pulsar.PulsarApi_pb2 import BaseCommand

KNOWN_ANSWERS_PER_TOPIC_MAX = 4
"""Known answers of one topic: topics move among a few brokers. Further answers are parsed each
time."""

OnAnswers = Callable[[Sequence[Answer]], None]


@dataclass(slots=True)
class LookupTally:
    """Counters over all connections of a generator. Latencies are seconds, while it measures."""

    is_measuring: bool = False
    is_stopping: bool = False
    answers_total: int = 0
    answers: int = 0
    errors: int = 0
    first_error: str = ""
    unexpected: int = 0
    first_unexpected: str = ""
    reads: int = 0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))


class LookupConnection(asyncio.Protocol):
    """Sends its part of the deck repeatedly; ``finished`` when stopped or broken.

    The answers of one in ``check_every`` reads go to ``on_answers``; 0: none. With ``renames``,
    each round through the deck has other names of absent topics.
    """

    def __init__(
        self,
        deck: RequestDeck,
        part: slice,
        window: int,
        tally: LookupTally,
        *,
        check_every: int = 0,
        on_answers: OnAnswers | None = None,
        renames: bool = False,
    ) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deck = deck
        self._part = part
        self._renames = renames
        self._round = 0
        self._frames = deck.frames[part]
        self._ids = deck.ids[part]
        self._window = min(window, len(self._ids))
        self._tally = tally
        self._check_every = check_every
        self._on_answers = on_answers
        self._known: dict[bytes, int] = {}
        self._known_max = KNOWN_ANSWERS_PER_TOPIC_MAX * len(self._ids)
        self._sent_at: dict[int, float] = {}
        self._place = 0
        self._rest = b""
        self._is_connected = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(connect_frame())

    def connection_lost(self, exception: Exception | None) -> None:
        if self.finished.done():
            return
        if self._tally.is_stopping and not self._sent_at:
            self.finished.set_result(None)
        else:
            text = f"connection lost with {len(self._sent_at)} requests in flight: {exception}"
            self.finished.set_exception(ConnectionError(text))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._rest:
            data = self._rest + data
        known = self._known
        sent_at = self._sent_at
        latencies: list[float] = []
        position = 0
        length = len(data)
        size_at_end = length - SIZE_BYTES
        while position <= size_at_end:
            end = position + SIZE_BYTES + int.from_bytes(data[position : position + 4], "big")
            if end > length:
                break
            request_id = known.get(data[position:end])
            if request_id is None:
                request_id = self._learn(data[position:end])
            position = end
            if request_id in sent_at:
                latencies.append(now - sent_at.pop(request_id))
            elif request_id:
                self._unexpected(f"an answer to request {request_id}, which is not in flight")
        self._rest = data[position:]
        if len(self._rest) > PULSAR_FRAME_BYTES_MAX:
            self._unexpected(f"{len(self._rest)} bytes that are no frame")
            self._transport.abort()
        self._count(latencies, data[:position])
        self._send(now)

    def stop(self) -> None:
        """Send no more; the connection closes when everything is answered."""
        if not self._sent_at:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, without waiting for requests in flight."""
        self._transport.abort()

    def _count(self, latencies: list[float], frames: bytes) -> None:
        tally = self._tally
        tally.answers_total += len(latencies)
        if tally.is_measuring:
            tally.answers += len(latencies)
            tally.latencies_s.extend(latencies)
        tally.reads += 1
        if self._check_every and tally.reads % self._check_every == 0:
            assert self._on_answers is not None
            self._on_answers(self._parse(frames))

    def _send(self, now: float) -> None:
        """Fill the window; skip topics whose last answer is still pending."""
        if self._tally.is_stopping:
            self.stop()
            return
        if not self._is_connected:
            return
        sent_at = self._sent_at
        count = self._window - len(sent_at)
        if count <= 0:
            return
        place = self._place
        ids = self._ids[place : place + count]
        frames = self._frames[place : place + count]
        self._place = place + count
        if self._place >= len(self._ids):
            self._place -= len(self._ids)
            if self._renames:
                self._round += 1
                self._frames = self._deck.renamed(self._part, self._round)
            ids = [*ids, *self._ids[: self._place]]
            frames = [*frames, *self._frames[: self._place]]
        if not sent_at.keys().isdisjoint(ids):
            pairs = [(i, f) for i, f in zip(ids, frames, strict=True) if i not in sent_at]
            ids = [request_id for request_id, _ in pairs]
            frames = [frame for _, frame in pairs]
        sent_at.update(zip(ids, repeat(now)))
        self._transport.write(b"".join(frames))

    def _learn(self, frame: bytes) -> int:
        """Return the request id of an answer that is seen for the first time, 0 for others."""
        try:
            command = command_of(frame)
        except MalformedFrame as error:
            self._unexpected(str(error))
            return 0
        answer = answer_of(command)
        if answer is None:
            self._not_an_answer(command)
            return 0
        if self._deck.topic_of(answer.request_id) is None:
            self._unexpected(f"an answer to request {answer.request_id}, which was never sent")
            return 0
        complaint = self._deck.complaint(answer)
        if complaint:
            tally = self._tally
            tally.errors += 1
            topic = self._deck.topic_of(answer.request_id)
            tally.first_error = tally.first_error or f"{topic}: {complaint}"
        elif len(self._known) < self._known_max:
            self._known[frame] = answer.request_id
        return answer.request_id

    def _not_an_answer(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CONNECTED and not self._is_connected:
            self._is_connected = True
        elif command.type == BaseCommand.PING:
            self._transport.write(pong_frame())
        elif command.type != BaseCommand.PONG:
            self._unexpected(f"a command of type {command.type}: {command}")

    def _unexpected(self, text: str) -> None:
        self._tally.unexpected += 1
        self._tally.first_unexpected = self._tally.first_unexpected or text

    def _parse(self, frames: bytes) -> list[Answer]:
        """Return the good answers in whole frames."""
        answers = []
        position = 0
        while position < len(frames):
            end = position + SIZE_BYTES + int.from_bytes(frames[position : position + 4], "big")
            answer = answer_of(command_of(frames[position:end]))
            if answer is not None and not answer.complaint:
                answers.append(answer)
            position = end
        return answers
