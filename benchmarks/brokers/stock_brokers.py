"""What does placement by topic give stock Pulsar brokers, beside their own load manager?

Three unmodified Apache Pulsar brokers on one ZooKeeper and one bookie (Maven Central, Java 17) with
the plug-in, and a cluster of ours (one shard of three replicas with fsync). Namespaces that are
handed over are placed by topic, others by Pulsar's own ``ExtensibleLoadManagerImpl``, in the same
processes. All settings are the defaults of both, time-outs too; ``--batching-ms`` changes for how
long Pulsar collects operations on its metadata store, which is 5 ms. Clients are stock Python
clients in processes of their own; by topic they know discovery's address, by bundle those of the
brokers.
Where there is no Java or Maven, the result says so. Prints one JSON line last; times are
milliseconds:

- ``moves``: one topic at a time is moved under its producer, by ``nextgen topics move`` and by the
  bundle's ``unload?destinationBroker=``. ``gap_*``: how long its producer waited; ``still_gap_*``:
  the same while nothing moves. Other topics of the namespace: ``others_connected_again``, how many
  producers had to connect again, in all moves; ``others_above_20_ms`` how many had a gap above 20
  ms in a move, beside ``still_above_20_ms``
- ``lookups``: through discovery, of topics at stock and at embedded brokers; ``cold`` ones assign
- ``adoption``: a namespace of open topics is handed over under clients, by ``nextgen adopt run``
- ``kills``: kill -9 of a broker with topics of both kinds. ``gap_*``: until their producers went
  on; ``elsewhere_*``: until lookups named another broker

Every message that was acknowledged is looked for at a consumer: ``lost``, ``out_of_order`` and
``failed`` have to be 0. ``duplicated``: stored twice, as Pulsar does with what is sent again unless
its deduplication is on (``--deduplication``: then these have to be 0 as well). Moves by topic send
nothing again that is stored.

With ``--by-topic-only``, moves and kills leave topics by bundle out: behind a kill these are away
for minutes, and their clients take processor time of the same brokers.

    python -m benchmarks.brokers.stock_brokers [--only moves,kills] [--moves 60] [--check]

Exits with 1 if an account is wrong; with ``--check`` also if a bound of ``BOUNDS`` is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.support.stock.adoption import measure_adoption
from benchmarks.support.stock.brokers import Clusters, NoStockBrokers, running_clusters
from benchmarks.support.stock.kills import measure_kills
from benchmarks.support.stock.lookups import measure_lookups
from benchmarks.support.stock.moves import measure_moves
from benchmarks.support.stock.placements import ByBundle, ByTopic, Placement
from nextgen.client import Client
from nextgen.harness.perf.bench import note

PHASES = ("moves", "lookups", "adoption", "kills")
CALL_TIMEOUT_MS = 60_000
JSON = {"Content-Type": "application/json"}
"""Pulsar's Admin REST refuses a request without content, too, if that is not said."""

NO_SLOWER = 1.1
"""A lookup may take a tenth longer: two runs of the same differ by as much."""

BOUNDS = (
    ("moves.by_topic.gap_p50_ms", 60.0),
    ("moves.by_topic.gap_p99_ms", 150.0),
    ("moves.by_topic.others_connected_again", 0.0),
    ("moves.by_topic.duplicated", 0.0),
    ("kills.by_topic.gap_p99_ms", 2_000.0),
    ("adoption.seconds", 120.0),
    ("adoption.failed", 0.0),
    ("lookups.cold_times", NO_SLOWER),
    ("lookups.warm_times", NO_SLOWER),
)
"""Paths in the result, each with the largest value that is good."""

WRONG = ("lost", "out_of_order", "failed", "unanswered")


async def measure(clusters: Clusters, options: argparse.Namespace) -> dict[str, Any]:
    """Return the results of the phases that are asked for, by phase."""
    results: dict[str, Any] = {}
    async with (
        Client(list(clusters.targets), timeout_ms=CALL_TIMEOUT_MS) as client,
        aiohttp.ClientSession(headers=JSON) as session,
    ):
        for phase in options.only:
            note(phase)
            results[phase] = await _phase(phase, clusters, client, session, options)
            results[phase]["load_average"] = os.getloadavg()
            print(json.dumps({phase: results[phase]}), flush=True)
    return results


