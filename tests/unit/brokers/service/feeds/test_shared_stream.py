"""One stream that several sources share: numbers, credit, its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from brokers.domain.position import Position
from brokers.ports.ledger import Entry, Extent
from brokers.ports.source_feed import SourceAway, SourceChange
from brokers.ports.source_stream import (
    FeedCredit,
    SourceChanged,
    SourceLeft,
    SourceRequest,
    SourceStream,
    SourceUpdate,
    UnfollowSource,
)
from brokers.service.feeds.shared_stream import SharedStream
from nextgen.kernel.errors import ConnectionLost
from nextgen.kernel.limits import shadow as limits
from tests.support.brokers.world import settle


class Recorded(SourceStream):
    """A stream whose updates a test makes."""

    def __init__(self) -> None:
        self.sent: list[SourceRequest] = []
        self.take: Callable[[SourceUpdate], None] = lambda _: None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(self, request: SourceRequest) -> None:
        self.sent.append(request)

    async def run(self, take: Callable[[SourceUpdate], None]) -> None:
        self.take = take
        await self.over


class Source:
    """What one source of the stream gets."""

    def __init__(self, shared: SharedStream) -> None:
        self.updates: list[SourceUpdate] = []
        self.ends: list[SourceAway] = []
        self.feed_id = shared.add(self.updates.append, lambda reason, _: self.ends.append(reason))


@pytest.fixture
async def stream() -> Recorded:
    return Recorded()


@pytest.fixture
async def shared(stream: Recorded) -> AsyncIterator[SharedStream]:
    shared = SharedStream(stream)
    await settle()
    yield shared
    await shared.close()


def changed(feed_id: int, size: int) -> SourceChanged:
    entry = Entry(Position(1, 0), b"x" * size, 1, 0, "p", 0)
    return SourceChanged(feed_id, SourceChange(1, [Extent(1, 1, size, 0, 0)], [entry]))


async def test_each_source_gets_its_updates_and_numbers_are_not_used_again(
    stream: Recorded, shared: SharedStream
) -> None:
    first, second = Source(shared), Source(shared)
    stream.take(changed(second.feed_id, 1))
    shared.remove(second.feed_id)
    stream.take(changed(second.feed_id, 1))

    assert (len(first.updates), len(second.updates)) == (0, 1)
    assert len({first.feed_id, second.feed_id, Source(shared).feed_id}) == 3
    assert second.ends == []


async def test_a_source_that_was_left_is_let_go_by_its_owner_too(
    stream: Recorded, shared: SharedStream
) -> None:
    """A shadow may have begun to follow it while the news was under way:

    1. owner → SourceLeft; 2. FollowSource of one more shadow → owner, which opens it again.
    """
    source = Source(shared)
    stream.take(SourceLeft(source.feed_id, (), SourceAway.MOVED, ""))

    shared.remove(source.feed_id)
    shared.remove(source.feed_id)

    assert stream.sent[1:] == [UnfollowSource(source.feed_id)]
    assert not shared.is_used


async def test_credit_is_given_back_in_quarters_whoever_took_it(
    stream: Recorded, shared: SharedStream
) -> None:
    quarter = limits.FEED_CREDIT_BYTES // 4
    source = Source(shared)
    assert stream.sent == [FeedCredit(limits.FEED_CREDIT_BYTES)]

    stream.take(changed(source.feed_id, quarter - 1))
    assert len(stream.sent) == 1
    stream.take(changed(99, 2))

    assert stream.sent[1:] == [FeedCredit(quarter + 1)]


async def test_its_end_ends_all_sources_once(stream: Recorded, shared: SharedStream) -> None:
    sources = [Source(shared), Source(shared)]

    stream.over.set_exception(ConnectionLost("gone"))
    await settle()
    shared.end(SourceAway.MOVED, "again")
    shared.send(FeedCredit(1))

    assert [source.ends for source in sources] == [[SourceAway.LOST]] * 2
    assert shared.is_over
    assert len(stream.sent) == 1


async def test_a_stream_that_just_returns_has_ended_too(
    stream: Recorded, shared: SharedStream
) -> None:
    source = Source(shared)

    stream.over.set_result(None)
    await settle()

    assert source.ends == [SourceAway.LOST]


async def test_feed_sources_max_are_followed_and_no_more(
    stream: Recorded, shared: SharedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.service.feeds.shared_stream.FEED_SOURCES_MAX", 2)
    Source(shared)
    assert not shared.is_full
    Source(shared)

    assert shared.is_full
