"""``events``: the log of one shard, as it is and as it grows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from nextgen.cli.exit_code import run_command
from nextgen.cli.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.output import as_dict, console, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(events)


def events(
    shard: Annotated[int, typer.Argument(min=1, help="Shard id.")],
    position: Annotated[int, typer.Option("--from", min=0, help="First position.")] = 1,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events commit.")] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="For example topic_created. Repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many; 0: all.")] = 0,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the committed events of a shard, oldest first; with --json one a line."""

    async def work() -> None:
        from nextgen.cli.event_reader import read_events

        nodes = endpoints_of(target, data_dir)
        async for event in read_events(
            nodes, shard, position, follow=follow, types=types or [], limit=limit
        ):
            if json_output:
                print_json(as_dict(event))
            else:
                console().print(_line(event), soft_wrap=True, markup=False)

    run_command(work())


def _line(event: Any) -> str:
    kind = event.WhichOneof("payload") or "unknown"
    payload = as_dict(getattr(event, kind)) if kind != "unknown" else {}
    time = datetime.fromtimestamp(event.time_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    text = " ".join(f"{key}={_value(value)}" for key, value in payload.items() if value)
    return f"{event.shard_id}:{event.position:<8} {time[:-3]} term {event.term} {kind} {text}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_value, value)) + "]"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
