"""The ledger of a shadow: the entries of its source, with claim, fences and cursors of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import structlog

from brokers.adapters.ledger.accepting import Listeners
from brokers.adapters.ledger.reading.feed_reader import FeedReader
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import (
    Entry,
    Extent,
    LedgerDamaged,
    NewEntry,
    StorageFailed,
    TopicLedger,
)
from brokers.ports.shadows import ShadowLedger, ShadowLedgers, ShadowListener
from brokers.ports.source_feed import (
    SourceAway,
    SourceChange,
    SourceFeeds,
    SourceFollow,
    SourceState,
)
from brokers.service.shadows.acknowledged import KEEPS_NOTHING
from nextgen.kernel.limits.shadow import SHADOW_SOURCE_WAIT_MS
from nextgen.kernel.routing.names import TopicName
from nextgen.tasks.timeouts import timeout

_SOURCE_ID_KEY = "shadow-source"
"""Key in the shadow's own state: the topic id of its source, to find the files by."""

_FED_KEY = "shadow-fed"
"""Key in the shadow's own state: how far its source may be looked at without its owner, ``_LISTED``
or an extent. Absent: the source has not listed the shadow yet."""

_LISTED = b"listed"
"""The source lists the shadow, as far as is known: all that it has stored."""

_NOTHING = Extent(-1, 0, 0, 0, 0)
"""Below every ledger."""

_OWN_KEYS = frozenset({_SOURCE_ID_KEY, _FED_KEY})

_HOPELESS = frozenset({SourceAway.UNLISTED, SourceAway.ABSENT})
"""Reasons that do not pass while a client waits."""

_logger = structlog.get_logger(__name__)

_Read = TypeVar("_Read")


class SourceStore(Protocol):
    """What a shadow needs of the store with its source's files."""

    def feed_reader(self, topic_id: str, unit: str) -> FeedReader:
        """Return a reader that knows no extent yet."""
        ...

    async def look(self, topic_id: str, unit: str) -> SourceState | None:
        """Measure what a unit has stored; None: nothing.

        Raises:
            LedgerDamaged, StorageFailed: See ``LedgerReader``.
        """
        ...


