"""``perf pulsar-lookup``, ``produce``, ``consume`` and ``broker-kill``: latencies of Pulsar
clients."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nextgen.cli.console.options import JsonFlag, Target
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.run import run_measurement

Pulsar = Annotated[
    str,
    typer.Option(
        "--pulsar",
        help="host:port where the discovery node of --target listens for Pulsar clients.",
        show_default=False,
    ),
]
Messages = Annotated[int, typer.Option("--messages", min=2_000, help="How many.")]
MessageBytes = Annotated[int, typer.Option("--message-bytes", min=8, max=1_000_000)]


def register(group: typer.Typer) -> None:
    """Add the commands to the group."""
    group.command("pulsar-lookup")(pulsar_lookup)
    group.command("produce")(produce)
    group.command("consume")(consume)
    group.command("broker-kill")(broker_kill)
    group.command("handover")(handover)


def pulsar_lookup(
    topics: Annotated[int, typer.Option("--topics", min=1_000, help="How many.")] = 100_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Measured time.")] = 10,
    connections: Annotated[int, typer.Option("--connections", min=1, max=1_024)] = 8,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=4_096, help="Requests per connection.")
    ] = 64,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=16, help="Processes that generate.")
    ] = 1,
    moving_percent: Annotated[
        float,
        typer.Option("--moving-percent", min=0, max=100, help="Topics moved per second."),
    ] = 0,
    partition_metadata: Annotated[
        bool, typer.Option("--partition-metadata", help="PARTITIONED_METADATA, not LOOKUP.")
    ] = False,
    absent_percent: Annotated[
        float,
        typer.Option("--absent-percent", min=0, max=100, help="Topics that do not exist."),
    ] = 0,
    absent_new: Annotated[
        bool, typer.Option("--absent-new", help="Look each absent topic up once only.")
    ] = False,
    shards: Annotated[int, typer.Option("--shards", min=1, help="Of a cluster of its own.")] = 4,
    target: Target = None,
    pulsar: Pulsar = "",
    json_output: JsonFlag = False,
) -> None:
    """Warm lookups of Pulsar clients at one discovery process, many in flight."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.pulsar.lookup import LookupLoad, measure_pulsar_lookup

        load = LookupLoad(
            topics=topics,
            seconds=seconds,
            connections=connections,
            in_flight=in_flight,
            workers=workers,
            moving_percent=moving_percent,
            is_partition_metadata=partition_metadata,
            absent_percent=absent_percent,
            are_absent_new=absent_new,
        )
        return await measure_pulsar_lookup(bench, load)

    run_measurement(
        measure,
        target=target,
        pulsar=pulsar,
        size=ClusterSize(shards=shards),
        json_output=json_output,
    )


def produce(
    messages: Messages = 200_000,
    message_bytes: MessageBytes = 100,
    serial: Annotated[int, typer.Option("--serial", min=1, help="Sends one by one.")] = 2_000,
    target: Target = None,
    pulsar: Pulsar = "",
    json_output: JsonFlag = False,
) -> None:
    """The stock Python client produces, in batches and one by one; all of it is read again."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.pulsar.messages import measure_produce

        return await measure_produce(
            bench, messages=messages, message_bytes=message_bytes, serial=serial
        )

    run_measurement(
        measure,
        target=target,
        pulsar=pulsar,
        size=ClusterSize(brokers=1),
        json_output=json_output,
    )


def consume(
    messages: Messages = 500_000,
    message_bytes: MessageBytes = 100,
    target: Target = None,
    pulsar: Pulsar = "",
    json_output: JsonFlag = False,
) -> None:
    """The stock Python client reads a backlog, which it produced before."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.pulsar.messages import measure_consume

        return await measure_consume(bench, messages=messages, message_bytes=message_bytes)

    run_measurement(
        measure,
        target=target,
        pulsar=pulsar,
        size=ClusterSize(brokers=1),
        json_output=json_output,
    )


def broker_kill(
    topics: Annotated[
        int, typer.Option("--topics", min=1, max=1_000, help="At the broker that is struck.")
    ] = 100,
    kills: Annotated[int, typer.Option("--kills", min=0, help="Brokers killed (SIGKILL).")] = 3,
    stops: Annotated[int, typer.Option("--stops", min=0, help="Brokers frozen (SIGSTOP).")] = 1,
    stop_seconds: Annotated[
        float,
        typer.Option(
            "--stop-seconds", min=1, max=600, help="How long: the client's keep-alive takes 60 s."
        ),
    ] = 75,
    interval_ms: Annotated[
        float, typer.Option("--interval-ms", min=1, help="Between a producer's sends.")
    ] = 40,
    json_output: JsonFlag = False,
) -> None:
    """Kill and freeze the broker of stock producers; measure until they and lookups recover."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.pulsar.broker_kill import KillLoad, measure_broker_kill

        load = KillLoad(topics, kills, stops, stop_seconds, interval_ms)
        return await measure_broker_kill(bench, load)

    run_measurement(measure, target=None, size=ClusterSize(), json_output=json_output)


def handover(
    topics: Annotated[
        int, typer.Option("--topics", min=1, max=1_000, help="That move at once.")
    ] = 1_000,
    probes: Annotated[
        int, typer.Option("--probes", min=1, max=100, help="Of them with a steady producer.")
    ] = 10,
    moves: Annotated[int, typer.Option("--moves", min=0, help="Of one topic at a time.")] = 100,
    rounds: Annotated[int, typer.Option("--rounds", min=0, help="Of all topics at once.")] = 2,
    interval_ms: Annotated[
        float, typer.Option("--interval-ms", min=1, help="Between a probe's sends.")
    ] = 10,
    json_output: JsonFlag = False,
) -> None:
    """Move topics under stock producers: the gap between their acknowledged sends."""

    async def measure(bench: Any) -> dict[str, Any]:
        from nextgen.harness.perf.pulsar.handover import HandoverLoad, measure_handover

        load = HandoverLoad(topics, min(probes, topics), moves, rounds, interval_ms)
        return await measure_handover(bench, load)

    run_measurement(measure, target=None, size=ClusterSize(), json_output=json_output)
