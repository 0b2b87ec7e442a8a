"""The order of one key's messages, over any history of layouts and failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.client.st.domain.key_hash import bucket_hash, key_hash
from nextgen.client.st.domain.layout import Layout, make_layout
from nextgen.client.st.domain.outbox import Batch, Lane, Outbox, Waiting
from nextgen.client.st.errors import ConnectionFailed, NoActiveSegment, UncoveredHash
from nextgen.kernel.limits.scalable import (
    SEGMENT_ATTEMPTS_MAX,
    ST_BATCH_BYTES_MAX,
    ST_BATCH_MESSAGES_MAX,
    ST_BATCHES_IN_FLIGHT_MAX,
)
from tests.unit.client.st.domain.layouts import merge, new_layout, rebucket, segment, split

GONE = ConnectionFailed("the segment is sealed")
BUCKETS = (0x4000, 0x8000, 0xC000)


def message(key: str | None, content: object = None, size_bytes: int = 10) -> Waiting:
    return Waiting(content, None if key is None else key_hash(key), size_bytes)


def outbox_of(layout: Layout) -> Outbox:
    outbox = Outbox()
    outbox.layout_changed(layout)
    return outbox


def test_a_batch_has_messages_of_one_bucket_and_is_stamped_with_their_hashes() -> None:
    outbox = outbox_of(new_layout(1, buckets=BUCKETS))
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        lane = outbox.add(message(key, key))

    batches = []
    while (batch := outbox.take(lane)) is not None:
        batches.append(batch)

    assert len(batches) == 4
    for batch in batches:
        hashes = [bucket_hash(key_hash(each.content)) for each in batch.messages]
        assert batch.stamp == (min(hashes), max(hashes))
        assert len({sum(start <= each for start in BUCKETS) for each in hashes}) == 1


def test_messages_without_key_are_batched_apart_and_not_stamped() -> None:
    outbox = outbox_of(new_layout(1))
    lane = outbox.add(message(None))
    outbox.add(message("a"))
    outbox.add(message(None))

    first, second = outbox.take(lane), outbox.take(lane)

    assert first is not None
    assert second is not None
    assert (len(first.messages), first.stamp) == (2, None)
    assert (len(second.messages), second.stamp) == (1, (0x69B2, 0x69B2))


def test_a_batch_has_at_most_ST_BATCH_MESSAGES_MAX_messages() -> None:
    outbox = outbox_of(new_layout(1))
    for _ in range(ST_BATCH_MESSAGES_MAX + 1):
        lane = outbox.add(message("a"))

    first, second = outbox.take(lane), outbox.take(lane)

    assert first is not None
    assert second is not None
    assert (len(first.messages), len(second.messages)) == (ST_BATCH_MESSAGES_MAX, 1)


@pytest.mark.parametrize(
    ("total", "sizes"), [(ST_BATCH_BYTES_MAX, [2]), (ST_BATCH_BYTES_MAX + 1, [1, 1])]
)
def test_a_batch_has_at_most_ST_BATCH_BYTES_MAX_bytes(total: int, sizes: list[int]) -> None:
    outbox = outbox_of(new_layout(1))
    outbox.add(message("a", size_bytes=total - 1))
    lane = outbox.add(message("a", size_bytes=1))

    taken = [batch for _ in sizes if (batch := outbox.take(lane))]

    assert [len(batch.messages) for batch in taken] == sizes
    assert outbox.take(lane) is None


def test_at_most_ST_BATCHES_IN_FLIGHT_MAX_batches_are_in_flight() -> None:
    outbox = Outbox(batch_messages_max=1)
    outbox.layout_changed(new_layout(1))
    for _ in range(ST_BATCHES_IN_FLIGHT_MAX + 1):
        lane = outbox.add(message("a"))
    batches = [batch for _ in range(ST_BATCHES_IN_FLIGHT_MAX) if (batch := outbox.take(lane))]

    assert len(batches) == ST_BATCHES_IN_FLIGHT_MAX
    assert outbox.take(lane) is None
    outbox.stored(lane, batches[0])
    assert outbox.take(lane) is not None


def test_a_message_that_cannot_be_routed_is_not_added() -> None:
    with pytest.raises(NoActiveSegment):
        Outbox().add(message("a"))
    outbox = outbox_of(make_layout(1, [segment(0, 0, 0x1000)]))
    with pytest.raises(UncoveredHash):
        outbox.add(message("a"))
    assert len(outbox) == 0


def test_successors_send_nothing_until_the_last_batch_of_the_segment_is_resolved() -> None:
    layout = new_layout(1)
    outbox = outbox_of(layout)
    parent = outbox.add(message("a", 1))
    batch = outbox.take(parent)
    outbox.layout_changed(split(layout, 0))
    child = outbox.add(message("a", 2))

    assert batch is not None
    assert outbox.take(child) is None
    assert outbox.stored(parent, batch) == [child]
    taken = outbox.take(child)
    assert taken is not None
    assert [each.content for each in taken.messages] == [2]


def test_what_comes_back_goes_ahead_of_what_was_added_later() -> None:
    layout = new_layout(1)
    outbox = outbox_of(layout)
    parent = outbox.add(message("a", 1))
    outbox.take(parent)
    outbox.layout_changed(split(layout, 0))
    child = outbox.add(message("a", 2))

    pause_ms, failed, lanes = outbox.gone(parent, GONE)

    assert (pause_ms, failed, lanes) == (0, [], [child])
    taken = outbox.take(child)
    assert taken is not None
    assert [each.content for each in taken.messages] == [1, 2]


def test_pauses_grow_and_after_SEGMENT_ATTEMPTS_MAX_attempts_a_message_fails() -> None:
    outbox = outbox_of(new_layout(1))
    lane = outbox.add(message("a", 1))
    pauses = []
    for _ in range(SEGMENT_ATTEMPTS_MAX - 1):
        assert outbox.take(lane) is not None
        pause_ms, failed, _ = outbox.gone(lane, GONE)
        assert failed == []
        assert outbox.take(lane) is None, "it rests"
        pauses.append(pause_ms)
        outbox.rested(lane)

    assert outbox.take(lane) is not None
    _, failed, _ = outbox.gone(lane, GONE)

    assert pauses == [100, 200, 300, 400, 500, 500, 500, 500, 500]
    assert [(each.content, error) for each, error in failed] == [(1, GONE)]
    assert len(outbox) == 0
    assert len(pauses) + 2 == SEGMENT_ATTEMPTS_MAX + 1, "there is no further attempt"


def test_a_newer_layout_ends_a_rest() -> None:
    layout = new_layout(1)
    outbox = outbox_of(layout)
    lane = outbox.add(message("a", 1))
    outbox.gone(lane, GONE)

    _, lanes = outbox.layout_changed(split(layout, 0))

    assert [outbox.take(each) is not None for each in lanes] == [True]


def test_a_dropped_message_is_not_sent() -> None:
    outbox = outbox_of(new_layout(1))
    dropped = message("a", 1)
    outbox.add(dropped)
    lane = outbox.add(message("a", 2))
    dropped.is_dropped = True

    taken = outbox.take(lane)

    assert taken is not None
    assert [each.content for each in taken.messages] == [2]


class World:
    """Segments that store what they get until they are sealed, and a producer that learns of it
    late."""

    def __init__(self, buckets: tuple[int, ...]) -> None:
        self.layout = new_layout(2, buckets=buckets)
        self.seen = self.layout
        self.stored: list[tuple[str, int]] = []
        self.outbox = outbox_of(self.layout)
        self.sent: list[tuple[Lane, Batch]] = []
        self.added = 0
        self.failed = 0

    def add(self, key: str) -> None:
        self.outbox.add(message(key, (key, self.added)))
        self.added += 1

    def send_all(self) -> None:
        for lane in list(self.outbox.lanes):
            while (batch := self.outbox.take(lane)) is not None:
                self.sent.append((lane, batch))

    def answer(self, data: st.DataObject) -> None:
        """The server carries out a batch that is first on its way to some segment."""
        lanes = {id(lane): lane for lane, _ in self.sent}
        if not lanes:
            return
        lane = lanes[data.draw(st.sampled_from(list(lanes)))]
        batch = next(each for other, each in self.sent if other is lane)
        if self.layout.segments[lane.segment.segment_id].is_active:
            self.stored += [each.content for each in batch.messages]
            self.sent.remove((lane, batch))
            self.outbox.stored(lane, batch)
            return
        self.sent = [each for each in self.sent if each[0] is not lane]
        _, failed, _ = self.outbox.gone(lane, GONE)
        self.failed += len(failed)
        self.outbox.rested(lane)

    def change(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.layout.active))
        kinds = ["rebucket"] + ["split"] * (chosen.hash_range.size > 1)
        kinds += ["merge"] * (len(self.layout.active) > 1)
        kind = data.draw(st.sampled_from(kinds))
        if kind == "split":
            self.layout = split(self.layout, chosen.segment_id)
        elif kind == "rebucket":
            self.layout = rebucket(self.layout, chosen.segment_id, BUCKETS)
        else:
            index = data.draw(st.integers(0, len(self.layout.active) - 2))
            first, second = self.layout.active[index : index + 2]
            self.layout = merge(self.layout, first.segment_id, second.segment_id)

    def learn(self) -> None:
        self.outbox.layout_changed(self.layout)


@settings(max_examples=200)
@given(st.data())
def test_messages_of_a_key_are_stored_in_order_and_none_is_lost(data: st.DataObject) -> None:
    world = World(data.draw(st.sampled_from([(), BUCKETS])))
    steps = st.sampled_from(["add", "add", "add", "send", "answer", "answer", "change", "learn"])
    for step in data.draw(st.lists(steps, max_size=60)):
        if step == "add":
            world.add(data.draw(st.sampled_from("abcdefgh")))
        elif step == "send":
            world.send_all()
        elif step == "answer":
            world.answer(data)
        elif step == "change":
            world.change(data)
        else:
            world.learn()
    world.learn()
    for _ in range(1_000):
        world.send_all()
        if not world.sent:
            break
        world.answer(data)

    assert len(world.outbox) == 0
    for key in "abcdefgh":
        numbers = [number for stored_key, number in world.stored if stored_key == key]
        assert numbers == sorted(numbers)
    assert len(world.stored) + world.failed == world.added
