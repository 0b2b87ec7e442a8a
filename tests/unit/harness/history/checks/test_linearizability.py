"""The search against brute force, and by example."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from nextgen.audit.verdict import FindingKind
from nextgen.harness.history.checks.effects import match_effects
from nextgen.harness.history.checks.linear_check import Budget, check_linearizability
from nextgen.harness.history.checks.linearizability import NEVER_NS, Answer, Call, linearize
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import Operation, OperationKind, refused
from tests.support.history.world import SCOPES, Size, World

KEY = "persistent://acme/orders/paid"
CREATE, DELETE = OperationKind.CREATE, OperationKind.DELETE
SET, GET = OperationKind.SET_PROPERTIES, OperationKind.GET
IDS = ("id-1", "id-2")
WORDS = ("a", "b")


def is_linearizable(operations: Sequence[Operation]) -> bool:
    return next(iter(check_linearizability(operations, None)), None) is None


# Brute force: a second, plain account of what a topic does ------------------------------------

Topic = tuple[str, int, str] | None
"""Id, version, the one property."""


def brute_force(operations: Sequence[Operation]) -> bool:
    """Try every choice of what happened among the unknown, in every order that time allows."""
    unknown = [op for op in operations if op.is_unknown and op.kind is not GET]
    certain = [op for op in operations if op.is_ok or op.refusal]
    told = frozenset(str(op.value["id"]) for op in certain if op.is_ok and op.kind is CREATE)
    for count in range(len(unknown) + 1):
        for happened in combinations(unknown, count):
            if _some_order([*certain, *happened], None, told):
                return True
    return False


def _some_order(left: list[Operation], topic: Topic, taken: frozenset[str]) -> bool:
    if not left:
        return True
    for op in left:
        others = [other for other in left if other is not op]
        if any(_ended(other) < op.invoked_ns for other in others):
            continue
        for id_of_unknown in IDS if op.is_unknown and op.kind is CREATE else ("",):
            if id_of_unknown and id_of_unknown in taken:
                continue
            result = _play(op, topic, id_of_unknown)
            if result == "impossible":
                continue
            assert not isinstance(result, str)
            after = taken | {id_of_unknown}
            if _some_order(others, result, after):
                return True
    return False


def _ended(op: Operation) -> int:
    return NEVER_NS if op.is_unknown or op.returned_ns is None else op.returned_ns


def _play(op: Operation, topic: Topic, id_of_unknown: str) -> Topic | str:
    """Return the topic after ``op``, "impossible" if it would have been answered otherwise."""
    outcome, answer, after = _real_answer(op, topic, id_of_unknown)
    if op.is_unknown:
        return after
    if outcome != op.outcome or (op.is_ok and answer != dict(op.value)):
        return "impossible"
    return after


def _real_answer(
    op: Operation, topic: Topic, id_of_unknown: str
) -> tuple[str, dict[str, object], Topic]:
    wanted = dict(op.argument.get("properties") or {}).get("p", "")  # type: ignore[call-overload]
    if op.kind is CREATE:
        made = id_of_unknown or str(op.value.get("id"))
        if topic is not None:
            return refused("ALREADY_EXISTS"), {}, topic
        return "ok", {"id": made}, (made, 1, wanted)
    if op.kind is GET:
        if topic is None:
            return "ok", {}, None
        read = {"id": topic[0], "version": topic[1], "properties": {"p": topic[2]}}
        return "ok", read, topic
    if topic is None:
        return refused("NOT_FOUND"), {}, None
    if op.kind is DELETE:
        return "ok", {"id": topic[0]}, None
    if topic[2] != wanted:
        if op.argument.get("expected_version", topic[1]) != topic[1]:
            return refused("VERSION_MISMATCH"), {}, topic
        topic = (topic[0], topic[1] + 1, wanted)
    return "ok", {"id": topic[0], "version": topic[1]}, topic


def random_history(chance: random.Random) -> list[Operation]:
    """Return a few operations that overlap, with answers that are sometimes right."""
    count = chance.randint(2, 5)
    ids = list(IDS)
    operations = []
    for number in range(count):
        began = chance.randrange(10)
        op = _random_answered(chance, number, began, ids)
        if op.kind is not GET and chance.random() < 0.2:
            op = replace(op, outcome="unknown", value={}, returned_ns=chance.choice((None, 12)))
        operations.append(op)
    return operations


def _random_answered(chance: random.Random, number: int, began: int, ids: list[str]) -> Operation:
    ended = began + 1 + chance.randrange(6)
    kind = chance.choice((CREATE, CREATE, DELETE, SET, SET, GET, GET))
    word, object_id = chance.choice(WORDS), chance.choice(IDS)
    op = Operation("c", number, kind, KEY, began, ended, "ok")
    version = chance.choice((1, 1, 2, 3))
    if kind is CREATE:
        op = replace(op, argument={"properties": {"p": word}})
        if ids and chance.random() < 0.8:
            return replace(op, value={"id": ids.pop(0)})  # An id is never given twice.
        return replace(op, outcome=refused("ALREADY_EXISTS"))
    if kind is DELETE:
        if chance.random() < 0.7:
            return replace(op, value={"id": object_id})
        return replace(op, outcome=refused("NOT_FOUND"))
    if kind is SET:
        argument: dict[str, object] = {"properties": {"p": word}}
        if chance.random() < 0.3:
            argument["expected_version"] = chance.randint(1, 2)
        op = replace(op, argument=argument)
        code = chance.choice(("", "", "", "NOT_FOUND", "VERSION_MISMATCH"))
        if code:
            return replace(op, outcome=refused(code))
        return replace(op, value={"id": object_id, "version": version})
    if chance.random() < 0.4:
        return op
    value = {"id": object_id, "version": version, "properties": {"p": word}}
    return replace(op, value=value)


@pytest.mark.parametrize("part", range(4))
def test_the_search_agrees_with_brute_force(part: int) -> None:
    chance = random.Random(part)
    answers = []
    for _ in range(1_000):
        operations = random_history(chance)
        expected = brute_force(operations)
        assert is_linearizable(operations) is expected, operations
        answers.append(expected)

    assert answers.count(True) > 50
    assert answers.count(False) > 50


@pytest.mark.parametrize("seed", range(20))
def test_the_logs_help_changes_no_answer(seed: int) -> None:
    """A green history stays green without the log; one of its reads spoilt is found with it."""
    history = World(seed, Size(operations=200, with_command_ids=seed % 2 == 0)).history()
    effects = match_effects(index_log(history.log), history.operations, SCOPES)

    assert list(check_linearizability(history.operations, None)) == []
    assert list(check_linearizability(history.operations, effects)) == []

    read = next(op for op in history.operations if op.kind is GET and op.value)
    value = {**read.value, "version": 999}
    spoilt = [replace(op, value=value) if op is read else op for op in history.operations]
    for help_of_log in (None, effects):
        (finding,) = check_linearizability(spoilt, help_of_log)
        assert finding.kind is FindingKind.VIOLATION
        assert finding.key == read.key.partition("-as-")[0]


# By example ------------------------------------------------------------------------------------


def created(op_id: int, began: int, ended: int, object_id: str = "id-1") -> Operation:
    return Operation("c", op_id, CREATE, KEY, began, ended, "ok", {}, {"id": object_id})


def read(op_id: int, began: int, ended: int, version: int, word: str | None = None) -> Operation:
    properties = {} if word is None else {"p": word}
    value = {"id": "id-1", "version": version, "properties": properties} if version else {}
    return Operation("c", op_id, GET, KEY, began, ended, "ok", {}, value)


def changed(op_id: int, began: int, ended: int, word: str, version: int) -> Operation:
    value = {"id": "id-1", "version": version}
    return Operation("c", op_id, SET, KEY, began, ended, "ok", {"properties": {"p": word}}, value)


def unknown(op: Operation) -> Operation:
    return replace(op, outcome="unknown", value={}, returned_ns=None)


def test_a_read_may_see_a_write_that_has_not_returned() -> None:
    assert is_linearizable([created(1, 0, 10), read(2, 2, 3, 1)])
    assert is_linearizable([created(1, 0, 10), read(2, 2, 3, 0)])


def test_a_read_that_went_back_in_time_is_found() -> None:
    """1. a change is under way; 2. one read sees it; 3. the next, later, does not."""
    write = changed(2, 4, 20, "new", 2)
    first, second = read(3, 5, 6, 2, "new"), read(4, 7, 8, 1)

    assert is_linearizable([created(1, 0, 1), write, first])
    assert is_linearizable([created(1, 0, 1), write, second])
    assert not is_linearizable([created(1, 0, 1), write, first, second])


def test_an_unknown_write_may_happen_late_or_never_and_only_once() -> None:
    never = [created(1, 0, 1), unknown(changed(2, 2, 3, "late", 2)), read(3, 100, 101, 1)]

    assert is_linearizable(never)
    assert is_linearizable([*never, read(4, 200, 201, 2, "late")])
    assert not is_linearizable([*never, read(4, 200, 201, 2, "late"), read(5, 202, 203, 1)])


def test_an_unknown_write_does_not_happen_before_it_was_asked_for() -> None:
    early = [created(1, 0, 1), read(2, 2, 3, 2, "late"), unknown(changed(3, 10, 11, "late", 2))]

    assert not is_linearizable(early)


def test_an_operation_that_failed_for_certain_did_not_happen() -> None:
    denied = replace(changed(2, 2, 3, "denied", 2), outcome="failed:UNAVAILABLE", value={})

    assert is_linearizable([created(1, 0, 1), denied, read(3, 4, 5, 1)])
    assert not is_linearizable([created(1, 0, 1), denied, read(3, 4, 5, 2, "denied")])


def test_a_topic_that_an_unknown_create_made_has_one_id() -> None:
    asked = unknown(created(1, 0, 1))
    other = replace(read(3, 4, 5, 1), value={"id": "id-2", "version": 1, "properties": {}})

    assert is_linearizable([asked, read(2, 2, 3, 1)])
    assert is_linearizable([asked, other])
    assert not is_linearizable([asked, read(2, 2, 3, 1), other])


def test_a_refusal_has_to_be_true() -> None:
    denied = Operation("c", 9, CREATE, KEY, 5, 6, refused("ALREADY_EXISTS"))

    assert is_linearizable([created(1, 0, 1), denied])
    assert is_linearizable([created(1, 0, 10), denied])
    assert not is_linearizable([denied])


def test_the_finding_names_what_does_not_fit_and_where_it_got_stuck() -> None:
    operations = [created(1, 0, 1), changed(2, 2, 3, "new", 2), read(3, 4, 5, 1)]

    (finding,) = check_linearizability(operations, None)

    assert finding.operations[0] == "c#3"
    assert set(finding.operations) == {"c#1", "c#2", "c#3"}
    assert "version 2" in finding.message
    assert finding.at_ns == 5


# Bounds ----------------------------------------------------------------------------------------


def counter_calls(count: int) -> list[Call[int]]:
    """Return ``count`` calls at the same time that have to go from the last to the first."""
    return [
        Call(f"to-{to}", 0, 10, lambda state, to=to: to if state == to - 1 else None)  # type: ignore[misc]
        for to in range(count, 0, -1)
    ]


def test_a_search_that_runs_out_of_steps_says_so() -> None:
    needed = linearize(counter_calls(6), 0, steps_max=1_000)
    assert needed.answer is Answer.LINEARIZABLE

    enough = linearize(counter_calls(6), 0, steps_max=needed.steps)
    too_few = linearize(counter_calls(6), 0, steps_max=needed.steps - 1)

    assert enough.answer is Answer.LINEARIZABLE
    assert too_few.answer is Answer.UNDECIDED


def test_what_is_undecided_is_counted_and_keys_share_one_budget() -> None:
    operations = [created(1, 0, 1), replace(created(2, 0, 1, "id-9"), key=f"{KEY}-other")]

    assert list(check_linearizability(operations, None, Budget(left=2))) == []
    (finding,) = check_linearizability(operations, None, Budget(left=1))
    assert finding.kind is FindingKind.UNDECIDED
    assert finding.key == f"{KEY}-other"


def test_many_unknown_operations_do_not_hinder_the_search() -> None:
    """Forty changes of one key without an answer: 2^40 subsets, of which none has to be tried."""
    lost = [unknown(changed(100 + i, i, i, f"lost-{i}", 0)) for i in range(40)]
    steps = [changed(i, 100 + 2 * i, 101 + 2 * i, f"word-{i}", i + 2) for i in range(200)]
    operations = [created(1_000, 0, 90), *lost, *steps]

    assert list(check_linearizability(operations, None, Budget(left=20_000))) == []
