"""How much longer does a rebuild take than reading the same events and writing as much, unfolded?

An export is generated (``--export`` names one that exists, or where to keep it), rebuilt with
local[2] and a heap of 2 GiB, and compared with a baseline in the same session:

    baseline   every column that the fold reads, of every event, read into nothing, once; and the
               tables that the rebuild wrote, read and written again
    rebuild    the job itself: accounting, fold and all six tables

Both run ``--rounds`` times in turns, the first time to warm up the JVM; the ratio is of the fastest
ones. Exits with 1 if it is above 3. Prints one JSON line last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.support.pipeline_export import export_of, parse_arguments
from pipelines.exports.input import ExportInput, open_export
from pipelines.rebuild import tables
from pipelines.rebuild.job import read_table, run
from pipelines.running.session import open_session

RATIO_MAX = 3.0
COLUMNS = ("shard_id", "position", "time", "event_type", *tables.FOLDED_TYPES)


def main() -> int:
    arguments = parse_arguments(__doc__.splitlines()[0])
    with export_of(arguments) as made, open_session("benchmark", heap=arguments.heap) as spark:
        result = measure(spark, open_export(made.path), made.directory, arguments.rounds)
    result |= {"generated_s": round(made.generated_s, 1), "heap": arguments.heap}
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def measure(
    spark: SparkSession, export: ExportInput, directory: Path, rounds: int
) -> dict[str, Any]:
    rebuild_s: list[float] = []
    read_s: list[float] = []
    write_s: list[float] = []
    summary = None
    for _ in range(rounds):
        took, summary = timed(lambda: run(spark, export.url, directory / "rebuilt"))
        rebuild_s.append(took)
        read_s.append(timed(lambda: read_all(spark, export))[0])
        write_s.append(timed(lambda: write_again(spark, directory))[0])
    assert summary is not None, "there is one round at least"
    baseline_s = min(read_s) + min(write_s)
    ratio = min(rebuild_s) / baseline_s
    return {
        "events": export.rows,
        "rows": summary.numbers["rows"],
        "rebuild_s": [round(each, 2) for each in rebuild_s],
        "read_s": [round(each, 2) for each in read_s],
        "write_s": [round(each, 2) for each in write_s],
        "ratio": round(ratio, 2),
        "ratio_max": RATIO_MAX,
        "load_average": round(os.getloadavg()[0], 1),
        "ok": ratio <= RATIO_MAX,
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def read_all(spark: SparkSession, export: ExportInput) -> None:
    export.events(spark).select(*COLUMNS).write.format("noop").mode("overwrite").save()


def write_again(spark: SparkSession, directory: Path) -> None:
    for name in tables.TABLE_NAMES:
        copied = read_table(spark, directory / "rebuilt", name)
        copied.write.mode("overwrite").parquet(str(directory / "again" / name))


if __name__ == "__main__":
    sys.exit(main())
