"""``quotas``: the most units of brokers that may be leased, and of tenants that may be assigned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.quota_file import QuotaFile, from_bytes
from nextgen.kernel.limits.placement import QUOTA_FILE_BYTES_MAX

TENANTS_SHOWN_MAX = 50
"""Tenants in a table; --json has all."""

QuotasArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="What 'nextgen pipeline quotas' wrote.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Quotas of brokers and tenants.", no_args_is_help=True)
    group.command("apply")(apply)
    group.command("show")(show)
    app.add_typer(group, name="quotas")


def apply(
    file: QuotasArgument,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Replace all quotas of the cluster by those in FILE.

    FILE must have the version after the present one, so that it cannot undo a concurrent change.
    Applying the same file twice is harmless.
    """

    async def work() -> dict[str, Any]:
        from nextgen.cli.calls.quota_state import apply_quotas

        quotas = read_file(file)
        return await apply_quotas(endpoints_of(target, data_dir), quotas)

    held = run_command(work())
    if json_output:
        print_json(held)
        return
    print_line(
        f"quotas of version {held['version']} hold: {len(held['brokers'])} brokers, "
        f"{len(held['tenants'])} tenants"
    )


def show(target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False) -> None:
    """Show the quotas that hold, and how much of each broker's is leased out."""

    async def work() -> dict[str, Any]:
        from nextgen.cli.calls.quota_state import gather_quotas

        return await gather_quotas(endpoints_of(target, data_dir))

    held = run_command(work())
    if json_output:
        print_json(held)
        return
    if not held["version"]:
        print_line("no quotas were ever set")
        return
    _print_quotas(held)


def read_file(path: Path) -> QuotaFile:
    """Read a file of quotas.

    Raises:
        InvalidRequest: It cannot be read, or is not such a file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(QUOTA_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return from_bytes(content)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from None


def _print_quotas(held: dict[str, Any]) -> None:
    print_table(
        f"quotas of brokers, version {held['version']}, in units",
        ("broker", "quota", "capacity", "leased", "used", "live"),
        [
            (
                *(each["broker_id"], each["quota_units"], each["capacity_units"]),
                *(each["leased_units"], each["used_units"], "yes" if each["is_live"] else "no"),
            )
            for each in held["brokers"]
        ],
    )
    tenants = sorted(held["tenants"], key=lambda each: (-each["quota_units"], each["tenant"]))
    print_table(
        "quotas of tenants, in units",
        ("tenant", "quota"),
        [(each["tenant"], each["quota_units"]) for each in tenants[:TENANTS_SHOWN_MAX]],
    )
    more = len(tenants) - TENANTS_SHOWN_MAX
    if more > 0:
        print_line(f"and {more} tenants more: see --json")
    print_line(f"made from {held['source'] or 'an unnamed source'}")
