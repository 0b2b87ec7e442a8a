"""How fast does Spark put names into slots, and how evenly do they lie there?

    python -m benchmarks.pipelines.pipeline_slots [--names 2000000] [--shards 8]

The same as `nextgen pipeline reshard --names generated:N`: names are made, hashed and counted by
slot in one job, then planned for one shard more. The goal is 100 M names in 15 minutes on two
cores; `--names 100_000_000` is that run, a smaller one says the rate, in which starting Spark's
compiler weighs more. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from pipelines.reshard.command import SETTINGS
from pipelines.reshard.job import JOB, ReshardOptions, run
from pipelines.running.session import HEAP, LOCAL_MASTER, open_session

GOAL_NAMES = 100_000_000
GOAL_S = 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=lambda text: int(text.replace("_", "")), default=2_000_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--master", default=LOCAL_MASTER)
    parser.add_argument("--heap", default=HEAP)
    asked = parser.parse_args()
    options = ReshardOptions(
        f"generated:{asked.names}", shards_to=asked.shards + 1, shards_from=asked.shards
    )
    with (
        tempfile.TemporaryDirectory() as directory,
        open_session(JOB, master=asked.master, heap=asked.heap, settings=SETTINGS) as spark,
    ):
        began = time.monotonic()
        summary = run(spark, options, Path(directory) / "plan")
        took_s = time.monotonic() - began
    skew = summary.numbers["skew"]
    print(
        json.dumps(
            {
                "names": summary.rows_read,
                "seconds": round(took_s, 1),
                "names_per_second": round(asked.names / took_s),
                "goal_would_take_s": round(GOAL_NAMES * took_s / asked.names),
                "goal_s": GOAL_S,
                "topics_by_slot_min": skew["topics_min"],
                "topics_by_slot_mean": round(skew["topics_mean"], 1),
                "topics_by_slot_max": skew["topics_max"],
                "chi_square_z": round(skew["chi_square_z"], 2),
                "load_average": round(os.getloadavg()[0], 1),
            }
        )
    )
    if summary.rows_read != asked.names or not summary.is_ok:
        sys.exit("; ".join(summary.findings) or "names were lost")


if __name__ == "__main__":
    main()
