"""A replica rebuilds its view beside the one in use: what it finds, and what it leaves behind."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.cluster import DIGEST_POSITIONS, VERIFY_PAGE_ENTRIES
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.host.verification import ViewVerification
from nextgen.replication.ports import NodeId, Record
from nextgen.replication.view.store import ViewStore
from tests.support.logs.raft_cluster import GROUP, SMALL_SEGMENTS, STEADY, eventually
from tests.support.logs.views import open_view
from tests.support.scenarios import run_by


class Subject(NamedTuple):
    group: PySyncObjGroup
    view: ViewStore
    verification: ViewVerification
    directory: Path

    async def propose(self, name: str, events: int = 1) -> None:
        commit = await self.group.propose(Record(name.encode(), events))
        await self.group.wait_applied(commit.index)

    async def propose_many(self, count: int) -> None:
        await asyncio.gather(*(self.propose(f"name-{number % 50}") for number in range(count)))

    def change(self, statement: str) -> None:
        path = self.directory / "view" / "view.000000000001.sqlite"
        with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
            stranger.execute(statement)


Scenario = Callable[[Subject], Awaitable[None]]


def run(directory: Path, scenario: Scenario) -> None:
    async def main() -> None:
        node_id = NodeId("node-1")
        host = PySyncObjHost(
            node_id=node_id,
            cluster_id="test-cluster",
            listen_host="127.0.0.1",
            listen_port=0,
            data_directory=directory,
            config=replace(STEADY, journal_segment_bytes=SMALL_SEGMENTS),
            random_source=random.Random(1),
        )
        await host.start()
        place = directory / f"group-{GROUP}"
        view = open_view(place / "view")
        group = await host.open_group(GROUP, [node_id], view)
        verification = ViewVerification(group, view, place / "verify", open_view)
        await eventually(lambda: group.is_leader, "a leader")
        try:
            await scenario(Subject(group, view, verification, place))
            await eventually(lambda: not (place / "verify").exists(), "nothing is left")
        finally:
            await host.stop()

    asyncio.run(main())


@run_by(run)
async def test_a_sound_view_is_found_sound_from_the_beginning_of_its_log(subject: Subject) -> None:
    await subject.propose_many(2 * VERIFY_PAGE_ENTRIES + 3)
    await subject.propose("to the next point", DIGEST_POSITIONS)
    await subject.propose("and behind it")

    found = await subject.verification.run()

    assert found.rebuilt_digest == found.stored_digest == found.scanned_digest != 0
    assert (found.from_position, found.digest_at_position) == (0, None)
    assert found.position == found.events_replayed == subject.view.applied().position


@run_by(run)
async def test_a_row_that_was_changed_on_disk_is_found(subject: Subject) -> None:
    await subject.propose_many(10)
    subject.change("UPDATE names SET seen = 77 WHERE name = 'name-3'")

    found = await subject.verification.run()

    assert found.rebuilt_digest == found.stored_digest != found.scanned_digest


@run_by(run)
async def test_a_row_that_is_gone_and_one_too_many_are_found(subject: Subject) -> None:
    await subject.propose_many(10)
    subject.change("DELETE FROM names WHERE name = 'name-3'")
    without = await subject.verification.run()
    subject.change("INSERT INTO names VALUES ('name-3', 1)")
    restored = await subject.verification.run()
    subject.change("INSERT INTO names VALUES ('stranger', 1)")
    with_one_more = await subject.verification.run()

    assert without.scanned_digest != without.rebuilt_digest
    assert restored.scanned_digest == restored.rebuilt_digest
    assert with_one_more.scanned_digest != with_one_more.rebuilt_digest


@run_by(run)
async def test_what_the_view_says_of_itself_is_compared(subject: Subject) -> None:
    await subject.propose_many(10)
    subject.change("UPDATE view_digest SET digest = digest + 1")

    found = await subject.verification.run()

    assert found.rebuilt_digest == found.scanned_digest != found.stored_digest


@run_by(run)
async def test_a_log_without_its_beginning_is_replayed_from_a_copy_of_the_view(
    subject: Subject,
) -> None:
    for number in range(30):
        await subject.propose(f"{'x' * 10_000}{number}")
    await subject.group.compact()
    await eventually(lambda: subject.group.status.first_position > 1, "the log is cut")
    await subject.propose("behind")
    last_position = subject.view.applied().position

    found = await subject.verification.run(last_position)

    assert found.from_position == last_position
    assert found.rebuilt_digest == found.stored_digest == found.scanned_digest
    assert found.digest_at_position == found.stored_digest, "the copy itself is of that event"
    assert (await subject.verification.run(5)).digest_at_position is None

    writing = asyncio.create_task(subject.propose_many(1_000))
    found = await subject.verification.run()
    await writing
    assert found.rebuilt_digest == found.stored_digest == found.scanned_digest


@run_by(run)
async def test_a_changed_row_is_found_when_the_log_lost_its_beginning(subject: Subject) -> None:
    for number in range(30):
        await subject.propose(f"{'x' * 10_000}{number}")
    await subject.group.compact()
    await eventually(lambda: subject.group.status.first_position > 1, "the log is cut")
    subject.change("UPDATE names SET seen = 77 WHERE name LIKE '%7'")

    found = await subject.verification.run()

    assert found.scanned_digest != found.stored_digest


@run_by(run)
async def test_the_digest_at_a_position_is_that_behind_the_entry_that_reaches_it(
    subject: Subject,
) -> None:
    await subject.propose("a")
    await subject.propose("b", 3)
    expected = subject.view.running_digest
    await subject.propose("no event", 0)
    await subject.propose_many(10)

    for position in (2, 3, 4):
        found = await subject.verification.run(position)
        assert found.digest_at_position == expected


@run_by(run)
async def test_it_is_right_while_writes_go_on(subject: Subject) -> None:
    await subject.propose_many(1_000)
    ended = asyncio.Event()

    async def write() -> None:
        while not ended.is_set():
            await subject.propose_many(20)

    writing = asyncio.create_task(write())
    try:
        for _ in range(3):
            found = await subject.verification.run()
            assert found.rebuilt_digest == found.stored_digest == found.scanned_digest
    finally:
        ended.set()
        await writing
    assert subject.view.applied().position > found.position >= 1_000


@run_by(run)
async def test_nothing_is_left_once_there_are_no_waiters(subject: Subject) -> None:
    await subject.propose_many(3 * VERIFY_PAGE_ENTRIES)
    verifying = asyncio.create_task(subject.verification.run())
    await eventually(lambda: (subject.directory / "verify").exists(), "it began")

    verifying.cancel()
    await asyncio.gather(verifying, return_exceptions=True)

    assert verifying.cancelled()
    assert subject.group.status.log_pins == 0


@run_by(run)
async def test_it_is_refused_without_room_for_a_second_view(
    subject: Subject, *, tmp_path, monkeypatch
) -> None:
    await subject.propose_many(10)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000))

    with pytest.raises(Overloaded, match="no room for a second view"):
        await subject.verification.run()


@run_by(run)
async def test_a_replica_that_stopped_is_not_verified(subject: Subject) -> None:
    await subject.propose_many(10)
    await subject.group.stop()

    with pytest.raises(Unavailable, match="stopped"):
        await subject.verification.run()
