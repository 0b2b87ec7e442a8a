"""The ledger of a shadow: what it shows of its source, and what it has of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokers.adapters.ledger.format.files import ENTRIES
from brokers.adapters.ledger.reading.feed_reader import FeedReader
from brokers.adapters.ledger.shadow_ledger import FedLedger, FedLedgers
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import BEFORE_ALL, Position, ledger_id_of
from brokers.ports.ledger import Entry, Fenced, LedgerDamaged, NewEntry, StorageFailed, TopicLedger
from brokers.ports.shadows import ShadowListener
from brokers.ports.source_feed import SourceAway
from nextgen.kernel.routing.names import parse_topic
from tests.support.brokers.fake_feeds import FakeFeeds, InlinePool

SOURCE_ID = "0a1b00112233445566778899"
SHADOW_ID = "0a1b00112233445566778800"
SOURCE = parse_topic("persistent://public/default/orders")
SHADOW = parse_topic("persistent://public/default/orders-shadow")
LARGE = b"x" * 400
"""Two of these fill a segment."""


class World:
    """A source with an owner, and what its shadow is made of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = DiskLedgerStore(
            folder,
            broker_id="b",
            segment_bytes=1_000,
            index_bytes=100,
            make_pool=lambda _threads, _name: InlinePool(),
        )
        self.feeds = FakeFeeds(SOURCE_ID)
        self.number = 0

    async def source(self, epoch: int = 1) -> TopicLedger:
        self.feeds.ledger = await self.store.open(SOURCE_ID, "", epoch, topic_name=SOURCE.text)
        return self.feeds.ledger

    async def shadow(self, epoch: int = 1) -> FedLedger:
        own = await self.store.open(SHADOW_ID, "", epoch, topic_name=SHADOW.text)
        return await FedLedgers(self.store, self.feeds).open(own, SHADOW, SOURCE)

    async def publish(self, *payloads: bytes) -> list[Entry]:
        """Have the source's owner store these; the shadow learns nothing yet."""
        source = self.feeds.ledger
        assert source is not None
        last = source.last
        for payload in payloads:
            self.number += 1
            await source.append(NewEntry(payload, 1, "p", self.number))
        return list(await source.read(last, entries_max=100, bytes_max=10**6))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.store.close()


class Listening(ShadowListener):
    """Records the calls that a shadow's ledger makes to its listener."""

    def __init__(self, ledger: FedLedger) -> None:
        self.ledger = ledger
        self.trims: list[tuple[Position, int]] = []
        self.facts = 0
        self.appended = 0
        ledger.listen(self)
        ledger.on_appended(self._appended)

    def before_trim(self, first: Position) -> None:
        self.trims.append((first, self.ledger.entry_count))

    def facts_changed(self) -> None:
        self.facts += 1

    def _appended(self) -> None:
        self.appended += 1


async def payloads(ledger: TopicLedger, after: Position = BEFORE_ALL) -> list[bytes]:
    found: list[bytes] = []
    while entries := await ledger.read(after, entries_max=2, bytes_max=10_000):
        found += [entry.payload for entry in entries]
        after = entries[-1].position
    return found


def in_memory(ledger: TopicLedger, after: Position) -> list[bytes] | None:
    entries = ledger.read_recent(after, entries_max=100, bytes_max=10_000)
    return None if entries is None else [entry.payload for entry in entries]


# The source's entries -------------------------------------------------------------------------


async def test_a_shadow_shows_the_entries_of_its_source_at_their_positions(world: World):
    source = await world.source()
    entries = await world.publish(b"1", LARGE, LARGE, LARGE)

    shadow = await world.shadow()

    assert await shadow.read(BEFORE_ALL, entries_max=2, bytes_max=10_000) == entries[:2]
    assert await payloads(shadow) == [b"1", LARGE, LARGE, LARGE]
    assert (shadow.first, shadow.last) == (source.first, source.last)
    assert (shadow.entry_count, shadow.byte_count) == (4, source.byte_count)
    assert shadow.extents == source.extents
    assert shadow.extents_from(shadow.last.ledger_id) == source.extents[-1:]
    assert shadow.last_time_ms == source.last_time_ms
    assert shadow.entries_between(BEFORE_ALL, entries[1].position) == 2
    assert await shadow.before_time(source.last_time_ms + 1) == source.last
    assert world.feeds.followed == [(SOURCE.text, SHADOW.text)]


