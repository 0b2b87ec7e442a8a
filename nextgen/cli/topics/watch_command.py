"""``topics watch``: the topics that a subscription's pattern describes, and then every change."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nextgen.cli.console.command_run import run_until_interrupted
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line
from nextgen.cli.topics.inventory_commands import topics_group

if TYPE_CHECKING:
    from nextgen.client.discovery.topic_list import TopicListChanged

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN",
        help="As a consumer writes it: tenant/namespace/ and a regular expression, "
        "such as 'public/default/orders-.*'.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=0, help="End after so many changes; 0: never.")]
Interval = Annotated[
    float,
    typer.Option("--poll-seconds", min=0.1, help="Interval at servers that cannot be watched."),
]


def register(_app: typer.Typer) -> None:
    """Add the command to the group of topics."""
    topics_group.command("watch")(watch_topics)


def watch_topics(
    pattern: Pattern,
    limit: Limit = 0,
    poll_seconds: Interval = 60.0,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Print the topics that PATTERN describes, and then those that come and go."""
    nodes = endpoints_of(target, data_dir)

    async def work() -> None:
        from nextgen.client.client import Client

        async with Client(nodes) as client:
            changes = client.watch_topic_list(pattern, poll_ms=int(poll_seconds * 1_000))
            seen = 0
            async with aclosing(changes):
                async for change in changes:
                    _print(change, is_first=not seen, json_output=json_output)
                    seen += 1
                    if seen == limit:
                        return

    run_until_interrupted(work())


def _print(change: TopicListChanged, *, is_first: bool, json_output: bool) -> None:
    if json_output:
        print_json(asdict(change))
        return
    for sign, names in (("-", change.deleted), (" " if is_first else "+", change.created)):
        for name in names:
            print_line(f"{sign} {name}")
    if is_first:
        how = "polled" if change.is_polled else "watched"
        print_line(f"{len(change.created)} topics, hash {change.hash}, {how}; changes follow")
