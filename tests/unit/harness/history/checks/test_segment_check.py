"""Layouts and who consumes which segments, by the log: what shards decide is green, plants are not.

The check shares no code with the shards' decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history import History, check
from nextgen.harness.history.checks.segment_check import check_segments
from nextgen.harness.history.log_events import log_event_of
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import LogEvent, Run
from nextgen.harness.history.record_file import encode, load_history
from nextgen.kernel.events.decider import Accepted, Rejected
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.scalable.commands import (
    DeleteSubscription,
    MarkDrained,
    PruneSegments,
    RegisterConsumer,
    RemoveConsumer,
    ScalableTopicCommand,
    SeekSubscription,
)
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import ScalableTopicEvent
from shards.domain.scalable.restore import restore_scalable
from shards.domain.scalable.state import ScalableTopic, ScalableTopicState, evolve
from shards.wire.event import encode_decided
from tests.support.shards.scalable import (
    CHECKPOINT,
    END,
    MERGE,
    NAME,
    SPLIT,
    STREAM,
    MarkChildrenReady,
    SealSegment,
    changed,
    create,
    histories,
    new_topic,
    plan,
)

Spoil = Callable[[dict[str, Any]], None]


def log_of(
    commands: Sequence[ScalableTopicCommand], restored: ScalableTopic | None = None
) -> list[LogEvent]:
    """Return the log of a shard that carried ``commands`` out, as a history has it.

    It begins with the restore of a layout, if there is one.
    """
    topic: ScalableTopicState = None
    log: list[LogEvent] = []
    if restored is not None:
        decision = restore_scalable(None, restored, restored.topic_id, LEAST, 4_000)
        topic = _told(log, topic, decision)
    for command in commands:
        topic = _told(log, topic, decide(topic, command))
    return log


def _told(
    log: list[LogEvent],
    topic: ScalableTopicState,
    decision: Accepted[ScalableTopicEvent] | Rejected,
) -> ScalableTopicState:
    """Add the events of a decision to the log; return the topic afterwards."""
    if not isinstance(decision, Accepted):
        return topic
    for event in decision.events:
        topic = evolve(topic, event)
    packed = encode_decided(decision.events, command_id=b"", outcome=b"", time_ms=1)
    for stored in DecidedCommand.FromString(packed).events:
        stored.shard_id, stored.position = 1, len(log) + 1
        log.append(log_event_of(stored))
    return topic


def findings(log: Sequence[LogEvent]) -> list[Finding]:
    return list(check_segments(index_log(log)))


def change(number: int, kind: Any, *parents: int) -> list[ScalableTopicCommand]:
    """Return the commands of a whole operation."""
    sealed = [SealSegment(number, each, END, 3_000) for each in parents]
    return [plan(kind, *parents), MarkChildrenReady(number, ("s",)), *sealed]


def register(
    name: str, subscription: str = "s", *, takes_buckets: bool = True
) -> ScalableTopicCommand:
    type_ = CHECKPOINT if subscription == "checkpoints" else STREAM
    return RegisterConsumer(subscription, name, type_, takes_buckets, 1_000)


STORY: list[ScalableTopicCommand] = [
    create(2),
    register("a"),
    register("b"),
    *change(1, SPLIT, 0),  # 0 → 2 3
    *change(2, SPLIT, 2),  # 2 → 4 5
    register("r", "checkpoints"),
    MarkDrained("s", 2),
    MarkDrained("s", 0),
    register("c"),
    register("d"),
    register("e"),
    RemoveConsumer("s", "a", "left"),
    *change(3, MERGE, 4, 5),  # 4 5 → 6
    SeekSubscription("s", 5),
    PruneSegments((0,)),
    DeleteSubscription("s"),
]
LOG = log_of(STORY)
LEAST = 1 << 32
"""Where a restored layout's epoch begins."""


def test_what_shards_decide_is_green() -> None:
    assert {each.type for each in LOG} >= {"layout_changed", "segment_drained", "segments_assigned"}
    assert findings(LOG) == []


def test_a_restored_layout_goes_on_from_any_epoch() -> None:
    backed_up = changed(new_topic(2), SPLIT, 0)
    ready = MarkChildrenReady(2, ())
    log = log_of([ready, *[SealSegment(2, each, END, 5_000) for each in range(4)]], backed_up)

    assert [each.epoch for each in log if "segments" in each.facts] == [LEAST, LEAST + 1]
    assert findings(log) == []


@given(history=histories())
def test_any_history_of_a_shard_is_green(history: Sequence[ScalableTopicCommand]) -> None:
    assert findings(log_of(history)) == []


def test_a_log_that_begins_later_says_nothing_of_the_topic() -> None:
    assert findings(LOG[1:]) == []


