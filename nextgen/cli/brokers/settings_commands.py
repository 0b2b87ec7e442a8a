"""``brokers settings``: the service-level settings that change without a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.kernel.errors import InvalidRequest

Pairs = Annotated[
    list[str],
    typer.Argument(metavar="NAME=VALUE...", help="Names are those of Pulsar's broker.conf."),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings.")]
OnlySet = Annotated[bool, typer.Option("--set", help="Only settings that were set.")]


def settings_group() -> typer.Typer:
    """Return the group, for the group ``brokers``."""
    group = typer.Typer(
        help="Settings of the whole cluster that change without a restart.", no_args_is_help=True
    )
    group.command("list")(list_settings)
    group.command("set")(set_settings)
    group.command("unset")(unset_settings)
    return group


def list_settings(
    only_set: OnlySet = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show every setting: its value in force and its default."""

    async def work() -> dict[str, Any]:
        from nextgen.cli.calls.settings_state import gather_settings

        return await gather_settings(endpoints_of(target, data_dir))

    found = run_command(work())
    if only_set:
        found["settings"] = [each for each in found["settings"] if each["is_set"]]
    if json_output:
        print_json(found)
        return
    print_table(
        f"settings, configuration of version {found['version']}",
        ("name", "value", "default", "set"),
        [
            (each["name"], each["value"], each.get("default", ""), "yes" if each["is_set"] else "")
            for each in found["settings"]
        ],
    )


def set_settings(
    settings: Pairs,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Set settings, all of them or none. They take effect at the next evaluation."""
    _change(lambda: parse_pairs(settings), target, data_dir, json_output)


def unset_settings(
    names: Names,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Give settings their defaults again, all of them or none."""
    _change(lambda: dict.fromkeys(names), target, data_dir, json_output)


def parse_pairs(pairs: list[str]) -> dict[str, str | None]:
    """Return the values by name.

    Raises:
        InvalidRequest: One is no pair, or a name comes twice.
    """
    found: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{pair!r} is not of the form NAME=VALUE")
        if name in found:
            raise InvalidRequest(f"{name} is given twice")
        found[name] = text
    return found


def _change(
    changes: Callable[[], Mapping[str, str | None]],
    target: Target,
    data_dir: DataDir,
    json_output: bool,
) -> None:
    async def work() -> tuple[Mapping[str, str | None], dict[str, Any]]:
        from nextgen.cli.calls.settings_state import apply_changes

        wanted = changes()
        return wanted, await apply_changes(endpoints_of(target, data_dir), wanted)

    wanted, held = run_command(work())
    if json_output:
        print_json(held)
        return
    for each in held["settings"]:
        if each["name"] in wanted:
            print_line(f"{each['name']} = {each['value']}")
