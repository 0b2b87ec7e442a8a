"""An export that goes on as events commit; gaps; pins."""

import asyncio
from pathlib import Path

import pytest

from nextgen.export import directory
from nextgen.export.checking.check import check_log
from nextgen.export.errors import ExportGap, ExportRefused
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.progress import Progress
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.stream import EXPORT_FILES_MAX
from tests.support.logs.export_logs import FakeLog, event, events


class Following:
    """A run with ``follow``, and how to see how far it is."""

    def __init__(self, log: FakeLog, directory: Path, limits: FileLimits) -> None:
        self.progress: Progress = {}
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(
            export_log(
                log,
                LocalStore(directory),
                follow=True,
                limits=limits,
                stop=self._stop,
                progress=self.progress,
            )
        )

    async def wait_exported(self, position: int, shard_id: int = 1) -> None:
        while shard_id not in self.progress or (
            self.progress[shard_id].exported_position < position
        ):
            if self._task.done():
                self._task.result()
                raise AssertionError("the run ended")
            await asyncio.sleep(0.01)

    async def ended(self) -> None:
        await self._task

    async def stop(self):
        self._stop.set()
        return await self._task


async def test_what_commits_while_it_follows_is_exported(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    following = Following(log, tmp_path, FileLimits(rows=10))
    await following.wait_exported(10)
    await log.append(1, events(13, 40))
    await following.wait_exported(40)
    await following.stop()

    report = await check_log(LocalStore(tmp_path), log)
    assert (report.ok, report.events, report.compared_events) == (True, 40, 40)


async def test_a_file_is_closed_when_it_is_old_also_if_nothing_more_comes(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    following = Following(log, tmp_path, FileLimits(age_ms=20))

    await following.wait_exported(12)
    await following.stop()


async def test_what_was_read_is_in_files_when_it_is_stopped(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    following = Following(log, tmp_path, FileLimits(rows=10))
    await following.wait_exported(10)
    while following.progress[1].oldest_waiting_ms is None:
        await asyncio.sleep(0.01)

    summary = await following.stop()

    assert summary.positions == {1: 12}


async def test_a_log_that_cannot_be_read_any_more_leaves_what_was_read_in_files(
    tmp_path: Path,
) -> None:
    log = FakeLog({1: events(1, 12)})
    following = Following(log, tmp_path, FileLimits())
    while not following.progress or following.progress[1].oldest_waiting_ms is None:
        await asyncio.sleep(0.01)
    log.is_reachable = False
    await log.append(1, [event(13)])

    with pytest.raises(Unavailable):
        await following.ended()
    assert following.progress[1].exported_position == 13


async def test_progress_says_how_far_behind_the_export_is(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    following = Following(log, tmp_path, FileLimits(rows=10))
    await following.wait_exported(10)
    while following.progress[1].oldest_waiting_ms is None:
        await asyncio.sleep(0.01)

    shard = following.progress[1]
    assert (shard.positions_behind, shard.files, shard.rows) == (2, 1, 10)
    assert shard.seconds_behind(event(11).time_ms + 3_000) == 3.0

    await following.stop()
    assert (shard.positions_behind, shard.seconds_behind(event(99).time_ms)) == (0, 0.0)


# Gaps -----------------------------------------------------------------------------------------


async def test_a_log_that_was_cut_behind_the_export_is_refused_with_the_gap(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    await export_log(log, LocalStore(tmp_path))
    await log.append(1, events(13, 40))
    log.cut(1, 21)

    with pytest.raises(ExportGap, match="positions 13 to 20") as refusal:
        await export_log(log, LocalStore(tmp_path))

    assert (refusal.value.shard_id, refusal.value.first, refusal.value.last) == (1, 13, 20)
    assert "--accept-gap" in str(refusal.value)


async def test_a_log_that_was_cut_right_behind_the_export_goes_on(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    await export_log(log, LocalStore(tmp_path))
    await log.append(1, events(13, 40))
    log.cut(1, 13)

    assert (await export_log(log, LocalStore(tmp_path))).positions == {1: 40}


async def test_an_accepted_gap_is_named_for_ever_and_is_no_contradiction(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12)})
    await export_log(log, LocalStore(tmp_path))
    await log.append(1, events(13, 40))
    log.cut(1, 21)

    await export_log(log, LocalStore(tmp_path), accept_gap=True)
    await log.append(1, [event(41)])
    await export_log(log, LocalStore(tmp_path))

    report = await check_log(LocalStore(tmp_path), log)
    assert (report.ok, report.gaps, report.accepted_gaps) == (True, 0, 1)
    assert (report.events, report.compared_events, report.not_retained_events) == (33, 21, 12)
    assert any("positions 13 to 20" in finding for finding in report.findings)


async def test_a_gap_at_the_very_beginning_can_be_accepted_too(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 40)})
    log.cut(1, 21)
    with pytest.raises(ExportGap, match="positions 1 to 20"):
        await export_log(log, LocalStore(tmp_path))

    await export_log(log, LocalStore(tmp_path), accept_gap=True)

    report = await check_log(LocalStore(tmp_path), log)
    assert (report.ok, report.events) == (True, 20)


async def test_an_export_without_shard_0_goes_on_and_begins_it_where_its_log_does(
    tmp_path: Path,
) -> None:
    await export_log(FakeLog({1: events(1, 12)}), LocalStore(tmp_path))
    log = FakeLog({0: events(1, 30, 0), 1: events(1, 12)})
    log.cut(0, 21)

    summary = await export_log(log, LocalStore(tmp_path))

    report = await check_log(LocalStore(tmp_path), log)
    assert (summary.positions, summary.events) == ({0: 30, 1: 12}, 10)
    assert (report.ok, report.gaps, report.accepted_gaps, report.events) == (True, 0, 1, 22)
    await log.append(0, events(31, 50, 0))
    log.cut(0, 41)
    with pytest.raises(ExportGap, match="shard 0: positions 31 to 40"):
        await export_log(log, LocalStore(tmp_path))


async def test_a_gap_in_shard_0_is_refused_where_the_export_has_it_already(tmp_path: Path) -> None:
    log = FakeLog({0: events(1, 5, 0), 1: events(1, 12)})
    await export_log(log, LocalStore(tmp_path))
    await log.append(0, events(6, 30, 0))
    log.cut(0, 21)

    with pytest.raises(ExportGap, match="shard 0: positions 6 to 20"):
        await export_log(log, LocalStore(tmp_path))


# Pins and limits ------------------------------------------------------------------------------


async def test_the_log_is_kept_from_the_last_exported_event_on(tmp_path: Path) -> None:
    log = FakeLog({1: events(1, 12), 2: []})
    await export_log(log, LocalStore(tmp_path))
    await export_log(log, LocalStore(tmp_path))

    (reader, first), (again, second) = log.pins[1]
    assert (first, second) == (1, 12)
    assert reader == again
    assert [position for _, position in log.pins[2]] == [1, 1]


async def test_a_manifest_that_is_full_takes_no_more_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EXPORT_FILES_MAX == directory.EXPORT_FILES_MAX
    monkeypatch.setattr(directory, "EXPORT_FILES_MAX", 2)
    log = FakeLog({1: events(1, 20)})
    await export_log(log, LocalStore(tmp_path), limits=FileLimits(rows=10))
    await log.append(1, [event(21)])

    with pytest.raises(ExportRefused, match="has 2 files"):
        await export_log(log, LocalStore(tmp_path))

    report = await check_log(LocalStore(tmp_path), log)
    assert (report.ok, report.events) == (True, 20)
