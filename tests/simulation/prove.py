"""``make mutants``: remove each guard in turn and see what fails.

python -m tests.simulation.prove [--only NAME ...] [--seeds 40] [--minutes 30] [--write]

A guard is shown by the first of its tests that fails without it, and by the first seed that does.
Whatever fails is run once more with the guard in place, and counts only if it holds then.
``--write`` makes docs/guards.md of it. A run that was interrupted goes on with the guards that
were not run on the same code; ``--only`` runs what it names in any case.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.simulation.batch import PROCESSES, ROOT, code_digest, guarded, worker_pool
from tests.simulation.mutants.catalog import BY_NAME, COMPONENTS
from tests.simulation.mutants.mutant import Mutant, removed
from tests.simulation.report import Kind

DOCUMENT = ROOT / "docs" / "guards.md"
STATE = ROOT / ".simulation" / "mutants.json"
"""Which mutants were run on which code."""

SEEDS_MAX = 40
TESTS_SECONDS_MAX = 600
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - |$)", re.MULTILINE)

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
    mutant = BY_NAME[name]
    known, test = known_seed(row), _failing_test(mutant, known_test(row))
    seeds_run: list[tuple[Kind, int]] = []
    for kind, count in mutant.seeds:
        seeds = range(1, min(count, seeds_max) + 1)
        first = [known[1]] if known is not None and known[0] == kind else []
        for seed in (*first, *(each for each in seeds if each not in first)):
            with removed(mutant):
                failure = guarded(kind, seed).failure
            if failure is not None and guarded(kind, seed).failure is None:
                return Proof(name, test, kind, seed, failure, tuple(seeds_run))
        if seeds:
            seeds_run.append((kind, len(seeds)))
    return Proof(name, test, seeds_run=tuple(seeds_run))


def _failing_test(mutant: Mutant, known: str | None) -> str | None:
    """Return the first of the mutant's tests that fails by it, and holds without it."""
    if not mutant.tests:
        return None
    found = None
    if known is not None:
        found = _FAILED_TEST.search(_pytest([*mutant.tests, "-k", known], mutant))
    if found is None:
        found = _FAILED_TEST.search(_pytest(mutant.tests, mutant))
    if found is None:
        return None
    failed = found.group(1)
    return None if _FAILED_TEST.search(_pytest([failed], None)) else failed


def _pytest(arguments: Sequence[str], mutant: Mutant | None) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if mutant is not None:
        command += ["-p", "tests.simulation.mutant_plugin"]
        environment["MUTANT"] = mutant.name
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TESTS_SECONDS_MAX,
    )
    # 0: all held; 1: some failed; 5: there is no such test any more. Anything else is about the
    # mutant or the names of its tests.
    assert done.returncode in (0, 1, 5), f"pytest broke: {done.stdout}{done.stderr}"
    return done.stdout


def known_rows(document: Path = DOCUMENT) -> dict[str, str]:
    """Return the rows of the document, by the names of their mutants."""
    if not document.exists():
        return {}
    rows = (line for line in document.read_text().splitlines() if line.startswith("| `"))
    return {row.split("`", 2)[1]: row for row in rows}


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


def document_of(rows: Mapping[str, str]) -> str:
    """Return docs/guards.md: a table for each component, a row for each of its mutants."""
    lines = [_HEAD]
    for title, mutants in COMPONENTS.items():
        shown = [rows[mutant.name] for mutant in mutants if mutant.name in rows]
        if shown:
            lines += [f"## {title}\n", _COLUMNS, *shown, ""]
    missing = [f"`{name}`" for name in BY_NAME if name not in rows]
    if missing:
        lines.append(f"Not run yet: {', '.join(missing)}.\n")
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
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="of each kind at most")
    parser.add_argument("--only", nargs="*", choices=sorted(BY_NAME), default=())
    parser.add_argument("--minutes", type=float, help="begin no other mutant after so long")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    given = parser.parse_args()
    console, rows = Console(), known_rows()
    names = given.only or _not_run(rows)
    if not names:
        console.print("every mutant was run on this code")
    until = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    proofs = _prove_all(console, rows, names, given.seeds, until, write=given.write)
    missing = [proof.name for proof in proofs if not proof.is_found]
    console.print(f"{len(proofs)} of {len(names)} guards run, {len(missing)} missed by nobody")
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


def _prove_all(
    console: Console,
    rows: dict[str, str],
    names: Sequence[str],
    seeds_max: int,
    until: float | None,
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
                DOCUMENT.write_text(document_of(rows))
                _note_done(digest, proof.name)
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
