"""``watch``: tenants, namespaces, topics, assignments and the shard map, as they change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_until_interrupted
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line

if TYPE_CHECKING:
    from nextgen.client.client import Client
    from nextgen.client.watch_model import Change, ShardMap

_PERSISTENT = "persistent://"
_VALUE_CHARACTERS_MAX = 80

_watch = typer.Typer(
    name="watch",
    help="Print what there is and then every change, until interrupted. Each line of --json has "
    "the token to resume from.",
    no_args_is_help=True,
)

Prefix = Annotated[
    str,
    typer.Option("--prefix", help="Names that begin with it, for topics tenant/namespace/ too."),
]
Names = Annotated[list[str] | None, typer.Option("--name", help="Exactly this name. Repeatable.")]
From = Annotated[
    str, typer.Option("--from", help="Token of an earlier watch: what happened since.")
]
NoSnapshot = Annotated[bool, typer.Option("--no-snapshot", help="Only what changes from here on.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="End after so many lines; 0: never.")]

WatchObjects = Callable[..., "AsyncGenerator[Change[Any]]"]
"""The type of ``Client.watch_topics``."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(_watch)


def _add_watch(
    objects: str,
    help_text: str,
    watch_of: Callable[[Client], WatchObjects],
    prefix_of: Callable[[str], str] = str,
) -> None:
    """Add the command that watches ``objects``; ``prefix_of`` completes a prefix of names."""

    def watch(
        prefix: Prefix = "",
        names: Names = None,
        token: From = "",
        no_snapshot: NoSnapshot = False,
        limit: Limit = 0,
        target: Target = None,
        data_dir: DataDir = None,
        json_output: JsonFlag = False,
    ) -> None:
        _run(
            lambda client: watch_of(client)(
                prefix=prefix_of(prefix),
                names=names or (),
                resume=token,
                without_snapshot=no_snapshot,
            ),
            endpoints_of(target, data_dir),
            limit,
            json_output=json_output,
        )

    _watch.command(objects, help=help_text)(watch)


@_watch.command("map")
def shard_map(
    limit: Limit = 0,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Watch the shard map and the leaders of its shards."""
    nodes = endpoints_of(target, data_dir)

    async def work() -> None:
        from nextgen.client.client import Client

        async with Client(nodes) as client, aclosing(client.watch_shard_map()) as states:
            lines = 0
            async for state in states:
                _print_map(state, json_output=json_output)
                lines += 1
                if lines == limit:
                    return

    run_until_interrupted(work())


def _run(
    open_watch: Callable[[Client], AsyncGenerator[Change[Any]]],
    nodes: Sequence[str],
    limit: int,
    *,
    json_output: bool,
) -> None:
    async def work() -> None:
        from nextgen.client.client import Client

        async with Client(nodes) as client, aclosing(open_watch(client)) as changes:
            lines = 0
            async for change in changes:
                if not _print_change(change, json_output=json_output):
                    continue
                lines += 1
                if lines == limit:
                    return

    run_until_interrupted(work())


def _print_change(change: Change[Any], *, json_output: bool) -> bool:
    """Print a change as one line; return False if people need no line for it."""
    if json_output:
        print_json(change_as_dict(change))
        return True
    if change.kind == "progress":
        return False
    print_line(change_as_text(change))
    return True


def change_as_dict(change: Change[Any]) -> dict[str, object]:
    """Return a change as its JSON line, without fields that do not apply."""
    shown: dict[str, object] = {"change": change.kind.value}
    if change.shard_id:
        shown["shard"] = change.shard_id
    if change.position:
        shown["position"] = change.position
    if change.time_ms:
        shown["time_ms"] = change.time_ms
    if change.name:
        shown["name"] = change.name
    if change.value is not None:
        shown["value"] = asdict(change.value)
    if change.properties is not None:
        shown["properties"] = dict(change.properties)
    shown["from"] = change.token
    return shown


def change_as_text(change: Change[Any]) -> str:
    """Return a change as a line for people."""
    place = f"{change.shard_id}:{change.position or '-'}"
    time = ""
    if change.time_ms:
        moment = datetime.fromtimestamp(change.time_ms / 1_000, tz=UTC)
        time = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    details: dict[str, object] = {}
    if change.value is not None:
        details = {key: value for key, value in asdict(change.value).items() if value}
        details.pop("name", None)
    if change.properties is not None:
        details["properties"] = change.properties
    text = " ".join(f"{key}={_short(value)}" for key, value in details.items())
    return f"{place:<12} {time:<23} {change.kind.value:<18} {change.name} {text}".rstrip()


def _short(value: object) -> str:
    if isinstance(value, dict):
        value = "{" + ",".join(f"{key}:{one}" for key, one in value.items()) + "}"
    text = str(value)
    if len(text) <= _VALUE_CHARACTERS_MAX:
        return text
    return f"{text[: _VALUE_CHARACTERS_MAX - 3]}..."


def _print_map(state: ShardMap, *, json_output: bool) -> None:
    if json_output:
        print_json(asdict(state))
        return
    leaders = ", ".join(
        f"{shard.shard_id}→{shard.leader_node or 'none'} (term {shard.term}, {shard.slots} slots)"
        for shard in state.shards
    )
    print_line(f"map {state.version}: {leaders}")


def _with_domain(prefix: str) -> str:
    """Return ``prefix`` with the domain that a short name means, as in Pulsar's names."""
    return f"{_PERSISTENT}{prefix}" if prefix and "://" not in prefix else prefix


_add_watch("tenants", "Watch tenants.", lambda client: client.watch_tenants)
_add_watch("namespaces", "Watch namespaces.", lambda client: client.watch_namespaces)
_add_watch("topics", "Watch topics.", lambda client: client.watch_topics, _with_domain)
_add_watch(
    "assignments",
    "Watch which brokers serve topics and partitions.",
    lambda client: client.watch_assignments,
    _with_domain,
)
