"""Audits of exports that are right, and of ones in which each promise is broken by itself."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

from nextgen.audit.slot_legs import SlotMove, legs_of
from nextgen.export.format.columns import EventColumns
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.kernel.routing.hashing import slot_of
from pipelines.audit.export_files import look_at
from pipelines.audit.facts import facts_of
from pipelines.audit.finding import RULES, Basis
from pipelines.audit.job import LAG_S, audited_events, cached, run
from pipelines.audit.report import write_report
from pipelines.audit.rules import places
from pipelines.audit.rules.slot_homes import home_findings, moved_findings
from pipelines.audit.transform import Clocks, MovedSlots, rule_findings
from protos.nextgen.v1.events_pb2 import ShardChanged, SlotRun, TenantCreated
from tests.support.logs.export_logs import FakeLog
from tests.support.spark.breakages import LOG_BREAKAGES
from tests.support.spark.broken.file_breakages import FILE_BREAKAGES
from tests.support.spark.broken.layout_breakages import tell_layouts
from tests.support.spark.broken.log_breakages import history_with_map
from tests.support.spark.histories import PAID, tell_shadows, told_history
from tests.support.spark.plans import plan_of, unwanted_in
from tests.support.spark.renames import tell_renames
from tests.support.spark.side_by_side import SHARDS_APART, Place, side_by_side
from tests.support.spark.slot_moves import MOVE_RULES, move_some

PLANNED_ONCE = {"spark.sql.adaptive.enabled": "false"}
INTERPRETED = PLANNED_ONCE | {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of a few hundred events: to compile the rules would take most of the time."""


