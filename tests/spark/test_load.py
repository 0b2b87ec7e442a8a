"""Load history from reports: sums, percentiles, growth, skew, the day's shape, the forecast."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.load import job, transform
from pipelines.load.job import TABLES, run
from pipelines.running.summary import Summary
from protos.nextgen.v1 import events_pb2 as e
from tests.support.logs.export_logs import FakeLog, events
from tests.support.spark.histories import DAY_MS, HOUR_MS, History
from tests.support.spark.plans import plan_of, unwanted_in

HOURS = 48
FIRST, SECOND = "broker-b", "broker-a"
HOT = "persistent://acme/orders/hot"
SPLIT = "persistent://acme/orders/split"
QUIET = "persistent://bank/mail/quiet"
CAPACITY_UNITS = 1_000
UNITS_AT_FIRST = 100
UNITS_PER_HOUR = 5


def rate_of_hot(hour: int) -> float:
    """Return bytes in per second: a line by the hour."""
    return 1_000.0 + 10.0 * hour


def told() -> History:
    """Return two days of two brokers: one grows by the hour, the other stays as it is."""
    history = History(shards=2)
    for broker_id in (FIRST, SECOND):
        history.start_broker(broker_id, capacity_units=CAPACITY_UNITS)
    began_ms = history.now_ms // HOUR_MS * HOUR_MS + HOUR_MS
    for hour in range(HOURS):
        history.now_ms = began_ms + hour * HOUR_MS
        units = UNITS_AT_FIRST + UNITS_PER_HOUR * hour
        busiest = {HOT: rate_of_hot(hour), f"{SPLIT}-partition-0": 200.0}
        history.report_load(FIRST, units, busiest, cpu_fraction=0.5)
        busiest = {f"{SPLIT}-partition-1": 300.0, QUIET: 100.0}
        history.report_load(SECOND, 40, busiest)
    return history


@pytest.fixture(scope="module")
def answered(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Summary, Path]:
    directory = tmp_path_factory.mktemp("load")
    history = told()
    asyncio.run(history.export(directory / "export"))
    report = directory / "load.html"
    with local_time_of("America/New_York"):
        summary = run(spark, str(directory / "export"), directory / "out", report=report)
    return directory / "out", summary, report


@contextmanager
def local_time_of(zone: str) -> Iterator[None]:
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            yield
    finally:
        time.tzset()


def rows(spark: SparkSession, out: Path, table: str, where: str = "true") -> list[Any]:
    return spark.read.parquet(str(out / table)).where(where).limit(1_000).collect()


def test_every_row_of_the_export_is_accounted_for(
    answered: tuple[Path, Summary, Path],
) -> None:
    _, summary, _ = answered
    history = told()
    assert summary.rows_in == summary.rows_read == history.rows
    assert summary.rows_accounted["load reports"] == 2 * HOURS
    assert summary.rows_accounted["sessions and capacity"] == 4
    assert summary.is_ok


def test_a_series_has_a_row_per_hour_and_partitions_add_up(
    spark: SparkSession, answered: tuple[Path, Summary, Path]
) -> None:
    out, _, _ = answered
    of_split = rows(spark, out, "series", f"name = '{SPLIT}'")
    assert len(of_split) == HOURS
    # In and out: the history's brokers send twice what they get.
    assert {row.bytes_per_second for row in of_split} == {3 * 500.0}
    tenants = rows(spark, out, "series", "level = 'tenant' and name = 'bank'")
    assert {row.bytes_per_second for row in tenants} == {3 * 100.0}


def test_percentiles_are_those_of_the_hourly_values(
    spark: SparkSession, answered: tuple[Path, Summary, Path]
) -> None:
    out, _, _ = answered
    (hot,) = rows(spark, out, "statistics", f"name = '{HOT}'")
    values = [3 * rate_of_hot(hour) for hour in range(HOURS)]
    assert (hot.level, hot.hours, hot.samples) == ("topic", HOURS, HOURS)
    assert hot.p50 == pytest.approx((values[23] + values[24]) / 2)
    assert hot.p95 == pytest.approx(values[0] + 30 * 0.95 * (HOURS - 1))
    assert hot.p99 == pytest.approx(values[0] + 30 * 0.99 * (HOURS - 1))
    assert hot.max == values[-1]
    mean = sum(values) / HOURS
    assert hot.mean == pytest.approx(mean)
    assert hot.growth_per_day == pytest.approx(24 * 30 / mean)


def test_skew_says_how_much_more_the_most_loaded_has(
    spark: SparkSession, answered: tuple[Path, Summary, Path]
) -> None:
    out, _, _ = answered
    (brokers,) = rows(spark, out, "skew", "level = 'broker'")
    mean_hot = sum(map(rate_of_hot, range(HOURS))) / HOURS
    means = [3 * (mean_hot + 200.0), 3 * 400.0]
    assert brokers.names == 2
    assert brokers.max_over_mean == pytest.approx(max(means) / (sum(means) / 2))


def test_the_forecast_says_when_the_line_meets_the_capacity(
    spark: SparkSession, answered: tuple[Path, Summary, Path]
) -> None:
    out, summary, _ = answered
    found = {row.scope: row for row in rows(spark, out, "forecast")}
    growing, still = found[FIRST], found[SECOND]
    units_now = UNITS_AT_FIRST + UNITS_PER_HOUR * (HOURS - 1)
    assert growing.units_now == pytest.approx(units_now, abs=0.01)
    assert growing.units_per_day == pytest.approx(24 * UNITS_PER_HOUR, rel=1e-6)
    assert growing.days_left == pytest.approx(
        (CAPACITY_UNITS - units_now) / (24 * UNITS_PER_HOUR), rel=1e-3
    )
    assert still.days_left is None or still.days_left > 100_000
    assert found["cluster"].capacity_units == 2 * CAPACITY_UNITS
    assert found["cluster, largest broker lost"].capacity_units == CAPACITY_UNITS
    assert summary.numbers["days_until_capacity"]["cluster"] > 0


def test_the_shape_of_a_day_is_relative_to_the_mean(
    spark: SparkSession, answered: tuple[Path, Summary, Path]
) -> None:
    out, _, _ = answered
    shape = rows(spark, out, "shape")
    assert [row.hour_of_day for row in shape] == list(range(24))
    assert sum(row.relative * row.hours for row in shape) == pytest.approx(HOURS)


def test_the_page_shows_heat_map_and_forecast(answered: tuple[Path, Summary, Path]) -> None:
    out, summary, report = answered
    page = report.read_text()
    assert page.count("<svg") == 2
    assert "When capacity runs out" in page
    assert HOT in page
    assert set(summary.outputs) == {*TABLES, "report"}
    assert all(Path(summary.outputs[table]).is_dir() for table in TABLES)
    assert not list(out.glob(".*"))


async def test_the_capacity_of_ended_sessions_does_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(shards=2)
    history.start_broker(FIRST, capacity_units=70)
    history.start_broker(SECOND, capacity_units=30)
    history.end_broker(FIRST)
    history.end_broker(SECOND)
    history.start_broker(SECOND, capacity_units=50)
    export = open_export(await history.export(tmp_path / "export"))
    found = transform.capacity(transform.used_events(export.events(spark)))
    assert [(row.broker_id, row.units) for row in found.limit(10).collect()] == [(SECOND, 50)]


async def test_what_the_cluster_manager_noted_of_a_grant_does_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Positions of its log have nothing to do with those of the broker's shard."""
    history = History(shards=2)
    session_id = history.start_broker(FIRST, capacity_units=50)
    stale = e.CapacityGranted(broker_id=FIRST, session_id=session_id, units=20)
    for _ in range(10):
        history.add(0, capacity_granted=stale)
    export = open_export(await history.export(tmp_path / "export"))

    found = transform.capacity(transform.used_events(export.events(spark)))

    assert [(row.broker_id, row.units) for row in found.limit(10).collect()] == [(FIRST, 50)]


