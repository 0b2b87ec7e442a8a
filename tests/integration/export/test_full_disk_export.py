"""A disk that fills while an exporter writes to it: a real one."""

from pathlib import Path

import pytest

from nextgen.export.checking.check import check_log
from nextgen.export.errors import ExportStopped
from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from tests.support.logs.export_logs import FakeLog, events
from tests.support.processes.small_disks import MountRefused, small_disks

pytestmark = pytest.mark.integration

ROOM_BYTES = 200_000
"""For some files of ``LIMITS``, and not for all."""
LIMITS = FileLimits(rows=100)
EVENTS = 3_000


async def test_a_full_disk_ends_the_export_with_its_name_and_loses_nothing(tmp_path: Path) -> None:
    try:
        with small_disks(tmp_path / "disk", size_mib=8) as (disk,):
            directory = disk.path / "export"
            log = FakeLog({1: events(1, EVENTS)})
            disk.fill(leave_bytes=ROOM_BYTES)

            with pytest.raises(ExportStopped, match="No space left on device"):
                await export_log(log, LocalStore(directory), limits=LIMITS)

            before = await check_log(LocalStore(directory), log)
            assert (before.ok, 0 < before.events < EVENTS) == (True, True)
            disk.free()
            await export_log(log, LocalStore(directory), limits=LIMITS)
            report = await check_log(LocalStore(directory), log)
            assert (report.ok, report.events, report.unfinished_files) == (True, EVENTS, 0)
    except MountRefused as refused:
        pytest.skip(f"no small disks: {refused}")
