"""What do a hundred million topics cost in one cluster on one machine, beside a hundred thousand?

    python -m benchmarks.cluster.hundred_million --dir DIR [--topics 100000000] [--shards 64]
        [--replicas 1] [--nodes 1] [--baseline-topics 100000] [--export] [--json]

Topics come in by the public bulk path, made and sent by processes of their own. A run that was
killed goes on where it stopped: cluster, chunks loaded and phases done are in DIR, which a second
run with the same flags uses again (remove it to begin anew). First the same phases run with
``--baseline-topics`` (0: none).

- ``load``: seconds, topics a second, processor time of all servers for a topic, resident memory of
  the largest shard node behind each chunk, which is a million topics in a run of four and more
- ``at_rest``: bytes of a topic in one replica, as allocated, by kind of file; memory by node
- ``listing``: a namespace of a tenth of all topics by pages of 1,000 names, and counted
- ``lookups``: ``--lookups`` first lookups of topics drawn at random, alone and at once; warm ones.
  The one broker is followed by one broker manager, which follows half a million names at most
- ``creates``: alone and at once; ``failover``: from SIGKILL of a leader to its shard's next commit
- ``restart``: of one node, until it is ready and until its views are complete
- ``snapshot``: one shard's replica built anew from a leader's copy; with one replica, one added
- ``export``: brought up to the end, and rebuilt by Spark; only with ``--export``
- ``after``: disk and memory behind all of it

Checked in the same run: the replicas count alike and as many topics as were loaded, the large
namespace lists each name once and in order, topics drawn at random are there, no answer is wrong.
``ratios`` are those of the run to its baseline, ``promises`` whether each bound is kept; exits
with 1 if one is not and ``--check`` is given. Steps go to the standard error; with ``--json`` the
result is one line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.support.scale.run import Asked, ScaleRun

BYTES_MAX = 120.0
"""On disk, of a topic in one replica."""
RSS_RATIO_MAX = 1.10
FAILOVER_RATIO_MAX = 1.10
LOAD_S_MAX = 3_600.0
CHUNKS_MIN = 4
CHUNK_MAX = 1_000_000
RSS_CHUNKS_MIN = 5
"""Chunks of a million topics of a run whose memory says anything about its growth."""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    directory = options.dir.absolute()
    baseline: dict[str, Any] = {}
    if options.baseline_topics:
        asked = asked_of(options, options.baseline_topics)
        baseline = await ScaleRun(directory / "baseline", asked, options.settle_s).run()
    whole = ScaleRun(directory / "whole", asked_of(options, options.topics), options.settle_s)
    found = await whole.run()
    return {
        "benchmark": "hundred_million",
        "topics": options.topics,
        "shards": options.shards,
        "nodes": options.nodes,
        "replicas": options.replicas,
        "baseline_topics": options.baseline_topics,
        "baseline": baseline,
        "phases": found,
        "ratios": ratios(found, baseline),
        "promises": promises(found, baseline),
    }


def asked_of(options: argparse.Namespace, topics: int) -> Asked:
    """Return what is asked of a run with so many topics."""
    return Asked(
        topics=topics,
        shards=options.shards,
        nodes=options.nodes,
        replicas=options.replicas,
        chunk=min(CHUNK_MAX, -(-topics // CHUNKS_MIN)),
        lookups=min(options.lookups, topics // 2),
        creates=options.creates,
        kills=options.kills,
        export=options.export,
    )


def rss_mib(phase: dict[str, Any]) -> float:
    """Return the resident memory of the largest shard node."""
    memory = phase["memory_mib"]
    return float(max(one["rss"] for node, one in memory.items() if node.startswith("shard-node")))


def ratios(found: dict[str, Any], baseline: dict[str, Any]) -> dict[str, float]:
    """Return measured values of the run in those of its baseline, by name."""
    if not baseline:
        return {}
    pairs = {
        "rss_at_rest": (rss_mib(found["at_rest"]), rss_mib(baseline["at_rest"])),
        "rss_behind_lookups": (rss_mib(found["lookups"]), rss_mib(baseline["lookups"])),
    }
    for phase, *path in (
        ("load", "per_s"),
        ("lookups", "first_alone", "p50"),
        ("lookups", "first_alone", "p99"),
        ("lookups", "first", "per_s"),
        ("lookups", "warm_alone", "p99"),
        ("lookups", "warm", "per_s"),
        ("creates", "alone", "p50"),
        ("creates", "alone", "p99"),
        ("creates", "at_once", "per_s"),
        ("listing", "page_ms", "p99"),
        ("failover", "failover_kill_p50_ms"),
        ("failover", "failover_kill_p99_ms"),
        ("restart", "ready_s"),
        ("restart", "complete_s"),
    ):
        pairs["_".join((phase, *path))] = (_at(found[phase], path), _at(baseline[phase], path))
    return {name: round(one / other, 3) for name, (one, other) in pairs.items() if other}


def promises(found: dict[str, Any], baseline: dict[str, Any]) -> dict[str, bool]:
    """Return for each bound whether it is kept; those that were not measured are left out."""
    kept = {
        "disk": found["at_rest"]["bytes_per_topic_and_replica"]["all"] <= BYTES_MAX,
        "load": found["load"]["load_s"] <= LOAD_S_MAX,
    }
    measured = ratios(found, baseline)
    rss = found["load"]["rss_mib_by_chunk"]
    if found["at_rest"]["topics_in_views"] >= RSS_CHUNKS_MIN * CHUNK_MAX:
        # Behind the first million and the last one, while both were still being loaded.
        kept["rss"] = rss[0] / RSS_RATIO_MAX <= rss[-1] <= rss[0] * RSS_RATIO_MAX
    if "failover_failover_kill_p99_ms" in measured:
        kept["failover"] = measured["failover_failover_kill_p99_ms"] <= FAILOVER_RATIO_MAX
    return kept


def _at(phase: dict[str, Any], path: list[str]) -> float:
    """Return a value inside a phase's result, 0 if the phase was skipped."""
    found: Any = phase
    for name in path:
        found = found.get(name, {})
    return float(found or 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=100_000_000)
    parser.add_argument("--baseline-topics", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 3))
    parser.add_argument("--nodes", type=int, default=0, help="shard nodes; default: as replicas")
    parser.add_argument("--lookups", type=int, default=400_000)
    parser.add_argument("--creates", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20, help="of leaders")
    parser.add_argument("--settle-s", type=float, default=90.0, help="before disk is measured")
    parser.add_argument("--export", action="store_true", help="export and rebuild by Spark")
    parser.add_argument("--dir", type=Path, required=True, help="where the clusters are, and stay")
    parser.add_argument("--json", action="store_true", help="the result on one line, not indented")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is broken")
    options = parser.parse_args()
    options.nodes = options.nodes or options.replicas
    if options.nodes < options.replicas:
        parser.error(f"{options.replicas} replicas need as many nodes")
    result = asyncio.run(measure(options))
    print(json.dumps(result, indent=None if options.json else 1))
    return 0 if all(result["promises"].values()) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
