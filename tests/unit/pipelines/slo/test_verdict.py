"""The answer of the job in one sentence, and each worst minute once."""

from __future__ import annotations

from typing import Any

from pipelines.slo.verdict import one_row_a_minute, slo_verdict


def numbers(**months: bool) -> dict[str, Any]:
    return {
        "minutes": 100,
        "availability_per_cent": 99.0,
        "objective_per_cent": 99.5,
        "months": {
            month: {"availability_per_cent": 100.0 if is_met else 98.0, "is_met": is_met}
            for month, is_met in months.items()
        },
    }


def test_a_month_that_missed_the_objective_is_named() -> None:
    assert slo_verdict(numbers(october=True, november=False)) == (
        "SLO missed: november had 98 % good minutes; the objective is 99.5 %"
    )
    assert slo_verdict(numbers(october=True)) == (
        "SLO met: 99 % of minutes were good, the objective is 99.5 %"
    )


def test_without_lookups_nothing_is_judged() -> None:
    assert slo_verdict(numbers() | {"minutes": 0}) == "SLO not judged: no minute has lookups"


def test_a_minute_is_listed_once_with_the_nodes_that_it_was_bad_for() -> None:
    rows = [
        {"began_at_ms": 1, "node_id": "d-2", "rank": 1},
        {"began_at_ms": 1, "node_id": "", "rank": 2},
        {"began_at_ms": 2, "node_id": "d-1", "rank": 3},
        {"began_at_ms": 1, "node_id": "d-1", "rank": 4},
    ]

    assert one_row_a_minute(rows) == [(rows[1], ["d-1", "d-2"]), (rows[2], ["d-1"])]
