"""An inventory of names becomes load files: the right names, once each, where they belong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from nextgen.bulk.blocks import read_column
from nextgen.bulk.manifest import check_files, read_load_manifest
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.kernel.routing.slots import initial_table
from pipelines.bulk import job
from pipelines.bulk.names import REASONS, canonical_name, refusal
from pipelines.bulk.report import write_report
from pipelines.bulk.transform import distinct_by_shard, placed, validated
from pipelines.columns.slots import slot_owners
from pipelines.errors import JobRefused
from shards.domain.topic import check_creatable
from tests.support.spark.plans import plan_of, unwanted_in

TABLE = initial_table((1, 2, 3))

ODD_PIECES = (
    *("persistent", "non-persistent", "PERSISTENT", "topic", "segment", "kafka", "", "://", ":/"),
    *("/", "//", ":", ".", "..", "-partition-", "-partition-0", "-partition-01", "0", "7", "-1"),
    *("-partition-2147483647", "-partition-2147483648", "-partition-99999999999999999999"),
    *(
        "acme",
        "orders",
        "a=b",
        "x.y:z",
        "a b",
        " ",
        "\u00a0",
        "\u2003",
        "\u3000",
        "\u00e9",
        "\u017f",
    ),
    *("\t", "\x00", "\x7f", "\x85", "\u2028", "%", "#", "\U0001f600", "K", "e" * 255, "l" * 1_020),
)


def odd_names(count: int) -> list[str]:
    """Return texts made of what the rules look at, most of them nearly names."""
    chance = random.Random(8)
    names = ["", "x", "t/n/x", "t/x", "a/b/c/d", "persistent://t/n/x\n", "t/n/" + "é" * 512]
    names += ["topic://t/n/a/b", "topic://t/n/a//b", "topic://t/n/a/./b", "topic://t/n/a/"]
    names += ["t/n/" + "é" * 513, "p" * 2_048, "p" * 2_049, "t" * 256 + "/n/x"]
    while len(names) < count:
        pieces = [chance.choice(ODD_PIECES) for _ in range(chance.randint(1, 4))]
        domain = chance.choice(
            ("persistent://", "non-persistent://", "Persistent://", "topic://", "Topic://", "")
        )
        kind = chance.randrange(3)
        if kind == 0:
            names.append("".join(pieces))
        elif kind == 1:
            names.append(f"{domain}acme/orders/{''.join(pieces)}")
        else:
            parts = [*pieces, "acme", "orders", "x"][:3]
            names.append(domain + "/".join(parts))
    return names


def ruled(text: str) -> str | None:
    """Return what the shards say: the canonical name, None for what cannot be a topic."""
    try:
        name = parse_topic(text)
    except InvalidName:
        return None
    return name.base_text if check_creatable(name, 0, ()) is None else None


def write_names(path: Path, names: Sequence[str | None]) -> Path:
    pyarrow.parquet.write_table(
        pyarrow.table({"name": pyarrow.array(names, pyarrow.string())}), path
    )
    return path


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 names in 20 namespaces, 100 of them twice in two spellings, five that are none."""
    names: list[str | None] = [f"persistent://t{n % 4}/n{n % 20}/x-{n:05d}" for n in range(3_000)]
    names += [f"t{n % 4}/n{n % 20}/x-{n:05d}" for n in range(100)]
    names += [None, "", "a/b", "segment://t/n/x/0000-ffff-0", "t/n/x-partition-3"]
    random.Random(3).shuffle(names)
    return write_names(tmp_path_factory.mktemp("inventory") / "names.parquet", names)


@pytest.fixture(scope="module")
def made(spark: SparkSession, inventory: Path) -> job.BulkResult:
    """What the job made of the inventory; in files of about 500 names."""
    return job.run(spark, str(inventory), inventory.parent / "out", TABLE, rows_per_file=500)


def names_of(folder: Path) -> dict[int, list[str]]:
    """Return the names of each shard in the order of its files."""
    manifest = read_load_manifest(folder)
    return {
        shard_id: [name for part in read_column(folder, files, "name") for name in part]
        for shard_id, files in manifest.shards.items()
    }


