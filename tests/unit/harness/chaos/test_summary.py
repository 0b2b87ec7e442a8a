"""What a run tells: counts, times of fail-overs, and when it is good."""

from __future__ import annotations

import pytest

from nextgen.audit.verdict import Verdict
from nextgen.harness.chaos.schedule import FaultKind
from nextgen.harness.chaos.summary import RunReport, as_json, failover_ms
from nextgen.harness.history import check
from nextgen.harness.history.model import Fault, History, Operation, OperationKind, Run

MS = 1_000_000
PROMISED = {
    "kills",
    "pauses",
    "partitions",
    "disk_faults",
    "clock_faults",
    "restarts",
    "ops",
    "acked",
    "lost",
    "phantom",
    "violations",
    "owner_overlaps",
    "watch_errors",
    "verify_differences",
    "export_equals_log",
    "max_unavailable_ms",
    "failover_kill_p50_ms",
    "failover_kill_p99_ms",
    "failover_hang_p99_ms",
    "valid",
    "ok",
    "seed",
    "minutes",
    "faults_unavailable",
    "moves",
    "unloads",
    "drains",
    "broker_kills",
    "broker_pauses",
}


def fault(kind: FaultKind, began_ms: int, shards: tuple[int, ...] = (1,)) -> Fault:
    return Fault(str(kind), "node", began_ms * MS, (began_ms + 1) * MS, "", shards)


def write(number: int, sent_ms: int, took_ms: int = 10, shard: int = 1) -> Operation:
    return Operation(
        client="one",
        op_id=number,
        kind=OperationKind.SET_PROPERTIES,
        key=f"persistent://a/b/shard-{shard}",
        invoked_ns=sent_ms * MS,
        returned_ns=(sent_ms + took_ms) * MS,
        outcome="ok",
        value={"version": number},
        shard=shard,
    )


def verdict_of(operations: list[Operation], faults: list[Fault]) -> Verdict:
    run = Run("run", 0, 10_000 * MS)
    return check(History(run, operations=operations, faults=faults))


def told_of(verdict: Verdict, faults: list[Fault]) -> RunReport:
    return RunReport(1, 3, faults=faults, verdict=verdict, export_equals_log=True)


def test_the_line_has_every_field_that_was_promised():
    document = as_json(told_of(verdict_of([], []), []))

    assert document.keys() >= PROMISED
    assert document["failover_hang_p99_ms"] is None


def test_faults_are_counted_by_kind_and_disks_together():
    kinds = [FaultKind.KILL, FaultKind.KILL, FaultKind.DISK_FULL, FaultKind.DISK_SLOW]
    faults = [fault(kind, 100 * place) for place, kind in enumerate(kinds)]

    document = as_json(told_of(verdict_of([], faults), faults))

    assert (document["kills"], document["disk_faults"], document["restarts"]) == (2, 2, 0)


def test_what_happened_to_brokers_and_units_is_counted():
    faults = [fault(FaultKind.KILL, 100), fault(FaultKind.DRAIN, 200), fault(FaultKind.UNLOAD, 300)]
    told = told_of(verdict_of([], faults), faults)
    told.of_brokers[FaultKind.KILL] += 1

    document = as_json(told)

    assert (document["kills"], document["broker_kills"], document["broker_pauses"]) == (1, 1, 0)
    assert (document["drains"], document["unloads"], document["moves"]) == (1, 1, 0)


def test_a_failover_is_from_the_signal_to_the_first_write_sent_behind_it():
    faults = [fault(FaultKind.KILL, 1_000), fault(FaultKind.PAUSE, 5_000)]
    # Sent before the kill and answered behind it: it may have been committed before.
    writes = [write(1, 990, 30), write(2, 1_005, 400), write(3, 1_100, 150), write(4, 5_100, 600)]

    verdict = verdict_of(writes, faults)

    assert failover_ms(verdict, faults, FaultKind.KILL, 0.50) == pytest.approx(250)
    assert failover_ms(verdict, faults, FaultKind.PAUSE, 0.99) == pytest.approx(700)


def test_a_node_that_led_nothing_has_no_failover():
    faults = [fault(FaultKind.KILL, 1_000, shards=())]

    verdict = verdict_of([write(1, 1_100)], faults)

    assert failover_ms(verdict, faults, FaultKind.KILL, 0.50) is None


def test_a_shard_that_did_not_come_back_has_no_time():
    faults = [fault(FaultKind.KILL, 1_000)]

    verdict = verdict_of([write(1, 100)], faults)

    assert failover_ms(verdict, faults, FaultKind.KILL, 0.99) is None


def test_a_run_is_good_only_if_everything_was_found_in_order():
    verdict = verdict_of([], [])
    assert told_of(verdict, []).is_ok

    for change in (
        {"export_equals_log": False},
        {"verify_differences": 1},
        {"complaints": ["a node ended"]},
        {"verdict": None},
    ):
        told = told_of(verdict, [])
        for name, value in change.items():
            setattr(told, name, value)
        assert not told.is_ok, change


def test_a_run_whose_history_breaks_a_promise_is_not_good():
    key = "persistent://a/b/shard-1"
    stale = Operation("two", 1, OperationKind.GET, key, 500 * MS, 510 * MS, "ok", value={})
    created = Operation("one", 9, OperationKind.CREATE, key, 1, 2, "ok", value={"id": "t-1"})

    verdict = verdict_of([created, stale], [])

    assert verdict.violations + verdict.lost >= 1
    assert not told_of(verdict, []).is_ok