def test_each_broken_promise_is_one_finding_that_names_its_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One audit of all histories side by side, of events read once; the first of them is right."""
    histories = [history_with_map() for _ in range(len(LOG_BREAKAGES) + 1)]
    histories[0].assign(PAID, "broker-3", reason="epoch_used", used_epoch=9)
    histories[0].epochs[histories[0].ids[PAID], ""] = (3 << GENERATION_BITS) - 1
    histories[0].assign(PAID, "broker-1", reason="moved")
    tell_layouts(histories[0])
    tell_shadows(histories[0])
    tell_renames(histories[0], "broker-2")
    named = [
        breakage.spoil(history)
        for breakage, history in zip(LOG_BREAKAGES, histories[1:], strict=True)
    ]
    told = side_by_side(histories)
    events = [event for _, log in sorted(told.logs.items()) for event in log]
    pq.write_table(EventColumns().table(events), tmp_path / "events.parquet")
    settled_ms = max(event.time_ms for event in events) - LAG_S * 1_000
    facts = facts_of(spark.read.parquet(str(tmp_path / "events.parquet")))
    with settings(spark, INTERPRETED), cached(facts) as kept:
        clocks = Clocks(settled_ms, LAG_S * 1_000)
        rules = rule_findings(kept, clocks, MovedSlots(spark), has_ledger=True)
        all_rules = rules.unionByName(places.terms_back(places.blocks_of(kept))).limit(1_000)
        plan, read_by_rules = plan_of(all_rules), leaves(all_rules)
        rows = all_rules.collect()
    found: dict[int, list[tuple[str, Place, Place | None]]] = defaultdict(list)
    for row in rows:
        event = (row.shard_id, row.position)
        found[told.history_at(event)].append((row.rule, event, other_of(row)))

    assert unwanted_in(plan, hashes=1) == []
    assert "SortAggregate" not in plan
    assert set(read_by_rules) == {"InMemoryTableScanExec"}
    assert found.pop(0, []) == []
    for number, breakage in enumerate(LOG_BREAKAGES, start=1):
        event, other = map(told.place_of, named[number - 1])
        of_rule = [each for each in found[number] if each[0] not in breakage.also]
        assert of_rule == [(breakage.rule, event, other)], breakage.name
        assert {rule for rule, *_ in found[number]} == {breakage.rule, *breakage.also}


def test_a_slot_is_at_home_where_a_change_of_the_map_put_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = history_with_map()
    elsewhere = history.home("stray") % len(history.shard_ids) + 1
    slot = slot_of("stray")
    history.add(elsewhere, tenant_created=TenantCreated(tenant_id="ab" * 12, name="stray"))
    moved = SlotRun(first=slot, last=slot, shard_id=elsewhere)
    found = []
    with settings(spark, INTERPRETED):
        for version, slots in ((2, []), (3, [moved])):
            history.add(0, shard_changed=ShardChanged(version=version, slots=slots))
            path = tmp_path / f"{version}.parquet"
            events = [event for _, log in sorted(history.logs.items()) for event in log]
            pq.write_table(EventColumns().table(events), path)
            facts = facts_of(spark.read.parquet(str(path)))
            found.append([row.rule for row in home_findings(facts).collect()])

    assert found == [["wrong_shard"], []]


async def test_damaged_files_are_found_and_what_follows_from_them_is_doubted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One export of many shards, each with files that are spoilt in another way."""
    breakages = [each for each in FILE_BREAKAGES if not each.is_whole]
    histories = [history_with_map() for _ in range(-(-len(breakages) // SHARDS_APART))]
    logs = side_by_side(histories).logs
    export, out = tmp_path / "export", tmp_path / "out"
    await export_log(FakeLog(logs), LocalStore(export))
    expected = {
        place
        for shard_id, each in enumerate(breakages, 1)
        for place in each.spoil(export, shard_id)
    }

    with settings(spark, INTERPRETED):
        summary, result = run(spark, export, out=out)
    write_report(tmp_path / "audit.html", summary, result)
    rows = spark.read.parquet(str(out / "findings")).limit(1_000).collect()
    found = {f"{row.rule}: {row.shard_id}:{row.position}" for row in rows if not row.is_doubtful}
    found |= {f"{each.rule}: {each.path}" for each in result.source.findings}

    assert found == expected
    assert {row.rule for row in rows if row.is_doubtful} == set(result.doubtful)
    assert {RULES[rule][0] for rule in result.doubtful} <= {Basis.SHARD, Basis.ALL_SHARDS}
    assert summary.findings_total == len(expected)
    assert summary.numbers["rows_missing"] > 0
    assert summary.numbers["rows_surplus"] == 0
    page = (tmp_path / "audit.html").read_text()
    assert "the file holds events of another shard" in page


async def test_a_right_export_passes_and_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """Also one in which slots have moved between shards, with units whose owners change."""
    history = told_history()
    rng = random.Random(3)
    for broker_id in ("broker-1", "broker-3") * 3:
        move_some(history, rng)
        history.assign(PAID, broker_id, reason="moved")
    tell_renames(history, "broker-1", lambda: move_some(history, rng))
    export = await history.export(tmp_path / "export")
    facts = facts_of(audited_events(spark, look_at(export)))
    with settings(spark, PLANNED_ONCE):
        plan, scans = plan_of(facts), leaves(facts)
        of_files = plan_of(places.files_read(facts))
    summary, result = run(spark, export)

    assert scans == ["FileSourceScanExec"]
    assert "Exchange" not in plan
    assert unwanted_in(plan) + unwanted_in(of_files) == []
    assert "SortAggregate" not in plan + of_files
    assert (summary.is_ok, result.notes()) == (True, [])
    assert summary.rows_in == summary.rows_read == history.rows


def test_slots_that_moved_are_judged_by_where_they_were(spark: SparkSession) -> None:
    """Slot 7 left shard 1 at position 10 and came to shard 2 by position 4."""
    moved = SlotMove(1, ((7, 7),), 1, 10, 2, 4)
    from_nowhere = SlotMove(2, ((7, 7),), 3, 1, 1, 40)
    places = [(1, 3), (1, 10), (1, 11), (2, 3), (2, 4), (2, 90), (3, 5)]
    facts = spark.createDataFrame(
        [(shard_id, position, 7) for shard_id, position in places] + [(0, 1, 7), (3, 6, 8)],
        "shard_id int, position long, slot int",
    )
    found = [
        (row.rule, row.shard_id, row.position)
        for frame in moved_findings(spark, facts, legs_of([moved, from_nowhere]))
        for row in frame.collect()
    ]

    assert sorted(found) == [
        ("decided_elsewhere", 1, 11),
        ("decided_elsewhere", 2, 3),
        ("decided_elsewhere", 3, 5),
        ("move_from_nowhere", 1, 40),
    ]
    assert {rule for rule, *_ in found} == MOVE_RULES


def test_holes_crowds_terms_and_clocks_are_found_by_position(spark: SparkSession) -> None:
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


def other_of(row: Row) -> Place | None:
    return None if row.other_position is None else (row.other_shard_id, row.other_position)


def leaves(frame: DataFrame) -> list[str]:
    found: Any = frame._jdf.queryExecution().executedPlan().collectLeaves()
    names = [found.apply(place).getClass().getSimpleName() for place in range(found.size())]
    return [name for name in names if name != "ReusedExchangeExec"]


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            spark.conf.set(name, known or "")