class FedLedger(ShadowLedger):
    """A shadow's ledger. Made by ``FedLedgers``; a ``SourceListener``."""

    def __init__(
        self, own: TopicLedger, store: SourceStore, shadow: TopicName, source: TopicName
    ) -> None:
        self._own = own
        self._store = store
        self._shadow = shadow
        self._source = source
        self._source_id = ""
        self._reader: FeedReader | None = None
        self._use_source(own.state.get(_SOURCE_ID_KEY, b"").decode())
        self._check_fed()
        self._facts: Mapping[str, bytes] = {}
        self._away = "the source was not reached yet"
        self._is_known = False
        self._is_unlisted = False
        self._settled = asyncio.Event()
        """Set when the source is known, or is not going to be for the time being."""
        self._follow: SourceFollow | None = None
        self._listener: ShadowListener | None = None
        self._appended = Listeners()

    def __repr__(self) -> str:
        return f"<FedLedger {self._shadow.text} of {self._source.text} away={self._away!r}>"

    # The source ------------------------------------------------------------------------------

    @property
    def source(self) -> TopicName:
        return self._source

    @property
    def away(self) -> str:
        return self._away

    def listen(self, listener: ShadowListener) -> None:
        self._listener = listener

    async def begin(self, feeds: SourceFeeds) -> None:
        """Follow the source; return when it is known.

        Raises:
            StorageFailed: It is not known. The feed does not reach it, and never did before.
            LedgerDamaged: The files of the source are damaged.
        """
        self._follow = feeds.follow(self._source, self._shadow, self)
        with suppress(TimeoutError):
            async with timeout(SHADOW_SOURCE_WAIT_MS / 1_000):
                await self._settled.wait()
        if self._is_known:
            return
        is_decided = self._is_unlisted or _FED_KEY in self._own.state
        if not self._source_id or not is_decided:
            # A subscription at the end of a topic that only seems to be empty would get everything.
            raise StorageFailed(f"its source {self._source.text} is not known: {self._away}")
        await self._look()
        _logger.info("shadow opened without its source", shadow=repr(self))

    def on_located(self, topic_id: str, unit: str) -> None:
        """Remember the source's id, durably; it is the same for ever unless the source is."""
        if topic_id != self._source_id:
            self._use_source(topic_id)
            self._own.put_state(_SOURCE_ID_KEY, topic_id.encode())

    def on_source(self, state: SourceState) -> None:
        """Take the source as it is, after it was away."""
        self.on_located(state.topic_id, state.unit)
        self._put_fed(_LISTED)
        self._away = ""
        self._take(state)

    def on_change(self, change: SourceChange) -> None:
        """Take a change, and wake the subscriptions if entries are new."""
        last = self._entries.last
        self._before_trim(Position(change.first_ledger_id, 0))
        self._entries.change(change)
        if change.facts is not None:
            self._take_facts(change.facts)
        if self._entries.last > last:
            self._appended.call()

    def on_away(self, reason: SourceAway, message: str) -> None:
        """Go on with what is known."""
        self._away = message or reason.value
        if reason is SourceAway.UNLISTED:
            self._is_unlisted = True
            if self._is_known:
                self._put_fed(_packed(self._entries.extents))
        if reason in _HOPELESS:
            self._settled.set()

    def _check_fed(self) -> None:
        """Check the own state.

        Raises:
            ValueError: It is damaged.
        """
        fed = self._own.state.get(_FED_KEY)
        if fed is not None and fed != _LISTED:
            _unpacked(fed)

    def _put_fed(self, fed: bytes) -> None:
        self._is_unlisted = fed != _LISTED
        if self._own.state.get(_FED_KEY) != fed:
            self._own.put_state(_FED_KEY, fed)

    def _use_source(self, topic_id: str) -> None:
        if self._reader is not None:
            self._reader.close()
        self._source_id = topic_id
        if topic_id:
            self._reader = self._store.feed_reader(topic_id, self._source.unit.text)

    @property
    def _entries(self) -> FeedReader:
        assert self._reader is not None, "nothing is read before the source's id is known"
        return self._reader

    def _take(self, state: SourceState, last_shown: Extent | None = None) -> None:
        """Take the source as it is; of its ledgers those up to ``last_shown``, if that is given."""
        last = self._entries.last
        first_ledger_id = state.extents[0].ledger_id if state.extents else BEFORE_ALL.ledger_id
        self._before_trim(Position(first_ledger_id, 0))
        shown = state.extents if last_shown is None else _clipped(state.extents, last_shown)
        self._entries.replace(shown, first_ledger_id)
        self._is_known = True
        self._settled.set()
        self._take_facts(state.facts)
        if self._entries.last > last:
            self._appended.call()

    def _take_facts(self, facts: Mapping[str, bytes]) -> None:
        if facts != self._facts:
            self._facts = facts
            if self._listener is not None:
                self._listener.facts_changed()

    def _before_trim(self, first: Position) -> None:
        if first > self._entries.first and self._listener is not None:
            self._listener.before_trim(first)

    async def _look(self) -> None:
        """Measure the source's files, because its owner does not say what is in them.

        A shadow sees nothing that it was not fed while its source listed it: by its list the source
        decides who reads it.
        """
        fed = self._own.state.get(_FED_KEY)
        if fed is None:
            return
        state = await self._store.look(self._source_id, self._source.unit.text)
        if state is None:
            return
        self._take(state, None if fed == _LISTED else _unpacked(fed) or _NOTHING)
        if self._is_unlisted:
            # It was taken from the list while nobody served it.
            self._put_fed(_packed(self._entries.extents))

    async def _reading(self, read: Callable[[], Awaitable[_Read]]) -> _Read:
        """Read; once more if the source has trimmed what was to be read, and has not said so, or
        said so while it was read."""
        first = self._entries.first
        try:
            return await read()
        except LedgerDamaged:
            if self._entries.first == first:
                await self._look()
            if self._entries.first == first:
                raise
            return await read()

    # Entries, which are the source's ---------------------------------------------------------

    @property
    def first(self) -> Position:
        return self._entries.first

    @property
    def last(self) -> Position:
        return self._entries.last

    @property
    def entry_count(self) -> int:
        return self._entries.entry_count

    @property
    def byte_count(self) -> int:
        return self._entries.byte_count

    @property
    def extents(self) -> Sequence[Extent]:
        return self._entries.extents

    def extents_from(self, ledger_id: int) -> Sequence[Extent]:
        return self._entries.extents_from(ledger_id)

    @property
    def last_time_ms(self) -> int:
        return self._entries.last_time_ms

    def read_recent(
        self, after: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry] | None:
        return self._entries.read_recent(after, entries_max=entries_max, bytes_max=bytes_max)

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        return await self._reading(
            lambda: self._entries.read(after, entries_max=entries_max, bytes_max=bytes_max)
        )

    async def before_time(self, publish_time_ms: int) -> Position:
        return await self._reading(lambda: self._entries.before_time(publish_time_ms))

    def entries_between(self, after: Position, up_to: Position) -> int:
        return self._entries.entries_between(after, up_to)

    def on_appended(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._appended.add(listener)

    # Nothing is appended ---------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[str, int]:
        return {}

    @property
    def is_congested(self) -> bool:
        return False

    def append(self, entry: NewEntry) -> asyncio.Future[Position]:
        raise AssertionError("a shadow has no producers")

    async def trim(self, up_to: Position) -> None:
        if self._follow is not None:
            self._follow.report(None if up_to == KEEPS_NOTHING else up_to)

    # What the shadow has of its own ----------------------------------------------------------

    @property
    def state(self) -> Mapping[str, bytes]:
        own = {key: value for key, value in self._own.state.items() if key not in _OWN_KEYS}
        return {**own, **self._facts}

    @property
    def epoch(self) -> int:
        return self._own.epoch

    @property
    def is_fenced(self) -> bool:
        return self._own.is_fenced

    @property
    def pending_bytes(self) -> int:
        return self._own.pending_bytes

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        return self._own.put_state(key, value)

    def on_fenced(self, listener: Callable[[], None]) -> None:
        self._own.on_fenced(listener)

    def on_failed(self, listener: Callable[[Exception], None]) -> None:
        self._own.on_failed(listener)

    def look_for_fence(self) -> None:
        self._own.look_for_fence()

    async def close(self, *, is_over: bool = False) -> None:
        if self._follow is not None:
            self._follow.close()
        self._listener = None
        self._appended.clear()
        if self._reader is not None:
            self._reader.close()
        await self._own.close(is_over=is_over)


def _packed(extents: Sequence[Extent]) -> bytes:
    """Return the last extent, b"" for none, as it is kept in the own state."""
    return ",".join(map(str, extents[-1])).encode() if extents else b""


def _unpacked(fed: bytes) -> Extent | None:
    """Return the extent that ``_packed`` made.

    Raises:
        ValueError: It made no such thing.
    """
    if not fed:
        return None
    numbers = [int(part) for part in fed.split(b",")]
    if len(numbers) != len(Extent._fields):
        raise ValueError(f"{fed!r} is no extent")
    return Extent(*numbers)


def _clipped(extents: Sequence[Extent], last: Extent) -> Sequence[Extent]:
    """Return the extents up to ``last``, which was smaller then."""
    return [
        last if extent.ledger_id == last.ledger_id else extent
        for extent in extents
        if extent.ledger_id <= last.ledger_id
    ]


class FedLedgers(ShadowLedgers):
    """The ledgers of a broker's shadows, over the store that has their sources' files too."""

    def __init__(self, store: SourceStore, feeds: SourceFeeds) -> None:
        self._store = store
        self._feeds = feeds

    async def open(self, own: TopicLedger, shadow: TopicName, source: TopicName) -> FedLedger:
        try:
            ledger = FedLedger(own, self._store, shadow, source)
        except ValueError as error:
            await own.close()
            raise LedgerDamaged(f"the id of the source: {error}") from error
        try:
            await ledger.begin(self._feeds)
        except BaseException:
            await ledger.close()
            raise
        return ledger
