"""``lookup`` and ``move``."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, Wide, endpoints_of
from nextgen.cli.console.output import as_dict, print_json, print_table, subject
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.runtime.lifecycle.exit_code import print_error

RETRIES_MAX = 20
RETRY_PAUSE_MS = 250
"""With RETRIES_MAX some five seconds: longer than any failover takes."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(lookup)
    app.command()(move)


def lookup(
    topics: Annotated[list[str], typer.Argument(help="Topic names; any accepted form.")],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ask the shards' leaders: no cache answers.")
    ] = False,
    min_epoch: Annotated[
        int, typer.Option("--min-epoch", help="Ask them if a cache knows an earlier epoch only.")
    ] = 0,
    wide: Wide = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show where topics are served. A topic that no broker serves is assigned first."""
    if len(topics) > NAMES_PER_LOOKUP_MAX:
        raise typer.BadParameter(f"{len(topics)} names, at most {NAMES_PER_LOOKUP_MAX} at once")

    async def work() -> list[Any]:
        from nextgen.cli.calls.discovery_client import DiscoveryClient
        from nextgen.client.discovery.lookups import check_heeded, lookup_request

        min_epochs = dict.fromkeys(topics, min_epoch) if min_epoch else {}
        async with DiscoveryClient(endpoints_of(target, data_dir)) as client:
            answers: dict[int, Any] = {}
            for _ in range(RETRIES_MAX):
                asked = [n for n in range(len(topics)) if n not in answers or answers[n].retryable]
                names = [topics[n] for n in asked]
                request = lookup_request(names, fresh=fresh, min_epochs=min_epochs)
                response = await client.call("Lookup", request)
                check_heeded(request, response)
                answers |= dict(zip(asked, response.answers, strict=True))
                if not any(answer.retryable for answer in answers.values()):
                    break
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
        return [answers[n] for n in range(len(topics))]

    show_answers(run_command(work()), json_output, wide=wide)


def move(
    topic: Annotated[str, typer.Argument(help="Topic name; it must be assigned.")],
    to: Annotated[str, typer.Option("--to", help="Broker id. Default: any other.")] = "",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Move a topic to another broker; concurrent lookups always get a broker that serves it."""

    async def work() -> list[Any]:
        from nextgen.cli.calls.discovery_client import DiscoveryClient
        from nextgen.cli.topics.moves import ask_moves
        from nextgen.kernel.routing.names import parse_topic
        from protos.nextgen.v1.shard_service_pb2 import TopicMove

        name = parse_topic(topic).text
        async with DiscoveryClient(endpoints_of(target, data_dir)) as client:
            return await ask_moves(client, [TopicMove(topic=name, target_broker_id=to)])

    show_answers(run_command(work()), json_output)


def show_answers(answers: list[Any], json_output: bool, *, wide: bool = False) -> None:
    """Print where topics are served; ends the process if one is not, or not yet."""
    from nextgen.cli.topics.moves import exit_code_of, why_not_done

    served = [answer for answer in answers if not answer.rejection_code]
    if json_output:
        print_json({"answers": [as_dict(answer) for answer in answers]})
    elif served:
        print_table(
            "",
            ("topic", "broker", "address", "epoch", "shard", "position"),
            [
                (a.topic, a.broker_id, a.broker_grpc, a.epoch, a.shard_id, a.position)
                for a in served
            ],
            extra=("address", "shard", "position"),
            wide=wide,
        )
    for answer in answers:
        if answer.rejection_code:
            print_error(subject(answer.topic, answer.message) + why_not_done(answer))
    if len(served) < len(answers):
        raise typer.Exit(exit_code_of(answers))
