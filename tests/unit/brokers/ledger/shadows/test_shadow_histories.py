"""Random histories of a source, its owners and its feed, as a reader of a shadow sees them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from brokers.adapters.ledger.shadow_ledger import FedLedger, FedLedgers
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import Entry, NewEntry, TopicLedger
from brokers.ports.source_feed import SourceAway
from nextgen.kernel.routing.names import parse_topic
from tests.support.brokers.fake_feeds import FakeFeeds, InlinePool
from tests.support.simulated.disk import SimDisk

SOURCE_ID = "0a1b00112233445566778899"
SHADOW_ID = "0a1b00112233445566778800"
SOURCE = parse_topic("persistent://public/default/orders")
SHADOW = parse_topic("persistent://public/default/orders-shadow")
HISTORIES = 40
STEPS = 60


class History:
    """One history. ``read_on`` checks what the reader gets against all that was published."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = DiskLedgerStore(
            Path("/ledgers"),
            broker_id="b",
            storage=SimDisk(),
            segment_bytes=700,
            index_bytes=100,
            recent_bytes_max=3_000,
            make_pool=lambda _threads, _name: InlinePool(),
        )
        self.feeds = FakeFeeds(SOURCE_ID)
        self.published: list[Entry] = []
        self.unsent: list[Entry] = []
        self.read_up_to = BEFORE_ALL
        self.epoch = 0
        self.shadow_epoch = 0
        self.source: TopicLedger
        self.shadow: FedLedger

    async def begin(self) -> None:
        await self.next_owner()
        await self.reopen()

    async def next_owner(self) -> None:
        """Another epoch owns the source; the feed of the one before ends."""
        self.epoch += 1
        if self.feeds.ledger is not None:
            self.feeds.go_away(SourceAway.MOVED)
        self.source = await self.store.open(SOURCE_ID, "", self.epoch, topic_name=SOURCE.text)
        self.unsent.clear()
        self.feeds.return_with(self.source)

    async def publish(self) -> None:
        last = self.source.last
        for _ in range(self.random.randint(1, 4)):
            payload = b"x" * self.random.choice((1, 100, 300))
            await self.source.append(NewEntry(payload, 1, "p", len(self.published)))
        new = await self.source.read(last, entries_max=100, bytes_max=10**6)
        self.published += new
        self.unsent += new

    async def send(self) -> None:
        """Send what is new: with all of its entries, with the newest, or with none."""
        if self.feeds.ledger is None:
            return
        self.feeds.send(self.unsent[self.random.randint(0, len(self.unsent)) :])
        self.unsent.clear()

    async def trim(self) -> None:
        if self.published:
            await self.source.trim(self.random.choice(self.published).position)

    async def lose(self) -> None:
        if self.feeds.ledger is not None:
            self.feeds.go_away(self.random.choice(list(SourceAway)))

    async def come_back(self) -> None:
        if self.feeds.ledger is None:
            self.unsent.clear()
            self.feeds.return_with(self.source)

    async def reopen(self) -> None:
        """The shadow has another owner."""
        self.shadow_epoch += 1
        self.feeds.away = SourceAway.UNLISTED
        own = await self.store.open(SHADOW_ID, "", self.shadow_epoch, topic_name=SHADOW.text)
        self.shadow = await FedLedgers(self.store, self.feeds).open(own, SHADOW, SOURCE)

    async def read_on(self) -> None:
        """Read on: the next kept entries, each once and as published, in order."""
        read: Any = self.shadow.read_recent(self.read_up_to, entries_max=3, bytes_max=500)
        if read is None:
            read = await self.shadow.read(self.read_up_to, entries_max=3, bytes_max=500)
        due = [each for each in self.published if each.position > self.read_up_to]
        # All that an unlisted shadow had may have been trimmed: reading finds out.
        if self.read_up_to < self.shadow.last:
            assert read, f"{self.read_up_to} is not the end {self.shadow.last}"
        if read:
            first = [each for each in due if each.position >= self.shadow.first]
            assert list(read) == first[: len(read)]
            assert due[0] == read[0] or due[0].position < self.source.first
            self.read_up_to = read[-1].position

    def check(self) -> None:
        shadow, source = self.shadow, self.source
        assert shadow.last <= source.last
        kept = [each for each in self.published if shadow.first <= each.position <= shadow.last]
        assert shadow.entry_count == len(kept)
        assert shadow.entries_between(self.read_up_to, Position(2**62, 0)) == len(
            [each for each in kept if each.position > self.read_up_to]
        )

    async def end(self) -> None:
        """With the source back and everything sent, the reader gets to the end."""
        await self.come_back()
        await self.send()
        while self.read_up_to < self.shadow.last:
            await self.read_on()
        assert self.shadow.last == self.source.last
        assert self.shadow.extents == self.source.extents
        await self.shadow.close()
        await self.store.close()


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_a_reader_gets_each_kept_entry_once_and_in_order(seed: int):
    history = History(seed)
    await history.begin()
    steps = [
        *(history.publish,) * 4,
        *(history.send,) * 4,
        *(history.read_on,) * 6,
        history.trim,
        history.lose,
        *(history.come_back,) * 2,
        history.next_owner,
        history.reopen,
    ]

    for _ in range(STEPS):
        await history.random.choice(steps)()
        history.check()

    await history.end()
