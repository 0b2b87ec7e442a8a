"""An export as jobs read it: whole, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from nextgen.export.errors import ExportRefused, ExportStopped
from nextgen.export.format.schema import SCHEMA_VERSION
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from pipelines.errors import JobRefused
from pipelines.exports.event_schema import spark_schema
from pipelines.exports.input import damage_refused, open_export, read_events
from tests.support.logs.export_logs import FakeLog, events


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    """25 events of shard 1 in three files, 3 of shard 2."""
    directory = tmp_path / "export"
    log = FakeLog({1: events(1, 25), 2: events(1, 3, 2)})
    await export_log(log, LocalStore(directory), limits=FileLimits(rows=10))
    return directory


def test_every_event_is_read_with_the_columns_of_this_release(
    spark: SparkSession, export: Path
) -> None:
    found = open_export(export)
    events = found.events(spark)

    assert events.schema == spark_schema()
    assert (events.count(), found.rows) == (28, 28)
    assert found.positions() == {1: 25, 2: 3}
    first = events.where("shard_id = 1 and position = 1").first()
    assert first is not None
    assert first.topic_created.name == "persistent://acme/orders/1-1"


def test_what_is_observed_of_no_files_at_all_is_told(spark: SparkSession) -> None:
    events = read_events(spark, "nowhere", ())
    seen = Observation("nothing")
    events.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode(
        "overwrite"
    ).save()

    assert events.schema == spark_schema()
    assert seen.get == {"rows": 0}


def data_file(export: Path) -> Path:
    return sorted(export.rglob("*.parquet"))[0]


def test_a_file_that_is_cut_short_is_refused(export: Path) -> None:
    path = data_file(export)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JobRefused, match="another size"):
        open_export(export)


def test_a_file_with_other_bytes_of_the_same_number_is_refused_by_its_name(
    spark: SparkSession, export: Path
) -> None:
    path = data_file(export)
    found = open_export(export)
    path.write_bytes(bytes(path.stat().st_size))

    with pytest.raises(JobRefused, match=f"^{path} is damaged"), damage_refused():
        found.events(spark).count()


def test_a_file_that_is_missing_is_refused(export: Path) -> None:
    data_file(export).unlink()
    with pytest.raises(JobRefused, match="missing"):
        open_export(export)


def test_a_foreign_file_is_refused(export: Path) -> None:
    (export / "shard=00001" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(JobRefused, match="not of an export"):
        open_export(export)


def test_a_disk_that_does_not_say_what_is_there_is_told(export: Path) -> None:
    circle = export / "circle"
    circle.symlink_to(circle)
    with pytest.raises(ExportStopped, match="symbolic links"):
        open_export(export)


def test_an_export_of_a_newer_schema_is_refused(export: Path) -> None:
    manifest = json.loads((export / "manifest.json").read_text())
    manifest["schema_version"] = SCHEMA_VERSION + 1
    (export / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ExportRefused, match="schema_version"):
        open_export(export)


def test_a_range_that_is_named_twice_is_refused(export: Path) -> None:
    manifest = json.loads((export / "manifest.json").read_text())
    files = manifest["shards"]["1"]["files"]
    files.insert(1, files[0])
    (export / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(JobRefused, match="where 11 was due"):
        open_export(export)


def test_a_file_that_is_being_written_is_not_read(spark: SparkSession, export: Path) -> None:
    (export / "shard=00001" / "date=2026-01-01").mkdir()
    (export / "shard=00001" / "date=2026-01-01" / f".{26:020d}.draft").write_bytes(b"PAR1")
    assert open_export(export).events(spark).count() == 28
