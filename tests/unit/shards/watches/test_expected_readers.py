"""Which expected watches are forgotten when there are too many."""

from __future__ import annotations

from nextgen.client.changes.index import Change
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT
from shards.watches.expected_readers import ExpectedReaders

A, B, C = ((KIND_TENANT, name) for name in "abc")


def expected(readers: ExpectedReaders, *changes: Change) -> list[bool]:
    return [not readers.are_over([change], now=0.0) for change in changes]


def test_what_was_noted_longest_ago_is_forgotten_first_and_until_when_it_counts_is_told() -> None:
    readers = ExpectedReaders(names_max=2)
    assert readers.note(A, "r", until=5.0, now=0.0) == 0.0
    assert readers.note(B, "r", until=6.0, now=0.0) == 0.0
    assert readers.note(A, "r", until=7.0, now=0.0) == 0.0

    forgotten = readers.note(C, "r", until=8.0, now=0.0)

    assert forgotten == 6.0
    assert expected(readers, A, B, C) == [True, False, True]


def test_what_is_over_makes_room_before_anything_is_forgotten() -> None:
    readers = ExpectedReaders(names_max=2)
    readers.note(A, "r", until=1.0, now=0.0)
    readers.note(B, "r", until=9.0, now=0.0)

    assert readers.note(C, "r", until=9.0, now=2.0) == 0.0
    assert expected(readers, A, B, C) == [False, True, True]
