"""``export``: the event log as Parquet files."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.install_hint import install_hint
from nextgen.cli.console.options import DataDir, JsonFlag, Target, data_dir_of, endpoints_of
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.lifecycle.exit_code import CheckFailed

EXPORT_FOLDER = "export"
_LIBRARIES = frozenset({"pyarrow", "fsspec"})

app = typer.Typer(
    help="The event log as Parquet files, and metadata as JSON lines.", no_args_is_help=True
)

Directory = Annotated[
    str | None,
    typer.Argument(
        metavar="[DIR]",
        help="Folder, or URL of an object store. Default: export/ in the data directory, "
        "else that of its newest chaos run.",
        show_default=False,
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the group of commands."""
    parent.add_typer(app, name="export")


@app.command()
def run(
    directory: Directory = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events commit.")] = False,
    file_rows: Annotated[
        int | None, typer.Option("--file-rows", min=1, help="Events in one file.")
    ] = None,
    file_seconds: Annotated[
        float | None,
        typer.Option("--file-seconds", min=0.1, help="Age of a file, while following."),
    ] = None,
    accept_gap: Annotated[
        bool,
        typer.Option("--accept-gap", help="Go on behind events that the log has not any more."),
    ] = False,
    http_port: Annotated[
        int | None,
        typer.Option("--http-port", min=0, max=65535, help="Serve metrics; 0: any free port."),
    ] = None,
    http_host: Annotated[
        str, typer.Option("--http-host", help="Where the metrics are served.")
    ] = "127.0.0.1",
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Export every shard from the export's end to the present.

    It may be stopped at any moment, also by kill -9, and continues without a gap or a duplicate.
    """

    async def work() -> None:
        from nextgen.export.writing.run import run_export
        from nextgen.export.writing.shard_files import FileLimits

        limits = FileLimits()
        if file_rows is not None:
            limits = replace(limits, rows=file_rows)
        if file_seconds is not None:
            limits = replace(limits, age_ms=round(file_seconds * 1000))
        url = directory or str(data_dir_of(data_dir) / EXPORT_FOLDER)
        endpoints = endpoints_of(target, data_dir)
        progress: dict[int, Any] = {}
        stop = asyncio.Event()
        with _stopped_by_signals(stop):
            async with _Metrics(http_host, http_port, progress):
                summary = await run_export(
                    endpoints,
                    url,
                    follow=follow,
                    cluster_id=_cluster_id(target, data_dir),
                    accept_gap=accept_gap,
                    limits=limits,
                    stop=stop,
                    progress=progress,
                )
        _print_summary(summary.as_json(), json_output=json_output)

    run_command(_with_libraries(work()))


@app.command()
def status(
    directory: Directory = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Show how far each shard is exported and, if the cluster answers, how far behind that is."""

    async def work() -> None:
        from nextgen.export.checking.status import export_status

        document = await export_status(
            _existing(directory, data_dir), endpoints=_endpoints_if_any(target, data_dir)
        )
        if json_output:
            print_json(document)
        else:
            _print_status(document)

    run_command(_with_libraries(work()))


@app.command()
def check(
    directory: Directory = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Read the whole export: hashes, counts, positions, schema; exit code 4 if anything is wrong.

    With a live cluster, of --target or of the data directory, every event that its logs still have
    is compared with the exported one.
    """

    async def work() -> None:
        from nextgen.export.checking.check import check_export

        report = await check_export(
            _existing(directory, data_dir), endpoints=_endpoints_if_any(target, data_dir)
        )
        document = report.as_json()
        if json_output:
            print_json(document)
        else:
            _print_check(document)
        if not report.ok:
            raise CheckFailed("; ".join(report.findings))

    run_command(_with_libraries(work()))


async def _with_libraries(work: Coroutine[Any, Any, None]) -> None:
    """Convert a missing library to an error that says how to install it."""
    try:
        await work
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise RefusesToStart(
            f"exports need {error.name}, which is not installed: {install_hint('export')}"
        ) from error


def _existing(directory: str | None, data_dir: Path | None) -> str:
    """Return the export to use: the given one, else the data directory's, else the newest run's."""
    if directory is not None:
        return directory
    home = data_dir_of(data_dir)
    found = home / EXPORT_FOLDER
    if found.is_dir():
        return str(found)
    runs = [path for path in home.glob(f"chaos/*/{EXPORT_FOLDER}") if path.is_dir()]
    if not runs:
        raise RefusesToStart(f"there is no export in {home}: run 'nextgen export run', or name it")
    return str(max(runs, key=lambda path: path.stat().st_mtime))


def _endpoints_if_any(target: str | None, data_dir: Path | None) -> tuple[str, ...]:
    """Return the discovery nodes of ``target``, else of a running local cluster, else none."""
    if target:
        return endpoints_of(target, data_dir)
    try:
        return endpoints_of(None, data_dir)
    except RefusesToStart:
        return ()


def _cluster_id(target: str | None, data_dir: Path | None) -> str:
    """Return the id of the local cluster; clients of another cluster cannot know its id."""
    from nextgen.cli.local.plan import load_plan

    plan = None if target else load_plan(data_dir_of(data_dir))
    return plan.cluster_id if plan else ""


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the run with whole files."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


class _Metrics:
    """Serves the progress over HTTP while the block runs; without a port it does nothing."""

    def __init__(self, host: str, port: int | None, progress: dict[int, Any]) -> None:
        self._host = host
        self._port = port
        self._progress = progress
        self._probes: Any = None

    async def __aenter__(self) -> None:
        if self._port is None:
            return
        from nextgen.export.writing.progress import ProgressMetrics
        from nextgen.runtime.servers.probes import Probes

        registry = ProgressMetrics(self._progress).registry()
        self._probes = Probes(lambda: (True, []), registry)
        port = await self._probes.start(self._host, self._port)
        print_line(f"metrics on http://{self._host}:{port}/metrics", stderr=True)

    async def __aexit__(self, *_exception: object) -> None:
        if self._probes is not None:
            await self._probes.stop()


def _print_summary(document: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        print_json(document)
        return
    print_line(
        f"{document['url']}: {document['events']:,} events of {document['shards']} shards in "
        f"{document['files']} files, {document['bytes_per_event']} bytes each, "
        f"{document['seconds']:.1f} s",
    )
    if document["untyped_events"]:
        print_line(
            f"{document['untyped_events']} of them say more than this release knows: "
            "see column raw",
        )


def _print_status(document: dict[str, Any]) -> None:
    columns = ("shard", "exported", "committed", "behind", "seconds behind", "files", "bytes")
    names = ("exported_position", "commit_position", "positions_behind", "seconds_behind")
    rows = [
        (
            shard["shard_id"],
            *("?" if shard[name] is None else shard[name] for name in names),
            shard["files"],
            shard["bytes"],
        )
        for shard in document["shards"]
    ]
    print_table(f"{document['url']}: {document['events']:,} events", columns, rows)
    if "error" in document:
        print_line(document["error"])


def _print_check(document: dict[str, Any]) -> None:
    compared = (
        f"{document['compared_events']:,} compared with the log"
        if document["compared_with_log"]
        else "not compared with a log"
    )
    print_line(
        f"{document['url']}: {'ok' if document['ok'] else 'NOT OK'}, "
        f"{document['events']:,} events of {document['shards']} shards in "
        f"{document['files']} files, {compared}",
    )
    for sentence in document["findings"]:
        print_line(sentence)
