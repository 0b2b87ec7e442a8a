"""Topics born by the hundred are folded to the very tables that the general way gives."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from nextgen.kernel.routing.ids import mint_id
from nextgen.replication.ports import Entry, Record
from nextgen.replication.view.digest import scan
from nextgen.replication.view.store import ViewStore
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.parent_gate import ParentGateOpened, ParentKind
from shards.domain.topic import TopicCreated, TopicDeleted, TopicPropertiesSet
from shards.projections import births
from shards.projections.births import BIRTHS_MIN, read_births
from shards.projections.fold import fold
from shards.projections.tables import METADATA
from shards.wire.event import SCHEMA_VERSION_MAX, DomainEvent, UnknownEvent, encode_decided
from tests.support.shards.world import MemoryView

NAMESPACE_ID = mint_id(5, bytes(10))


def created(number: int, time_ms: int, *, properties: bool = False) -> TopicCreated:
    topic_id = mint_id(number % 16_384, number.to_bytes(10, "big"))
    namespace_id = NAMESPACE_ID if number % 3 else "no id of ours"
    pairs = (("owner", "me"),) if properties else ()
    name = f"persistent://acme/n{number % 3}/topic-{number:06d}"
    return TopicCreated(topic_id, name, number % 4, namespace_id, time_ms, pairs)


def record(events: list[DomainEvent], time_ms: int, command_id: bytes = b"") -> Record:
    payload = encode_decided(events, command_id=command_id, outcome=b"told", time_ms=time_ms)
    return Record(payload, len(events))


def decided(events: list[DomainEvent]) -> DecidedCommand:
    return DecidedCommand.FromString(record(events, 1).payload)


def history(seed: int) -> list[Entry]:
    """Return a log of births, small and large, and of what happens to some of them: topics change,
    go, and come again under their names."""
    chance = random.Random(seed)
    number, alive, past = 0, list[TopicCreated](), list[TopicCreated]()
    records: list[Record] = []
    for step in range(30):
        time_ms = 1_000 + step
        command_id = step.to_bytes(16, "big") if chance.random() < 0.5 else b""
        events: list[DomainEvent] = []
        kind = chance.randrange(4)
        if kind == 3:
            gone = [alive.pop(chance.randrange(len(alive))) for _ in range(min(3, len(alive)))]
            past += gone
            events += [TopicDeleted(each.name, each.topic_id) for each in gone]
            events += [TopicPropertiesSet(each.name, (("a", "b"),)) for each in alive[:2]]
        else:
            if kind == 2:
                events.append(ParentGateOpened(ParentKind.NAMESPACE, f"acme/s{step}", "id", 1))
            count = chance.choice((1, BIRTHS_MIN - 1, BIRTHS_MIN, 3 * BIRTHS_MIN))
            odd = chance.random() < 0.3
            births_ = [
                created(number + n, time_ms, properties=odd and n == 5) for n in range(count)
            ]
            number += count
            births_ += [
                replace(created(number + n, time_ms), name=each.name) for n, each in enumerate(past)
            ]
            number, past = number + len(past), []
            alive += births_
            events += births_
        records.append(record(events, time_ms, command_id))
    entries, position = [], 1
    while records:
        size = chance.randint(1, 5)
        part, records = tuple(records[:size]), records[size:]
        entries.append(Entry(len(entries) + 1, 1, position, part))
        position = entries[-1].next_position
    return entries


def in_batches(entries: list[Entry], sizes: random.Random) -> list[list[Entry]]:
    batches, rest = [], list(entries)
    while rest:
        size = sizes.randint(1, 4)
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_give_the_same_tables_in_whatever_batches(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = history(seed)
    quick, general = MemoryView(), MemoryView()
    for batch in in_batches(entries, random.Random(seed)):
        quick.apply(batch)
    monkeypatch.setattr(births, "BIRTHS_MIN", 10**9)
    for batch in in_batches(entries, random.Random(seed + 99)):
        general.apply(batch)
    assert quick.dump() == general.dump()
    quick.close()
    general.close()


@pytest.mark.parametrize("seed", range(4))
def test_the_digest_that_is_kept_is_that_of_the_rows(seed: int, tmp_path: Path) -> None:
    view = ViewStore(tmp_path / "view", METADATA, fold)
    for batch in in_batches(history(seed), random.Random(seed)):
        view.apply(batch)
        with view.pinned_state() as state:
            assert view.running_digest == scan(state.connection, METADATA)[0]
    view.close()


def test_a_name_that_comes_again_is_kept_as_it_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [created(number, 1) for number in range(BIRTHS_MIN)]
    again = [created(number, 2) for number in range(BIRTHS_MIN)]
    entries = [
        Entry(1, 1, 1, (record(list(first), 1),)),
        Entry(2, 1, 1 + BIRTHS_MIN, (record(list(again), 2),)),
    ]
    quick, general = MemoryView(), MemoryView()
    quick.apply(entries)
    monkeypatch.setattr(births, "BIRTHS_MIN", 10**9)
    general.apply(entries)
    assert quick.dump() == general.dump()


def test_the_digest_is_made_anew_where_a_name_comes_again(tmp_path: Path) -> None:
    again = record([created(number, 1) for number in range(BIRTHS_MIN)], 1)
    view = ViewStore(tmp_path / "view", METADATA, fold)
    for index in (1, 2):
        view.apply([Entry(index, 1, 1 + (index - 1) * BIRTHS_MIN, (again,))])
    with view.pinned_state() as state:
        assert view.running_digest == scan(state.connection, METADATA)[0]
    view.close()


def test_many_births_of_a_later_schema_are_not_passed_over() -> None:
    later = decided([created(number, 1) for number in range(BIRTHS_MIN)])
    later.events[BIRTHS_MIN // 2].schema_version = SCHEMA_VERSION_MAX + 1
    coming = Record(later.SerializeToString(), BIRTHS_MIN)
    with pytest.raises(UnknownEvent):
        MemoryView().apply([Entry(1, 1, 1, (coming,))])


def test_only_plain_births_in_numbers_go_the_quick_way() -> None:
    many: list[DomainEvent] = [created(number, 1) for number in range(BIRTHS_MIN)]
    found = read_births(decided(many))
    assert found is not None
    assert len(found) == BIRTHS_MIN
    assert read_births(decided(many[1:])) is None
    assert read_births(decided([*many, created(9_999, 1, properties=True)])) is None
    assert read_births(decided([*many, TopicDeleted("a", "b")])) is None
