"""The check of layout changes finds each history in which a change ends twice, never, or otherwise
than it was answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history import History, check
from nextgen.harness.history.checks.layout_check import check_layouts
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import (
    OK,
    UNKNOWN,
    Drained,
    LogEvent,
    Operation,
    OperationKind,
    Run,
    failed,
    refused,
)
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    DeleteScalableTopic,
    DeleteSubscription,
    FinishSubscriptionDeletion,
    RegisterConsumer,
)
from tests.support.shards.scalable import NAME, SPLIT, STREAM, create, plan
from tests.unit.harness.history.checks.test_segment_check import change, log_of

RUN = Run("r", 0, 1, scopes=("topic://acme/",))


def with_causes(log: Sequence[LogEvent]) -> list[LogEvent]:
    """Return a log in which each plan was requested by a command of its number."""
    planned = "layout_change_planned"
    return [
        replace(each, causation_id=f"{each.facts['operation']:04x}") if each.type == planned
        else each
        for each in log
    ]  # fmt: skip


# Split 0 into 2 and 3, then 2 into 4 and 5.
LOG = with_causes(
    log_of(
        [
            create(2),
            RegisterConsumer("s", "a", STREAM, True, 1_000),
            *change(1, SPLIT, 0),
            *change(2, SPLIT, 2),
            DeleteSubscription("s"),
            FinishSubscriptionDeletion("s"),
        ]
    )
)
CHANGED = [each.position for each in LOG if each.type == "layout_changed"]
DELETED = next(each.position for each in LOG if each.type == "scalable_subscription_deleted")


def split(number: int, segment: int, outcome: str = OK, position: int = 0) -> Operation:
    argument = {"kind": "split", "segments": (segment,), "buckets": 0}
    return Operation(
        "operator",
        number,
        OperationKind.CHANGE_LAYOUT,
        NAME,
        number,
        number + 1,
        outcome,
        argument,
        command_id=f"{number:04x}",
        shard=1,
        position=(position or CHANGED[number - 1]) if outcome == OK else 0,
    )


def deletion(position: int) -> Operation:
    kind = OperationKind.DELETE_SUBSCRIPTION
    argument = {"subscription": "s"}
    return Operation("operator", 9, kind, NAME, 9, 10, OK, argument, shard=1, position=position)


ASKED = [split(1, 0), split(2, 2), deletion(DELETED)]


def findings(
    operations: Sequence[Operation] = ASKED,
    log: Sequence[LogEvent] = LOG,
    drained: Sequence[Drained] = (Drained("", NAME, "s"),),
    run: Run = RUN,
) -> list[Finding]:
    history = History(run, operations=operations, drained=drained, log=log)
    return list(check_layouts(history, index_log(log)))


def test_changes_that_were_requested_and_made_are_green() -> None:
    assert findings() == []
    assert findings([split(1, 0, UNKNOWN), split(2, 2)]) == []
    assert findings([], run=replace(RUN, scopes=())) == [], "others may change it"


@pytest.mark.parametrize(
    "operation",
    [
        split(1, 0, position=CHANGED[0] - 1),  # Told before it was done.
        split(1, 3),  # Another segment was sealed.
        deletion(DELETED - 1),
    ],
)
def test_an_acknowledged_change_that_had_not_happened_is_lost(operation: Operation) -> None:
    others = [each for each in ASKED if each.op_id != operation.op_id]

    (found,) = findings([*others, operation])

    assert (found.kind, found.check, found.operations) == (
        FindingKind.LOST,
        "layouts",
        (operation.name,),
    )


@pytest.mark.parametrize("outcome", [refused("NOT_ALLOWED"), failed("nobody leads")])
def test_a_change_that_was_answered_as_not_done_and_took_place_is_found(outcome: str) -> None:
    (found,) = findings([split(1, 0, outcome), *ASKED[1:]])

    assert found.kind is FindingKind.VIOLATION
    assert f"operator#1 had been answered {outcome}" in found.message
    assert found.events[0] == f"1:{CHANGED[0]}"


def test_a_change_that_was_taken_back_may_be_refused() -> None:
    log = with_causes(log_of([create(1), plan(SPLIT, 0), AbandonLayoutChange(1, "no broker")]))

    assert findings([split(1, 0, refused("NOT_ALLOWED"))], log) == []


def test_a_change_that_nobody_requested_is_a_phantom() -> None:
    (found,) = findings([split(1, 0), deletion(DELETED)])

    assert found.kind is FindingKind.PHANTOM
    assert "operation 2" in found.message


def test_a_change_that_has_not_ended_is_found_once_the_run_is_over() -> None:
    log = with_causes(log_of([create(1), plan(SPLIT, 0)]))

    (found,) = findings([split(1, 0, UNKNOWN)], log)

    assert "operation 1 of topic://acme/orders/paid has not ended" in found.message
    assert findings([split(1, 0, UNKNOWN)], log, drained=()) == []
    deleted = log_of([create(1), plan(SPLIT, 0), DeleteScalableTopic(NAME, "topic-1")])
    assert deleted[-1].type == "scalable_topic_deleted"
    assert findings([split(1, 0, UNKNOWN)], with_causes(deleted)) == []


Spoil = Callable[[list[LogEvent]], None]


def end_twice(log: list[LogEvent]) -> None:
    log.append(next(each for each in log if each.type == "layout_changed"))


def begin_before_the_other_ended(log: list[LogEvent]) -> None:
    at = next(number for number, each in enumerate(log) if each.type == "layout_changed")
    del log[at]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (end_twice, "ended and was not under way"),
        (begin_before_the_other_ended, "operation 2 of topic://acme/orders/paid began before 1"),
    ],
)
def test_changes_of_one_topic_at_one_time_are_found(spoil: Spoil, words: str) -> None:
    log = list(LOG)
    spoil(log)

    assert any(words in each.message for each in findings(log=log))


def test_the_verdict_has_the_finding() -> None:
    history: Any = History(RUN, operations=ASKED[1:], drained=[Drained("", NAME, "s")], log=LOG)

    assert "layouts" in {each.check for each in check(history).findings}
