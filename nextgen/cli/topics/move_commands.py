"""``topics move`` and ``topics unload``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import about, as_dict, print_json, print_table
from nextgen.cli.topics.inventory_commands import topics_group
from nextgen.cli.topics.lookup_commands import show_answers
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error

MOVE_TIMEOUT_MS = 60_000
"""Time-out for the largest request: some hundred topics move in a second."""

Topics = Annotated[list[str], typer.Argument(help="Topic names, or partitions of them.")]


def register(_app: typer.Typer) -> None:
    """Add the commands to the group of topics."""
    topics_group.command("move")(move_topics)
    topics_group.command("unload")(unload_topics)


def move_topics(
    topics: Topics,
    to: Annotated[str, typer.Option("--to", help="Broker id. Default: any other.")] = "",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Move topics to another broker while clients use them. Refused: nothing has changed.

    A move that takes longer than the command waits continues, and the exit code is 3.
    """

    async def work() -> list[Any]:
        from nextgen.cli.calls.discovery_client import DiscoveryClient
        from nextgen.cli.topics.moves import ask_moves
        from protos.nextgen.v1.shard_service_pb2 import TopicMove

        names = _names(topics)
        endpoints = endpoints_of(target, data_dir)
        async with DiscoveryClient(endpoints, timeout_ms=MOVE_TIMEOUT_MS) as client:
            moves = [TopicMove(topic=name, target_broker_id=to) for name in names]
            return await ask_moves(client, moves)

    show_answers(run_command(work()), json_output)


def unload_topics(
    topics: Topics,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Take topics from their brokers. The next lookup assigns them again.

    A topic that no broker serves counts as unloaded.
    """

    async def work() -> list[Any]:
        from nextgen.cli.calls.discovery_client import DiscoveryClient
        from nextgen.cli.topics.moves import ask_unloads

        names = _names(topics)
        endpoints = endpoints_of(target, data_dir)
        async with DiscoveryClient(endpoints, timeout_ms=MOVE_TIMEOUT_MS) as client:
            return await ask_unloads(client, names)

    from nextgen.cli.topics.moves import goes_on

    outcomes = run_command(work())
    unloaded = [outcome.name for outcome in outcomes if outcome.unassigned]
    if json_output:
        print_json({"topics": [as_dict(outcome) for outcome in outcomes]})
    elif unloaded:
        print_table("", ("unloaded",), [(name,) for name in unloaded])
    failed = [outcome for outcome in outcomes if not outcome.unassigned]
    for outcome in failed:
        more = f"; {goes_on(outcome.name)}" if outcome.under_way else ""
        print_error(f"{about(outcome.name, outcome.message)}{more}")
    if failed:
        are_unknown = all(outcome.under_way for outcome in failed)
        raise typer.Exit(ExitCode.NO_ANSWER if are_unknown else ExitCode.REFUSED)


def _names(topics: list[str]) -> list[str]:
    if len(topics) > MOVES_PER_REQUEST_MAX:
        raise typer.BadParameter(f"{len(topics)} names, at most {MOVES_PER_REQUEST_MAX} at once")
    return [parse_topic(topic).text for topic in topics]
