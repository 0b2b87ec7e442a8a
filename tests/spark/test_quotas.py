"""Quotas from history: what each broker and tenant gets, that it fits, and that it repeats."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from nextgen.export.errors import ExportRefused
from nextgen.kernel.governance.quota_file import QuotaFile, from_bytes
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.quotas import transform
from pipelines.quotas.job import FILE, TENANTS, run
from pipelines.quotas.model import Question, Shares
from protos.nextgen.v1 import events_pb2 as e
from tests.support.spark.histories import HOUR_MS, History
from tests.support.spark.plans import plan_of, unwanted_in

NAMESPACE = "acme/orders"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(12)]


def busy_history() -> History:
    """Twelve topics of acme, one of zoo, none of shy; b-1 is busy, b-2 idle, b-3 has gone."""
    history = History(shards=3)
    for broker_id, capacity_units in (("b-1", 100), ("b-2", 50), ("b-3", 70)):
        history.start_broker(broker_id, capacity_units)
    for tenant, namespace in (("acme", NAMESPACE), ("zoo", "zoo/animals"), ("shy", "shy/n")):
        history.create_tenant(tenant)
        history.create_namespace(namespace)
    for name in TOPICS:
        history.create_topic(name)
        history.assign(name, "b-1")
    history.create_topic("persistent://zoo/animals/cat")
    history.assign("persistent://zoo/animals/cat", "b-2")
    # 12 units at 4/5 of the CPU: with a fifth kept free, b-1 is at what it should carry.
    history.report_load("b-1", 12, {TOPICS[0]: 5_000.0}, cpu_fraction=3.2)
    history.wait(40 * HOUR_MS)
    for name in TOPICS[:8]:
        history.unassign(name)
    history.assign(TOPICS[9], "b-2", reason="moved")
    history.end_broker("b-3")
    return history


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(busy_history(), tmp_path_factory.mktemp("quotas") / "export")


@pytest.fixture(scope="module")
def made(spark: SparkSession, export: Path) -> tuple[QuotaFile, dict[str, Any], Path]:
    """What the job makes of it: the file, the summary, the folder."""
    out = export.parent / "out"
    summary = run(spark, export, out, report=export.parent / "quotas.html")
    return from_bytes((out / FILE).read_bytes()), summary.as_dict(), out


def exported(history: History, directory: Path) -> Path:
    return asyncio.run(history.export(directory))


def fullest(names: Sequence[str]) -> int:
    """Return how many of these topics are in the shard that has most of them."""
    homes = [History(shards=3).home(name) for name in names]
    return max(homes.count(each) for each in homes)


def test_every_row_is_accounted_for(made: tuple[QuotaFile, dict[str, Any], Path]) -> None:
    _, summary, _ = made
    history = busy_history()

    assert summary["rows_in"] == summary["rows_read"] == history.rows
    assert sum(summary["rows_accounted"].values()) == history.rows
    assert summary["rows_accounted"]["units"] == 13 + 8 + 1
    assert summary["ok"]


def test_a_broker_gets_what_its_load_and_the_headroom_allow(
    made: tuple[QuotaFile, dict[str, Any], Path],
) -> None:
    quotas, summary, _ = made

    assert quotas.brokers == {"b-1": 12, "b-2": 40}, "one that has gone at the end gets none"
    assert summary["broker_units"] == 52


def test_a_tenant_gets_its_fullest_shards_need_in_every_shard(
    made: tuple[QuotaFile, dict[str, Any], Path],
) -> None:
    quotas, summary, _ = made

    with_headroom = -(-fullest(TOPICS) * 12 // 10)
    assert quotas.tenants["zoo"] == 6, "its one unit, and the headroom rounded up, in each shard"
    assert quotas.tenants["shy"] == 3, "the floor: one unit in each shard"
    assert quotas.tenants["acme"] == 3 * with_headroom
    assert sum(quotas.tenants.values()) <= sum(quotas.brokers.values())
    assert not summary["is_scarce"]


def test_units_are_folded_by_position_and_moves_are_none(
    spark: SparkSession, made: tuple[QuotaFile, dict[str, Any], Path]
) -> None:
    _, _, out = made
    row = spark.read.parquet(str(out / TENANTS)).where("tenant = 'acme'").collect()[0]

    assert row["units"] == 4, "12 were assigned, 8 went idle, a move changes nothing"
    assert row["units_peak"] == 12
    assert row["units_p95"] == 12, "it had them for 40 of 41 hours"


def test_the_same_export_gives_the_same_bytes(
    spark: SparkSession, export: Path, made: tuple[QuotaFile, dict[str, Any], Path], tmp_path: Path
) -> None:
    _, _, out = made
    run(spark, export, tmp_path / "again")

    assert (tmp_path / "again" / FILE).read_bytes() == (out / FILE).read_bytes()


def test_the_page_says_what_was_made_and_why(
    made: tuple[QuotaFile, dict[str, Any], Path], export: Path
) -> None:
    page = (export.parent / "quotas.html").read_text()

    assert made[0].source in page
    assert "b-1" in page
    assert "acme" in page
    assert "<svg" in page


def test_what_brokers_lack_is_taken_from_tenants_beyond_their_floors(
    spark: SparkSession,
) -> None:
    rows = [("a", 100), ("b", 50), ("c", 3), ("d", 2**31)]
    needs = spark.createDataFrame(rows, "tenant string, need_units long")
    shares = Shares(1_000, 4, sum(need for _, need in rows), 3)

    quotas = {
        row["tenant"]: row["quota_units"]
        for row in transform.tenant_quotas(needs, shares).collect()
    }

    assert quotas["c"] == 3, "who needs no more than the floor has it"
    assert sum(quotas.values()) <= 1_000
    assert quotas["d"] > 980
    enough = Shares(2**40, 4, shares.needed_units, 3)
    kept = transform.tenant_quotas(needs, enough).collect()
    assert {row["tenant"]: row["quota_units"] for row in kept} == dict(rows)


def test_the_largest_needs_have_quotas_and_names_decide_among_equals(spark: SparkSession) -> None:
    needs = spark.createDataFrame([("b", 5), ("a", 5), ("c", 9)], "tenant string, need_units long")

    chosen = transform.largest_tenants(needs, 2).collect()

    assert [row["tenant"] for row in chosen] == ["c", "a"]


def test_load_is_what_the_placement_takes_it_for(spark: SparkSession, export: Path) -> None:
    found = transform.facts(open_export(export).events(spark)).where("kind = 'load'").collect()

    assert [(row["name"], row["units"], row["permille"]) for row in found] == [("b-1", 12, 800)]


def test_the_version_is_behind_the_last_and_more_headroom_leaves_less(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = busy_history()
    history.add(0, quotas_set=e.QuotasSet(version=4))
    history.end_broker("b-2")
    history.start_broker("b-2", 60)
    out = tmp_path / "out"

    question = Question(headroom_percent=50)
    summary = run(spark, exported(history, tmp_path / "export"), out, question)

    quotas = from_bytes((out / FILE).read_bytes())
    assert quotas.version == 5
    assert quotas.brokers["b-1"] == 7, "12 units at 4/5, of which 1/2 is left"
    assert quotas.brokers["b-2"] == 30, "a broker that came back has what it says then"
    assert sum(quotas.tenants.values()) <= 37
    assert summary.numbers["is_scarce"]
    assert summary.rows_accounted["quotas"] == 1
    assert not any("version is 1" in note for note in summary.numbers["notes"])


def test_a_tenant_whose_first_creation_was_lost_is_there_when_it_was_created_again(
    spark: SparkSession,
) -> None:
    changes = [("back", 2, -1), ("back", 3, 1), ("gone", 4, 1), ("gone", 5, -1)]
    found = spark.createDataFrame(changes, "name string, position long, change long")
    found = found.withColumn("kind", f.lit(transform.TENANT))
    none = spark.createDataFrame(
        [], "tenant string, shard_id int, units long, units_peak long, units_p95 long"
    )

    needs = transform.tenant_needs(found, none, Question(), 3, 3).collect()

    assert [(row["tenant"], row["need_units"]) for row in needs] == [("back", 3)]


def test_without_a_broker_or_room_for_the_floors_nothing_is_written(
    spark: SparkSession, export: Path, tmp_path: Path
) -> None:
    history = busy_history()
    for broker_id in ("b-1", "b-2"):
        history.end_broker(broker_id)
    out = tmp_path / "out"

    with pytest.raises(JobRefused, match="no broker lives"):
        run(spark, exported(history, tmp_path / "export"), out)
    with pytest.raises(JobRefused, match="3 tenants with 18 units each"):
        run(spark, export, out, Question(floor_units=18))

    assert not out.exists()


def test_unknown_events_and_a_clock_that_goes_back_are_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = busy_history()
    del history.logs[0][:]
    unknown = history.add(1)
    unknown.ParseFromString(
        unknown.SerializeToString() + b"\xea\x10\x00"
    )  # Field 269, which is reserved.
    history.now_ms -= 5 * HOUR_MS
    history.create_tenant("late")
    shard_id = history.home("late")
    directory = tmp_path / "export"
    asyncio.run(history.export(directory, file_rows=1))

    summary = run(spark, directory, tmp_path / "out")

    assert summary.rows_accounted["of_unknown_types"] == 1
    assert "1 events are of types that this release does not know" in summary.findings[0]
    notes = " ".join(summary.numbers["notes"])
    assert f"the clock of shard {shard_id} goes back" in notes
    assert "the version is 1 unless --quota-version gives another" in notes


@pytest.mark.parametrize("damage", ["cut", "newer", "nothing"])
def test_a_damaged_or_newer_export_is_refused(
    spark: SparkSession, tmp_path: Path, damage: str
) -> None:
    directory = tmp_path / "export"
    if damage != "nothing":
        exported(busy_history(), directory)
    if damage == "cut":
        path = sorted(directory.rglob("*.parquet"))[0]
        path.write_bytes(path.read_bytes()[:-1])
    if damage == "newer":
        manifest = json.loads((directory / "manifest.json").read_text())
        manifest["schema_version"] += 1
        (directory / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(JobRefused if damage == "cut" else ExportRefused):
        run(spark, directory, tmp_path / "out")


def test_the_plans_do_all_of_it_in_spark_with_one_scan(spark: SparkSession, export: Path) -> None:
    found = transform.facts(open_export(export).events(spark))
    in_shards = transform.shard_units(found, 500_000)
    for frame, scans in (
        (transform.broker_quotas(found, Question()), 2),
        (in_shards, 1),
        (transform.tenant_needs(found, in_shards, Question(), 3, 3), 2),
    ):
        plan = plan_of(frame)
        assert unwanted_in(plan) == []
        assert "SortAggregate" not in plan
        assert plan.count("FileScan") == scans, "of the export, where the facts are not kept"
    kept = found.persist()
    try:
        assert "InMemoryTableScan" in plan_of(transform.broker_quotas(kept, Question()))
    finally:
        kept.unpersist()
