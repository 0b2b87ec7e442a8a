"""``make mutants``: remove each guard in turn and see what fails.

python -m tests.simulation.prove [--only NAME ...] [--seeds 6] [--minutes 30] [--write]

A guard is shown by the first of its tests that fails without it, and by the first seed that does.
Whatever fails is run once more with the guard in place, and counts only if it holds then.
Tests and seeds run in forks of two processes that have imported everything once.

``--write`` makes docs/guards.md of it, row by row. A run that was interrupted goes on with the
guards that were not run on the same code; ``--only`` runs what it names in any case. The last line
of docs/guards.md says how many were run on one code, and on which commit: ``--only`` leaves it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.simulation.batch import PROCESSES, ROOT, code_digest, guarded, worker_pool
from tests.simulation.forked import run_forked
from tests.simulation.kinds import import_all
from tests.simulation.mutant_tests import first_failure
from tests.simulation.mutants.catalog import BY_NAME, COMPONENTS
from tests.simulation.mutants.mutant import Mutant, removed
from tests.simulation.report import Kind

DOCUMENT = ROOT / "docs" / "guards.md"
STATE = ROOT / ".simulation" / "mutants.json"
"""Which mutants were run on which code."""

SEEDS_MAX = 6
"""Of each kind that a mutant names, if one of its tests fails: then seeds are only a second net.
The seed that failed the last time is tried first."""

SEED_SECONDS_MAX = 600
"""Of the wall's clock, for a seed that neither ends nor takes processor time."""

