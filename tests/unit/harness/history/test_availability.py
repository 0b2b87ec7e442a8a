"""How long writes waited."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nextgen.audit.verdict import Recovery
from nextgen.harness.history.availability import recoveries, unavailable_intervals, writes_by_shard
from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import UNKNOWN, Fault, LogEvent, Operation, OperationKind

MS = 1_000_000


def write(
    number: int, began_ms: int, ended_ms: int | None, outcome: str = "ok", shard: int = 1
) -> Operation:
    ended_ns = None if ended_ms is None else ended_ms * MS
    kind = OperationKind.CREATE
    return Operation("c", number, kind, "k", began_ms * MS, ended_ns, outcome, shard=shard)


def longest(writes: Sequence[Operation], ended_ms: int = 100) -> tuple[float, float]:
    (found,) = unavailable_intervals({1: writes}, ended_ms * MS)
    return found.began_ns / MS, found.ended_ns / MS


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        # Nobody asked between 2 and 50: that is no time without service.
        ([write(1, 1, 2), write(2, 50, 53)], (50, 53)),
        # Under way since before the last answer.
        ([write(1, 1, 10), write(2, 5, 60)], (10, 60)),
        # Asked, and given up without an answer; the next one was answered.
        ([write(1, 1, 2), write(2, 20, 30, UNKNOWN), write(3, 40, 42)], (20, 42)),
        # What failed for certain was asked for all the same.
        ([write(1, 1, 2), write(2, 20, 21, "failed:X"), write(3, 40, 42)], (20, 42)),
        # Never answered until the end.
        ([write(1, 1, 2), write(2, 70, None, UNKNOWN)], (70, 100)),
        # A refusal is an answer.
        ([write(1, 1, 2), write(2, 20, 21, "refused:X"), write(3, 40, 42)], (40, 42)),
    ],
)
def test_the_longest_time_without_an_answer_that_was_asked_for(
    writes: list[Operation], expected: tuple[float, float]
) -> None:
    assert longest(writes) == expected


def test_a_shard_is_known_from_the_answer_or_from_the_log() -> None:
    told = write(1, 1, 2, shard=3)
    untold = write(2, 1, None, UNKNOWN, shard=0)
    log = [LogEvent(2, 1, 1, "topic_created", "k", "id")]

    assert writes_by_shard([told, untold], index_log(log)) == {3: [told], 2: [untold]}
    assert writes_by_shard([untold], index_log([])) == {}


def test_recovery_counts_what_was_asked_for_after_the_fault() -> None:
    """1. a write is under way at the kill and answered just after it; 2. one that is asked for
    then is answered late: that is when the shard has recovered."""
    fault = Fault("kill", "node-1", 10 * MS, 90 * MS, shards=(1, 2))
    writes = {
        1: [write(1, 9, 11), write(2, 12, 40), write(3, 20, 35)],
        2: [write(4, 1, 2)],
    }

    assert recoveries([fault], writes) == (
        Recovery("kill", "node-1", 1, 10 * MS, 25.0),
        Recovery("kill", "node-1", 2, 10 * MS, None),
    )


def test_a_shard_that_nobody_wrote_to_for_long_is_measured_from_the_first_request() -> None:
    fault = Fault("restart_all", "all", 0, 5 * MS)

    (found,) = recoveries([fault], {9: [write(1, 90_000, 90_007)]})

    assert found.recovered_ms == 7.0


def test_a_fault_of_all_shards_is_measured_at_each() -> None:
    fault = Fault("restart_all", "all", 0, 5 * MS)
    writes = {1: [write(1, 1, 2)], 2: [write(2, 1, 7)]}

    assert [each.recovered_ms for each in recoveries([fault], writes)] == [2.0, 7.0]
