"""What an exporter keeps in memory, reads ahead and tells Prometheus is bounded."""

import asyncio
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prometheus_client import generate_latest

from nextgen.export.format import parquet
from nextgen.export.stores.local import Disk, LocalStore
from nextgen.export.writing.progress import ProgressMetrics, ShardProgress
from nextgen.export.writing.run import export_log
from nextgen.kernel.limits.stream import EXPORT_PAGES_WAITING
from tests.support.logs.export_logs import PAGE_EVENTS, FakeLog, events


async def row_groups(directory: Path, count: int) -> list[int]:
    await export_log(FakeLog({1: events(1, count)}), LocalStore(directory))
    metadata = pq.ParquetFile(next(directory.rglob("*.parquet"))).metadata
    return [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]


@pytest.mark.parametrize(("count", "groups"), [(19, [19]), (20, [20]), (21, [20, 1])])
async def test_a_row_group_has_so_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, groups: list[int]
) -> None:
    monkeypatch.setattr(parquet, "EXPORT_ROW_GROUP_ROWS", 20)
    monkeypatch.setattr(parquet, "EXPORT_BATCH_EVENTS", 5)

    assert await row_groups(tmp_path, count) == groups


async def test_a_row_group_has_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "EXPORT_BATCH_EVENTS", 5)
    monkeypatch.setattr(parquet, "EXPORT_ROW_GROUP_BYTES_MAX", 1)

    assert await row_groups(tmp_path, 12) == [5, 5, 2]


async def test_so_many_bytes_of_events_wait_to_become_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "EXPORT_ROW_GROUP_BYTES_MAX", 1)
    page_bytes = sum(event.ByteSize() for event in events(1, PAGE_EVENTS))
    monkeypatch.setattr(parquet, "EXPORT_BATCH_BYTES_MAX", page_bytes)

    assert (await row_groups(tmp_path, 2 * PAGE_EVENTS))[0] == PAGE_EVENTS

    monkeypatch.setattr(parquet, "EXPORT_BATCH_BYTES_MAX", page_bytes + 1)
    assert (await row_groups(tmp_path / "more", 2 * PAGE_EVENTS))[0] == 2 * PAGE_EVENTS


class StandingDisk(Disk):
    """Stands still at the first data file until it is let go."""

    def __init__(self) -> None:
        self.stands = threading.Event()
        self.may_go = threading.Event()

    def create(self, path):
        if path.suffix == ".draft" and "=" in path.parent.name:
            self.stands.set()
            assert self.may_go.wait(60)
        return super().create(path)


async def test_a_disk_that_stands_still_lets_so_many_pages_be_read_ahead(tmp_path: Path) -> None:
    """One page is being written, so many wait, and one more is in the hand of who reads."""
    disk = StandingDisk()
    log = FakeLog({1: events(1, 20 * PAGE_EVENTS)})
    running = asyncio.create_task(export_log(log, LocalStore(tmp_path, disk)))
    try:
        await asyncio.to_thread(disk.stands.wait, 60)
        while log.pages_given < EXPORT_PAGES_WAITING + 2:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)

        # The page in the writer was taken, and the next one awaits it.
        assert log.pages_given <= EXPORT_PAGES_WAITING + 3
    finally:
        disk.may_go.set()
    assert (await running).events == 20 * PAGE_EVENTS


async def test_a_run_that_is_cancelled_waits_for_its_thread_and_lets_go(tmp_path: Path) -> None:
    disk = StandingDisk()
    log = FakeLog({1: events(1, 10)})
    running = asyncio.create_task(export_log(log, LocalStore(tmp_path, disk)))
    await asyncio.to_thread(disk.stands.wait, 60)

    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    disk.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (await export_log(log, LocalStore(tmp_path))).positions == {1: 10}


def test_metrics_have_one_series_for_each_shard_and_nothing_else() -> None:
    progress = {
        1: ShardProgress(exported_position=10, commit_position=12, oldest_waiting_ms=4_000, rows=7),
        2: ShardProgress(exported_position=5, commit_position=5, exported_time_ms=1_000),
    }
    page = generate_latest(ProgressMetrics(progress, wall_clock_ms=lambda: 9_000).registry())

    samples = dict(
        line.rsplit(" ", 1) for line in page.decode().splitlines() if not line.startswith("#")
    )
    assert samples['nextgen_export_positions_behind{shard="1"}'] == "2.0"
    assert samples['nextgen_export_seconds_behind{shard="1"}'] == "5.0"
    assert samples['nextgen_export_seconds_behind{shard="2"}'] == "0.0"
    assert samples['nextgen_export_rows_total{shard="1"}'] == "7.0"
    assert len(samples) == 7 * len(progress)