async def test_new_entries_are_read_from_memory_and_others_from_the_files(world: World):
    await world.source()
    await world.publish(b"0")
    shadow = await world.shadow()
    listening = Listening(shadow)

    new = await world.publish(b"1", b"2")
    world.feeds.send(new)

    assert listening.appended == 1
    assert in_memory(shadow, Position(new[0].position.ledger_id, 0)) == [b"1", b"2"]
    assert in_memory(shadow, BEFORE_ALL) is None, "the first one is in the files"
    assert await payloads(shadow) == [b"0", b"1", b"2"]


async def test_what_was_announced_and_not_sent_is_read_from_the_files(world: World):
    """A large entry, or a feed that is behind: only the extents come."""
    await world.source()
    shadow = await world.shadow()
    world.feeds.send(await world.publish(b"1"))
    behind = await world.publish(b"2")

    world.feeds.send()

    assert in_memory(shadow, Position(behind[0].position.ledger_id, 0)) is None
    assert await payloads(shadow) == [b"1", b"2"]
    world.feeds.send(await world.publish(b"3"))
    assert in_memory(shadow, behind[-1].position) == [b"3"]
    assert await payloads(shadow) == [b"1", b"2", b"3"]


async def test_of_many_new_entries_the_newest_may_be_all_that_is_sent(world: World):
    await world.source()
    shadow = await world.shadow()
    new = await world.publish(b"1", b"2", b"3")

    world.feeds.send(new[1:])

    assert in_memory(shadow, new[0].position) == [b"2", b"3"]
    assert in_memory(shadow, BEFORE_ALL) is None
    assert await payloads(shadow) == [b"1", b"2", b"3"]


async def test_entries_that_the_files_showed_before_are_counted_once(world: World):
    """Files show what is durable a moment before its owner has acknowledged it."""
    await world.source()
    entries = await world.publish(b"1", b"2")
    await (await world.shadow()).close()
    world.feeds.ledger = None
    world.feeds.away = SourceAway.ABSENT
    shadow = await world.shadow()
    assert shadow.entry_count == 2

    world.feeds.ledger = await world.store.open(SOURCE_ID, "", 1, topic_name=SOURCE.text)
    world.feeds._sent = 0
    for follow in world.feeds.follows[1:]:
        state = world.feeds.state()
        told = state.extents[0]._replace(entries=1)
        follow.listener.on_source(type(state)(state.topic_id, "", state.epoch, [told], state.facts))
    assert shadow.last == entries[-1].position, "an extent never shrinks"
    world.feeds.send([entries[1], *await world.publish(b"3")])

    assert shadow.entry_count == 3
    assert in_memory(shadow, entries[-1].position) == [b"3"]
    assert await payloads(shadow) == [b"1", b"2", b"3"]


async def test_a_later_owner_of_the_source_is_followed(world: World):
    await world.source()
    shadow = await world.shadow()
    listening = Listening(shadow)
    world.feeds.send(await world.publish(b"1"))
    world.feeds.go_away(SourceAway.MOVED)
    assert shadow.away == "moved"

    world.feeds.return_with(await world.source(epoch=2))
    world.feeds.send(await world.publish(b"2"))

    assert shadow.away == ""
    assert await payloads(shadow) == [b"1", b"2"]
    assert shadow.last == Position(ledger_id_of(2, 0), 0)
    assert listening.appended == 2


async def test_what_the_source_trims_disappears_and_is_announced_before(world: World):
    source = await world.source()
    await world.publish(LARGE, LARGE, LARGE, LARGE, b"5")
    shadow = await world.shadow()
    listening = Listening(shadow)
    assert await payloads(shadow) == [LARGE] * 4 + [b"5"]

    await source.trim(Position(source.first.ledger_id, 9))
    world.feeds.send()
    world.feeds.send()

    assert listening.trims == [(source.first, 5)]
    assert shadow.first == source.first
    assert shadow.entry_count == 3
    assert await payloads(shadow) == [LARGE] * 2 + [b"5"]


async def test_entries_trimmed_a_moment_ago_are_skipped_and_not_taken_for_damage(world: World):
    source = await world.source()
    await world.publish(LARGE, LARGE, LARGE, b"4")
    shadow = await world.shadow()
    listening = Listening(shadow)
    await source.trim(Position(source.first.ledger_id, 9))

    assert await payloads(shadow) == [LARGE, b"4"]
    assert listening.trims == [(source.first, 4)]


