"""Entries decoded once, and not kept for long."""

from __future__ import annotations

import pytest

from nextgen.replication.ports import Entry
from shards.domain import topic
from shards.wire import decoded_entries
from shards.wire.decoded_entries import DecodedEntries
from tests.support.shards.events import TIME_MS, record_of


def entry(index: int, events: int) -> Entry:
    created = [topic.TopicCreated(f"id-{n}", f"t-{n}", 0, "ns-1", TIME_MS) for n in range(events)]
    return Entry(index, 1, index * 100, (record_of(created),))


def test_slices_and_the_whole_are_the_same_events() -> None:
    decoded = DecodedEntries(1)
    slices = list(decoded.slices(entry(1, 7), 3))
    assert [len(part) for part in slices] == [3, 3, 1]
    whole = decoded.events(entry(1, 7))
    assert [event for part in slices for event in part] == list(whole)
    assert [event.position for event in whole] == list(range(100, 107))
    assert [len(part) for part in decoded.slices(entry(1, 7), 3)] == [3, 3, 1]
    assert decoded.decoded == 1


@pytest.mark.parametrize("excess", [0, 1])
def test_decoded_events_kept_max_are_kept_and_one_more_drops_the_oldest(
    monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(decoded_entries, "DECODED_EVENTS_KEPT_MAX", 10)
    decoded = DecodedEntries(1)
    decoded.events(entry(1, 5))
    decoded.events(entry(2, 5 + excess))
    decoded.events(entry(1, 5))
    assert decoded.decoded == 2 + excess


def test_a_record_that_counts_its_events_wrongly_is_noticed() -> None:
    sound = entry(1, 2)
    wrong = type(sound.records[0])(sound.records[0].payload, 3)
    with pytest.raises(AssertionError, match="counts its events wrongly"):
        DecodedEntries(1).events(Entry(1, 1, 1, (wrong,)))
