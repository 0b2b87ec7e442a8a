"""How long does an audit of so many events take, and does it read them once?

An export is generated (``--export`` names one that exists, or where to keep it) and audited with
local[2] and a heap of 2 GiB, ``--rounds`` times in one session, the first time to warm up the JVM.
Beside it: the same columns of every event read into nothing, once. Exits with 1 if the generated
export has findings, rows are missing, or events were read from files more than once. Prints one
JSON line last.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.support.pipeline_export import export_of, parse_arguments
from pipelines.audit.export_files import look_at
from pipelines.audit.facts import facts_of
from pipelines.audit.job import audited_events, run
from pipelines.running.session import open_session


def main() -> int:
    arguments = parse_arguments(__doc__.splitlines()[0])
    with export_of(arguments) as made, open_session("benchmark", heap=arguments.heap) as spark:
        result = measure(spark, made.path, arguments.rounds)
    print(json.dumps(result | {"heap": arguments.heap}))
    return 0 if result["ok"] else 1


def measure(spark: SparkSession, export: Path, rounds: int) -> dict[str, Any]:
    audit_s: list[float] = []
    read_s: list[float] = []
    scans = scans_of(spark, export)
    summary = None
    for _ in range(rounds):
        began = time.perf_counter()
        summary, _ = run(spark, export)
        audit_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        facts = facts_of(audited_events(spark, look_at(export)))
        facts.write.format("noop").mode("overwrite").save()
        read_s.append(time.perf_counter() - began)
    assert summary is not None, "there is one round at least"
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "events": summary.rows_read,
        "rows_missing": summary.numbers["rows_missing"],
        "findings": summary.findings_total,
        "first_findings": summary.findings[:3],
        "scans_of_events": scans,
        "audit_s": [round(each, 2) for each in audit_s],
        "read_s": [round(each, 2) for each in read_s],
        "events_per_second": round(summary.rows_read / min(audit_s)),
        "jvm_max_rss_bytes": children.ru_maxrss * 1024,
        "load_average": round(os.getloadavg()[0], 1),
        "ok": summary.is_ok and summary.numbers["rows_missing"] == 0 and scans == 1,
    }


def scans_of(spark: SparkSession, export: Path) -> int:
    """Return how often the plan that everything rests on reads the export's files."""
    facts = facts_of(audited_events(spark, look_at(export)))
    return str(facts._jdf.queryExecution().executedPlan().toString()).count("FileScan")


if __name__ == "__main__":
    sys.exit(main())
