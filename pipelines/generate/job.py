"""Writes a generated history as an export that every command and job can read."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipelines.generate.broker_events import load_reports
from pipelines.generate.files import publish_files, write_files
from pipelines.generate.inventory import (
    brokers,
    homes,
    namespaces,
    tenants,
    topics,
    with_home,
    with_tenant_ids,
)
from pipelines.generate.lives import session_numbers, unit_history
from pipelines.generate.payloads import events
from pipelines.generate.transform import (
    Cast,
    events_before_days,
    narrow_events,
    numbered,
)
from pipelines.generate.world import World
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "generate"


def run(spark: SparkSession, world: World, out: Path) -> Summary:
    """Write the history of ``world`` to ``out``, in place of an earlier one.

    Raises:
        JobRefused: ``out`` holds something else, or the disk refuses.
    """
    summary = Summary(JOB)
    with replaced_folder(out, JOB) as folder:
        work = _Work(spark, folder / ".work")
        cast = _cast(work, world)
        narrow = narrow_events(spark, cast, world)
        before_days = work.kept("before_days", events_before_days(narrow))
        write_files(events(numbered(narrow, before_days), cast.brokers, world), folder)
        counted = before_days.agg(f.sum("rows").alias("rows")).first()
        work.remove()
        manifest = publish_files(spark, folder, f"generated-{world.seed}")
        files = [file for shard in manifest.shards.values() for file in shard.files]
        assert counted is not None, "a sum has a row"
        summary.rows_in = counted.rows
        summary.rows_read = sum(file.rows for file in files)
        summary.rows_accounted = {
            f"shard {shard_id}": shard.position
            for shard_id, shard in sorted(manifest.shards.items())
        }
        summary.reconcile()
    summary.numbers = {
        "topics": world.topics,
        "tenants": world.tenants,
        "shards": world.shards,
        "brokers": world.brokers,
        "days": world.days,
        "seed": world.seed,
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
    }
    summary.outputs = {"export": str(out)}
    summary.verdict = f"generated {summary.rows_read:,} events of {world.topics:,} topics"
    return summary


class _Work:
    """Frames that are used several times: computed once, written to disk, and read from there.

    This also keeps plans short. Spark analyses the whole plan again with each added step, and
    without the files these plans would have thousands of expressions.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._folder = folder

    def kept(self, name: str, frame: DataFrame) -> DataFrame:
        path = str(self._folder / name)
        frame.write.parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def remove(self) -> None:
        shutil.rmtree(self._folder)


def _cast(work: _Work, world: World) -> Cast:
    spark = work.spark
    named = tenants(spark, world)
    spaces, named_brokers = namespaces(named, world), brokers(spark, world)
    home = work.kept("homes", homes(named, spaces, named_brokers, world))
    of_tenants = work.kept("tenants", with_home(named, home, "tenant", "tenant_no"))
    at_home = with_home(spaces, home, "namespace", "namespace_no")
    of_namespaces = work.kept("namespaces", with_tenant_ids(at_home, home))
    of_topics = work.kept("topics", topics(of_namespaces, world))
    of_brokers = with_home(named_brokers, home, "broker", "broker")
    sessions = work.kept("sessions", session_numbers(spark, world))
    lives = work.kept("lives", unit_history(of_topics, sessions, world))
    reports = work.kept("reports", load_reports(of_brokers, sessions, lives, world))
    return Cast(of_tenants, of_namespaces, of_topics, of_brokers, sessions, lives, reports)