async def test_a_trim_that_is_announced_while_its_file_is_missed_is_no_damage(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    source = await world.source()
    await world.publish(LARGE, LARGE, LARGE, b"4")
    shadow = await world.shadow()
    await source.trim(Position(source.first.ledger_id, 9))

    def is_removed(_reader: FeedReader, _segment: object) -> bool:
        world.feeds.send()
        return False

    monkeypatch.setattr(FeedReader, "_is_removed", is_removed)

    assert await payloads(shadow) == [LARGE, b"4"]


async def test_a_file_that_is_missing_without_a_trim_is_damage(world: World):
    await world.source()
    await world.publish(LARGE, LARGE, LARGE, b"4")
    shadow = await world.shadow()
    min(entries_of(world, SOURCE_ID)).unlink()

    with pytest.raises(LedgerDamaged):
        await payloads(shadow)


# The source is away ---------------------------------------------------------------------------


async def test_a_shadow_opens_without_its_source_and_shows_what_is_stored(world: World):
    source = await world.source()
    await source.put_state("schema/0", b"s")
    await world.publish(b"1", b"2")
    await (await world.shadow()).close()
    world.feeds.ledger = None
    world.feeds.away = SourceAway.ABSENT
    world.feeds.locates = False

    shadow = await world.shadow()

    assert shadow.away == "absent"
    assert await payloads(shadow) == [b"1", b"2"]
    assert shadow.state == {"schema/0": b"s"}


async def unlisted(world: World) -> FedLedger:
    """Open the shadow while its source does not list it."""
    world.feeds.ledger, ledger = None, world.feeds.ledger
    world.feeds.away = SourceAway.UNLISTED
    shadow = await world.shadow()
    world.feeds.ledger = ledger
    return shadow


async def test_a_shadow_that_was_never_listed_shows_nothing_that_is_stored(world: World):
    await world.source()
    await world.publish(b"1", LARGE)

    for _ in range(2):
        shadow = await unlisted(world)
        assert (await payloads(shadow), shadow.entry_count) == ([], 0)
        await shadow.close()

    shadow = await world.shadow()
    assert await payloads(shadow) == [b"1", LARGE], "it is listed"


async def test_a_shadow_keeps_what_it_had_when_it_was_taken_from_the_list(world: World):
    source = await world.source()
    await world.publish(b"1", LARGE, LARGE, b"2")
    shadow = await world.shadow()
    world.feeds.go_away(SourceAway.UNLISTED)
    world.feeds.ledger = source
    await shadow.close()
    before = [b"1", LARGE, LARGE, b"2"]
    # The last file grows, and another begins.
    await world.publish(b"3", LARGE, LARGE, b"4")

    for _ in range(2):
        shadow = await unlisted(world)
        assert await payloads(shadow) == before
        assert shadow.entry_count == len(before)
        assert "shadow-fed" not in shadow.state
        await shadow.close()
    await source.trim(source.last)
    shadow = await unlisted(world)
    assert await payloads(shadow) == []
    await shadow.close()

    await world.publish(b"5")
    shadow = await world.shadow()
    assert (await payloads(shadow))[-1] == b"5", "it is listed again"
    assert shadow.last == source.last


async def test_all_that_an_unlisted_shadow_had_may_be_trimmed(world: World):
    source = await world.source()
    shadow = await world.shadow()
    entries = await world.publish(LARGE, LARGE)
    world.feeds.send()
    listening = Listening(shadow)
    world.feeds.go_away(SourceAway.UNLISTED)
    world.feeds.ledger = source
    await world.publish(LARGE, LARGE, LARGE)
    await source.trim(entries[-1].position)
    await source.trim(Position(source.first.ledger_id, 9))

    assert await payloads(shadow) == [], "and no damage"

    assert listening.trims == [(source.first, 2)]
    assert (shadow.last, shadow.entry_count) == (BEFORE_ALL, 0)
    world.feeds.return_with(source)
    assert await payloads(shadow) == await payloads(source)


async def test_a_shadow_that_was_unlisted_while_nobody_served_it_gets_no_more(world: World):
    await world.source()
    await world.publish(b"1")
    await (await world.shadow()).close()
    await world.publish(b"2")
    shadow = await unlisted(world)
    assert await payloads(shadow) == [b"1", b"2"], "what was stored when it learnt of it"
    await shadow.close()
    await world.publish(b"3")

    shadow = await unlisted(world)

    assert await payloads(shadow) == [b"1", b"2"]


@pytest.mark.parametrize("stored", [b"\xff", b"1,2", b"1,2,3,4,x", b"1,2,3,4,5,6"])
async def test_a_last_extent_that_is_none_is_damage(world: World, stored: bytes):
    own = await world.store.open(SHADOW_ID, "", 1, topic_name=SHADOW.text)
    await own.put_state("shadow-fed", stored)

    with pytest.raises(LedgerDamaged):
        await FedLedgers(world.store, world.feeds).open(own, SHADOW, SOURCE)


async def test_a_shadow_of_a_source_that_was_never_reached_is_not_opened(world: World):
    world.feeds.away = SourceAway.ABSENT
    world.feeds.locates = False

    with pytest.raises(StorageFailed, match="orders is not known: absent"):
        await world.shadow()

    assert all(each.is_closed for each in world.feeds.follows)


@pytest.mark.parametrize("stored", [b"\xff", b"../../elsewhere"])
async def test_a_source_id_that_is_none_is_damage(world: World, stored: bytes):
    own = await world.store.open(SHADOW_ID, "", 1, topic_name=SHADOW.text)
    await own.put_state("shadow-source", stored)

    with pytest.raises(LedgerDamaged, match="the id of the source"):
        await world.shadow()

    with pytest.raises(StorageFailed):
        await own.put_state("cursor/s", b"c")


async def test_a_source_that_has_stored_nothing_is_empty(world: World):
    world.feeds.away = SourceAway.UNLISTED

    shadow = await world.shadow()

    assert (shadow.last, shadow.entry_count) == (BEFORE_ALL, 0)
    assert await shadow.read(BEFORE_ALL, entries_max=1, bytes_max=1) == ()


# What it has of its own -----------------------------------------------------------------------


async def test_nothing_is_trimmed_of_a_source_that_is_empty(world: World):
    source = await world.source()
    shadow = await world.shadow()
    listening = Listening(shadow)

    world.feeds.go_away()
    world.feeds.return_with(source)
    world.feeds.send()

    assert listening.trims == []


async def test_cursors_are_stored_under_the_shadows_own_id(world: World):
    source = await world.source()
    shadow = await world.shadow()
    await shadow.put_state("cursor/s", b"c")
    await shadow.close()

    again = await world.shadow(epoch=2)

    assert again.state == {"cursor/s": b"c"}
    assert again.epoch == 2
    assert "cursor/s" not in source.state


async def test_the_facts_of_the_source_are_the_shadows(world: World):
    source = await world.source()
    await source.put_state("cursor/of-the-source", b"c")
    shadow = await world.shadow()
    listening = Listening(shadow)

    await source.put_state("schema/0", b"s")
    world.feeds.send(has_facts=True)
    world.feeds.send(has_facts=True)

    assert shadow.state == {"schema/0": b"s"}
    assert listening.facts == 1


async def test_nothing_can_be_appended_and_trimming_is_reported(world: World):
    await world.source()
    entries = await world.publish(LARGE, LARGE, LARGE)
    shadow = await world.shadow()

    await shadow.trim(entries[1].position)
    with pytest.raises(AssertionError):
        shadow.append(NewEntry(b"x", 1, "p", 1))

    assert world.feeds.follows[0].reported == [entries[1].position]
    assert shadow.entry_count == 3
    assert (shadow.producers, shadow.is_congested) == ({}, False)
    await shadow.put_state("cursor/s", b"c")
    assert shadow.pending_bytes == 0
    assert entries_of(world, SHADOW_ID) == []


async def test_a_later_owner_of_the_shadow_fences_it(world: World):
    await world.source()
    shadow = await world.shadow()
    fenced: list[Any] = []
    failed: list[Exception] = []
    shadow.on_fenced(lambda: fenced.append(1))
    shadow.on_failed(failed.append)
    await world.shadow(epoch=2)

    shadow.look_for_fence()
    with pytest.raises(Fenced):
        await shadow.put_state("cursor/s", b"c")

    assert (shadow.is_fenced, fenced, failed) == (True, [1], [])
    await shadow.close()


async def test_a_closed_shadow_follows_no_more(world: World):
    await world.source()
    shadow = await world.shadow()
    world.feeds.send(await world.publish(b"1"))

    await asyncio.gather(shadow.close(), shadow.close(is_over=True))

    assert world.feeds.follows[0].is_closed
    assert world.store.recent.byte_count > 0, "those of the source itself"
    source = world.feeds.ledger
    assert source is not None
    await source.close()
    assert world.store.recent.byte_count == 0


def entries_of(world: World, topic_id: str) -> list[Path]:
    return [path for path in world.folder.rglob(f"*{ENTRIES}") if topic_id in path.parts]