async def _phase(
    phase: str,
    clusters: Clusters,
    client: Client,
    session: aiohttp.ClientSession,
    options: argparse.Namespace,
) -> dict[str, Any]:
    if phase == "lookups":
        found = await measure_lookups(
            clusters,
            client,
            cold=options.cold_lookups,
            warm=options.warm_topics,
            seconds=options.seconds,
        )
        cold, warm = found["cold"], found["warm"]
        return found | {
            "cold_times": _times(cold["stock"]["p50_ms"], cold["embedded"]["p50_ms"]),
            "warm_times": _times(warm["embedded"]["rate"], warm["stock"]["rate"]),
        }
    if phase == "adoption":
        return await measure_adoption(
            clusters,
            client,
            session,
            topics=options.adopted_topics,
            clients=options.adopted_clients,
            deduplicates=options.deduplication,
        )
    ours = ByTopic(clusters, client, clusters.by_topic(phase))
    theirs = ByBundle(clusters, session, clusters.by_bundle(f"{phase}-by-bundle"))
    placements: Sequence[Placement] = (ours,) if options.by_topic_only else (ours, theirs)
    if options.deduplication:
        for each in placements:
            clusters.deduplicate(each.namespace)
    if phase == "kills":
        return await measure_kills(
            clusters,
            placements,
            topics=options.kill_topics,
            kills=options.kills,
            interval_ms=options.kill_interval_ms,
        )
    found = {}
    for each in placements:
        found[each.name] = await measure_moves(
            each, topics=options.topics, moves=options.moves, interval_ms=options.interval_ms
        )
        print(json.dumps({each.name: found[each.name]}), flush=True)
    return found


def _times(value: float, other: float) -> float:
    return round(value / other, 3) if other else 0.0


def wrong_accounts(results: dict[str, Any], *, deduplicates: bool) -> dict[str, Any]:
    """Return the accounts of messages that are not as they have to be, by path."""
    names = (*WRONG, "duplicated") if deduplicates else WRONG
    return {
        path: value
        for path, value in _numbers(results, "")
        if path.rpartition(".")[2] in names and value
    }


def missed_bounds(results: dict[str, Any]) -> dict[str, Any]:
    """Return what is above its bound, by path. A phase that did not run misses nothing."""
    found = dict(_numbers(results, ""))
    return {path: found[path] for path, bound in BOUNDS if path in found and found[path] > bound}


def _numbers(value: Any, path: str) -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [
            each
            for name, inner in value.items()
            for each in _numbers(inner, f"{path}.{name}" if path else name)
        ]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [(path, float(value))] if is_number else []


def _settings(options: argparse.Namespace) -> str:
    if not options.batching_ms:
        return ""
    return f"metadataStoreBatchingMaxDelayMillis={options.batching_ms}\n"


def _phases(text: str) -> list[str]:
    asked = text.split(",")
    if unknown := set(asked) - set(PHASES):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} are none of {', '.join(PHASES)}")
    return [phase for phase in PHASES if phase in asked]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_phases, default=list(PHASES), help="phases, by commas")
    parser.add_argument("--topics", type=int, default=12, help="of a namespace; one moves")
    parser.add_argument("--moves", type=int, default=60, help="of each kind")
    parser.add_argument("--interval-ms", type=float, default=10, help="between two sends")
    parser.add_argument("--by-topic-only", action="store_true", help="moves and kills")
    parser.add_argument("--kill-topics", type=int, default=50, help="of each kind")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--kill-interval-ms", type=float, default=100)
    parser.add_argument("--adopted-topics", type=int, default=10_000)
    parser.add_argument("--adopted-clients", type=int, default=50, help="with a producer each")
    parser.add_argument("--cold-lookups", type=int, default=100, help="a turn")
    parser.add_argument("--warm-topics", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=5, help="of warm lookups, a turn")
    parser.add_argument("--batching-ms", type=int, default=0, help="0: Pulsar's own 5")
    parser.add_argument("--deduplication", action="store_true", help="turn Pulsar's on")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = _parsed()
    result: dict[str, Any] = {"benchmark": "stock_brokers", "run": vars(options)}
    result["load_average_before"] = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="nextgen-bench-") as directory:
        try:
            with running_clusters(Path(directory), _settings(options)) as clusters:
                result |= asyncio.run(measure(clusters, options))
        except NoStockBrokers as reason:
            result["why_not"] = str(reason)
    wrong = wrong_accounts(result, deduplicates=options.deduplication)
    missed = missed_bounds(result)
    print(json.dumps(result | {"wrong": wrong, "missed": missed}))
    if wrong or (missed and options.check):
        sys.exit(1)


if __name__ == "__main__":
    main()
