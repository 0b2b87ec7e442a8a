"""``perf``: measurements whose generator is another process on the public port."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nextgen.cli.console.options import JsonFlag, Target
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.pulsar import commands as perf_pulsar_commands
from nextgen.harness.perf.pulsar.commands import Pulsar
from nextgen.harness.perf.run import run_measurement

Topics = Annotated[int, typer.Option("--topics", min=1_000, help="How many.")]
Shards = Annotated[int, typer.Option("--shards", min=1, help="Shards of a cluster of its own.")]

IN_FLIGHT_STILL = 8
IN_FLIGHT_MOVING = 64
"""Messages in flight while topics move: few, because a message waits for the slowest of its
topics."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Measure. Starts a cluster of its own unless --target names one. "
        "The last line is JSON; times are in milliseconds.",
        no_args_is_help=True,
    )
    group.command("lookup")(lookup)
    group.command("create")(create)
    group.command("assign")(assign)
    group.command("failover")(failover)
    group.command("watch")(watch)
    perf_pulsar_commands.register(group)
    app.add_typer(group, name="perf")


def lookup(
    topics: Topics = 100_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Measured time.")] = 10,
    streams: Annotated[int, typer.Option("--streams", min=1, max=64)] = 2,
    in_flight: Annotated[
        int | None,
        typer.Option(
            "--in-flight",
            min=1,
            max=512,
            help=f"Messages per stream. Default: {IN_FLIGHT_STILL}, moving {IN_FLIGHT_MOVING}.",
        ),
    ] = None,
    moving_percent: Annotated[
        float, typer.Option("--moving-percent", min=0, max=100, help="Topics moved per second.")
    ] = 0,
    shards: Shards = 4,
    target: Target = None,
    json_output: JsonFlag = False,
) -> None:
    """Warm lookups over LookupStream at one discovery process, 64 names a message."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.lookup import measure_lookup

        return await measure_lookup(
            bench,
            topics=topics,
            seconds=seconds,
            streams=streams,
            in_flight=in_flight or (IN_FLIGHT_MOVING if moving_percent else IN_FLIGHT_STILL),
            moving_percent=moving_percent,
        )

    run_measurement(
        measure, target=target, size=ClusterSize(shards=shards), json_output=json_output
    )


def create(
    topics: Topics = 100_000,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1_000, help="Per request.")] = 1_000,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, max=64, help="Batches.")] = 8,
    serial: Annotated[int, typer.Option("--serial", min=1, help="Creates one by one.")] = 500,
    shards: Shards = 4,
    target: Target = None,
    json_output: JsonFlag = False,
) -> None:
    """Create topics in batches, then one by one, each acknowledged after the fsyncs."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.create import measure_create

        return await measure_create(
            bench, topics=topics, batch=batch, in_flight=in_flight, serial=serial
        )

    run_measurement(
        measure, target=target, size=ClusterSize(shards=shards), json_output=json_output
    )


def assign(
    serial: Annotated[int, typer.Option("--serial", min=1, help="Lookups one by one.")] = 1_000,
    burst: Annotated[int, typer.Option("--burst", min=1, max=1_024, help="Names at once.")] = 64,
    bursts: Annotated[int, typer.Option("--bursts", min=1)] = 100,
    concurrent: Annotated[
        int, typer.Option("--concurrent", min=2, help="Lookups of one topic at once.")
    ] = 1_000,
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, help="Names of the one big burst.")
    ] = 10_000,
    warm_seconds: Annotated[
        float, typer.Option("--warm-seconds", min=0.1, help="Of warm lookups behind it.")
    ] = 3,
    shards: Shards = 4,
    target: Target = None,
    json_output: JsonFlag = False,
) -> None:
    """First lookups: each assigns a topic and waits until its broker has it."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.assign import AssignLoad, measure_assign

        load = AssignLoad(serial, burst, bursts, concurrent, at_once, warm_seconds)
        return await measure_assign(bench, load)

    run_measurement(
        measure, target=target, size=ClusterSize(shards=shards), json_output=json_output
    )


def failover(
    kills: Annotated[int, typer.Option("--kills", min=0, help="Leaders killed (SIGKILL).")] = 20,
    hangs: Annotated[int, typer.Option("--hangs", min=0, help="Leaders frozen (SIGSTOP).")] = 5,
    terms: Annotated[
        int, typer.Option("--terms", min=0, help="Leaders asked to stop (SIGTERM).")
    ] = 5,
    topics: Annotated[
        int, typer.Option("--topics", min=0, help="Topics created before, over all shards.")
    ] = 0,
    shards: Shards = 4,
    json_output: JsonFlag = False,
) -> None:
    """Kill, freeze and stop the leaders of shards: how long until the next commit."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.failover import Counts, measure_failover

        return await measure_failover(bench, Counts(kills, hangs, terms), topics=topics)

    run_measurement(measure, target=None, size=ClusterSize(shards=shards), json_output=json_output)


def watch(
    watchers: Annotated[
        int, typer.Option("--watchers", min=1, help="Each with a pattern of its own.")
    ] = 1_000,
    processes: Annotated[int, typer.Option("--processes", min=1, max=64, help="Of them.")] = 2,
    streams: Annotated[
        int, typer.Option("--streams", min=1, help="That they share, all processes together.")
    ] = 8,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Of each run.")] = 10,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Runs without and with watchers, in turn.")
    ] = 2,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, max=512, help="Creates.")] = 64,
    kills: Annotated[
        int, typer.Option("--kills", min=0, help="Leaders killed at the end; none of a target's.")
    ] = 3,
    prefixes: Annotated[
        bool, typer.Option("--prefixes", help="Watch prefixes at the shard, not topic lists.")
    ] = False,
    shards: Shards = 1,
    target: Target = None,
    pulsar: Pulsar = "",
    json_output: JsonFlag = False,
) -> None:
    """Commits of a shard without and with watchers of topic lists, and the delay of updates."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.watch import WatchLoad, measure_watch

        hurt = kills if bench.cluster is not None else 0
        load = WatchLoad(
            watchers, processes, streams, seconds, rounds, in_flight, hurt, not prefixes
        )
        return await measure_watch(bench, load)

    run_measurement(
        measure,
        target=target,
        size=ClusterSize(shards=shards),
        json_output=json_output,
        pulsar=None if prefixes else pulsar,
    )
