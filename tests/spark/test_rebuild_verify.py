"""A rebuild that is compared with a live cluster, at the cluster's own positions."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import JobRefused
from pipelines.rebuild.as_of import AsOf
from pipelines.rebuild.job import read_table, run
from pipelines.rebuild.report import write_report
from pipelines.rebuild.tables import NAMESPACES, POLICIES, TENANTS, TOPICS
from pipelines.rebuild.verify import DIFFERENCES, run_verified
from pipelines.running.summary import Summary
from protos.nextgen.v1.inventory_pb2 import Item
from tests.support.spark.histories import History
from tests.support.spark.live import FakeCluster, Items, items_of, serving
from tests.support.spark.rebuilds import (
    States,
    in_order,
    random_history,
    rebuilt_rows,
    view_rows,
    view_states,
)
from tests.support.spark.renames import history_of_renames
from tests.support.spark.slot_moves import move_some, owned

BEHIND = 20
"""Events of each shard that the cluster does not have yet, and the export has."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One verification, and what it was of. ``changed`` are the topics that the cluster has not,
    has otherwise, and has besides, each with its shard."""

    summary: Summary
    out: Path
    cluster: FakeCluster
    states: States
    changed: tuple[tuple[int, str], tuple[int, str], tuple[int, str]]


@pytest.fixture(scope="module")
def history() -> History:
    return random_history(seed=2, steps=600, history=history_of_renames())


@pytest.fixture(scope="module")
def export(history: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exported") / "export"
    return asyncio.run(history.export(directory, file_rows=120))


@pytest.fixture(scope="module")
def verified(
    spark: SparkSession, history: History, export: Path, tmp_path_factory: pytest.TempPathFactory
) -> Verified:
    """The cluster is behind the export, two of its streams break off half way, and three of its
    topics are not what events say."""
    directory = tmp_path_factory.mktemp("verified")
    before = {shard: log[:-BEHIND] for shard, log in history.logs.items() if shard}
    states = view_states(before, directory)
    items = items_of(states)
    (lost_in, lost), (other_in, other), *_ = topics_of(items)
    items[lost_in].remove(lost)
    other.topic.version += 1
    invented = Item(kind=other.kind, name="persistent://a/b/invented", topic=other.topic)
    items[other_in].append(invented)
    cluster = FakeCluster(items, {shard: len(log) for shard, log in before.items()})
    cluster.broken_off = 2
    out = directory / "out"
    with serving(cluster) as target:
        summary = run_verified(spark, str(export), out, [target])
    changed = ((lost_in, lost.name), (other_in, other.name), (other_in, invented.name))
    return Verified(summary, out, cluster, states, changed)


def topics_of(items: Items) -> list[tuple[int, Item]]:
    return [(shard, it) for shard, some in items.items() for it in some if it.HasField("topic")]


def test_the_rebuilt_tables_are_the_rows_of_the_shards_views(
    spark: SparkSession, verified: Verified
) -> None:
    expected = in_order(view_rows(verified.states))
    assert all(len(rows) > 1 for rows in expected.values())
    assert in_order(rebuilt_rows(spark, verified.out)) == expected

    said = {
        (row["shard_id"], row["name"]): row["policies_version"]
        for name in (TENANTS, NAMESPACES, TOPICS)
        for row in expected[name]
        if row["policies_version"]
    }
    policies = read_table(spark, verified.out, POLICIES).collect()
    assert {(row["shard_id"], row["name"]): row["policies_version"] for row in policies} == said
    rows = {name: len(some) for name, some in expected.items()} | {POLICIES: len(said)}
    assert verified.summary.numbers["rows"] == rows


def test_all_that_differs_is_named_and_nothing_else(
    spark: SparkSession, verified: Verified
) -> None:
    lost, other, invented = verified.changed
    rows = spark.read.parquet(str(verified.out / DIFFERENCES)).collect()
    assert {(row["shard_id"], row["key"], row["what"]) for row in rows} == {
        (*lost, "the cluster does not have it"),
        (*other, "it differs"),
        (*invented, "the events do not give it"),
    }
    summary = verified.summary
    assert summary.findings_total == len(rows) == summary.numbers["differences"] == 3
    assert summary.numbers["live_items"] == sum(map(len, verified.cluster.items.values()))


def test_slots_that_moved_have_their_whole_history_where_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where the shards are read at positions that do not fit each other."""
    rng = random.Random(5)
    renamed = history_of_renames(between=lambda told: move_some(told, rng))
    history = random_history(5, 600, lambda told: _move_sometimes(told, rng), renamed)
    asyncio.run(history.export(tmp_path / "export", file_rows=200))
    for shard in history.shard_ids:
        del history.logs[shard][len(history.logs[shard]) - rng.randrange(100) :]
    positions = {shard: len(history.logs[shard]) for shard in history.shard_ids}

    run(spark, tmp_path / "export", tmp_path / "out", AsOf(positions=positions))

    states = owned(view_states(history.logs, tmp_path), history)
    expected = in_order(view_rows(states))
    assert sum(map(len, expected.values())) > len(expected) * 3
    assert in_order(rebuilt_rows(spark, tmp_path / "out")) == expected


def _move_sometimes(history: History, rng: random.Random) -> None:
    if rng.random() < 0.02:
        move_some(history, rng)


def test_a_cluster_is_compared_at_its_own_positions_and_every_row_is_accounted_for(
    verified: Verified, history: History
) -> None:
    summary = verified.summary
    positions = verified.cluster.positions
    assert summary.numbers["positions"] == {str(shard): at for shard, at in positions.items()}
    assert summary.rows_accounted["behind_as_of"] > 0
    assert summary.rows_read == sum(summary.rows_accounted.values())
    shard_events = sum(len(log) for shard, log in history.logs.items() if shard)
    cluster_manager_events = len(history.logs[0])
    left_out = summary.numbers["events_not_opened"] - cluster_manager_events
    assert summary.rows_read + left_out == shard_events


def test_the_page_shows_tables_and_differences(
    spark: SparkSession, tmp_path: Path, verified: Verified
) -> None:
    path = tmp_path / "report.html"
    write_report(spark, path, verified.out, verified.summary, verified.out / DIFFERENCES)
    page = path.read_text()
    assert all(name in page for _, name in verified.changed)
    assert "<svg" in page


def test_an_export_that_does_not_reach_the_cluster_is_refused(
    spark: SparkSession, tmp_path: Path, history: History, export: Path
) -> None:
    positions = {shard: len(log) for shard, log in history.logs.items() if shard}
    positions[2] += 1
    cluster = FakeCluster(dict.fromkeys(positions, ()), positions)

    with serving(cluster) as target, pytest.raises(JobRefused, match="export of shard 2 ends at"):
        run_verified(spark, str(export), tmp_path / "out", [target], reached_within_s=0)

    assert not (tmp_path / "out").exists()


def test_an_export_of_another_cluster_is_refused(
    spark: SparkSession, tmp_path: Path, export: Path
) -> None:
    cluster = FakeCluster({1: ()}, {1: 1})
    with serving(cluster) as target, pytest.raises(JobRefused, match="another cluster's"):
        run_verified(spark, str(export), tmp_path / "out", [target], reached_within_s=0)
