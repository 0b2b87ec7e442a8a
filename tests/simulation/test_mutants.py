"""The simulation bites: without a guard a seed fails. All guards: ``make mutants``."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from nextgen.replication.raft.following import Following
from tests.simulation.batch import ROOT
from tests.simulation.engine.run import run_seed
from tests.simulation.mutants import engine
from tests.simulation.mutants.catalog import BY_NAME, MUTANTS
from tests.simulation.mutants.mutant import Edit, GuardMoved, Mutant, removed
from tests.simulation.prove import (
    Proof,
    document_of,
    known_rows,
    known_seed,
    known_test,
    known_whole,
    row_of,
)

SEEDS = range(1, 6)

INVARIANTS = set(
    re.findall(r"^\| ([A-Z]+\d+) \|", (ROOT / "docs/invariants.md").read_text(), re.MULTILINE)
)


def test_every_guard_is_where_its_mutant_looks_for_it() -> None:
    faults = {mutant.name: fault for mutant in MUTANTS if (fault := _fault_of_edits(mutant))}

    assert len(MUTANTS) > 300
    assert faults == {}


def _fault_of_edits(mutant: Mutant) -> str:
    before = _edited(mutant)
    try:
        with removed(mutant):
            if _edited(mutant) == before:
                return "nothing is changed"
    except GuardMoved as moved:
        return str(moved)
    return "" if _edited(mutant) == before else "it is not put back"


def _edited(mutant: Mutant) -> list[object]:
    return [edit.owner.__dict__[edit.name] for edit in mutant.edits]


def test_every_mutant_says_what_is_to_notice_it_and_which_invariant_it_breaks() -> None:
    silent = [mutant.name for mutant in MUTANTS if not (mutant.tests or mutant.seeds)]
    lost = {
        mutant.name: test
        for mutant in MUTANTS
        for test in mutant.tests
        if not (ROOT / test.partition("::")[0]).exists()
    }
    breaks = {mutant.name: re.findall(r"\b[A-Z]+\d+\b", mutant.invariant) for mutant in MUTANTS}

    assert silent == []
    assert lost == {}
    assert [name for name, ids in breaks.items() if not ids] == []
    named = {each for ids in breaks.values() for each in ids if not re.fullmatch(r"H\d+", each)}
    assert named <= INVARIANTS


def test_a_guard_that_moved_is_missed() -> None:
    moved = Mutant("moved", "D1", "", (Edit(Following, "on_append", "no such words", ""),))

    with pytest.raises(GuardMoved), removed(moved):
        pass


def test_a_function_is_also_removed_where_it_was_imported_by_its_name() -> None:
    from nextgen.replication.protocol import quorum
    from nextgen.replication.raft import leading

    original = quorum.next_commit_index
    with removed(BY_NAME["counts-entries-of-earlier-terms"]):
        assert leading.next_commit_index is quorum.next_commit_index
        assert quorum.next_commit_index is not original

    assert leading.next_commit_index is quorum.next_commit_index is original


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("acknowledges-before-fsync", "acknowledged and durable on"),
        ("votes-before-fsync", "that is not on its disk"),
        ("campaigns-without-asking", "campaigns in term"),
        ("resent-entries-truncate", "and its log ends at"),
    ],
)
def test_without_its_guard_a_seed_fails(name: str, sentence: str) -> None:
    with removed(BY_NAME[name]):
        failures = (run_seed(seed).failure for seed in SEEDS)
        first = next((failure for failure in failures if failure is not None), "nothing")

    assert sentence in first


def test_the_document_says_what_failed_and_remembers_the_seed(tmp_path: Path) -> None:
    names = [mutant.name for mutant in engine.MUTANTS[:4]]
    proofs = [
        Proof(names[0], kind="engine", seed=17, sentence="two leaders | in term 3"),
        Proof(names[1], "tests/unit/test_x.py::test_some", seeds_run=(("engine", 40),)),
        Proof(names[2], "tests/unit/test_x.py::test_some", "cluster", 3, "behind"),
        Proof(names[3], seeds_run=(("engine", 40), ("cluster", 6))),
    ]
    rows = {proof.name: row_of(proof, date(2026, 1, 2)) for proof in proofs}
    path = tmp_path / "guards.md"

    path.write_text(document_of(rows))

    text = path.read_text()
    assert "| engine seed 17: two leaders / in term 3 | 2026-01-02 |" in text
    assert "| `test_some`; no engine seed of 40 |" in text
    assert "| `test_some`; cluster seed 3: behind |" in text
    assert "| **nothing**; no engine seed of 40; no cluster seed of 6 |" in text
    assert "Not run yet: " in text
    assert known_rows(path) == rows
    assert [known_seed(rows[name]) for name in names] == [
        ("engine", 17),
        None,
        ("cluster", 3),
        None,
    ]
    assert [known_test(rows[name]) for name in names] == [None, "test_some", "test_some", None]


def test_the_document_in_the_tree_speaks_of_guards_that_exist() -> None:
    assert set(known_rows()) <= set(BY_NAME)


def test_the_document_says_how_many_guards_were_run_on_one_code() -> None:
    assert document_of({}, "3 of 9 guards were run on one code.").endswith(
        "3 of 9 guards were run on one code.\n"
    )


def test_the_document_keeps_what_it_says_of_a_whole_run(tmp_path: Path) -> None:
    path = tmp_path / "guards.md"
    whole = "3 of 9 guards were run on one code, 2 others on that of commit 01234567."

    path.write_text(document_of({}, whole))

    assert known_whole(path) == whole
    path.write_text(document_of({}))
    assert known_whole(path) == ""
