"""The simulation bites: without a guard a seed fails. All guards: ``make mutants``."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from nextgen.replication.following import Following
from tests.simulation.engine.run import run_seed
from tests.simulation.mutants import BY_NAME, MUTANTS, Edit, GuardMoved, Mutant, removed
from tests.simulation.prove import Proof, document_of, known_rows, known_seed, row_of

SEEDS = range(1, 6)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_guard_is_where_its_mutant_looks_for_it(mutant: Mutant) -> None:
    before = [edit.owner.__dict__[edit.name] for edit in mutant.edits]

    with removed(mutant):
        assert [edit.owner.__dict__[edit.name] for edit in mutant.edits] != before

    assert [edit.owner.__dict__[edit.name] for edit in mutant.edits] == before


def test_a_guard_that_moved_is_missed() -> None:
    moved = Mutant("moved", "D1", "", (Edit(Following, "on_append", "no such words", ""),))

    with pytest.raises(GuardMoved), removed(moved):
        pass


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("acknowledges-before-fsync", "acknowledged and durable on"),
        ("votes-before-fsync", "that is not on its disk"),
        ("campaigns-without-asking", "campaigns in term"),
        ("resent-entries-truncate", "entry"),
    ],
)
def test_without_its_guard_a_seed_fails(name: str, sentence: str) -> None:
    with removed(BY_NAME[name]):
        failures = (run_seed(seed).failure for seed in SEEDS)
        first = next((failure for failure in failures if failure is not None), "nothing")

    assert sentence in first


def test_the_document_says_what_failed_and_remembers_the_seed(tmp_path: Path) -> None:
    names = [mutant.name for mutant in MUTANTS[:3]]
    proofs = [
        Proof(names[0], 17, 3, "two leaders | in term 3"),
        Proof(names[1], None, 40, test="tests/unit/test_x.py::test_something"),
        Proof(names[2], None, 40),
    ]
    rows = {proof.name: row_of(proof, date(2026, 1, 2)) for proof in proofs}
    path = tmp_path / "guards.md"

    path.write_text(document_of(rows))

    text = path.read_text()
    assert "seed 17: two leaders / in term 3" in text
    assert "no seed of 40; `test_something`" in text
    assert "**nothing in 40 seeds, and no test**" in text
    assert known_rows(path) == rows
    assert [known_seed(rows[name]) for name in names] == [17, None, None]


def test_the_document_in_the_tree_speaks_of_guards_that_exist() -> None:
    assert set(known_rows()) <= set(BY_NAME)