def test_every_name_is_in_its_shard_once_and_ascending(
    made: job.BulkResult, inventory: Path
) -> None:
    out = inventory.parent / "out"
    assert made.summary.is_ok
    assert made.summary.rows_accounted == {"topics": 3_000, "duplicates": 100, "rejected": 5}
    found = names_of(out)
    assert sum(map(len, found.values())) == 3_000
    for shard_id, names in found.items():
        assert names == sorted(set(names))
        homes = {TABLE.shard_for_key(parse_topic(name).routing_key) for name in names}
        assert homes == {shard_id}
    manifest = read_load_manifest(out)
    check_files(out, manifest)
    assert manifest.table == TABLE
    assert (manifest.topics, manifest.duplicates, manifest.rejects) == (3_000, 100, 5)
    assert len(manifest.shards[1]) > 1, "files of one shard were to follow each other"
    parents = [one for part in read_column(out, manifest.namespaces, "namespace") for one in part]
    assert parents == sorted({f"t{n % 4}/n{n % 20}" for n in range(20)})
    rejects = pyarrow.parquet.read_table(out / "rejects").to_pylist()
    assert len(rejects) == 5
    assert {"given": "a/b", "reason": "not of three parts"} in rejects
    assert not (out / ".staged").exists()


def test_the_same_names_give_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    number = f.col("id")
    names = spark.range(2_000).select(
        (1 + number % 3).cast("int").alias("shard_id"),
        f.concat(f.lit("persistent://t/n/"), (number % 1_500).cast("string")).alias("name"),
    )
    made = []
    for order, frame in enumerate((names, names.orderBy(f.desc("name")).repartition(5))):
        folder = tmp_path / str(order)
        folder.mkdir()
        made.append(job.write_load_files(frame, folder, 8, 200))
    shards, duplicates = made[0]
    assert made[1] == made[0]
    assert duplicates == 500
    assert [len(files) for files in shards.values()] == [3, 3, 3]
    assert sum(file.rows for files in shards.values() for file in files) == 1_500


def test_duplicates_need_no_exchange_of_their_own(spark: SparkSession) -> None:
    names = spark.range(1_000).select(
        (f.col("id") % 3).alias("shard_id"), f.col("id").cast("string").alias("name")
    )
    plan = plan_of(distinct_by_shard(names, 4))
    assert "SortAggregate" not in plan
    assert plan.count("Exchange") == 1, plan
    assert "Exchange hashpartitioning(shard_id" in plan, plan


def test_an_inventory_without_names_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"title": ["a"], "name": [1]}), path)
    with pytest.raises(JobRefused, match="no text column called name"):
        job.run(spark, str(path), tmp_path / "out", TABLE)
    with pytest.raises(JobRefused, match="cannot be read"):
        job.run(spark, str(tmp_path / "missing.txt"), tmp_path / "out", TABLE)
    assert not (tmp_path / "out").exists()


def test_an_inventory_that_is_cut_short_is_refused(
    spark: SparkSession, inventory: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.parquet"
    short.write_bytes(inventory.read_bytes()[:-100])
    with pytest.raises(JobRefused, match="cannot be read"):
        job.run(spark, str(short), tmp_path / "out", TABLE)
    assert not (tmp_path / "out").exists()


def test_an_empty_inventory_makes_an_empty_load(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("")
    made = job.run(spark, str(path), tmp_path / "out", TABLE)
    assert made.summary.rows_read == 0
    assert read_load_manifest(tmp_path / "out").topics == 0


def test_a_report_shows_shards_namespaces_and_reasons(made: job.BulkResult, tmp_path: Path) -> None:
    write_report(made, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "not of three parts" in text
    assert "t0/n0" in text
    assert "<svg" in text


def test_columns_refuse_and_spell_out_as_the_shards_do(spark: SparkSession) -> None:
    names = odd_names(4_000)
    frame = spark.createDataFrame([(name,) for name in names], "name string")
    text = f.col("name")
    rows = frame.select(
        "name", refusal(text).alias("reason"), canonical_name(text).alias("canonical")
    ).collect()

    found = {row.name: None if row.reason else row.canonical for row in rows}
    assert found == {name: ruled(name) for name in names}
    reasons = {row.reason for row in rows} - {None}
    assert reasons <= set(REASONS)
    assert len(reasons) >= len(REASONS) - 1, f"not all reasons were met: {reasons}"


def test_bytes_that_are_no_text_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes(b"t/n/good\nt/n/\xff\xfebad\n")
    rows = validated(job.read_inventory(spark, str(path))).select("name", "reason").collect()
    assert sorted((row.name or "", row.reason or "") for row in rows) == [
        ("", "not UTF-8"),
        ("persistent://t/n/good", ""),
    ]


def test_names_are_judged_by_expressions_and_placed_by_one_hash(
    spark: SparkSession, inventory: Path
) -> None:
    judged = placed(validated(job.read_inventory(spark, str(inventory))), slot_owners(spark, TABLE))
    plan = plan_of(judged)
    assert unwanted_in(plan, hashes=1) == []
    assert "Exchange hash" not in plan
    assert "BroadcastHashJoin" in plan
    assert plan.count("FileScan") == 1
