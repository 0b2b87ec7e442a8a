"""The long run in parts: what is done stays done, and is added up."""

from __future__ import annotations

from tests.simulation.report import KINDS
from tests.simulation.soak import (
    MINUTES_PER_PART,
    Part,
    PartDone,
    chaos_counts,
    missing,
    parts_of,
    read_state,
    totals,
)


def test_the_parts_are_all_seeds_of_all_kinds_and_all_minutes_once():
    parts = parts_of(10_000, 30)

    simulated = [
        seed
        for part in parts
        if part.kind == "sim"
        for seed in range(part.first, part.first + part.size)
    ]
    assert len(simulated) * len(KINDS) == 10_000
    assert len(set(simulated)) == len(simulated)
    broken = [part for part in parts if part.kind == "chaos"]
    assert len({part.first for part in broken}) * MINUTES_PER_PART == 30


def test_a_part_that_is_done_with_this_code_is_not_done_again():
    parts = [Part("chaos", number, 3) for number in (1, 2, 3)]
    done = [PartDone(parts[0], "this", True), PartDone(parts[1], "other", True)]

    assert missing(parts, done, "this") == parts[1:]


def test_what_was_done_is_read_again_without_a_torn_line(tmp_path):
    done = [
        PartDone(Part("sim", 1, 500), "code", True, {"simulated_seeds": 1_000}),
        PartDone(Part("chaos", 2, 3), "code", False, {"kills": 24}, "a promise was broken"),
    ]
    path = tmp_path / "soak.jsonl"
    path.write_text("".join(one.to_line() for one in done) + done[0].to_line()[:20])

    assert read_state(path) == done
    assert read_state(tmp_path / "missing") == []


def test_totals_add_up_counts_and_keep_the_largest_time():
    results = [
        {"kills": 20, "lost": 0, "max_unavailable_ms": 900.5, "failover_hang_p99_ms": None},
        {"kills": 24, "lost": 1, "max_unavailable_ms": 700.0, "seed": 7},
    ]
    done = [
        PartDone(Part("chaos", number, 3), "code", number == 1, chaos_counts(result))
        for number, result in enumerate(results, start=1)
    ]

    assert totals(done) == {
        "kills": 44,
        "lost": 1,
        "max_unavailable_ms": 900.5,
        "parts": 2,
        "failed_parts": 1,
    }
