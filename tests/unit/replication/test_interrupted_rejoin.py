"""A first start on a new disk that is interrupted at any step makes no voter of one that forgot.

``acknowledged`` is on the disks of the leader and of the victim; the third replica lacks it. The
victim loses its disk, and its next start fails at one operation on the new one. Whatever that
left behind, the victim must not help the third to lead before the old leader is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.replication.ports import Record, Role
from nextgen.storage.disk import Handle
from tests.support.simulated.disk import PowerCut, SimDisk
from tests.support.simulated.raft import DATA, RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual

NEVER_S = 6.0
"""Three times the longest silence after which a voter campaigns."""


class InterruptedDisk(SimDisk):
    """Fails once, at the operation with the given number; ``victim`` dies of it or gets ENOSPC."""

    def __init__(self, at: int, *, is_deadly: bool) -> None:
        super().__init__()
        self.make_directory(DATA)
        SimDisk.sync_directory(self, Path("/"), label="given")
        self.operations: list[str] = []
        self.victim: SimNode | None = None
        self._at = at
        self._is_deadly = is_deadly

    def open(self, path: Path, *, create: bool = False) -> Handle:
        if create and path.name not in self.list_names(path.parent):
            self._operates(f"create {path.name}")
        return super().open(path, create=create)

    def make_directory(self, path: Path) -> None:
        if path != DATA:
            self._operates(f"mkdir {path.name}")
        super().make_directory(path)

    def preallocate(self, handle: Handle, size: int) -> None:
        self._operates("preallocate")
        super().preallocate(handle, size)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        self._operates("write")
        super().pwrite(handle, data, offset)

    def sync(self, handle: Handle, *, label: str) -> None:
        self._operates(f"sync {label}")
        super().sync(handle, label=label)

    def sync_directory(self, path: Path, *, label: str) -> None:
        self._operates(f"sync {label}")
        super().sync_directory(path, label=label)

    def rename(self, source: Path, target: Path) -> None:
        self._operates(f"rename {source.name}")
        super().rename(source, target)

    def _operates(self, what: str) -> None:
        self.operations.append(what)
        if len(self.operations) - 1 != self._at:
            return
        if not self._is_deadly:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert self.victim is not None
        assert self.victim.process is not None
        self.victim.process.kill()
        raise PowerCut


async def lost_and_interrupted(disk: InterruptedDisk, *, rejoining: bool, power_cut: bool) -> None:
    simulation = RaftSimulation(seed=2)
    await simulation.start()
    leader = await simulation.leader()
    victim, third = (node for node in simulation.nodes if node is not leader)
    assert leader.log is not None
    commit = await leader.log.propose(Record(b"known to all", 1))
    await _until(lambda: third.log is not None and third.log.commit_position == 1)
    third.crash()
    await leader.log.propose(Record(b"acknowledged", 1))
    leader.crash()
    victim.crash()
    victim.disk, disk.victim = disk, victim

    await _start_and_fail(victim, rejoining=rejoining, power_cut=power_cut)
    # The map may be one that says nothing of a past this time, as the cluster manager's flags do.
    await victim.start()
    await third.start()
    await asyncio.sleep(NEVER_S)
    assert victim.log is not None
    assert third.log is not None
    assert victim.log.status.role is Role.NON_VOTER, "it votes and has forgotten"
    assert not third.log.is_leader

    await leader.start()
    leader = await simulation.leader()
    assert leader.log is not None
    await leader.log.wait_position(2)
    assert leader.view is not None
    assert leader.view.payloads == ["known to all", "acknowledged"], commit
    unverified = victim.log.engine.journal
    await _until(lambda: not unverified.unverified_index)


async def _start_and_fail(victim: SimNode, *, rejoining: bool, power_cut: bool) -> None:
    with contextlib.suppress(OSError):
        await victim.start(may_be_lost=rejoining)
    if victim.process is not None:
        victim.kill()
    if power_cut:
        victim.disk.crash()


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("never happened")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rejoining", [True, False], ids=["the map knows", "nobody says so"])
@pytest.mark.parametrize("fault", ["full disk", "kill", "power cut"])
def test_a_first_start_after_a_lost_disk_may_fail_at_any_step(fault: str, rejoining: bool) -> None:
    interrupted: Counter[str] = Counter()
    number = 0
    while True:
        disk = InterruptedDisk(number, is_deadly=fault != "full disk")

        async def main(disk: InterruptedDisk = disk) -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _loop, _found: None)
            await lost_and_interrupted(disk, rejoining=rejoining, power_cut=fault == "power cut")

        try:
            run_virtual(main)
        except Exception as error:
            raise AssertionError(f"{fault} at operation {number}: {disk.operations}") from error
        interrupted[disk.operations[number]] += 1
        number += 1
        if disk.operations[number - 1] == "create group-1.member":
            break

    assert set(interrupted) >= {
        *("mkdir group-1", "mkdir journal", "sync journal.make_directory", "create durable.mark"),
        *("create segment.preparing", "preallocate", "sync journal.segment_header"),
        *("rename segment.preparing", "sync journal.segment_name"),
    }
