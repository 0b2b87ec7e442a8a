"""``backup`` and ``restore``: the metadata of all shards, the quotas and the settings."""

from __future__ import annotations

import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import plain_console, print_json, print_line
from nextgen.kernel.errors import InvalidRequest, RefusesToStart
from nextgen.kernel.governance.quota_file import QuotaFile

if TYPE_CHECKING:
    from nextgen.backup.cluster import BackupCluster

Where = Annotated[
    str, typer.Argument(metavar="DIR", help="A directory, or a URL of an object store (fsspec).")
]

Generation = Annotated[
    int | None,
    typer.Option(
        help="Where epochs begin: one more for each earlier restore over the same ledger directory."
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.command("backup")(backup)
    parent.command("restore")(restore)


def backup(
    directory: Where, target: Target = None, data_dir: DataDir = None, json_output: JsonFlag = False
) -> None:
    """Back up the metadata of all shards at one consistent cut, into a new directory.

    Tenants, namespaces, topics, their policies and properties, layouts of scalable topics,
    placement rules, quotas, settings. No messages and no assignments. An interrupted backup goes on
    where it was.
    """

    async def work() -> None:
        from nextgen.backup.run import BackupProgress, BackupRun

        began = time.monotonic()
        async with _opened(directory, target, data_dir) as (cluster, store):
            with _progress(is_shown=not json_output) as show:

                def on_progress(progress: BackupProgress) -> None:
                    show(
                        f"{progress.objects} of {progress.total} objects, "
                        f"{progress.shards_read} of {progress.shards} shards"
                    )

                run = BackupRun(cluster, store, on_progress)
                manifest = await run.run()
        seconds = time.monotonic() - began
        positions = {shard_id: shard.position for shard_id, shard in manifest.shards.items()}
        if json_output:
            print_json(
                {
                    "backup_id": manifest.backup_id,
                    **asdict(manifest.counts),
                    "positions": positions,
                    "resumed_shards": run.progress.resumed,
                    "bytes": sum(
                        file.bytes for each in manifest.shards.values() for file in each.files
                    ),
                    "elapsed_s": round(seconds, 2),
                }
            )
            return
        print_line(
            f"{store.url}: backup {manifest.backup_id} of {manifest.counts} in {seconds:.1f} s, "
            f"{len(positions)} shards at one cut"
        )

    run_command(_store_errors(work(), directory))


def restore(
    directory: Where,
    target: Target = None,
    data_dir: DataDir = None,
    generation: Generation = None,
    json_output: JsonFlag = False,
) -> None:
    """Restore a backup into an empty cluster, of any number of shards.

    Until it has ended nothing else is created there. An interrupted restore is finished by the same
    command.
    """

    async def work() -> None:
        from nextgen.backup.restore import Restored, RestoreRun

        began = time.monotonic()
        async with _opened(directory, target, data_dir) as (cluster, store):
            with _progress(is_shown=not json_output) as show:

                def on_restored(restored: Restored) -> None:
                    show(f"{restored.done} of {restored.total} objects")

                restored = await RestoreRun(
                    cluster, store, on_restored, generation=generation
                ).run()
        seconds = time.monotonic() - began
        if json_output:
            print_json(
                {
                    "backup_id": restored.backup_id,
                    **asdict(restored.counts),
                    "created": restored.created,
                    "existing": restored.existing,
                    "was_done": restored.was_done,
                    "not_restored": restored.not_restored,
                    "elapsed_s": round(seconds, 2),
                }
            )
            return
        for sentence in restored.not_restored:
            print_line(f"not restored: {sentence}")
        done = (
            "was restored here already: nothing to do"
            if restored.was_done
            else (f"restored: {restored.counts}, {restored.created} created in {seconds:.1f} s")
        )
        print_line(f"{store.url}: backup {restored.backup_id} {done}")

    run_command(_store_errors(work(), directory))


class _Opened:
    """The cluster and the store of a command, closed at its end."""

    def __init__(self, directory: str, endpoints: Sequence[str]) -> None:
        self._directory = directory
        self._endpoints = endpoints

    async def __aenter__(self) -> tuple[BackupCluster, Any]:
        from nextgen.backup.cluster import BackupCluster
        from nextgen.export.stores.urls import open_store

        store = open_store(self._directory)
        endpoints = self._endpoints
        self._cluster = BackupCluster(endpoints, _Quotas(endpoints), _Settings(endpoints))
        return self._cluster, store

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()


def _opened(directory: str, target: str | None, data_dir: Path | None) -> _Opened:
    return _Opened(directory, endpoints_of(target, data_dir))


class _Quotas:
    """See ``nextgen.backup.cluster.Quotas``."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints

    async def read(self) -> QuotaFile | None:
        from nextgen.cli.calls.quota_state import read_quotas

        return await read_quotas(self._endpoints)

    async def write(self, quotas: QuotaFile) -> None:
        from nextgen.cli.calls.quota_state import apply_quotas, read_quotas

        held = await read_quotas(self._endpoints)
        if held is not None and (held.brokers, held.tenants) == (quotas.brokers, quotas.tenants):
            return
        version = 1 + (0 if held is None else held.version)
        await apply_quotas(self._endpoints, replace(quotas, version=version))


class _Settings:
    """See ``nextgen.backup.cluster.Settings``."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints

    async def read(self) -> Mapping[str, str]:
        from nextgen.cli.calls.settings_state import ManagerConfiguration
        from nextgen.client.cluster.configuration import overrides

        try:
            return overrides(await ManagerConfiguration(self._endpoints).get())
        except InvalidRequest:
            return {}  # A cluster manager of a release that has no settings.

    async def write(self, settings: Mapping[str, str]) -> None:
        from nextgen.cli.calls.settings_state import apply_changes

        await apply_changes(self._endpoints, settings)


async def _store_errors(work: Coroutine[Any, Any, None], directory: str) -> None:
    """Turn errors of the store into sentences."""
    try:
        await work
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusesToStart(
            f"{directory} cannot be written or read ({reason}): repeat the command once it can, "
            "it goes on"
        ) from error


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Any]:
    """Yield a function that shows a text on stderr, of a terminal only."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _text: None
        return
    with plain_console(stderr=True).status("reading") as status:
        yield status.update
