"""The path from SEND to receipt: detect duplicates, append entries, answer in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.producing.deduplication import NONE_YET, ProducerSequence, last_sequence_id
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import Fenced, NewEntry, TopicLedger
from brokers.ports.producer import ProducerSink, Publication
from brokers.service.producing.begun_message import begun_message
from brokers.service.traffic import Latency, Traffic
from nextgen.tasks.background import join
from nextgen.tasks.timeouts import timeout

UNKEPT = Position(0, 0)
"""The position in the receipts of topics that keep nothing, as in Pulsar."""


class NameState:
    """The stored and pending messages of one producer name; outlives its connections."""

    __slots__ = (
        "bytes_in",
        "is_known",
        "last_append",
        "messages_in",
        "recalling",
        "sequence",
        "users",
        "waiting",
    )

    def __init__(self, highest: int, *, is_known: bool) -> None:
        self.sequence = ProducerSequence(highest)
        self.last_append: asyncio.Future[Position] | None = None
        self.users = 0
        self.is_known = is_known
        """Whether the stored chunks of an incomplete message are known."""
        self.recalling: asyncio.Task[tuple[int, int] | None] | None = None
        """The search of storage for these chunks, while it runs."""
        self.waiting: deque[tuple[ProducerSink, Publication]] = deque()
        """Publications that arrived during the search."""
        self.messages_in = 0
        self.bytes_in = 0

    @property
    def is_idle(self) -> bool:
        return not self.users and self.last_append is None and self.recalling is None


class Publishing:
    """Appends one topic's messages to its ledger.

    ``on_failure`` is called once, when an append failed: the ledger then stores nothing more.
    """

    def __init__(
        self,
        ledger: TopicLedger,
        *,
        is_kept: bool,
        traffic: Traffic,
        append_latency: Latency,
        now_ms: Callable[[], int],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._ledger = ledger
        self._is_kept = is_kept
        self._deduplicates = is_kept
        self._traffic = traffic
        self._append_latency = append_latency
        self.now_ms = now_ms
        self._on_failure = on_failure
        self._names: dict[str, NameState] = {}
        self._clock = asyncio.get_running_loop().time
        self._failure: BaseException | None = None
        self._drained: asyncio.Event | None = None
        self.in_flight = 0
        self.entries_stored = 0
        self.is_stopped = False
        self.refusal: Refusal | None = None
        """The reason why publications are refused at the moment, or None."""

    def recognise_duplicates(self, *, is_wanted: bool) -> None:
        """Enable or disable deduplication of later publications.

        A topic that stores nothing cannot deduplicate.
        """
        self._deduplicates = is_wanted and self._is_kept

    def claim_name(self, name: str) -> NameState:
        """Return the state of a producer name, and keep it until ``release_name``."""
        state = self._names.get(name)
        if state is None:
            before = self._ledger.producers.get(name)
            state = NameState(NONE_YET if before is None else before, is_known=before is None)
            self._names[name] = state
        state.users += 1
        return state

    def release_name(self, name: str) -> None:
        state = self._names[name]
        state.users -= 1
        self._forget(name, state)

    async def settle(self, state: NameState) -> int:
        """Wait until a name has no pending appends; return its last stored sequence id."""
        if state.recalling is not None:
            await asyncio.wait([state.recalling])
        if state.last_append is not None and not state.last_append.done():
            await asyncio.wait([state.last_append])
        return state.sequence.highest

    def publish(
        self, name: str, state: NameState, sink: ProducerSink, publication: Publication
    ) -> None:
        """Store a publication and answer it. Does neither while the topic is being closed."""
        if self.is_stopped:
            sink.settled(publication)
            return
        if self.refusal is not None and state.recalling is None:
            self._refuse(state, sink, publication, self.refusal)
            return
        if not self._is_recalled(name, state, publication):
            state.waiting.append((sink, publication))
            return
        last = last_sequence_id(publication.sequence_id, publication.highest_sequence_id)
        if not self._deduplicates:
            state.sequence.follow(publication.sequence_id, last, publication.chunk)
        elif not state.sequence.admit(publication.sequence_id, last, publication.chunk):
            self._answer_duplicate(state, sink, publication)
            return
        # The publication is newer than all that its producer has stored, so are later ones.
        state.is_known = True
        entry = NewEntry(
            publication.payload, publication.message_count, name, state.sequence.highest
        )
        future = self._ledger.append(entry)
        self.in_flight += 1
        state.last_append = future
        future.add_done_callback(
            partial(self._appended, name, state, sink, publication, self._clock())
        )

    def stop(self) -> None:
        """Drop later publications: the clients are about to be redirected."""
        self.is_stopped = True
        for state in list(self._names.values()):
            if state.recalling is not None:
                state.recalling.cancel()

    async def drained(self, timeout_ms: int) -> bool:
        """Wait until all appends are answered; return False if that takes too long."""
        if not self.in_flight:
            return True
        if self._drained is None or self._drained.is_set():
            self._drained = asyncio.Event()
        try:
            async with timeout(timeout_ms / 1000):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True

    def _is_recalled(self, name: str, state: NameState, publication: Publication) -> bool:
        """Whether memory has enough to decide now if the publication is a duplicate. If not, start
        a search of storage."""
        if state.recalling is not None:
            return False
        if publication.chunk is None or state.is_known or not self._deduplicates:
            return True
        search = begun_message(self._ledger, name, self.now_ms())
        state.recalling = join(search)
        state.recalling.add_done_callback(partial(self._recalled, name, state))
        return False

    def _recalled(
        self, name: str, state: NameState, search: asyncio.Task[tuple[int, int] | None]
    ) -> None:
        """Handle the publications that arrived during the search for stored chunks."""
        state.recalling = None
        state.is_known = True
        error = None if search.cancelled() else search.exception()
        if isinstance(error, Exception):
            self.is_stopped = True
            self._on_failure(error)
        elif not search.cancelled() and (begun := search.result()) is not None:
            state.sequence.recall(*begun)
        waiting, state.waiting = state.waiting, deque()
        for sink, publication in waiting:
            self.publish(name, state, sink, publication)
        self._forget(name, state)

    def _answer_duplicate(
        self, state: NameState, sink: ProducerSink, publication: Publication
    ) -> None:
        # The original is the last append or an earlier one.
        _answer_behind(
            state.last_append, sink, publication, lambda: sink.stored(publication, BEFORE_ALL)
        )

    def _refuse(
        self, state: NameState, sink: ProducerSink, publication: Publication, refusal: Refusal
    ) -> None:
        # A client takes the end of a topic for an answer to all that it has not got a receipt for:
        # an earlier message would be stored here and be published elsewhere once more.
        _answer_behind(
            state.last_append,
            sink,
            publication,
            lambda: sink.failed(publication, refusal.code, refusal.message),
        )

    def _appended(
        self,
        name: str,
        state: NameState,
        sink: ProducerSink,
        publication: Publication,
        began_at: float,
        future: asyncio.Future[Position],
    ) -> None:
        self.in_flight -= 1
        failure = asyncio.CancelledError() if future.cancelled() else future.exception()
        if failure is None:
            self._append_latency.observe(self._clock() - began_at)
            size = len(publication.payload)
            self._traffic.count_in(publication.message_count, size)
            self.entries_stored += 1
            state.messages_in += publication.message_count
            state.bytes_in += size
            sink.stored(publication, future.result() if self._is_kept else UNKEPT)
        else:
            self._failed(sink, publication, failure)
        sink.settled(publication)
        if state.last_append is future:
            state.last_append = None
            self._forget(name, state)
        if not self.in_flight and self._drained is not None:
            self._drained.set()

    def _failed(self, sink: ProducerSink, publication: Publication, failure: BaseException) -> None:
        # If the topic was fenced or closed, the client is redirected and repeats the message at the
        # new owner: it must not get an error.
        if not isinstance(failure, Fenced | asyncio.CancelledError):
            sink.failed(publication, ServerError.PERSISTENCE, str(failure))
        if self._failure is None:
            self._failure = failure
            self.is_stopped = True
            if isinstance(failure, Exception):
                self._on_failure(failure)

    def _forget(self, name: str, state: NameState) -> None:
        if state.is_idle and self._names.get(name) is state:
            del self._names[name]


def _answer_behind(
    append: asyncio.Future[Position] | None,
    sink: ProducerSink,
    publication: Publication,
    answer: Callable[[], None],
) -> None:
    """Answer a publication behind an append of its producer name, and not if that has failed: the
    client is redirected then and repeats both."""
    if append is None:
        answer()
        sink.settled(publication)
        return

    # A done future calls back in its turn, so this answer does not overtake earlier answers.
    def appended(future: asyncio.Future[Position]) -> None:
        if not future.cancelled() and future.exception() is None:
            answer()
        sink.settled(publication)

    append.add_done_callback(appended)
