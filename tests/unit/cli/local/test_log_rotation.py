from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.cli.local import log_rotation
from nextgen.cli.local.log_rotation import rotate_logs
from nextgen.cli.local.plan import MINIMAL, make_plan_on_free_ports
from nextgen.cli.local.supervise import Supervisor
from nextgen.kernel.limits.inbound import LOG_FILE_BYTES_MAX, LOG_FILES_KEPT_MAX
from nextgen.tasks.background import failures, keep
from nextgen.tasks.timeouts import timeout
from tests.support.processes.kept_tasks import break_kept, has_begun_again


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(directory.iterdir())}


def test_log_file_bytes_max_are_left_in_a_file_and_one_more_rotates_it(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(bytes(LOG_FILE_BYTES_MAX))
    (tmp_path / "b.log").write_bytes(bytes(LOG_FILE_BYTES_MAX + 1))

    rotate_logs(tmp_path)

    assert sizes(tmp_path) == {
        "a.log": LOG_FILE_BYTES_MAX,
        "b.log": 0,
        "b.log.1": LOG_FILE_BYTES_MAX + 1,
    }


def test_log_files_kept_max_earlier_files_stay_and_one_more_pushes_the_oldest_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.log"
    for number in range(LOG_FILES_KEPT_MAX + 1):
        path.write_text(f"{number:04}")
        rotate_logs(tmp_path, bytes_max=3)

    kept = [tmp_path / f"a.log.{number}" for number in range(1, LOG_FILES_KEPT_MAX + 1)]
    assert set(tmp_path.iterdir()) == {path, *kept}
    assert [each.read_text() for each in kept] == [
        f"{number:04}" for number in range(LOG_FILES_KEPT_MAX, 0, -1)
    ]


def test_a_process_writes_on_and_no_line_is_lost(tmp_path: Path) -> None:
    written = [f"line {number}\n" for number in range(100)]

    with (tmp_path / "a.log").open("ab", buffering=0) as log:
        for line in written:
            log.write(line.encode())
            rotate_logs(tmp_path, bytes_max=300, kept_max=5)

    files = [tmp_path / f"a.log.{number}" for number in (2, 1)] + [tmp_path / "a.log"]
    assert "".join(path.read_text() for path in files) == "".join(written)
    assert max(path.stat().st_size for path in files) < 310


def test_without_room_for_a_copy_the_file_is_emptied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_rotation.shutil, "copyfile", no_room)
    (tmp_path / "a.log").write_bytes(bytes(10))

    rotate_logs(tmp_path, bytes_max=9)

    assert sizes(tmp_path) == {"a.log": 0}


def test_without_a_directory_there_is_nothing_to_rotate(tmp_path: Path) -> None:
    rotate_logs(tmp_path / "none")

    assert list(tmp_path.iterdir()) == []


async def test_rotation_goes_on_after_its_task_ended(tmp_path: Path) -> None:
    async def settled() -> list[str]:
        return []

    plan = make_plan_on_free_ports(MINIMAL)
    supervisor = Supervisor(plan, tmp_path, lambda _sentence: None, unsettled=settled)
    rotating = keep("log_rotation", supervisor._rotate_logs)
    await asyncio.sleep(0)

    broken = break_kept("log_rotation")

    async with timeout(30):
        while not has_begun_again("log_rotation", broken):
            await asyncio.sleep(0.01)
    rotating.cancel()
    failures.clear()
