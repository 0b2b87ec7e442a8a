"""Events that a shard's log must not have, and answers that must not contradict it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nextgen.harness.history import check
from nextgen.harness.history.checks.log_check import check_log
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import History, LogEvent, Operation, OperationKind, Run

TOPIC = "persistent://acme/orders/paid"


def log_of(*events: LogEvent) -> list[LogEvent]:
    """Return ``events`` with positions from 1 on, in shard 1 and term 1."""
    return [replace(event, position=at) for at, event in enumerate(events, start=1)]


def event(kind: str, **fields: object) -> LogEvent:
    return LogEvent(1, 0, 1, kind, **{"key": TOPIC, **fields})  # type: ignore[arg-type]


SESSION = event("broker_session_established", key="b-1", broker_id="b-1", session_id="s-1", epoch=1)
CREATED = event("topic_created", id="t-1")
NEW = "persistent://acme/orders/new"
RENAMED = event("topic_renamed", id="t-1", facts={"new_name": NEW, "version": 2})
POINTED = event("topic_name_pointed", key=NEW, id="t-1")
FREED = event("topic_name_freed", key=NEW, id="t-1")
SET = event("topic_properties_set", properties={"a": "b"})
DELETED = event("topic_deleted", id="t-1")
ASSIGNED = event(
    "topic_assigned", id="t-1", epoch=1, broker_id="b-1", session_id="s-1", reason="first_lookup"
)
MOVED = replace(ASSIGNED, epoch=2, reason="moved")
RAISED = replace(ASSIGNED, epoch=10, used_epoch=9, reason="epoch_used")
UNASSIGNED = event("topic_unassigned", id="t-1", epoch=1, reason="topic_deleted")
AGAIN = replace(CREATED, id="t-2")
ENDED = replace(SESSION, type="broker_session_ended")

POLICIES = event("policy_set", id="t-1", policies="ttl 1", policies_version=1)
CLEARED = event("policy_cleared", id="t-1", policies_version=2)

RIGHT = (
    (
        CREATED,
        POINTED,
        RENAMED,
        replace(DELETED, key=NEW),
        FREED,
        replace(CREATED, key=NEW, id="t-2"),
    ),
    (CREATED, POLICIES, replace(RENAMED, policies_version=1), replace(CLEARED, key=NEW), AGAIN),
    (
        *(SESSION, CREATED, ASSIGNED, replace(UNASSIGNED, reason="renamed"), RENAMED),
        replace(ASSIGNED, key=NEW, epoch=2),
    ),
    (CREATED, POLICIES, CLEARED, DELETED, AGAIN, replace(POLICIES, id="t-2")),
    *(
        (SESSION, CREATED, ASSIGNED, replace(MOVED, reason=reason))
        for reason in ("broker_full", "moved", "drained", "rebalanced", "pinned")
    ),
    *(
        (
            *(SESSION, CREATED, ASSIGNED, replace(UNASSIGNED, reason=reason)),
            replace(ASSIGNED, epoch=2),
        )
        for reason in ("idle", "unloaded", "segment_removed", "renamed")
    ),
    (SESSION, CREATED, ASSIGNED, RAISED, replace(MOVED, epoch=11)),
    (SESSION, CREATED, ASSIGNED, ENDED, replace(MOVED, reason="broker_lost")),
    # The end of a session is in another shard's log: which comes first does not show.
    (SESSION, CREATED, ASSIGNED, replace(MOVED, reason="broker_lost"), ENDED),
    (SESSION, CREATED, SET, ASSIGNED, MOVED, replace(UNASSIGNED, epoch=2), DELETED, AGAIN),
    (SESSION, ENDED, replace(SESSION, session_id="s-2", epoch=2)),
    (CREATED, DELETED, AGAIN, SET),
)
WRONG = {
    "created and was there already": (CREATED, AGAIN),
    "given twice": (CREATED, DELETED, CREATED),
    "is not there": (SET,),
    "deleted as t-1, it is not there": (DELETED,),
    "deleted as t-1, it is t-2": (AGAIN, DELETED),
    "renamed as t-1, it is not there": (RENAMED,),
    "renamed as t-1, it is t-2": (CREATED, DELETED, AGAIN, RENAMED),
    "renamed to persistent://acme/orders/new, which is t-2": (
        *(replace(CREATED, key=NEW, id="t-2"), CREATED, RENAMED),
    ),
    "had version 1 of policies when it was renamed": (CREATED, POLICIES, RENAMED),
    "renamed and has owners": (SESSION, CREATED, ASSIGNED, RENAMED),
    "has a topic_properties_set and is not there": (CREATED, RENAMED, SET),
    "deleted and has owners": (SESSION, CREATED, ASSIGNED, DELETED),
    "got epoch 2 after 0": (SESSION, CREATED, replace(ASSIGNED, epoch=2)),
    "got epoch 3 after 1": (SESSION, CREATED, ASSIGNED, replace(MOVED, epoch=3)),
    "got epoch 11 after 1": (SESSION, CREATED, ASSIGNED, replace(RAISED, epoch=11)),
    "assigned as moved above epoch 9": (
        *(SESSION, CREATED, ASSIGNED),
        replace(RAISED, reason="moved"),
    ),
    "assigned as epoch_used above epoch 0": (
        *(SESSION, CREATED, ASSIGNED),
        replace(RAISED, epoch=2, used_epoch=0),
    ),
    "was raised, and it was taken from s-1": (
        *(SESSION, CREATED, ASSIGNED, replace(SESSION, session_id="s-2", epoch=2)),
        replace(RAISED, session_id="s-2"),
    ),
    "it had an owner": (SESSION, CREATED, ASSIGNED, replace(MOVED, reason="first_lookup")),
    "it had none": (SESSION, CREATED, replace(ASSIGNED, reason="moved")),
    "which is not there": (SESSION, ASSIGNED),
    "in a session that it never had": (CREATED, ASSIGNED),
    "lost its owner of epoch 1, it is at 0": (CREATED, UNASSIGNED),
    "lost its owner of epoch 1, it is at 2": (SESSION, CREATED, ASSIGNED, MOVED, UNASSIGNED),
    "assigned as whim": (SESSION, CREATED, ASSIGNED, replace(MOVED, reason="whim")),
    "taken from s-1 as lost": (SESSION, CREATED, ASSIGNED, replace(MOVED, reason="broker_lost")),
    "lost its owner as whim": (SESSION, CREATED, ASSIGNED, replace(UNASSIGNED, reason="whim")),
    "version 3 of policies after 1": (CREATED, POLICIES, replace(CLEARED, policies_version=3)),
    "version 1 of policies after 1": (CREATED, POLICIES, POLICIES),
    "has the policies of t-2": (CREATED, replace(POLICIES, id="t-2")),
    "has a policy_set": (POLICIES,),
    "got session epoch 1 after 1": (SESSION, replace(SESSION, session_id="s-2")),
    "was not the latest": (SESSION, replace(ENDED, session_id="s-0")),
}


def found(log: Sequence[LogEvent], *, is_complete: bool = True) -> list[str]:
    return [each.message for each in check_log(index_log(log), is_complete=is_complete)]


@pytest.mark.parametrize("events", RIGHT)
def test_a_log_that_may_be_is_let_through(events: Sequence[LogEvent]) -> None:
    assert found(log_of(*events)) == []


@pytest.mark.parametrize("words", WRONG)
def test_a_log_that_cannot_be_is_reported(words: str) -> None:
    (message,) = found(log_of(*WRONG[words]))

    assert words in message


def test_positions_are_dense_from_one_and_terms_do_not_go_back() -> None:
    log = log_of(CREATED, SET, SET)

    assert "begins at position 2" in found(log[1:])[0]
    assert found([log[0], log[2]]) == ["position 3 follows 1"]
    assert found([log[0], replace(log[1], term=0), log[2]]) == ["term 0 follows 1"]


def test_a_log_that_was_cut_is_judged_by_what_is_left() -> None:
    log = log_of(SESSION, CREATED, ASSIGNED, MOVED, SET)

    assert found(log[3:], is_complete=False) == []
    back = [*log[3:], replace(MOVED, position=6)]
    assert found(back, is_complete=False) == [f"{TOPIC} got epoch 2 after 2"]


def test_a_key_has_one_shard() -> None:
    log = log_of(CREATED)

    (message,) = found([*log, replace(log[0], shard=2, id="t-2")])

    assert "is in shard 1 too" in message


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"version": 3}, "version 3, it is 2"),
        ({"id": "t-9"}, "id t-9, it is t-1"),
        ({"position": 1}, "before its effect"),
        ({"shard": 2}, "shard 2"),
    ],
)
def test_a_writers_answer_equals_the_log(told: dict[str, object], words: str) -> None:
    log = log_of(CREATED, replace(SET, causation_id="aa"))
    create = Operation(
        "c", 1, OperationKind.CREATE, TOPIC, 1, 2, "ok", value={"id": "t-1"}, shard=1, position=1
    )
    value = {"id": "t-1", "version": 2, **told}
    place = {name: value.pop(name, right) for name, right in (("shard", 1), ("position", 2))}
    change = Operation(
        *("c", 2, OperationKind.SET_PROPERTIES, TOPIC, 3, 4, "ok"),
        *({"properties": {"a": "b"}}, value, "aa"),
        **place,  # type: ignore[arg-type]
    )
    history = History(Run("r", 0, 9, scopes=(TOPIC,)), operations=(create, change), log=log)

    verdict = check(history)

    assert any(words in each.message for each in verdict.findings if each.check == "answers")
