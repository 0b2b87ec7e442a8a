"""Audits of exports that are right, and of ones in which each promise is broken once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from nextgen.export.local_store import LocalStore
from nextgen.export.run import export_log
from pipelines.audit import places
from pipelines.audit.export_files import look_at
from pipelines.audit.facts import facts_of
from pipelines.audit.finding import RULES
from pipelines.audit.job import audited_events, run
from pipelines.audit.report import write_report
from pipelines.audit.transform import Clocks, rule_findings
from tests.support.export_logs import FakeLog
from tests.support.spark_breakages import (
    FILE_BREAKAGES,
    LOG_BREAKAGES,
    SHARDS_APART,
    side_by_side,
)
from tests.support.spark_histories import told_history

FORBIDDEN = (
    "BatchEvalPython",
    "ArrowEvalPython",
    "MapInPandas",
    "CartesianProduct",
    "BroadcastNestedLoopJoin",
    "SortAggregate",
)


async def test_each_broken_promise_is_found_in_its_own_shards_and_nowhere_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first history is right."""
    histories = [told_history() for _ in range(len(LOG_BREAKAGES) + 1)]
    for history, breakage in zip(histories[1:], LOG_BREAKAGES, strict=True):
        breakage.spoil(history)
    logs = side_by_side(histories)
    export, out = tmp_path / "export", tmp_path / "out"
    await export_log(FakeLog(logs), LocalStore(export))

    summary, result = run(spark, export, out=out)
    write_report(tmp_path / "audit.html", summary, result)
    rules_at: dict[int, set[str]] = {}
    for row in spark.read.parquet(str(out / "findings")).limit(1_000).collect():
        assert not row.is_doubtful
        assert 1 <= row.position <= len(logs[row.shard_id])
        rules_at.setdefault(row.shard_id, set()).add(row.rule)
    found = {
        place: set[str]().union(
            *(rules for shard, rules in rules_at.items() if shard and shard // 10 == place)
        )
        for place in range(len(histories))
    }

    assert summary.rows_in == summary.rows_read == sum(map(len, logs.values()))
    assert found[0] == set()
    assert rules_at[0] == {"lease_overdraft", "window_not_later"}
    for place, breakage in enumerate(LOG_BREAKAGES, start=1):
        assert breakage.rule in found[place] | rules_at[0], breakage.name
    assert result.source.findings == []
    assert summary.findings_total == sum(result.by_rule.values()) >= len(LOG_BREAKAGES)
    assert {row.rule for row in result.shown} >= {each.rule for each in LOG_BREAKAGES}
    assert any(name.startswith("topic_assigned persistent://h1") for name in result.names.values())
    page = (tmp_path / "audit.html").read_text()
    assert "two live owners" in page
    assert SHARDS_APART == 10


async def test_damaged_files_are_found_and_what_follows_from_them_is_doubted(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = await told_history().export(tmp_path / "export")
    spoil = {each.rule: each.spoil for each in FILE_BREAKAGES}
    # Two days each: files 0 and 1 are of shard 0, 2 and 3 of shard 1, ...
    for rule, place in (("hash", 1), ("gap", 2), ("duplicate_position", 4), ("size", 7)):
        spoil[rule](export, place)
    spoil["wrong_shard"](export, 6)

    summary, result = run(spark, export)

    rules = {"hash", "gap", "duplicate_position", "size", "wrong_shard", "rows_differ"}
    assert rules <= result.rules_broken
    assert set(result.by_rule) <= {rule for rule, (basis, _) in RULES.items() if basis == "event"}
    assert summary.numbers["rows_missing"] > 0
    assert summary.numbers["rows_surplus"] == 1
    assert not summary.is_ok


async def test_a_right_export_passes_and_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    export = await told_history().export(tmp_path / "export")
    facts = facts_of(audited_events(spark, look_at(export)))
    scans = leaves(facts)
    with adaptive_off(spark):
        cached = facts.persist()
        rules = rule_findings(cached, Clocks(2**60, 0), has_ledger=True)
        blocks = places.blocks_of(cached)
        plans = [plan_of(rules), plan_of(blocks), plan_of(places.files_read(cached))]
        read_by_rules = leaves(rules)
        found = rules.limit(10).collect()
        cached.unpersist()

    assert scans == ["FileSourceScanExec"]
    assert "Exchange" not in plan_of(facts)
    assert set(read_by_rules) <= {"InMemoryTableScanExec"}
    assert [word for word in FORBIDDEN for plan in plans if word in plan] == []
    # The one that a settled time of never allows: nothing else is said of a right history.
    assert {row.rule for row in found} <= {"ended_session"}


def test_holes_crowds_terms_and_clocks_are_told_by_position(spark: SparkSession) -> None:
    """Shard 1 lacks 3, 70 to 199 and its end, has 5 twice, and 201 of an earlier term and hour."""
    there = [*range(1, 3), *range(4, 70), *range(200, 300), 5]
    late = {201: (1, 1_000_000 - 3_600_000)}
    facts = spark.createDataFrame(
        [
            (1, position, *late.get(position, (1 + position // 100, 1_000_000 + position)))
            for position in there
        ],
        "shard_id int, position long, term long, time_ms long",
    )
    gaps = [(1, 80, 199), (2, 1, 10)]
    accepted = spark.createDataFrame(gaps[:1], places.GAP_SCHEMA)
    promised = spark.createDataFrame([(1, 1, 310), (2, 1, 2)], places.GAP_SCHEMA)
    blocks = places.blocks_of(facts).cache()
    holes = places.holes_of(blocks, accepted, promised)
    doubled = places.duplicates_of(facts, places.crowded_blocks(blocks))
    clock = places.clocks_of(blocks).first()
    terms = places.terms_back(blocks).limit(10).collect()

    assert sorted(tuple(row) for row in holes.limit(10).collect()) == [
        (1, 3, 3),
        (1, 70, 79),
        (1, 300, 310),
        (2, 1, 2),
    ]
    assert [(row.position, row.found) for row in doubled.limit(10).collect()] == [(5, 2)]
    assert [(row.rule, row.position, row.other_position) for row in terms] == [
        ("term_back", 201, 200)
    ]
    assert clock is not None
    assert (clock.time_back_ms, clock.back_at) == (3_600_069, 200)
    blocks.unpersist()


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def leaves(frame: DataFrame) -> list[str]:
    found: Any = frame._jdf.queryExecution().executedPlan().collectLeaves()
    names = [found.apply(place).getClass().getSimpleName() for place in range(found.size())]
    return [name for name in names if name != "ReusedExchangeExec"]


@contextmanager
def adaptive_off(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")
