"""``shards verify``: is every view what its log says, and the same everywhere?"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.cli.console.own_cluster_checks import check_of
from nextgen.runtime.lifecycle.exit_code import CheckFailed

EVENTS_DEFAULT = 100_000


def verify(
    shard: Annotated[
        int | None, typer.Option("--shard", min=1, help="Shard id. Default: all.")
    ] = None,
    events: Annotated[
        int, typer.Option("--events", min=1_000, help="Events put on a cluster of its own.")
    ] = EVENTS_DEFAULT,
    shards: Annotated[
        int, typer.Option("--shards", min=1, help="Shards of a cluster of its own.")
    ] = 4,
    target: Target = None,
    json_output: JsonFlag = False,
) -> None:
    """Rebuild every replica's view from its log beside the one in use, and compare all of them.

    Without --target a cluster of its own is started, loaded, and made to change leaders three
    times meanwhile, by kill -9 too. Exit code 4 if anything differs or was not verified.
    """

    async def work() -> None:
        began = time.monotonic()
        report, made = await _verify(target, shard, events, shards)
        document = report.as_json() | made
        document |= {"seconds": round(time.monotonic() - began, 1), "ok": not report.differences}
        if json_output:
            print_json(document)
        else:
            _print(document)
        if report.differences:
            raise CheckFailed("; ".join(report.differences))

    run_command(work())


async def _verify(
    target: str | None, shard: int | None, events: int, shards: int
) -> tuple[Any, dict[str, Any]]:
    from nextgen.cli.shards.verify import verify_shards

    if target:
        return await verify_shards(endpoints_of(target, None), shard), {"leader_changes": 0}
    found: tuple[Any, dict[str, Any]]
    found = await check_of("shards verify")(events=events, shards=shards)
    return found


def _print(document: dict[str, Any]) -> None:
    rows = [
        (
            each["shard_id"],
            each["node_id"],
            each.get("from_position", ""),
            each.get("position", ""),
            each.get("rebuilt_digest", ""),
            each.get("scanned_digest", each.get("error", "")),
        )
        for each in document["verified"]
    ]
    print_table(
        f"{document['replicas']} replicas of {document['shards']} shards: "
        f"{document['differences']} differences, {document['seconds']} s",
        ("shard", "node", "from event", "up to event", "its log gives", "its rows are"),
        rows,
    )
    for sentence in document["found"]:
        print_line(sentence)
