"""What a history without a log still tells, and refusals for want of a parent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.harness.history import check
from nextgen.harness.history.checks.inventory_checks import check_parents, parent_of
from nextgen.harness.history.model import History, Operation, OperationKind, Run, refused

TOPIC, NAMESPACE = "persistent://acme/orders/paid", "acme/orders"
MADE = Operation("c", 1, OperationKind.CREATE, NAMESPACE, 1, 2, "ok", value={"id": "n"})
DENIED = Operation("c", 2, OperationKind.CREATE, TOPIC, 5, 6, refused("PARENT_NOT_FOUND"))
DELETE = Operation("d", 1, OperationKind.DELETE, NAMESPACE, 3, 9, refused("NOT_EMPTY"))


def test_a_parent_that_was_there_is_found_to_be_denied() -> None:
    (finding,) = check_parents([MADE, DENIED])

    assert finding.operations == ("c#2",)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [replace(MADE, returned_ns=7)],  # It may have come to be behind the refusal.
        [replace(MADE, outcome="unknown")],
        [MADE, DELETE],  # A deletion closes it, also one that is given up.
        [MADE, replace(DELETE, outcome="unknown", returned_ns=None)],
    ],
)
def test_a_parent_that_may_not_have_been_there_is_a_reason(others: list[Operation]) -> None:
    assert list(check_parents([*others, DENIED])) == []


def test_a_deletion_that_began_later_is_no_reason() -> None:
    assert len(list(check_parents([MADE, DENIED, replace(DELETE, invoked_ns=7)]))) == 1


def test_the_parent_of_a_topic_is_its_namespace_and_of_that_its_tenant() -> None:
    assert parent_of(TOPIC) == NAMESPACE
    assert parent_of(NAMESPACE) == "acme"
    assert parent_of("acme") == ""


def test_without_a_log_reads_are_judged_all_the_same() -> None:
    create = Operation("c", 1, OperationKind.CREATE, TOPIC, 1, 2, "ok", value={"id": "t"})
    value = {"id": "t", "version": 1, "properties": {}}
    read = Operation("c", 2, OperationKind.GET, TOPIC, 3, 4, "ok", value=value)
    gone = replace(read, op_id=3, value={})
    run = Run("r", 0, 9, scopes=("persistent://acme/",))

    assert check(History(run, (create, read))).is_green
    assert check(History(run, (create, read, gone))).violations == 1
    stranger = replace(read, value={**value, "properties": {"who": "knows"}})
    assert check(History(run, (create, stranger))).phantom == 1
    elsewhere = replace(run, scopes=())
    assert check(History(elsewhere, (create, stranger))).phantom == 0
