"""``import`` and ``export metadata``: tenants, namespaces and topics into and out of a cluster."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import plain_console, print_json, print_line, print_table
from nextgen.cli.data.export_commands import app as export_app
from nextgen.cli.data.pulsar_access import (
    CaFile,
    CertFile,
    KeyFile,
    Token,
    TokenFile,
    access_to,
)
from nextgen.runtime.lifecycle.exit_code import CheckFailed

if TYPE_CHECKING:
    from nextgen.migration.importer import ImportReport, OnImported
    from nextgen.migration.records import Record, Source

SHOWN_MAX = 20
"""Remarks of each kind that are printed; ``--json`` has more of them."""

app = typer.Typer(
    help="Tenants, namespaces and topics from another cluster. What exists stays as it is, so an "
    "import may be ended at any moment and run again.",
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines of 'export metadata'.")]


def register(parent: typer.Typer) -> None:
    """Add the group of commands, and ``metadata`` to that of ``export``."""
    parent.add_typer(app, name="import")
    export_app.command("metadata")(export_metadata)


@app.command("pulsar")
def import_pulsar(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Its Admin REST, such as http://broker:8080.")
    ],
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    properties: Annotated[
        bool, typer.Option(help="Read the properties of topics: a request for each.")
    ] = True,
    schemas: Annotated[
        bool, typer.Option(help="Read the schemas of topics: a request for each.")
    ] = True,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Import from a Pulsar cluster, which is only read.

    Messages, subscriptions and policies of single topics are not taken. A topic with schemas is
    opened at a broker, which keeps them.
    """
    access = access_to(url, token, token_file, ca_file, cert_file, key_file)

    async def work() -> None:
        from nextgen.migration.pulsar_cluster import PulsarCluster

        source = PulsarCluster(url, properties=properties, schemas=schemas, access=access())
        try:
            await _import(source, target, data_dir, json_output=json_output)
        finally:
            await source.close()

    run_command(work())


@app.command("metadata")
def import_metadata(
    file: File,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Import a file of JSON lines. Nothing is imported of one that was cut off or altered."""

    async def work() -> None:
        from nextgen.migration.metadata_lines import LinesSource

        await _import(LinesSource(file), target, data_dir, json_output=json_output)

    run_command(work())


def export_metadata(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written whole or not at all.")],
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Write all tenants, namespaces and topics, with properties and policies, as JSON lines.

    'import metadata' reads them. What is created meanwhile may be missing.
    """

    async def work() -> None:
        from nextgen.client.client import Client
        from nextgen.kernel.governance.policies import PolicyLevel
        from nextgen.migration.metadata_lines import write_lines
        from nextgen.migration.own_cluster import OwnCluster
        from nextgen.migration.records import Remarks

        remarks = Remarks()
        async with Client(endpoints_of(target, data_dir)) as client:
            with _progress(is_shown=not json_output) as show:
                source = OwnCluster(client).records(remarks)
                counts = await write_lines(_counted(source, show), file)
        found = {f"{level.value}s": counts[level] for level in PolicyLevel}
        if json_output:
            print_json({**found, "left_out": remarks.first})
            return
        for remark in remarks.first[:SHOWN_MAX]:
            print_line(f"left out: {remark}", stderr=True)
        print_line(f"{file}: " + ", ".join(f"{number} {name}" for name, number in found.items()))

    run_command(work())


async def _import(
    source: Source, target: str | None, data_dir: Path | None, *, json_output: bool
) -> None:
    from nextgen.client.client import Client
    from nextgen.migration.importer import Importer
    from nextgen.migration.schema_target import AdminSchemas

    async with Client(endpoints_of(target, data_dir)) as client:
        schemas = AdminSchemas(client)
        try:
            with _import_progress(is_shown=not json_output) as show:
                report = await Importer(client, show, schemas).run(source)
        finally:
            await schemas.close()
    if json_output:
        print_json(report.as_dict())
    else:
        _print(report)
    if report.refusals.count:
        raise CheckFailed(f"{report.refusals.count} objects were refused")


def _print(report: ImportReport) -> None:
    columns = ("read", "created", "completed", "same", "different", "refused")
    rows = [
        (f"{level.value}s", *(getattr(counts, column) for column in columns))
        for level, counts in report.levels.items()
    ]
    print_table("Imported", ("", *columns), rows)
    if (schemas := report.schemas).read:
        print_line(
            f"{schemas.read} versions of schemas: {schemas.added} added, {schemas.same} the same, "
            f"{schemas.refused} refused"
        )
    kinds = {
        "not carried": report.not_carried,
        "different, left as it is": report.differences,
        "refused": report.refusals,
    }
    for title, remarks in kinds.items():
        for remark in remarks.first[:SHOWN_MAX]:
            print_line(f"{title}: {remark}")
        if remarks.count > SHOWN_MAX:
            print_line(f"{title}: {remarks.count - SHOWN_MAX} more, see --json")


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Any]:
    """Yield a function that shows a text on stderr, of a terminal only."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _text: None
        return
    with plain_console(stderr=True).status("reading") as status:
        yield status.update


@contextmanager
def _import_progress(*, is_shown: bool) -> Iterator[OnImported]:
    with _progress(is_shown=is_shown) as show:

        def on_imported(report: ImportReport) -> None:
            counts = (f"{each.read} {level.value}s" for level, each in report.levels.items())
            show(", ".join(counts) + " read")

        yield on_imported


async def _counted(records: AsyncIterator[Record], show: Any) -> AsyncIterator[Record]:
    counts: Counter[str] = Counter()
    async for record in records:
        counts[record.level.value] += 1
        if not counts[record.level.value] % 1_000:
            show(", ".join(f"{number} {name}s" for name, number in counts.items()))
        yield record
