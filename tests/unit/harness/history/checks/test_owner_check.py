"""One owner at a time, as far as clients can see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nextgen.harness.history.checks.owner_check import (
    check_lookups,
    check_publish_epochs,
    check_publishes,
)
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import LogEvent, Operation, OperationKind, Publish
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX

T = "persistent://acme/orders/paid"


def acked(number: int, sent_ns: int, acked_ns: int, epoch: int, entry: int = 0) -> Publish:
    ledger = epoch << 20 if epoch else -1
    return Publish(T, "p", number, sent_ns, acked_ns, ledger, entry or number, -1, epoch)


def looked_up(number: int, began: int, ended: int, epoch: int, topic_id: str = "t") -> Operation:
    value = {"topic_id": topic_id, "epoch": epoch, "broker_id": f"b-{epoch}", "session_id": "s"}
    return Operation("c", number, OperationKind.LOOKUP, T, began, ended, "ok", value=value)


def overlaps(publishes: Sequence[Publish]) -> list[str]:
    return [finding.message for finding in check_publishes(publishes)]


@pytest.mark.parametrize(
    "publishes",
    [
        [acked(1, 1, 2, 1), acked(2, 3, 4, 2), acked(3, 5, 6, 2)],
        [acked(1, 1, 9, 1), acked(2, 3, 4, 2)],  # The earlier owner's was sent before.
        [acked(1, 4, 9, 1), acked(2, 3, 4, 2)],  # Sent at the very moment.
        [acked(2, 3, 4, 2), acked(3, 5, 6, 0)],  # A duplicate: nobody knows whose.
        [acked(2, 3, 4, 2), Publish(T, "p", 3, 5)],
    ],
)
def test_owners_that_follow_each_other_are_let_through(publishes: list[Publish]) -> None:
    assert overlaps(publishes) == []


def test_an_acknowledgement_under_an_epoch_that_was_over_is_found() -> None:
    (message,) = overlaps([acked(1, 5, 9, 1), acked(2, 3, 4, 2)])

    assert "p#1" in message
    assert "under epoch 1 after p#2" in message


def test_a_topic_that_was_created_again_begins_with_epoch_one() -> None:
    old = Publish(T, "p", 1, 1, 2, 2 << 20, 0, -1, 2, topic_id="old")
    again = Publish(T, "p", 2, 3, 4, 1 << 20, 0, -1, 1, topic_id="again")

    assert overlaps([old, again]) == []


def test_each_segment_of_a_scalable_topic_has_epochs_of_its_own() -> None:
    topic = "topic://a/b/c"
    first, second = (f"segment://a/b/c/{each}" for each in ("0000-7fff-1", "8000-ffff-2"))
    of_two = [
        replace(acked(1, 1, 2, 2), topic=topic, segment=first),
        replace(acked(2, 3, 4, 1), topic=topic, segment=second),
    ]
    assigned = [
        LogEvent(1, number, 1, "topic_assigned", key=name, epoch=epoch)
        for number, (name, epoch) in enumerate([(first, 2), (second, 1)], start=1)
    ]

    assert overlaps(of_two) == []
    assert len(overlaps([of_two[0], replace(of_two[1], segment=first)])) == 1
    assert list(check_publish_epochs(of_two, index_log(assigned))) == []
    assert len(list(check_publish_epochs(of_two, index_log(assigned[:1])))) == 1


def test_an_entry_is_given_once_and_a_ledger_has_one_epoch() -> None:
    one, two = acked(1, 1, 2, 1, entry=7), acked(2, 1, 2, 1, entry=7)
    (message,) = overlaps([one, two])
    assert "both acknowledged as (1048576, 7, -1)" in message

    other = Publish(T, "p", 3, 1, 2, one.ledger, 8, -1, 2)
    (message,) = overlaps([one, other])
    assert "epochs 1 and 2 both claim ledger" in message


def test_entries_of_one_batch_differ_by_their_place_in_it() -> None:
    batch = [Publish(T, "p", number, 1, 2, 1 << 20, 5, number, 1) for number in range(3)]

    assert overlaps(batch) == []


def test_an_epoch_that_nobody_was_given_is_found_once() -> None:
    log = [LogEvent(1, 1, 1, "topic_assigned", T, "t", "", 1, "b", "s")]
    publishes = [acked(1, 1, 2, 1), acked(2, 3, 4, 2), acked(3, 5, 6, 2)]

    (finding,) = check_publish_epochs(publishes, index_log(log))

    assert finding.operations == (publishes[1].name,)


@pytest.mark.parametrize(
    "lookups",
    [
        [looked_up(1, 1, 2, 1), looked_up(2, 3, 4, 2), looked_up(3, 5, 6, 2)],
        [looked_up(1, 1, 9, 1), looked_up(2, 3, 4, 2)],
        [looked_up(1, 1, 2, 5, "old"), looked_up(2, 3, 4, 1, "again")],
    ],
)
def test_lookups_that_go_forward_are_let_through(lookups: list[Operation]) -> None:
    assert list(check_lookups(lookups, None)) == []


STALENESS_NS = LOOKUP_STALENESS_MS_MAX * 1_000_000
FRESH: dict[str, object] = {"fresh": True}
AT_1, AT_2 = {"node": "d-1"}, {"node": "d-2"}


@pytest.mark.parametrize(
    ("late", "is_found"),
    [
        (looked_up(2, 3, 4, 1), False),
        (looked_up(2, 2 + STALENESS_NS, 4 + STALENESS_NS, 1), False),
        (looked_up(2, 3 + STALENESS_NS, 4 + STALENESS_NS, 1), True),
        (replace(looked_up(2, 3, 4, 1), argument=FRESH), True),
        (replace(looked_up(2, 2, 4, 1), argument=FRESH), False),  # Begun at the very moment.
        (replace(looked_up(2, 3, 4, 1), kind=OperationKind.MOVE), True),
        (replace(looked_up(2, 3, 4, 1), argument=AT_1), True),
        (replace(looked_up(2, 3, 4, 1), argument=AT_2), False),
        (replace(looked_up(2, 2, 4, 1), argument=AT_1), False),
    ],
)
def test_a_lookup_may_go_back_so_far_as_it_is_promised_and_no_further(
    late: Operation, is_found: bool
) -> None:
    earlier = replace(looked_up(1, 1, 2, 2), argument=AT_1)

    found = list(check_lookups([earlier, late], None))

    assert [finding.operations for finding in found] == [("c#2", "c#1")] * is_found


def test_a_lookup_that_breaks_several_promises_is_found_once() -> None:
    late = replace(looked_up(2, 3 + STALENESS_NS, 4 + STALENESS_NS, 1), argument={**AT_1, **FRESH})
    earlier = replace(looked_up(1, 1, 2, 2), argument=AT_1)

    (finding,) = check_lookups([earlier, late], None)

    assert finding.at_ns == 4 + STALENESS_NS


def test_an_answer_is_what_the_log_has() -> None:
    log = [LogEvent(1, 1, 1, "topic_assigned", T, "t", "", 1, "b-1", "s")]
    index = index_log(log)

    assert list(check_lookups([looked_up(1, 1, 2, 1)], index)) == []
    (finding,) = check_lookups([looked_up(1, 1, 2, 2)], index)
    assert "never given" in finding.message
