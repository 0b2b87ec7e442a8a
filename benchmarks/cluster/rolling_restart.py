"""What does a rolling restart cost those who create and look up topics meanwhile?

Every process of the default cluster is stopped with SIGTERM and started again, one after the
other, as docs/operations.md says: cluster managers, shard nodes, discovery, brokers. Six clients
create and look up topics all the time, each operation timed from its first attempt to its answer.
Afterwards everything acknowledged must be there. One JSON line last.

    python -m benchmarks.cluster.rolling_restart [--shards 4] [--rounds 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from nextgen.cli.local.plan import ClusterSize
from tests.support.callers.steady_load import steady_load
from tests.support.processes.local_cluster import running_cluster
from tests.support.processes.rolling import restart_one_by_one


async def measure(directory: Path, shards: int, rounds: int) -> dict[str, Any]:
    """Return the load's numbers over all rounds, and how long processes were away."""
    away_s: list[float] = []
    async with running_cluster(directory, ClusterSize(shards=shards)) as cluster:
        async with steady_load(cluster) as load:
            for _ in range(rounds):
                away_s += (await restart_one_by_one(cluster, load)).values()
        restarted = rounds * len(cluster.plan.nodes)
    return {
        "question": "rolling_restart",
        "restarts": restarted,
        "shards": shards,
        **load.summary(),
        "lost": 0,
        "away_s_max": max(away_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nextgen-rolling-") as directory:
        measured = asyncio.run(measure(Path(directory), options.shards, options.rounds))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
