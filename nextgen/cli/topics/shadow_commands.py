"""``topics``: shadows of a topic, which have subscriptions of their own on its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.cli.topics.inventory_commands import (
    EFFECTIVE_TIMEOUT_MS,
    Properties,
    endpoints,
    parse_properties,
    topics_group,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nextgen.client.client import Client

Answer = TypeVar("Answer")
Source = Annotated[str, typer.Argument(help="The topic whose messages its shadows read.")]
Shadow = Annotated[str, typer.Argument(help="The shadow.")]


def register(_app: typer.Typer) -> None:
    """Add the commands to the group of topics."""
    topics_group.command("create-shadow")(create_shadow)
    topics_group.command("get-shadow-source")(get_shadow_source)
    topics_group.command("set-shadows")(set_shadows)
    topics_group.command("get-shadows")(get_shadows)
    topics_group.command("remove-shadows")(remove_shadows)


def create_shadow(
    name: Shadow,
    source: Annotated[str, typer.Option("--source", "-s", help="Its source; it never changes.")],
    properties: Properties = None,
    listed: Annotated[
        bool,
        typer.Option("--listed/--unlisted", help="Whether its source feeds it from now on."),
    ] = True,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create a shadow of a topic, with as many partitions, and have the topic feed it.

    Messages are stored once, at the source. A shadow has subscriptions of its own, and no
    producers. The source cannot be deleted before its shadows.
    """
    others = parse_properties(properties)
    nodes = endpoints(target, data_dir)
    created = _run(nodes, lambda client: client.create_shadow(name, source, others, listed=listed))
    if json_output:
        print_json({"name": name, "topic_id": created.topic_id, "source": source, "listed": listed})
    else:
        print_line(f"created {name}, a shadow of {source}{'' if listed else ' that is not listed'}")


def get_shadow_source(
    name: Shadow,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the topic whose messages a shadow reads."""
    nodes = endpoints(target, data_dir)
    source = _run(nodes, lambda client: client.get_shadow_source(name))
    if json_output:
        print_json({"name": name, "source": source})
    else:
        print_line(source or f"{name} is no shadow")


def set_shadows(
    source: Source,
    shadows: Annotated[list[str], typer.Argument(help="All that it is to feed.")],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Have a topic feed these shadows and no others. They are created before."""
    nodes = endpoints(target, data_dir)
    written = _run(nodes, lambda client: client.set_shadows(source, shadows))
    if json_output:
        print_json({"name": source, "version": written.version})
    else:
        print_line(f"{source} lists the shadows that were named")


def get_shadows(
    source: Source,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """List the shadows that a topic feeds."""
    nodes = endpoints(target, data_dir)
    names = _run(nodes, lambda client: client.get_shadows(source))
    if json_output:
        print_json({"name": source, "shadows": names})
    else:
        print_table(f"shadows of {source}", ("name",), [(name,) for name in names])


def remove_shadows(
    source: Source,
    shadows: Annotated[
        list[str] | None, typer.Argument(help="Those that it is to feed no more; none: all.")
    ] = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Have a topic feed these shadows no more. They stay, with what they have."""
    nodes = endpoints(target, data_dir)
    written = _run(nodes, lambda client: client.remove_shadows(source, shadows or ()))
    if json_output:
        print_json({"name": source, "version": written.version})
    else:
        which = "the shadows that were named" if shadows else "any shadows"
        print_line(f"{source} does not list {which}")


def _run(nodes: Sequence[str], call: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Return the answer to a call, whose changes are effective then."""
    from nextgen.client.client import Client

    async def work() -> Answer:
        async with Client(nodes, timeout_ms=EFFECTIVE_TIMEOUT_MS, effective=True) as client:
            return await call(client)

    return run_command(work())
