"""How long quotas take from an export of a given size, and what part of it is reading.

    python -m benchmarks.pipelines.pipeline_quotas EXPORT

The export is one that ``nextgen pipeline generate`` made. Last line: JSON, with the seconds of a
bare count of the same columns' rows beside those of the job.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from pipelines.exports.input import open_export
from pipelines.quotas.job import JOB, run
from pipelines.quotas.transform import facts
from pipelines.running.session import HEAP, LOCAL_MASTER, open_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export")
    parser.add_argument("--master", default=LOCAL_MASTER)
    parser.add_argument("--heap", default=HEAP)
    asked = parser.parse_args()
    with (
        open_session(JOB, master=asked.master, heap=asked.heap) as spark,
        tempfile.TemporaryDirectory() as directory,
    ):
        events = open_export(asked.export).events(spark)
        began = time.monotonic()
        facts(events).write.format("noop").mode("overwrite").save()
        read_s = time.monotonic() - began
        began = time.monotonic()
        summary = run(spark, asked.export, Path(directory) / "out")
        took_s = time.monotonic() - began
    print(
        json.dumps(
            {
                "events": summary.rows_read,
                "brokers": summary.numbers["brokers"],
                "tenants": summary.numbers["tenants"],
                "read_s": round(read_s, 2),
                "quotas_s": round(took_s, 2),
                "events_per_second": round(summary.rows_read / took_s),
            }
        )
    )


if __name__ == "__main__":
    main()
