"""The runner behind ``make soak``: many simulated histories and half an hour of chaos, in parts.

    python -m tests.simulation.soak [--parts 3] [--only sim|chaos] [--seeds 10000] [--minutes 30]

Goes on where it stopped: what is done is kept in ``.simulation/soak.jsonl``, one line for each
part. A part counts for the code that it ran with; after a change all of it has to be done again.
What parts with other code found is told beside it. The exit status is 1 if a part failed; how
many are still to be done is in the totals.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.batch import ROOT, STATE, Batch, code_digest
from tests.simulation.kinds import remember_failed
from tests.simulation.report import KINDS

SOAK_STATE = STATE.with_name("soak.jsonl")
SEEDS_DEFAULT = 10_000
"""Histories, of all kinds together."""

SEEDS_PER_PART = 500
MINUTES_DEFAULT = 30
MINUTES_PER_PART = 3
CHAOS_TIMEOUT_S = 900
"""For one part: three minutes of load, and as long again for start and judging, on a machine that
is busy with other things."""

COUNTED = (
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
    "undecided",
    "verify_differences",
)
"""Numbers of a chaos run that add up over parts."""

SAID_CHARACTERS_MAX = 500
"""Characters of a part's failure that are kept; its seed reproduces the rest."""

LARGEST = ("max_unavailable_ms", "failover_kill_p99_ms", "failover_hang_p99_ms")


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of work: ``sim`` with ``size`` seeds of each kind from ``first`` on, or ``chaos``
    of ``size`` minutes with seed ``first``."""

    kind: str
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class PartDone:
    """What became of one."""

    part: Part
    code: str
    is_good: bool
    counts: dict[str, float] = field(default_factory=dict)
    said: str = ""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> PartDone:
        document = json.loads(line)
        return PartDone(**(document | {"part": Part(**document["part"])}))


def parts_of(seeds: int, minutes: int) -> list[Part]:
    """Return all parts, chaos between the simulations."""
    of_each_kind = -(-seeds // len(KINDS))
    simulated = [
        Part("sim", first, min(SEEDS_PER_PART, of_each_kind - first + 1))
        for first in range(1, of_each_kind + 1, SEEDS_PER_PART)
    ]
    broken = [
        Part("chaos", number, MINUTES_PER_PART)
        for number in range(1, -(-minutes // MINUTES_PER_PART) + 1)
    ]
    return [*broken, *simulated]


def missing(parts: Iterable[Part], done: Sequence[PartDone], code: str) -> list[Part]:
    """Return the parts that are not done with this code."""
    finished = {one.part for one in done if one.code == code}
    return [part for part in parts if part not in finished]


def totals(done: Iterable[PartDone]) -> dict[str, float]:
    """Return what parts found, added up; of ``LARGEST`` the largest."""
    summed: Counter[str] = Counter()
    largest: dict[str, float] = {}
    for one in done:
        for name, value in one.counts.items():
            if name in LARGEST:
                largest[name] = max(value, largest.get(name, 0.0))
            else:
                summed[name] += value  # type: ignore[assignment]
        summed["parts"] += 1
        summed["failed_parts"] += not one.is_good
    return {**summed, **largest}


def chaos_counts(result: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of one run's JSON line that are kept."""
    return {name: result[name] for name in (*COUNTED, *LARGEST) if result.get(name) is not None}


def read_state(path: Path) -> list[PartDone]:
    """Return what is done; a torn last line is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [PartDone.from_line(line) for line in lines[:-1]]


def run_part(part: Part, code: str) -> PartDone:
    """Do one part, however it ends."""
    return _chaos(part, code) if part.kind == "chaos" else _simulate(part, code)


def _simulate(part: Part, code: str) -> PartDone:
    seeds = range(part.first, part.first + part.size)
    state = STATE.with_name(f"soak-sim-{part.first}.jsonl")
    batch = Batch([(kind, seed) for seed in seeds for kind in KINDS], state)
    counts: Counter[str] = Counter()
    said = ""
    for report in (*batch.done, *batch.run()):
        counts["simulated_seeds"] += 1
        counts["simulated_faults"] += sum(report.faults.values())
        if report.failure is not None:
            counts["simulated_failures"] += 1
            what = report.failure.split("\n", 1)[0][:SAID_CHARACTERS_MAX]
            again = f"make sim SEED={report.seed} KIND={report.kind}"
            said = said or f"{report.kind} {report.seed}: {what} ({again})"
            _remember(report)
    state.unlink(missing_ok=True)
    return PartDone(part, code, not counts["simulated_failures"], dict(counts), said)


def _remember(report: Any) -> None:
    from datetime import UTC, datetime

    remember_failed(report, datetime.now(UTC).date())


def _chaos(part: Part, code: str) -> PartDone:
    command = [sys.executable, "-m", "nextgen", "chaos", "--json"]
    command += ["--minutes", str(part.size), "--seed", str(part.first)]
    command += ["--data-dir", str(STATE.parent)]
    try:
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=CHAOS_TIMEOUT_S,
            cwd=ROOT,
        )
        result = json.loads(ended.stdout.strip().split("\n")[-1])
    except (subprocess.TimeoutExpired, ValueError) as error:
        return PartDone(part, code, False, {}, f"no result: {error}")
    said = "" if not ended.returncode else f"{result['replay']}: {result['complaints']}"
    return PartDone(part, code, not ended.returncode, chaos_counts(result), said)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is missing, and tell the totals."""
    given = _parse(arguments)
    code = code_digest()
    parts = parts_of(given.seeds, given.minutes)
    done = read_state(SOAK_STATE)
    chosen = [p for p in missing(parts, done, code) if given.only in (None, p.kind)]
    SOAK_STATE.parent.mkdir(exist_ok=True)
    for part in chosen[: given.parts]:
        print(f"== {part.kind}, {part.size} from {part.first}", flush=True)
        one = run_part(part, code)
        done.append(one)
        with SOAK_STATE.open("a", encoding="utf-8") as file:
            file.write(one.to_line())
        print(one.to_line() if one.is_good else f"FAILED: {one.said}", flush=True)
    return _tell(parts, done, code)


def _tell(parts: Sequence[Part], done: Sequence[PartDone], code: str) -> int:
    here = [one for one in done if one.code == code]
    left = len(missing(parts, done, code))
    print(json.dumps({"code": code, "parts_left": left, "totals": totals(here)}))
    if len(here) < len(done):
        print(json.dumps({"of_all_code": totals(done)}))
    for one in here:
        if not one.is_good:
            print(f"FAILED: {one.said}")
    return int(any(not one.is_good for one in here))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--parts", type=int, help="how many parts at most (default: all)")
    parser.add_argument("--only", choices=("sim", "chaos"))
    parser.add_argument("--seeds", type=int, default=SEEDS_DEFAULT)
    parser.add_argument("--minutes", type=int, default=MINUTES_DEFAULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings have one order then, in this process and in its children.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.soak", *sys.argv[1:]])
    sys.exit(main())
