"""What the members of a group receive."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history import History, check
from nextgen.harness.history.checks.group_check import check_groups
from nextgen.harness.history.model import Drained, Publish, Received, Run

T = "topic://acme/orders/paid"


def got(
    sequence: int,
    at_ns: int,
    *,
    key: str = "k",
    consumer: str = "a",
    producer: str = "p",
    subscription: str = "s",
) -> Received:
    return Received(consumer, T, producer, sequence, -1, -1, -1, at_ns, subscription, key)


def acked(*sequences: int) -> list[Publish]:
    return [Publish(T, "p", each, each, each + 1) for each in sequences]


def findings(
    received: Sequence[Received],
    publishes: Sequence[Publish] = (),
    drained: Sequence[Drained] = (),
) -> list[Finding]:
    history = History(Run("r", 0, 1), publishes=publishes, received=received, drained=drained)
    return list(check_groups(history))


@pytest.mark.parametrize(
    "received",
    [
        [got(1, 10), got(2, 20), got(3, 30)],
        [got(1, 10), got(2, 20, consumer="b"), got(3, 30)],
        [got(3, 30), got(2, 20), got(1, 10)],  # By time, not by record.
        [got(1, 10), got(2, 20), got(1, 30), got(2, 40, consumer="b")],  # Again.
        [got(2, 10), got(1, 20, key="other")],
        [got(2, 10), got(1, 20, producer="q")],
        [got(2, 10, key=""), got(1, 20, key="")],
        [got(2, 10), got(1, 20, subscription="t")],
        [got(2, 10, subscription=""), got(1, 20, subscription="")],
    ],
)
def test_keys_in_order_are_let_through(received: Sequence[Received]) -> None:
    assert findings(received) == []


def test_a_key_that_a_child_brings_before_its_parent_is_found() -> None:
    """1. ``a`` reads the parent. 2. ``b`` reads the child beside it, and is ahead."""
    (found,) = findings([got(1, 10), got(3, 20, consumer="b"), got(2, 30)])

    assert found.kind is FindingKind.VIOLATION
    assert found.operations == (f"p#2 of {T}", f"p#3 of {T}")
    assert found.message == (
        f"a of s received p#2 of {T} with key 'k' after b had received p#3 of {T}"
    )


def test_a_group_that_read_everything_misses_nothing() -> None:
    group = [Drained("", T, "s")]

    assert findings([got(1, 10), got(2, 20, consumer="b")], acked(1, 2), group) == []
    (found,) = findings([got(1, 10)], [*acked(1, 2), Publish(T, "p", 3, 3)], group)
    assert (found.kind, found.operations) == (FindingKind.LOST, (f"p#2 of {T}",))
    assert [each.kind for each in findings([], acked(1), group)] == [FindingKind.LOST]
    assert findings([got(1, 10)], acked(1, 2)) == [], "it may be reading still"


def test_the_verdict_counts_both() -> None:
    history = History(
        Run("r", 0, 1),
        publishes=acked(1, 2, 3),
        received=[got(2, 10), got(1, 20)],
        drained=[Drained("", T, "s")],
    )

    verdict = check(history)

    assert (verdict.violations, verdict.lost, verdict.phantom) == (1, 1, 0)
