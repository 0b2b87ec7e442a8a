"""``make mutants``: remove each guard of the engine in turn and see what fails.

python -m tests.simulation.prove [--seeds 40] [--only NAME ...] [--write]

A guard is proved by the first seed that fails without it, or else by the first of its tests
that does. ``--write`` makes docs/guards.md of it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.simulation.batch import ROOT, guarded, worker_pool
from tests.simulation.mutants import BY_NAME, MUTANTS, Mutant, removed

DOCUMENT = ROOT / "docs" / "guards.md"
SEEDS = 40
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


_HEAD = """\
# Guards and what fails without them

Made by `make mutants` (tests/simulation/prove.py), not by hand. Each guard was taken out of the
engine's source in memory (tests/simulation/mutants.py), and the simulation of one group ran seeds
until one failed. Where none did, the tests named for that guard ran, and the first that failed is
shown. Seeds are those of the code of the day: after a change of the engine another one may be the
first to fail.

| mutant | invariant | guard that was removed | what failed | on |
|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Proof:
    """What failed without a guard; nothing if both are None."""

    name: str
    seed: int | None
    seeds_run: int
    sentence: str = ""
    test: str | None = None

    @property
    def is_found(self) -> bool:
        return self.seed is not None or self.test is not None


def prove(name: str, seeds: int, known: int | None) -> Proof:
    """Look for a seed that fails without the guard ``name``, then for a test."""
    mutant = BY_NAME[name]
    wanted = [seed for seed in (known,) if seed is not None]
    wanted += [seed for seed in range(1, seeds + 1) if seed != known]
    with removed(mutant):
        for number, seed in enumerate(wanted, start=1):
            failure = guarded("engine", seed).failure
            if failure is not None:
                return Proof(name, seed, number, failure)
    return Proof(name, None, len(wanted), test=_failing_test(mutant))


def _failing_test(mutant: Mutant) -> str | None:
    if not mutant.tests:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "tests.simulation.mutant_plugin", *mutant.tests],
        cwd=ROOT,
        env={**os.environ, "MUTANT": mutant.name, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = _FAILED_TEST.search(done.stdout)
    return found.group(1) if found else None


def known_rows(document: Path = DOCUMENT) -> dict[str, str]:
    """Return the rows of the document, by the names of their mutants."""
    if not document.exists():
        return {}
    rows = (line for line in document.read_text().splitlines() if line.startswith("| `"))
    return {row.split("`", 2)[1]: row for row in rows}


def known_seed(row: str | None) -> int | None:
    """Return the seed that a row names: the first to try."""
    found = re.search(r"\| seed (\d+): ", row or "")
    return int(found.group(1)) if found else None


def document_of(rows: Mapping[str, str]) -> str:
    """Return docs/guards.md with one row for each mutant."""
    lines = [_HEAD]
    lines += [rows[mutant.name] for mutant in MUTANTS if mutant.name in rows]
    return "\n".join(lines) + "\n"


def row_of(proof: Proof, today: date) -> str:
    """Return a proof as a row of the document."""
    mutant = BY_NAME[proof.name]
    if proof.seed is not None:
        sentence = " ".join(proof.sentence.split()).replace("|", "/").replace("<", "&lt;")
        what = f"seed {proof.seed}: {sentence[:160]}"
    elif proof.test is not None:
        what = f"no seed of {proof.seeds_run}; `{proof.test.rsplit('::', 1)[-1]}`"
    else:
        what = f"**nothing in {proof.seeds_run} seeds, and no test**"
    return f"| `{mutant.name}` | {mutant.invariant} | {mutant.guard} | {what} | {today} |"


def main() -> int:
    """Return 0 if something fails without each guard."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="*", choices=sorted(BY_NAME), default=sorted(BY_NAME))
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    given = parser.parse_args()
    console = Console()
    proofs = _prove_all(console, given.only, given.seeds, write=given.write)
    missing = [proof.name for proof in proofs if not proof.is_found]
    by_seed = sum(proof.seed is not None for proof in proofs)
    console.print(f"{len(proofs)} guards: {by_seed} missed by a seed, {len(missing)} by nobody")
    for name in missing:
        console.print(f"nothing fails without: {name}")
    return int(bool(missing))


def _prove_all(console: Console, names: Sequence[str], seeds: int, *, write: bool) -> list[Proof]:
    rows, proofs = known_rows(), []
    with Progress(console=console) as progress:
        task = progress.add_task("guards", total=len(names))
        with worker_pool() as pool:
            futures = [
                pool.submit(prove, name, seeds, known_seed(rows.get(name))) for name in names
            ]
            for future in as_completed(futures):
                proof = future.result()
                proofs.append(proof)
                rows[proof.name] = row_of(proof, datetime.now(UTC).date())
                if write:  # At once: a run that is interrupted has proved what it has proved.
                    DOCUMENT.write_text(document_of(rows))
                progress.update(task, advance=1)
                console.print(rows[proof.name], markup=False, soft_wrap=True)
    return sorted(proofs, key=lambda proof: proof.name)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.prove", *sys.argv[1:]])
    sys.exit(main())
