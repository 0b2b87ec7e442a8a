"""Availability from recorded windows: what the live meter says, and what becomes of every row."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from nextgen.cli.observability.slo_command import Objective, objective_of
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.kernel.governance.lookup_slo import LATENCY_CLASSES, LOOKUP_WINDOW_MS, LookupWindow
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.slo import job
from pipelines.slo.model import Question
from pipelines.slo.transform import (
    CLUSTER,
    days_of,
    minutes_of,
    months_of,
    ownership_changes,
    ownership_events,
    with_bad_minutes,
)
from pipelines.slo.windows import classified, recorded_windows
from protos.nextgen.v1 import events_pb2 as e
from tests.support.logs.export_logs import FakeLog
from tests.support.spark.plans import plan_of, unwanted_in

MINUTE_MS = LOOKUP_WINDOW_MS
NOVEMBER_MS = 1_793_491_200_000
"""2026-11-01 00:00 UTC."""

FAST = (100, *[0] * (LATENCY_CLASSES - 1))
SLOW = (*[0] * (LATENCY_CLASSES - 2), 5, 0)
STUCK = (*[0] * (LATENCY_CLASSES - 1), 2)

RECORDED = (
    "position long, recorded_at_ms long, node_id string, process string, began_at_ms long, "
    "recorded_lookups long, recorded_errors long, recorded_too_slow long, "
    "latency_counts array<long>, "
    "told_bad boolean"
)


def window(
    minute: int = 0,
    node: str = "d1",
    process: str = "w1-0",
    errors: int = 0,
    counts: tuple[int, ...] = FAST,
) -> LookupWindow:
    return LookupWindow(node, process, NOVEMBER_MS + minute * MINUTE_MS, errors, counts)


def frame_of(spark: SparkSession, windows: Sequence[LookupWindow]) -> DataFrame:
    """Return windows as ``recorded_windows`` gives them, recorded in this order."""
    rows = [
        (
            *(position, each.began_at_ms + MINUTE_MS + 2_000, each.node_id, each.process),
            *(each.began_at_ms, each.lookups, each.errors, each.too_slow),
            *(list(each.latency_counts), each.is_bad),
        )
        for position, each in enumerate(windows, start=1)
    ]
    return spark.createDataFrame(rows, RECORDED)


# The live meter ---------------------------------------------------------------------------------


@st.composite
def near_the_bounds(draw: st.DrawFn) -> tuple[int, tuple[int, ...]]:
    """Draw errors and latencies of which some bound is just met, or just missed."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    lookups = draw(st.sampled_from([1, 2, 99, 100, 101, 200, 1_000, 999_999]))
    slow = min(lookups, max(0, lookups // 100 + draw(st.integers(-1, 1))))
    stuck = draw(st.sampled_from([0, 0, 0, 1]))
    counts = [0] * LATENCY_CLASSES
    counts[-1] = min(stuck, slow)
    counts[chance.randrange(10, 12)] += slow - counts[-1]
    counts[chance.randrange(10)] += lookups - slow
    errors = min(lookups, max(counts[-1], lookups // 100 + draw(st.integers(-1, 1))))
    return errors, tuple(counts)


WINDOWS = st.lists(
    st.builds(
        lambda node, process, minute, told: window(minute, node, process, told[0], told[1]),
        st.sampled_from(["d1", "d2", "d3"]),
        st.sampled_from(["w1-0", "w2-0"]),
        st.integers(0, 40),
        near_the_bounds(),
    ),
    max_size=120,
)


def told(found: Objective) -> list[tuple[object, ...]]:
    merged = [("", each) for each in found.cluster]
    merged += [(node, each) for node, windows in found.nodes.items() for each in windows]
    return [
        (
            *(node, each.began_at_ms, each.errors, list(each.latency_counts), each.lookups),
            *(each.too_slow, each.is_bad, each.why_bad),
            *(_finite(each.quantile_ms(50)), _finite(each.quantile_ms(99))),
        )
        for node, each in sorted(merged, key=lambda one: (one[0], one[1].began_at_ms))
    ]


def _finite(quantile_ms: float) -> float | None:
    return None if quantile_ms == float("inf") else quantile_ms


MINUTE_COLUMNS = (
    *("node_id", "began_at_ms", "errors", "latency_counts", "lookups"),
    *("too_slow", "is_bad", "why_bad", "p50_ms_at_most", "p99_ms_at_most"),
)


@settings(max_examples=3, deadline=None)
@given(windows=WINDOWS, since=st.integers(0, 20))
def test_minutes_are_those_of_the_live_meter_whatever_was_recorded(
    spark: SparkSession, windows: list[LookupWindow], since: int
) -> None:
    """Minutes of several processes and nodes, many recorded twice, at and beside each bound."""
    since_ms = NOVEMBER_MS + since * MINUTE_MS

    minutes = minutes_of(classified(frame_of(spark, windows), since_ms=since_ms))

    rows = minutes.select(*MINUTE_COLUMNS).orderBy("node_id", "began_at_ms").collect()
    assert [tuple(row) for row in rows] == told(objective_of(windows, since_ms))


# Days and months --------------------------------------------------------------------------------


def judged_by(spark: SparkSession, windows: Sequence[LookupWindow]) -> DataFrame:
    return minutes_of(classified(frame_of(spark, windows)))


def test_a_month_has_an_error_budget_by_its_minutes_and_by_the_calendar(
    spark: SparkSession,
) -> None:
    """d1 has just as many bad minutes as the objective allows, d2 has one more."""
    november = 30 * 24 * 60
    minutes = judged_by(
        spark,
        [
            *(window(n, "d1", *(() if n else ("w", 2, STUCK))) for n in range(1_000)),
            *(window(n, "d2", *(() if n > 1 else ("w", 2, STUCK))) for n in range(1_000)),
            window(november - 1, "d3", counts=STUCK, errors=2),
            window(november, "d3", counts=STUCK, errors=2),
        ],
    )

    months = {(row["node_id"], row["month"]): row for row in months_of(minutes, 99.9).collect()}
    days = days_of(minutes, 99.9).where(f"node_id = '{CLUSTER}'").orderBy("day").collect()

    assert (months["d1", "2026-11"]["is_met"], months["d2", "2026-11"]["is_met"]) == (True, False)
    row = months[CLUSTER, "2026-11"]
    assert (row["minutes"], row["bad_minutes"], row["calendar_minutes"]) == (1_001, 3, november)
    assert row["availability_per_cent"] == pytest.approx(100 - 100 * 3 / 1_001)
    assert row["budget_burned_per_cent"] == pytest.approx(100 * 3 / 1.001)
    assert row["calendar_budget_minutes"] == pytest.approx(43.2)
    assert row["calendar_budget_burned_per_cent"] == pytest.approx(100 * 3 / 43.2)
    assert (row["is_met"], row["p99_ms_at_most"]) == (False, 1)
    december = months[CLUSTER, "2026-12"]
    assert (december["errors"], december["too_slow"], december["p99_ms_at_most"]) == (2, 2, None)

    assert [str(row["day"]) for row in days] == ["2026-11-01", "2026-11-30", "2026-12-01"]
    assert [row["bad_minutes_of_month"] for row in days] == [2, 3, 1]
    assert days[1]["budget_left_per_cent"] == pytest.approx(100 - 100 * 3 / 43.2)


# The whole job ----------------------------------------------------------------------------------


class Logs:
    """Events of shards, dense from 1; the time of each is said."""

    def __init__(self) -> None:
        self.logs: dict[int, list[e.Event]] = {}

    def add(self, shard_id: int, time_ms: int, **payload: object) -> None:
        log = self.logs.setdefault(shard_id, [])
        event = e.Event(
            position=len(log) + 1, term=1, shard_id=shard_id, time_ms=time_ms, schema_version=1
        )
        for name, value in payload.items():
            getattr(event, name).CopyFrom(value)
        log.append(event)

    def record(self, each: LookupWindow, delay_ms: int = 2_000, **changed: object) -> None:
        fields: dict[str, object] = {
            "node_id": each.node_id,
            "process": each.process,
            "began_at_ms": each.began_at_ms,
            "lookups": each.lookups,
            "errors": each.errors,
            "too_slow": each.too_slow,
            "latency_counts": each.latency_counts,
            "is_bad": each.is_bad,
            "why_bad": each.why_bad,
        }
        recorded = e.LookupWindowRecorded(**(fields | changed))  # type: ignore[arg-type]
        time_ms = each.began_at_ms + MINUTE_MS + delay_ms
        self.add(0, time_ms, lookup_window_recorded=recorded)

    def assign(self, name: str, minute: int, epoch: int, reason: str) -> None:
        assigned = e.TopicAssigned(
            topic_id=name, name=f"persistent://acme/orders/{name}", epoch=epoch, reason=reason
        )
        self.add(1, NOVEMBER_MS + minute * MINUTE_MS + 30_000, topic_assigned=assigned)

    async def export(self, directory: Path) -> Path:
        await export_log(FakeLog(self.logs), LocalStore(directory))
        return directory


def a_bad_day() -> Logs:
    """Two nodes, one of two processes; minute 2 is bad when a broker is lost."""
    made = Logs()
    made.add(0, NOVEMBER_MS, node_registered=e.NodeRegistered(node_id="d1", kind="discovery"))
    for minute in range(4):
        counts = SLOW if minute == 2 else FAST
        made.record(window(minute, "d1", "w1-0", counts=counts))
        made.record(window(minute, "d1", "w2-0"))
        made.record(window(minute, "d2"), delay_ms=300_000 if minute == 3 else 2_000)
    for number in range(3):
        made.assign(f"t{number}", 0, 1, "first_lookup")
    made.assign("t1", 2, 2, "broker_lost")
    made.assign("t2", 2, 2, "broker_lost")
    ended = e.TopicUnassigned(name="persistent://acme/orders/t1", epoch=2, reason="idle")
    made.add(1, NOVEMBER_MS + 2 * MINUTE_MS + 59_999, topic_unassigned=ended)
    made.assign("t1", 3, 3, "first_lookup")
    made.add(1, NOVEMBER_MS + 3 * MINUTE_MS, tenant_created=e.TenantCreated(name="acme"))
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "slo"


async def test_every_row_is_accounted_for_and_tables_and_page_say_what_was_bad(
    spark: SparkSession, tmp_path: Path, out: Path
) -> None:
    """The page and the tables are about four minutes; a fifth is not asked for."""
    made = a_bad_day()
    made.record(window(4, counts=STUCK, errors=2))
    export = await made.export(tmp_path / "export")
    asked = Question(until_ms=NOVEMBER_MS + 4 * MINUTE_MS, is_checked=True)

    summary = job.run(spark, str(export), out, asked, report=tmp_path / "slo.html")

    assert (summary.rows_in, summary.rows_read) == (22, 22)
    assert summary.rows_accounted == {
        "other events of the cluster manager": 1,
        "windows that count": 12,
        "windows outside the asked time": 1,
        "repeated windows": 0,
        "windows that cannot be": 0,
        "ownership changes in bad minutes": 3,
        "ownership changes in other minutes": 4,
        "other events of shards": 1,
    }
    assert summary.findings == [
        "2026-11: 1 of 4 minutes were bad, 75.000 % were good, the objective is 99.9 %"
    ]
    assert summary.numbers["availability_per_cent"] == 75.0
    assert (summary.numbers["bad_minutes"], summary.numbers["bad_minutes_of_nodes"]) == (1, 1)
    (late,) = summary.numbers["notes"]
    assert late.startswith("1 windows were recorded more than 60 s late, up to 300 s")

    worst = read(spark, out, "worst_minutes").orderBy("rank").collect()
    assert [(row["node_id"], row["changes"]) for row in worst] == [("d1", 3), (CLUSTER, 3)]
    assert worst[0]["why_bad"] == "p99 above 1000 ms: 5 of 105 were slower"
    topics = read(spark, out, "topics").orderBy("name").collect()
    assert [(row["name"][-2:], row["changes"], row["reassigned"]) for row in topics] == [
        *(("t1", 2, 1), ("t2", 1, 1)),
    ]

    page = (tmp_path / "slo.html").read_text()
    assert summary.outputs["report"] == str(tmp_path / "slo.html")
    assert page.count("<svg") == 3
    for text in ("Lookups are not recorded by topic", "75.0 % good", "acme/orders/t1", "2026-11"):
        assert text in page
    json.dumps(summary.as_dict())


async def test_what_should_not_be_in_the_log_is_found_by_its_position_and_not_counted(
    spark: SparkSession, tmp_path: Path, out: Path
) -> None:
    made = Logs()
    made.add(0, NOVEMBER_MS, node_registered=e.NodeRegistered(node_id="lost"))
    made.record(window(0))
    made.record(window(0, counts=STUCK, errors=2))
    made.record(window(1), lookups=99)
    made.record(window(2), latency_counts=[1, 2])
    made.record(window(3), errors=101)
    made.record(window(4), latency_counts=[2**63 - 1] * LATENCY_CLASSES, lookups=2**64 - 1)
    made.record(window(5), is_bad=True)
    made.record(window(6), began_at_ms=NOVEMBER_MS + 1)
    made.record(window(7), delay_ms=-90_000)
    made.assign("t1", 0, 1, "first_lookup")
    log = FakeLog(made.logs)
    log.cut(0, 2)
    await export_log(log, LocalStore(tmp_path / "export"), accept_gap=True)

    summary = job.run(spark, str(tmp_path / "export"), out)

    assert summary.rows_accounted["windows that count"] == 3
    assert summary.rows_accounted["repeated windows"] == 1
    assert summary.rows_accounted["windows that cannot be"] == 5
    assert (summary.findings_total, summary.is_ok) == (7, False)
    ends = [
        "0:3: the window 1793491200000 of d1 w1-0 repeats position 2",
        "says 99 lookups, 0 of them too slow; its classes have 100 and 0",
        "has 2 classes of latency, not 13",
        "has 101 errors of 100 lookups, of which 0 took too long",
        "has 9223372036854775807 lookups, 1 to 1000000000 are possible",
        "was recorded as a bad one, and is the other",
        "does not begin with a minute",
    ]
    for sentence, end in zip(summary.findings, ends, strict=True):
        assert sentence.endswith(end), sentence
    assert summary.numbers["bad_minutes"] == 0
    assert summary.rows_accounted["ownership changes in other minutes"] == 1
    gap, early = summary.numbers["notes"]
    assert gap.startswith("positions 1 to 1 of the cluster manager's log were not exported")
    assert early.startswith("1 windows were recorded before their minute was over, up to 90.0 s")


async def test_a_log_without_windows_and_without_shards_is_accounted_for_too(
    spark: SparkSession, tmp_path: Path, out: Path
) -> None:
    made = Logs()
    made.add(0, NOVEMBER_MS, node_registered=e.NodeRegistered(node_id="d1"))
    export = await made.export(tmp_path / "export")

    summary = job.run(spark, str(export), out, report=tmp_path / "slo.html")

    assert summary.rows_accounted["other events of the cluster manager"] == 1
    assert (summary.numbers["minutes"], summary.numbers["availability_per_cent"]) == (0, 100.0)
    assert "<svg" not in (tmp_path / "slo.html").read_text()


async def test_an_export_without_the_cluster_managers_log_is_refused(
    spark: SparkSession, tmp_path: Path, out: Path
) -> None:
    made = a_bad_day()
    del made.logs[0]
    export = await made.export(tmp_path / "export")

    with pytest.raises(JobRefused, match=r"no log of the cluster manager \(shard 0\)"):
        job.run(spark, str(export), out)

    assert not out.exists()


async def test_the_plans_read_each_file_once_and_run_no_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = open_export(await a_bad_day().export(tmp_path / "export"))
    managers = export.manifest.shards[0].files
    windows = classified(recorded_windows(export.events(spark, managers)))
    windows_plan = plan_of(windows)
    minutes = minutes_of(frame_plan_cut(spark, windows))
    shards = export.events(spark, export.manifest.shards[1].files)
    changes = ownership_changes(with_bad_minutes(ownership_events(shards), minutes))

    plans = {"windows": windows_plan, "minutes": plan_of(minutes), "changes": plan_of(changes)}

    for plan in plans.values():
        assert unwanted_in(plan) == []
        assert "SortAggregate" not in plan
    assert plans["windows"].count("FileScan") == 1
    assert plans["changes"].count("FileScan") == 1
    assert "BroadcastHashJoin" in plans["changes"]
    # Columns that no rule asks for stay unread.
    assert "causation_id" not in plans["changes"]
    assert "decision" not in plans["changes"]


def frame_plan_cut(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return the rows as the job reads them back: what they were made of is over."""
    return spark.createDataFrame(frame.collect(), frame.schema)


def read(spark: SparkSession, out: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(out / name))
