"""What ``perf broker-kill`` tells of the clients' accounts."""

from __future__ import annotations

from typing import Any

from nextgen.harness.perf.assign import spread_of
from nextgen.harness.perf.pulsar.broker_kill import KillLoad, Strike, report

LOAD = KillLoad(topics=2, kills=1, stops=1, stop_seconds=5, interval_ms=40)
STRIKES = (
    Strike("kill", "broker-1", 10.0, (100.0, 140.0)),
    Strike("stop", "broker-2", 20.0, (3_000.0, 3_500.0)),
)


def result(**changed: Any) -> dict[str, Any]:
    accounts: dict[str, Any] = {
        "sent": 100,
        "received": 100,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "redelivered": 3,
        "failed": 0,
        "unanswered": 0,
        "examples": [],
        "strikes": [
            {"in_flight": 4, "gaps_ms": [200.0, 300.0]},
            {"in_flight": 1, "gaps_ms": [5_000.0, 5_100.0]},
        ],
    }
    return accounts | changed


def test_kills_and_stops_are_distinguished():
    told = report(result(), STRIKES, LOAD)

    assert (told["gap_p50_ms"], told["gap_max_ms"]) == (200.0, 300.0)
    assert (told["stop_gap_p50_ms"], told["stop_gap_max_ms"]) == (5_000.0, 5_100.0)
    assert told["elsewhere_max_ms"] == 140.0
    assert told["stop_elsewhere_max_ms"] == 3_500.0
    assert [one["broker"] for one in told["strikes"]] == ["broker-1", "broker-2"]
    assert told["wrong"] == 0


def test_without_stops_there_is_nothing_to_tell_of_them():
    kills_only = result(strikes=[{"in_flight": 4, "gaps_ms": [200.0]}])

    told = report(kills_only, STRIKES[:1], LOAD)

    assert told["stop_gap_p99_ms"] is None
    assert told["gap_p99_ms"] == 200.0


def test_whatever_is_not_accounted_for_is_wrong():
    spoilt = result(lost=1, duplicated=2, out_of_order=4, unanswered=8, redelivered=16)

    assert report(spoilt, STRIKES, LOAD)["wrong"] == 15


def test_a_spread_is_the_fullest_by_the_mean():
    assert spread_of({"b": 12, "a": 9, "c": 9}) == {
        "units_by_broker": {"a": 9, "b": 12, "c": 9},
        "units_max_by_mean": 1.2,
    }
    assert spread_of({})["units_max_by_mean"] == 0.0