async def test_segments_of_a_topic_add_up_in_its_name(spark: SparkSession, tmp_path: Path) -> None:
    history = History(shards=2)
    history.start_broker(FIRST)
    segments = ("0000-7fff-0", "8000-ffff-1")
    rates = {f"segment://acme/orders/scaled/{one}": 100.0 for one in segments}
    history.report_load(FIRST, 2, rates)
    export = open_export(await history.export(tmp_path / "export"))

    topics = transform.topic_series(transform.reports(transform.used_events(export.events(spark))))

    (row,) = topics.limit(10).collect()
    assert (row.name, row.bytes_per_second) == ("topic://acme/orders/scaled", 3 * 200.0)


def test_of_many_brokers_those_are_shown_whose_room_ends_first(
    spark: SparkSession, answered: tuple[Path, Summary, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _, _ = answered
    monkeypatch.setattr(job, "BROKERS_SHOWN_MAX", 1)

    forecast = job.shown_rows(spark, out).forecast

    assert {row.scope for row in forecast[:-1]} == set(job.SCOPES)
    assert forecast[-1].scope == FIRST


def test_times_are_utc_wherever_the_machine_is(answered: tuple[Path, Summary, Path]) -> None:
    _, summary, report = answered

    assert summary.numbers["from"] == "2025-11-24T17:00:00+00:00"
    assert "2025-11-24 17:00 to 2025-11-26 16:00 UTC" in report.read_text()


async def test_reports_of_skewed_clocks_are_counted_and_hours_are_the_leaders(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(shards=2)
    history.start_broker(FIRST)
    history.report_load(FIRST, 1, {HOT: 10.0})
    history.report_load(FIRST, 1, {HOT: 10.0})
    for log in history.logs.values():
        for event in log:
            if event.HasField("broker_load_reported") and event.position % 2:
                event.broker_load_reported.load.measured_at_ms += DAY_MS
    export = open_export(await history.export(tmp_path / "export"))
    found = transform.reports(transform.used_events(export.events(spark)))
    rows_ = found.limit(10).collect()
    assert sorted(row.is_skewed for row in rows_) == [False, True]
    assert len({row.hour for row in rows_}) == 1


async def test_an_export_without_load_reports_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    await export_log(FakeLog({1: events(1, 5)}), LocalStore(tmp_path / "export"))
    with pytest.raises(JobRefused, match="no load reports"):
        run(spark, str(tmp_path / "export"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def test_the_plans_join_by_hash_and_scan_what_is_needed(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told()
    export = open_export(await history.export(tmp_path / "export"))
    used = transform.used_events(export.events(spark))
    reports = transform.reports(used)
    brokers = transform.broker_series(reports)
    topics = transform.topic_series(reports)
    statistics = transform.statistics(brokers)
    frames = (
        topics,
        transform.parent_series(topics, transform.TENANT),
        statistics,
        transform.skew(statistics),
        transform.daily_shape(brokers),
        transform.forecast(brokers, transform.capacity(used)),
        transform.shard_activity(export.events(spark)),
    )
    for frame in frames:
        assert unwanted_in(plan_of(frame)) == []
    # Only the columns that are used are read, of the sixty or so that there are.
    scan = plan_of(reports).partition("ReadSchema")[2]
    assert "broker_load_reported" in scan
    assert "topic_assigned" not in scan
