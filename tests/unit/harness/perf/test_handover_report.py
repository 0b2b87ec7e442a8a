"""What ``perf handover`` tells of the clients' accounts."""

from __future__ import annotations

from typing import Any

from nextgen.harness.perf.pulsar.handover import STILL_WINDOWS, HandoverLoad, Moved, report

LOAD = HandoverLoad(topics=100, probes=2, moves=2, rounds=1, interval_ms=10)
ONE = Moved(2, 0, 0, "", (20.0, 30.0))
MANY = Moved(1, 3, 1, "refused", (900.0,))


def result(**changed: Any) -> dict[str, Any]:
    still = [{"gaps_ms": [5.0, 6.0]}] * STILL_WINDOWS
    accounts: dict[str, Any] = {
        "sent": 100,
        "received": 100,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "redelivered": 3,
        "failed": 0,
        "first_failure": "",
        "unanswered": 0,
        "strikes": [*still, {"gaps_ms": [10.0]}, {"gaps_ms": [20.0]}, {"gaps_ms": [15.0, 40.0]}],
    }
    return accounts | changed


def test_gaps_of_one_of_many_and_of_none_are_distinguished():
    told = report(result(), ONE, MANY, LOAD)

    assert (told["p50_ms"], told["max_ms"]) == (10.0, 20.0)
    assert (told["still_p50_ms"], told["still_max_ms"]) == (5.0, 6.0)
    assert (told["many_p50_ms"], told["many_max_ms"]) == (15.0, 40.0)
    assert told["many_to_one"] == 1.5
    assert (told["lookups"], told["many_lookups"]) == (0, 3)
    assert (told["errors"], told["first_error"]) == (1, "refused")
    assert told["wrong"] == 0


def test_gaps_of_their_own_moves_follow_those_of_the_rounds():
    strikes = [*result()["strikes"], {"gaps_ms": [12.0]}, {"gaps_ms": [18.0]}]
    told = report(result(strikes=strikes), ONE, MANY, LOAD)

    assert (told["many_p50_ms"], told["many_max_ms"]) == (15.0, 40.0)
    assert (told["many_own_p50_ms"], told["many_own_max_ms"]) == (12.0, 18.0)
    assert (told["many_to_one"], told["many_own_to_one"]) == (1.5, 1.2)


def test_without_rounds_there_is_nothing_to_tell_of_many():
    still = [{"gaps_ms": [5.0]}] * STILL_WINDOWS
    told = report(
        result(strikes=[*still, {"gaps_ms": [10.0]}, {"gaps_ms": [20.0]}]),
        ONE,
        Moved(0, 0, 0, "", ()),
        LOAD,
    )

    assert told["many_p50_ms"] is None
    assert told["many_to_one"] is None


def test_whatever_is_not_accounted_for_is_wrong():
    spoilt = result(lost=1, duplicated=2, out_of_order=4, unanswered=8, redelivered=16)

    assert report(spoilt, ONE, MANY, LOAD)["wrong"] == 15
