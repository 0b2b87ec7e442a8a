"""What a check finds, each by name."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nextgen.export import log_source
from nextgen.export.checking.check import check_export, check_log
from nextgen.export.checking.status import status_of
from nextgen.export.format.columns import EventColumns
from nextgen.export.report import FINDINGS_TOLD_MAX, CheckReport
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from tests.support.logs.export_logs import FakeLog, event, events

PROMISED = {
    *("ok", "shards", "events", "files", "bytes", "bytes_per_event"),
    *("gaps", "duplicates", "differences", "findings"),
}


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    """25 events of shard 1 in three files, 3 of shard 2."""
    directory = tmp_path / "export"
    log = FakeLog({1: events(1, 25), 2: events(1, 3, 2)})
    await export_log(log, LocalStore(directory), limits=FileLimits(rows=10))
    return directory


@pytest.fixture
def log() -> FakeLog:
    return FakeLog({1: events(1, 30), 2: events(1, 9, 2)})


def data_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def edit(directory: Path, change) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["shards"]["1"])
    path.write_text(json.dumps(manifest))


async def test_a_whole_export_is_ok_and_says_what_it_holds(export: Path, log: FakeLog) -> None:
    report = await check_log(LocalStore(export), log)

    told = report.as_json()
    assert told.keys() >= PROMISED
    assert (told["ok"], told["shards"], told["events"], told["files"]) == (True, 2, 28, 4)
    assert told["bytes"] == sum(path.stat().st_size for path in data_files(export))
    assert (told["compared_with_log"], told["compared_events"]) == (True, 28)
    assert json.loads(json.dumps(told)) == told


async def test_without_a_cluster_the_files_alone_are_checked(export: Path) -> None:
    report = await check_export(export)

    assert (report.ok, report.compared_with_log, report.compared_events) == (True, False, 0)


async def test_the_digest_is_of_the_events_not_of_the_files(export: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    await export_log(FakeLog({1: events(1, 25), 2: events(1, 3, 2)}), LocalStore(other))

    digests = (await check_export(export)).digests

    assert (await check_export(other)).digests == digests
    assert digests[1] != digests[2]


async def found(directory: Path, log: FakeLog | None = None) -> CheckReport:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    report = await check_log(LocalStore(directory), log)
    assert {p: p.read_bytes() for p in directory.rglob("*") if p.is_file()} == before
    assert (report.ok, report.findings != []) == (False, True)
    return report


async def test_no_export_is_found(tmp_path: Path) -> None:
    assert "there is no manifest.json" in (await found(tmp_path)).findings[0]


async def test_a_damaged_manifest_is_found(export: Path) -> None:
    (export / "manifest.json").write_text("{")

    assert "manifest.json is damaged" in (await found(export)).findings[0]


async def test_a_missing_file_is_found(export: Path) -> None:
    data_files(export)[1].unlink()

    report = await found(export)
    assert "is missing" in report.findings[0]
    assert report.differences == 1


async def test_a_truncated_file_is_found(export: Path) -> None:
    os.truncate(data_files(export)[1], 100)

    assert "has 100 bytes" in (await found(export)).findings[0]


async def test_a_byte_that_changed_is_found_by_the_hash(export: Path) -> None:
    path = data_files(export)[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    assert "has the hash" in (await found(export)).findings[0]


async def test_a_file_that_is_no_parquet_is_found_although_its_hash_is_right(export: Path) -> None:
    path = data_files(export)[1]
    path.write_bytes(b"x" * 1000)
    import hashlib

    def change(shard):
        shard["files"][1] |= {"bytes": 1000, "sha256": hashlib.sha256(b"x" * 1000).hexdigest()}

    edit(export, change)

    assert "cannot be read" in (await found(export)).findings[0]


def rewrite(directory: Path, place: int, content) -> None:
    """Replace a file of shard 1 by other events, hash and all: what only a look inside finds."""
    import hashlib

    path = data_files(directory)[place]
    pq.write_table(EventColumns().table(content), path, store_schema=False)
    written = path.read_bytes()

    def change(shard):
        shard["files"][place] |= {
            "bytes": len(written),
            "sha256": hashlib.sha256(written).hexdigest(),
        }

    edit(directory, change)


async def test_an_event_that_is_not_the_logs_is_found(export: Path, log: FakeLog) -> None:
    forged = [*events(11, 14), event(15, time_ms=event(15).time_ms + 1), *events(16, 20)]
    rewrite(export, 1, forged)

    report = await found(export, log)
    assert any("event 15 is not that of the log" in one for one in report.findings)
    assert (report.differences, report.compared_events) == (1, 28)


async def test_missing_rows_are_found(export: Path) -> None:
    rewrite(export, 1, events(11, 19))

    assert any("has 9 rows" in one for one in (await found(export)).findings)


async def test_rows_in_another_order_are_found(export: Path) -> None:
    rewrite(export, 1, [event(12), event(11), *events(13, 20)])

    assert any("has event 12" in one for one in (await found(export)).findings)


async def test_rows_of_another_shard_are_found(export: Path) -> None:
    rewrite(export, 1, events(11, 20, 2))

    assert any("of shard 2" in one for one in (await found(export)).findings)


async def test_a_gap_between_files_is_found(export: Path) -> None:
    edit(export, lambda shard: shard["files"].pop(1))

    report = await found(export)
    assert report.gaps == 1
    assert any("positions 11 to 20 are missing" in one for one in report.findings)


async def test_a_file_named_twice_is_found(export: Path) -> None:
    edit(export, lambda shard: shard["files"].insert(1, shard["files"][0]))

    report = await found(export)
    assert report.duplicates == 1


async def test_a_copy_of_a_file_is_found(export: Path) -> None:
    first = data_files(export)[0]
    copied = first.with_name(f"{3:020d}-{12:020d}.parquet")
    copied.write_bytes(first.read_bytes())

    report = await found(export)
    assert (report.duplicates, copied.name in report.findings[0]) == (1, True)


async def test_a_foreign_file_is_found(export: Path) -> None:
    (export / "thesis.doc").write_text("mine")

    assert "thesis.doc is not of an export" in (await found(export)).findings


async def test_what_a_run_has_not_named_yet_is_told_and_no_contradiction(export: Path) -> None:
    folder = data_files(export)[0].parent
    (folder / f".{26:020d}.draft").write_bytes(b"half")
    (folder / f"{26:020d}-{30:020d}.parquet").write_bytes(b"whole")

    report = await check_export(export)

    assert (report.ok, report.unfinished_files) == (True, 2)


async def test_another_clusters_log_is_found(export: Path) -> None:
    others = FakeLog({1: [event(n, time_ms=1000 * n) for n in range(1, 40)], 2: events(1, 3, 2)})

    report = await found(export, others)
    assert report.differences == 25


async def test_a_log_that_is_shorter_is_found(export: Path) -> None:
    report = await found(export, FakeLog({1: events(1, 22), 2: events(1, 3, 2)}))

    assert any("event 23" in one for one in report.findings)


async def test_a_cluster_without_the_shard_is_found(export: Path) -> None:
    report = await found(export, FakeLog({1: events(1, 25)}))

    assert "shards [2]" in report.findings[0]
    assert not report.compared_with_log


async def test_a_cluster_that_does_not_answer_is_found(export: Path, log: FakeLog) -> None:
    log.is_reachable = False

    report = await found(export, log)
    assert "does not answer" in report.findings[0]
    assert report.events == 28


async def test_a_replica_that_is_behind_is_no_difference(export: Path) -> None:
    log = FakeLog({1: events(1, 25), 2: events(1, 3, 2)})
    log.replica_lag = 2

    report = await check_log(LocalStore(export), log)

    assert (report.ok, report.compared_events, report.findings) == (True, 28, [])


async def test_without_a_leader_a_shorter_log_is_not_compared_and_says_so(
    export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_source, "POSITIONS_PAUSE_MS", 0)
    log = FakeLog({1: events(1, 22), 2: events(1, 3, 2)})
    log.has_leader = False

    report = await found(export, log)

    assert (report.differences, report.compared_with_log) == (0, False)
    assert "no leader reports" in report.findings[0]


@pytest.mark.parametrize("count", [FINDINGS_TOLD_MAX, FINDINGS_TOLD_MAX + 1])
def test_a_report_tells_so_many_findings_and_counts_all(count: int) -> None:
    report = CheckReport("there")
    for number in range(count):
        report.find(str(number))

    assert (report.problems, len(report.findings)) == (count, FINDINGS_TOLD_MAX)


# Status ---------------------------------------------------------------------------------------


async def test_status_says_how_far_each_shard_is_behind(export: Path, log: FakeLog) -> None:
    told = await status_of(LocalStore(export), log)

    by_shard = {shard["shard_id"]: shard for shard in told["shards"]}
    assert by_shard[1]["exported_position"] == 25
    assert (by_shard[1]["commit_position"], by_shard[1]["positions_behind"]) == (30, 5)
    assert by_shard[1]["seconds_behind"] > 0
    assert (told["events"], told["files"]) == (28, 4)


async def test_status_without_a_cluster_says_what_is_exported(export: Path, log: FakeLog) -> None:
    log.is_reachable = False

    for source in (None, log):
        told = await status_of(LocalStore(export), source)
        assert [shard["commit_position"] for shard in told["shards"]] == [None, None]
        assert [shard["positions_behind"] for shard in told["shards"]] == [None, None]