def both_have(facts: dict[str, Any]) -> None:
    facts["assigned"] = {name: [0, 1] for name in facts["assigned"]}


def one_is_forgotten(facts: dict[str, Any]) -> None:
    facts["assigned"]["b"] = []


def a_stranger_has_one(facts: dict[str, Any]) -> None:
    facts["assigned"]["stranger"] = facts["assigned"].pop("b")


def a_child_comes_early(facts: dict[str, Any]) -> None:
    facts["assigned"]["b"] = [1, 3]


def one_is_gone(facts: dict[str, Any]) -> None:
    facts["assigned"]["b"] = [1, 77]


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (both_have, FindingKind.OWNER_OVERLAP, "segment 0 has several consumers: a, b"),
        (one_is_forgotten, FindingKind.VIOLATION, "nobody consumes segment 1"),
        (a_stranger_has_one, FindingKind.VIOLATION, "stranger consume segment 1 and are not"),
        (a_child_comes_early, FindingKind.VIOLATION, "3, which has undrained segments before it"),
        (one_is_gone, FindingKind.VIOLATION, "b consume 77, which is gone"),
    ],
)
def test_a_planted_assignment_is_found(spoil: Spoil, kind: FindingKind, words: str) -> None:
    log = log_of([create(2), register("a"), register("b"), *change(1, SPLIT, 0)])
    at = max(number for number, each in enumerate(log) if each.type == "segments_assigned")
    facts: dict[str, Any] = {**log[at].facts, "assigned": {"a": [0], "b": [1]}}
    spoil(facts)
    # Behind the split, as its own record would have it.
    log.append(replace(log[at], position=len(log) + 1, facts=facts))

    found = findings(log)

    assert (found[0].kind, found[0].check, found[0].events) == (
        kind,
        "segments",
        (f"1:{len(log)}",),
    )
    assert any(words in each.message for each in found), found


def test_a_drained_segment_with_a_consumer_is_found() -> None:
    log = log_of([create(1), register("a"), *change(1, SPLIT, 0), MarkDrained("s", 0)])
    facts = {**log[-1].facts, "assigned": {"a": [0, 1, 2]}}

    (found,) = findings([*log[:-1], replace(log[-1], facts=facts)])

    assert found.message.endswith("a consume 0, which is drained")


def test_an_assignment_that_is_missing_is_found_by_the_next_event_and_by_the_end() -> None:
    log = log_of([create(2), register("a"), RemoveConsumer("s", "a", "left"), register("b")])
    without = [each for each in log if each.type != "segments_assigned"]
    first, last = [each.name for each in log if each.type == "scalable_consumer_registered"]

    assert [each.events for each in findings(without)] == [(first,), (first,), (last,), (last,)]


@pytest.mark.parametrize("spoil", ["unmarked", "checkpoint", "takes_none", "too_many"])
def test_sharing_that_is_not_allowed_is_found(spoil: str) -> None:
    log = log_of([create(1), *[register(name) for name in "abcde"]])
    assert log[-1].facts["shared"] == [0]
    match spoil:
        case "unmarked":
            log[-1] = replace(log[-1], facts={**log[-1].facts, "shared": []})
        case "checkpoint":
            log[1] = replace(log[1], facts={**log[1].facts, "type": "checkpoint"})
        case "takes_none":
            log[2] = replace(log[2], facts={**log[2].facts, "takes_buckets": False})
        case "too_many":
            log[-1] = replace(
                log[-1], facts={**log[-1].facts, "assigned": {name: [0] for name in "abcde"}}
            )

    assert FindingKind.OWNER_OVERLAP in {each.kind for each in findings(log)}


def test_a_hole_in_the_ranges_and_an_epoch_that_is_left_out_are_found() -> None:
    log = log_of([create(2), *change(1, SPLIT, 0)])
    at = next(number for number, each in enumerate(log) if each.type == "layout_changed")
    segments = [each for each in log[at].facts["segments"] if each["id"] != 3]  # type: ignore[attr-defined]
    log[at] = replace(log[at], epoch=2, facts={**log[at].facts, "segments": segments})

    assert [each.message for each in findings(log)] == [
        f"{NAME} came to layout epoch 2 instead of 1",
        f"the active segments of {NAME} do not tile the hashes: "
        "HashRange(start=32768, end=65535), HashRange(start=0, end=16383)",
    ]


def test_the_verdict_has_the_finding_and_files_keep_the_facts(tmp_path: Any) -> None:
    log = log_of([create(2), register("a")])[:-1]
    run = Run("r", 0, 1)
    (tmp_path / "one.jsonl").write_bytes(
        b'{"format":"nextgen-history","version":1}\n' + b"".join(map(encode, [run, *log]))
    )

    history = load_history(tmp_path)

    assert history == History(run, log=tuple(log))
    assert {each.check for each in check(history).findings} == {"segments"}