_HEAD = """\
# Guards and what fails without them

Made by `make mutants` (tests/simulation/prove.py), not by hand. Each guard was taken out of the
source in memory (tests/simulation/mutants), then its tests were run until one failed, and seeds of
the simulations named for it, from 1 on, until one failed. A mutant of a guard of the engine is
tried in the simulation of one group, of other components where their simulation judges what is
promised. What failed held when it was run again with the guard in place. Seeds and tests are those
of the code of that day: after a change another one may be the first to fail.
"""
_COLUMNS = (
    "| mutant | invariant | guard that was removed | what failed | on |\n|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Proof:
    """What failed without a guard. ``seeds_run`` has the kinds of which no seed failed."""

    name: str
    test: str | None = None
    kind: Kind | None = None
    seed: int | None = None
    sentence: str = ""
    seeds_run: tuple[tuple[Kind, int], ...] = ()

    @property
    def is_found(self) -> bool:
        return self.seed is not None or self.test is not None


def prove(name: str, seeds_max: int, row: str | None) -> Proof:
    """Look for a test and for a seed that fail without the guard ``name``.

    What failed the last time, as ``row`` says, is tried first.
    """
    import_all()
    mutant = BY_NAME[name]
    known, test = known_seed(row), _failing_test(mutant, known_test(row))
    seeds_run: list[tuple[Kind, int]] = []
    for kind, count in mutant.seeds:
        # What no test notices is worth every seed that the mutant names.
        seeds = range(1, (count if test is None else min(count, seeds_max)) + 1)
        first = [known[1]] if known is not None and known[0] == kind else []
        for seed in (*first, *(each for each in seeds if each not in first)):
            failure = _failure(mutant, kind, seed)
            if failure is not None and _failure(None, kind, seed) is None:
                return Proof(name, test, kind, seed, failure, tuple(seeds_run))
        if seeds:
            seeds_run.append((kind, len(seeds)))
    return Proof(name, test, seeds_run=tuple(seeds_run))


def _failure(mutant: Mutant | None, kind: Kind, seed: int) -> str | None:
    """Return what a seed finds without the guard of ``mutant``."""

    def work(report: Callable[[object], None]) -> None:
        with removed(mutant) if mutant is not None else contextlib.nullcontext():
            report(guarded(kind, seed).failure)

    outcome = run_forked(work, seconds_max=SEED_SECONDS_MAX)
    if not outcome.is_complete:
        return "the simulation did not come to its end"
    failure: str | None = outcome.reports[0]
    return failure


def _failing_test(mutant: Mutant, known: str | None) -> str | None:
    """Return the first of the mutant's tests that fails by it, and holds without it."""
    if not mutant.tests:
        return None
    failed = None
    if known is not None:
        failed = first_failure([*mutant.tests, "-k", known], mutant.name)
    if failed is None:
        failed = first_failure(mutant.tests, mutant.name)
    return failed if failed is not None and _holds(failed) else None


@functools.cache
def _holds(test: str) -> bool:
    """Return whether a test holds with every guard in place."""
    return first_failure([test], None) is None


def known_rows(document: Path = DOCUMENT) -> dict[str, str]:
    """Return the rows of the document, by the names of their mutants."""
    if not document.exists():
        return {}
    rows = (line for line in document.read_text().splitlines() if line.startswith("| `"))
    return {row.split("`", 2)[1]: row for row in rows}


def known_whole(document: Path = DOCUMENT) -> str:
    """Return the last line of the document: how many guards were run on which code."""
    lines = document.read_text().splitlines() if document.exists() else []
    return lines[-1] if lines and " guards were run on one code" in lines[-1] else ""


def known_seed(row: str | None) -> tuple[Kind, int] | None:
    """Return the kind and number of the seed that a row names: the first to try."""
    found = re.search(r"[|;] (engine|cluster) seed (\d+): ", row or "")
    if found is None:
        return None
    return ("engine" if found.group(1) == "engine" else "cluster"), int(found.group(2))


def known_test(row: str | None) -> str | None:
    """Return the name of the test that a row names, without its parameters."""
    found = re.search(r"\| `(test_\w+)", row or "")
    return found and found.group(1)


def document_of(rows: Mapping[str, str], whole: str = "") -> str:
    """Return docs/guards.md: a table for each component, a row for each of its mutants.

    ``whole`` says how many were run on one code.
    """
    lines = [_HEAD]
    for title, mutants in COMPONENTS.items():
        shown = [rows[mutant.name] for mutant in mutants if mutant.name in rows]
        if shown:
            lines += [f"## {title}\n", _COLUMNS, *shown, ""]
    missing = [f"`{name}`" for name in BY_NAME if name not in rows]
    if missing:
        lines.append(f"Not run yet: {', '.join(missing)}.\n")
    if whole:
        lines.append(f"{whole}\n")
    return "\n".join(lines)


def row_of(proof: Proof, today: date) -> str:
    """Return a proof as a row of the document."""
    mutant = BY_NAME[proof.name]
    found = [] if proof.test is None else [f"`{proof.test.rsplit('::', 1)[-1]}`"]
    if proof.seed is not None:
        sentence = " ".join(proof.sentence.split()).replace("|", "/").replace("<", "&lt;")
        found.append(f"{proof.kind} seed {proof.seed}: {sentence[:160]}")
    found += [f"no {kind} seed of {count}" for kind, count in proof.seeds_run]
    if not proof.is_found:
        found.insert(0, "**nothing**")
    what = "; ".join(found)
    return f"| `{mutant.name}` | {mutant.invariant} | {mutant.guard} | {what} | {today} |"


def main() -> int:
    """Return 0 if something fails without each guard."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=SEEDS_MAX, help="of each kind, where a test fails too"
    )
    parser.add_argument("--only", nargs="*", choices=sorted(BY_NAME), default=())
    parser.add_argument("--minutes", type=float, help="begin no other mutant after so long")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    given = parser.parse_args()
    console, rows = Console(), known_rows()
    names = given.only or _not_run(rows)
    if not names:
        console.print("every mutant was run on this code")
    until = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    whole = known_whole() if given.only else None
    proofs = _prove_all(console, rows, names, given.seeds, until, whole, write=given.write)
    missing = [proof.name for proof in proofs if not proof.is_found]
    console.print(f"{len(proofs)} of {len(names)} guards run, {len(missing)} that nothing misses")
    for name in missing:
        console.print(f"nothing fails without: {name}")
    return int(bool(missing))


def _not_run(rows: Mapping[str, str]) -> list[str]:
    """Return what was not run on this code: first what never was, then what was longest ago."""
    done = _done_on(code_digest())
    names = [name for name in BY_NAME if name not in done]
    return sorted(names, key=lambda name: rows.get(name, "").rpartition(" | ")[2])


def _done_on(digest: str) -> list[str]:
    try:
        state = json.loads(STATE.read_text())
    except (FileNotFoundError, ValueError):
        return []
    return state["done"] if state["code"] == digest else []


def _note_done(digest: str, name: str) -> None:
    STATE.parent.mkdir(exist_ok=True)
    STATE.write_text(json.dumps({"code": digest, "done": [*_done_on(digest), name]}))


def _whole(digest: str) -> str:
    """Return how many guards were run on the code of ``digest``, and what the code is called."""
    done = {*_done_on(digest)} & {*BY_NAME}
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(command, cwd=ROOT, text=True).strip()
    return f"{len(done)} of {len(BY_NAME)} guards were run on one code, that of commit {commit}."


def _prove_all(
    console: Console,
    rows: dict[str, str],
    names: Sequence[str],
    seeds_max: int,
    until: float | None,
    whole: str | None,
    *,
    write: bool,
) -> list[Proof]:
    digest, proofs = code_digest(), list[Proof]()
    with Progress(console=console) as progress:
        task = progress.add_task("guards", total=len(names))
        for proof in _proofs(rows, names, seeds_max, until):
            proofs.append(proof)
            rows[proof.name] = row_of(proof, datetime.now(UTC).date())
            if write:  # At once: a run that is interrupted has proved what it has proved.
                _note_done(digest, proof.name)
                DOCUMENT.write_text(document_of(rows, _whole(digest) if whole is None else whole))
            progress.update(task, advance=1)
            console.print(rows[proof.name], markup=False, soft_wrap=True)
    return sorted(proofs, key=lambda proof: proof.name)


def _proofs(
    rows: Mapping[str, str], names: Sequence[str], seeds_max: int, until: float | None
) -> Iterator[Proof]:
    waiting, running = list(reversed(names)), set[Future[Proof]]()
    with worker_pool() as pool:
        while waiting or running:
            if until is not None and time.monotonic() > until:
                waiting.clear()
            while waiting and len(running) < PROCESSES:
                name = waiting.pop()
                running.add(pool.submit(prove, name, seeds_max, rows.get(name)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.prove", *sys.argv[1:]])
    sys.exit(main())
