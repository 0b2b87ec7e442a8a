"""An export as a job reads it: all files that its manifest names, or a refusal.

Files that the manifest does not name are ignored. So a job can read an export that is being
written: it sees the generation of the manifest that it read first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.export.directory import disk_errors, read_manifest, shown_names
from nextgen.export.format.manifest import ExportFile, Manifest
from nextgen.export.stores.layout import Kind, kind_of
from nextgen.export.stores.store import Store
from nextgen.export.stores.urls import open_store
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID
from pipelines.errors import JobRefused
from pipelines.exports.event_schema import spark_schema

CLUSTER_MANAGER_SHARD_ID = int(CLUSTER_MANAGER_GROUP_ID)
"""The cluster manager's own log. Its events about brokers are not folded with those of shards."""


@dataclass(frozen=True, slots=True)
class ExportInput:
    """One generation of an export. ``files`` are by shard and position."""

    url: str
    store: Store
    manifest: Manifest
    files: tuple[ExportFile, ...]

    @property
    def rows(self) -> int:
        """Number of events in the manifest. Every job must account for all of them."""
        return sum(file.rows for file in self.files)

    @property
    def shard_files(self) -> tuple[ExportFile, ...]:
        """The files of all shards, without the cluster manager's own log."""
        return tuple(
            file
            for shard_id, shard in sorted(self.manifest.shards.items())
            if shard_id != CLUSTER_MANAGER_SHARD_ID
            for file in shard.files
        )

    def positions(self) -> dict[int, int]:
        """Return the last exported position by shard."""
        return {shard_id: shard.position for shard_id, shard in self.manifest.shards.items()}

    def events(self, spark: SparkSession, files: Sequence[ExportFile] | None = None) -> DataFrame:
        """Return the events of ``files`` (default: all), with the columns of this release.

        The order is Spark's. Nothing is read yet.
        """
        return read_events(spark, self.url, self.files if files is None else files)


def read_events(
    spark: SparkSession, url: str, files: Sequence[ExportFile], *, skips_damage: bool = False
) -> DataFrame:
    """Return the events of ``files`` of the export at ``url``, with the columns of this release.

    The order is Spark's. Nothing is read yet. With ``skips_damage`` an unreadable file gives fewer
    rows; without it the file is an error, which ``damage_refused`` turns into a refusal.
    """
    if not files:
        return _no_events(spark)
    # Folders are not columns: the rows have their shard and time.
    reader = spark.read.schema(spark_schema()).option("recursiveFileLookup", "true")
    reader = reader.option("ignoreCorruptFiles", str(skips_damage).lower())
    return reader.parquet(*(address_of(url, file) for file in files))


def _no_events(spark: SparkSession) -> DataFrame:
    # Read nothing in one task, rather than use an empty relation: Spark optimizes an empty relation
    # away together with the observations on it, and their readers would wait for ever.
    none = spark.range(1, numPartitions=1).where(f.col("id") < 0)
    return none.select(*(f.lit(None).cast(one.dataType).alias(one.name) for one in spark_schema()))


def address_of(url: str, file: ExportFile) -> str:
    """Return the address under which Spark reads a file of the export at ``url``."""
    return f"{url.rstrip('/')}/{file.path}"


def open_export(url: str | os.PathLike[str]) -> ExportInput:
    """Return the export at ``url`` as its manifest is at this moment.

    Raises:
        ExportRefused: It is not an export, of a newer schema, or its manifest is damaged.
        JobRefused: Files are missing, cut short, foreign, or named twice for the same positions.
        ExportStopped: The disk refuses.
    """
    store = open_store(url)
    manifest = read_manifest(store)
    files = tuple(file for _, shard in sorted(manifest.shards.items()) for file in shard.files)
    _check_files(store, files)
    _check_ranges(store, manifest)
    return ExportInput(store.url, store, manifest, files)


@contextmanager
def damage_refused() -> Iterator[None]:
    """Turn Spark's error about a file that it cannot decode into a refusal that names the file.

    Raises:
        JobRefused: Spark cannot decode a file. Other errors pass unchanged.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        damaged = _UNREADABLE.search(str(error))
        if damaged is None:
            raise
        raise JobRefused(
            f"{damaged.group(1)} is damaged: Spark cannot read it, though its size is that in the "
            "manifest; 'nextgen pipeline audit' says more"
        ) from error


_UNREADABLE = re.compile(
    r"\[(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)[^\]]*\].* (?:file:/*(?=/))?(\S+\.parquet)"
)


def _check_files(store: Store, files: Sequence[ExportFile]) -> None:
    with disk_errors(store):
        bytes_of = {file.path: file.bytes for file in store.list()}
    foreign = sorted(path for path in bytes_of if kind_of(path) is Kind.FOREIGN)
    if foreign:
        raise JobRefused(
            f"{store.url} holds files that are not of an export: {shown_names(foreign)}"
        )
    wrong = [file.path for file in files if bytes_of.get(file.path) != file.bytes]
    if wrong:
        raise JobRefused(
            f"{store.url} is damaged: {shown_names(wrong)} are missing or have another size than "
            "the manifest says; 'nextgen pipeline audit' says what is wrong, event by event"
        )


def _check_ranges(store: Store, manifest: Manifest) -> None:
    """Refuse missing or repeated positions: every fold over them would be wrong."""
    for shard_id, shard in sorted(manifest.shards.items()):
        gaps = {gap.first_position: gap.last_position for gap in shard.accepted_gaps}
        expected = 1
        for file in shard.files:
            while expected in gaps:
                expected = gaps[expected] + 1
            if file.first_position != expected:
                raise JobRefused(
                    f"{store.url}: shard {shard_id} goes on at {file.first_position} in "
                    f"{file.path} where {expected} was due; 'nextgen pipeline audit' says more"
                )
            expected = file.last_position + 1
