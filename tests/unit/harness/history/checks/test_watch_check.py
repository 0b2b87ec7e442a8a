"""What a watch must receive, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nextgen.harness.history.checks.watch_check import check_watches
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import (
    LogEvent,
    Observation,
    SnapshotItem,
    WatchOpened,
    WatchProgress,
    WatchRecord,
    WatchReset,
    WatchSnapshot,
)

A, B = "persistent://acme/orders/a", "persistent://acme/orders/b"
LOG = [
    LogEvent(1, 1, 1, "slots_adopted"),
    LogEvent(1, 2, 1, "topic_created", A, "id-a"),
    LogEvent(1, 3, 1, "topic_created", B, "id-b"),
    LogEvent(1, 4, 1, "topic_properties_set", A, properties={"k": "v"}),
    LogEvent(1, 5, 1, "topic_assigned", A, "id-a", "", 1, "broker-1", "s-1", "first_lookup"),
    LogEvent(1, 6, 1, "topic_deleted", B, "id-b"),
]
C = "persistent://acme/sent/c"
RENAMED = LogEvent(
    *(1, 7, 1, "topic_renamed", A, "id-a"),
    properties={"k": "v"},
    facts={"new_name": C, "version": 3},
)
TOPICS, ALL = ("topic",), ("tenant", "namespace", "topic", "assignment")
OPEN = WatchOpened("w", 1, 1, TOPICS)
FROM_2 = replace(OPEN, from_position=2)
RESET = WatchReset("w", 1, 1)


def event(position: int) -> Observation:
    told = LOG[position - 1]
    return Observation("w", 1, 1, position, told.type, told.key, told.epoch)


def item(key: str, version: int, **properties: str) -> SnapshotItem:
    state = {"id": f"id-{key[-1]}", "version": version, "properties": properties}
    return SnapshotItem("w", 1, 1, "topic", key, state)


def assignment(broker: str) -> SnapshotItem:
    state = {"topic_id": "id-a", "epoch": 1, "broker_id": broker, "session_id": "s-1"}
    return SnapshotItem("w", 1, 1, "assignment", A, state)


def at(position: int) -> WatchSnapshot:
    return WatchSnapshot("w", 1, 1, position)


def told_to(position: int) -> WatchProgress:
    return WatchProgress("w", 1, 1, position)


GONE, CAME = (
    Observation("w", 1, 1, 7, f"topic_{what}", name)
    for what, name in (("deleted", A), ("created", C))
)
AS_IT_IS = Observation("w", 1, 1, 7, "topic_renamed", A)


def found(records: Sequence[WatchRecord]) -> list[str]:
    return [finding.message for finding in check_watches(records, index_log([*LOG, RENAMED]))]


RIGHT: tuple[tuple[WatchRecord, ...], ...] = (
    (OPEN, at(1), event(2), event(3), event(4), event(6), told_to(6)),
    (OPEN, item(A, 1), item(B, 1), at(3), event(4), told_to(5), event(6)),
    (OPEN, item(A, 2, k="v"), at(6), told_to(6)),
    # Of a shard that was new there is nothing that a reset could void.
    (OPEN, at(0), item(A, 1), item(B, 1), at(3), event(4)),
    (OPEN, at(0), at(1), event(2)),
    (OPEN, at(0), event(2), event(3)),
    (FROM_2, event(3), told_to(3), told_to(3), event(4)),
    (FROM_2, event(3), RESET, item(A, 2, k="v"), item(B, 1), at(4), event(6)),
    (FROM_2, told_to(2), replace(OPEN, from_position=3), event(4)),
    (replace(OPEN, without_snapshot=True), event(4), event(6)),
    (replace(OPEN, from_beginning=True), event(2), event(3), event(4)),
    (replace(OPEN, names=(B,)), at(2), event(3), event(6), told_to(6)),
    (replace(OPEN, prefix=A), item(A, 1), at(2), event(4), told_to(6)),
    (replace(OPEN, kinds=ALL, names=(A,)), item(A, 2, k="v"), assignment("broker-1"), at(5)),
    (replace(OPEN, kinds=("assignment",)), at(4), event(5), told_to(6)),
    (replace(OPEN, kinds=("tenant",)), at(4), told_to(6)),
    # A rename, as a log has it and as watches of both names, of one, and of none show it.
    (replace(OPEN, from_position=6), AS_IT_IS, told_to(7)),
    (replace(OPEN, from_position=6), GONE, CAME, told_to(7)),
    (replace(OPEN, from_position=6, names=(A,)), GONE, told_to(7)),
    (replace(OPEN, from_position=6, prefix="persistent://acme/sent/"), CAME, told_to(7)),
    (replace(OPEN, from_position=6, names=(B,)), told_to(7)),
    (replace(OPEN, prefix="persistent://acme/sent/"), at(6), CAME),
    (OPEN, replace(item(C, 3, k="v"), state={"id": "id-a", "version": 3}), at(7)),
)
WRONG: dict[str, tuple[WatchRecord, ...]] = {
    "before it was opened": (event(2),),
    "not sent that persistent://acme/sent/c came": (
        *(replace(OPEN, from_position=6), GONE, told_to(7)),
    ),
    "as topic_created of persistent://acme/orders/a, it is": (
        *(replace(OPEN, from_position=6), GONE, replace(CAME, key=A)),
    ),
    "as topic_created of persistent://acme/sent/c, it is topic_deleted": (
        *(replace(OPEN, from_position=6), CAME),
    ),
    "a is there and should not be": (OPEN, item(A, 2, k="v"), at(7)),
    "missed 1 events behind 2, the first is 3": (FROM_2, event(4)),
    "missed 2 events behind 2": (FROM_2, told_to(4)),
    "missed 1 events behind 0": (replace(OPEN, from_beginning=True), event(3)),
    "sent event 3 twice or behind 3": (FROM_2, event(3), event(3)),
    "sent event 3 twice or behind 4": (replace(OPEN, from_position=3), event(4), event(3)),
    "sent event 4 twice or behind 5": (FROM_2, event(3), event(4), told_to(5), event(4)),
    "received progress 2 after 3": (FROM_2, event(3), told_to(2)),
    "does not concern it": (replace(OPEN, from_position=4), event(5)),
    "as topic_deleted of": (FROM_2, replace(event(3), type="topic_deleted")),
    "outside of a snapshot": (FROM_2, item(A, 1)),
    "item persistent://acme/orders/a outside": (OPEN, at(0), event(2), item(A, 1)),
    "item persistent://acme/orders/b outside": (*(replace(OPEN, from_beginning=True), item(B, 1)),),
    "none had begun": (FROM_2, at(2)),
    "inside a snapshot": (OPEN, event(2), item(A, 1), at(2)),
    "twice in one snapshot": (OPEN, item(A, 1), item(A, 1), at(2)),
    "after 6": (FROM_2, event(3), event(4), event(6), RESET, item(A, 1), at(2)),
    "b is missing": (OPEN, item(A, 1), at(3)),
    "b is there and should not be": (OPEN, item(A, 2, k="v"), item(B, 1), at(6)),
    "version 1, by the log it is 2": (OPEN, item(A, 1, k="v"), item(B, 1), at(4)),
    "by the log it is (('k', 'v'),)": (OPEN, item(A, 2, k="x"), item(B, 1), at(4)),
    "broker_id broker-2": (
        *(replace(OPEN, kinds=ALL, names=(A,)), item(A, 2, k="v")),
        *(assignment("broker-2"), at(5)),
    ),
}


@pytest.mark.parametrize("records", RIGHT)
def test_a_watch_that_gets_the_logs_changes_passes(
    records: Sequence[WatchRecord],
) -> None:
    assert found(records) == []


@pytest.mark.parametrize("words", WRONG)
def test_a_watch_that_gets_another_change_is_reported(words: str) -> None:
    messages = found(WRONG[words])

    assert any(words in message for message in messages), messages


def test_watches_and_watchers_are_judged_one_by_one() -> None:
    other = [replace(record, watcher="x") for record in RIGHT[3]]
    third = [replace(record, watch=2) for record in RIGHT[1]]
    mixed = [each for group in zip(RIGHT[3], other, third, strict=False) for each in group]

    assert found(mixed) == []
