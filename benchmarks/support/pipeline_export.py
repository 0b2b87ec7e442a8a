"""The export that a benchmark of a Spark job reads: one that exists, or one made for it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class BenchmarkExport:
    """Where it is, how long it took to make, and a folder for results, which goes with it."""

    path: Path
    directory: Path
    generated_s: float = 0.0


def parse_arguments(description: str) -> argparse.Namespace:
    """Return what export is asked for, and how often it is measured."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--export", type=Path, help="one that exists, or where to generate it")
    return parser.parse_args()


@contextmanager
def export_of(arguments: argparse.Namespace) -> Iterator[BenchmarkExport]:
    """Give the export that ``arguments`` ask for. What was not asked to be kept is removed."""
    with tempfile.TemporaryDirectory(prefix="pipeline-benchmark-") as name:
        directory = Path(name)
        path: Path = arguments.export or directory / "export"
        generated_s = 0.0 if path.exists() else _generate(path, arguments)
        yield BenchmarkExport(path, directory, generated_s)


def _generate(export: Path, arguments: argparse.Namespace) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "pipelines", "generate", str(export), "--json"]
    command += ["--topics", str(arguments.topics), "--days", str(arguments.days)]
    subprocess.run([*command, "--seed", str(arguments.seed)], check=True)
    return time.perf_counter() - began
