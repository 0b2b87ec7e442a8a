"""Which events the members of a group know: heard, kept, and what is not written by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgpack
import pytest

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.levels import EVENT_LEVEL, EVENT_LEVEL_UNREPORTED
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.replication.host.raft_host import HostEnvironment, PySyncObjHost
from nextgen.replication.journal.writers import WriterPool
from nextgen.replication.mesh import mesh as mesh_module
from nextgen.replication.mesh.event_levels_file import EVENT_LEVELS_NAME, EventLevelsFile
from nextgen.replication.mesh.frames import (
    HELLO_CHANNEL,
    HELLO_MAGIC,
    MESH_PROTOCOL_VERSION,
    Hello,
    encode_frame,
    encode_hello,
)
from nextgen.replication.mesh.mesh import Mesh
from nextgen.replication.ports import ChangeKind, MemberChange, NodeId
from nextgen.storage.checked_file import read_checked, replace_file
from nextgen.storage.disk import DiskStorage
from tests.support.logs.raft_cluster import RaftCluster, eventually
from tests.support.scenarios import run_by
from tests.support.simulated.disk import PowerCut, SimDisk
from tests.support.simulated.membership import MembershipSimulation, log_of, members, membership
from tests.unit.replication.mesh.test_mesh import HIGH, LOW, connect, mesh, patient, until

LATER = EVENT_LEVEL + 1

NOBODY_LISTENS = 1
"""A port."""


# What peers say ----------------------------------------------------------------------------------


def hello_of_an_older_release(target: NodeId) -> bytes:
    return encode_frame(
        HELLO_CHANNEL,
        {
            "magic": HELLO_MAGIC,
            "protocol_version": MESH_PROTOCOL_VERSION,
            "cluster_id": "c",
            "node_id": HIGH,
            "target_id": target,
            "incarnation": "older",
        },
    )


def hello_saying(level: int, node_id: NodeId = HIGH) -> bytes:
    return encode_hello(Hello(MESH_PROTOCOL_VERSION, "c", node_id, LOW, "x", level))


@contextlib.asynccontextmanager
async def dialed(made: Mesh, first: bytes, node_id: NodeId = HIGH):
    """Be a peer that has said ``first``."""
    await made.set_peer_address(node_id, "127.0.0.1", NOBODY_LISTENS)
    _, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(first)
    try:
        await until(lambda: made.is_connected(node_id))
        yield
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await until(lambda: not made.is_connected(node_id))


async def test_two_processes_of_this_release_know_it_of_each_other_also_when_one_is_gone() -> None:
    async with mesh(LOW) as (low, _):
        assert low.peer_event_level(HIGH) == EVENT_LEVEL_UNREPORTED
        async with mesh(HIGH) as (high, _):
            await connect(low, LOW, high, HIGH)
            assert high.peer_event_level(LOW) == EVENT_LEVEL
        await until(lambda: not low.is_connected(HIGH))

        assert low.peer_event_level(HIGH) == EVENT_LEVEL


async def test_what_a_peer_says_last_counts() -> None:
    async with mesh(LOW) as (low, _):
        async with dialed(low, hello_saying(LATER)):
            assert low.peer_event_level(HIGH) == LATER

        async with dialed(low, hello_of_an_older_release(LOW)):
            assert low.peer_event_level(HIGH) == EVENT_LEVEL_UNREPORTED


async def test_what_was_kept_is_known_and_what_is_heard_is_told() -> None:
    told: list[Mapping[NodeId, int]] = []
    async with mesh(LOW) as (low, _):
        low.keep_event_levels({HIGH: 2}, told.append)
        assert low.peer_event_level(HIGH) == 2

        for level in (2, 3, 3, 1):
            async with dialed(low, hello_saying(level)):
                pass

    assert told == [{HIGH: 2}, {HIGH: 3}, {HIGH: 3}, {HIGH: 1}]


@pytest.mark.parametrize("more", [0, 1])
async def test_the_level_of_so_many_peers_is_kept_and_the_first_goes(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(mesh_module, "MESH_PEERS_REMEMBERED_MAX", 2)
    others = [NodeId(f"node-{number}") for number in range(5, 7 + more)]
    async with mesh(LOW) as (low, _):
        for node_id in others:
            async with dialed(low, hello_saying(EVENT_LEVEL, node_id), node_id):
                pass

        kept = [node_id for node_id in others if low.peer_event_level(node_id) == EVENT_LEVEL]

    assert kept == others[more:]


async def test_the_peer_that_was_heard_of_longest_ago_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mesh_module, "MESH_PEERS_REMEMBERED_MAX", 2)
    first, second, third = (NodeId(f"node-{number}") for number in range(5, 8))
    async with mesh(LOW) as (low, _):
        for node_id in (first, second, first, third):
            async with dialed(low, hello_saying(EVENT_LEVEL, node_id), node_id):
                pass

        assert [low.peer_event_level(each) for each in (first, second, third)] == [
            EVENT_LEVEL,
            EVENT_LEVEL_UNREPORTED,
            EVENT_LEVEL,
        ]


# On disk -----------------------------------------------------------------------------------------

ROOT = Path("/data")
BEFORE, AFTER = {NodeId("b"): 2}, {NodeId("b"): 2, NodeId("c"): 3}


def test_node_id_bytes_max_is_loaded_and_one_more_left_out() -> None:
    """Earlier releases stored whatever a hello said, megabytes of it."""
    disk = disk_with_levels()
    longest, longer = NodeId("n" * NODE_ID_BYTES_MAX), NodeId("n" * (NODE_ID_BYTES_MAX + 1))
    EventLevelsFile(disk, ROOT).store({longest: 2, longer: 2})

    assert EventLevelsFile(disk, ROOT).load() == {longest: 2}


def disk_with_levels() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(ROOT)
    disk.sync_directory(Path("/"), label="test")
    EventLevelsFile(disk, ROOT).store(BEFORE)
    return disk


def operations_of_a_store() -> int:
    for operations in range(1, 100):
        disk = disk_with_levels()
        disk.cut_power_after(operations)
        try:
            EventLevelsFile(disk, ROOT).store(AFTER)
        except PowerCut:
            continue
        return operations
    raise AssertionError("a store never ends")


def test_nothing_was_heard_where_nothing_is_stored(tmp_path: Path) -> None:
    assert EventLevelsFile(DiskStorage(), tmp_path).load() == {}
    assert EventLevelsFile(DiskStorage(), tmp_path / "nowhere").load() == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_operation_leaves_the_old_levels_or_the_new(seed: int) -> None:
    for operations in range(1, operations_of_a_store() + 1):
        disk = disk_with_levels()
        disk.cut_power_after(operations)
        with contextlib.suppress(PowerCut):
            EventLevelsFile(disk, ROOT).store(AFTER)
        disk.crash(seed)

        assert EventLevelsFile(disk, ROOT).load() in (BEFORE, AFTER)


@pytest.mark.parametrize("label", ["levels.file", "levels.name"])
def test_without_either_sync_the_levels_are_lost(label: str) -> None:
    disk = disk_with_levels()
    disk.ignore_sync(label)
    EventLevelsFile(disk, ROOT).store(AFTER)
    disk.crash()

    assert EventLevelsFile(disk, ROOT).load() != AFTER


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({"b": 0}),
        msgpack.packb({"b": "2"}),
        msgpack.packb({"b": True}),
        msgpack.packb({b"b": 2}),
    ],
)
def test_a_file_that_says_nothing_sensible_says_nothing(
    tmp_path: Path, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    replace_file(DiskStorage(), tmp_path / EVENT_LEVELS_NAME, payload, label="levels")

    assert EventLevelsFile(DiskStorage(), tmp_path).load() == {}
    assert "is damaged" in caplog.text


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / EVENT_LEVELS_NAME
    EventLevelsFile(DiskStorage(), tmp_path).store(BEFORE)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert read_checked(DiskStorage(), path) == b""
    assert EventLevelsFile(DiskStorage(), tmp_path).load() == {}


def test_a_disk_that_refuses_is_spoken_of_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / EVENT_LEVELS_NAME).mkdir()
    file = EventLevelsFile(DiskStorage(), tmp_path)

    file.store(BEFORE)

    assert file.stored == {}
    assert file.load() == {}
    assert "cannot be written" in caplog.text
    assert "cannot be read" in caplog.text


# A group -----------------------------------------------------------------------------------------


async def test_a_member_that_is_away_is_known_by_what_it_said_also_after_a_restart(
    tmp_path: Path,
) -> None:
    cluster = RaftCluster(tmp_path, 3)
    await cluster.start()
    leader = await cluster.leader()
    await eventually(lambda: leader.event_level == EVENT_LEVEL, "every member was heard")
    away = NodeId("node-3")
    for member in cluster.members:
        log = cluster.logs[member]
        await eventually(lambda log=log: log.event_level == EVENT_LEVEL, "each heard all")
    for member in cluster.members:
        await cluster.stop_member(member)

    for member in cluster.members[:2]:
        await cluster.start_member(member)

    leader = await cluster.leader()
    assert leader.event_level == EVENT_LEVEL
    assert leader.behind_event_level(EVENT_LEVEL) == ()
    assert leader.behind_event_level(LATER) == (*cluster.members[:2], away)
    await cluster.stop()


async def test_the_file_is_written_when_a_level_changes_and_until_the_disk_took_it(
    tmp_path: Path,
) -> None:
    class Disk(DiskStorage):
        refuses = True
        writes = 0

        def rename(self, source: Path, target: Path) -> None:
            if self.refuses:
                raise OSError(28, "no space left on device")
            self.writes += 1
            super().rename(source, target)

    disk = Disk()
    worker = ThreadPoolExecutor(1)
    made = Mesh(LOW, "c", listen_host="127.0.0.1", listen_port=0)
    host = PySyncObjHost(
        node_id=LOW,
        cluster_id="c",
        listen_host="",
        listen_port=0,
        data_directory=tmp_path,
        storage=disk,
        environment=HostEnvironment(made, lambda _: worker, WriterPool().runner),
    )
    await host.start()
    writes = []
    with patient():
        for level in (2, 2, 2, 3, 3):
            async with dialed(made, hello_saying(level)):
                await asyncio.wrap_future(worker.submit(lambda: None))
                writes.append(disk.writes)
            disk.refuses = False
    await host.stop()

    assert EventLevelsFile(DiskStorage(), tmp_path).load() == {HIGH: 3}
    assert writes == [0, 1, 1, 2, 2]


async def test_a_member_that_was_never_heard_counts_as_one_of_the_first_release(
    tmp_path: Path,
) -> None:
    cluster = RaftCluster(tmp_path, 3)
    await cluster.start()
    files = [tmp_path / member / EVENT_LEVELS_NAME for member in cluster.members]
    await eventually(lambda: all(file.exists() for file in files), "each heard somebody")
    await cluster.settled_leader()
    for member, file in zip(cluster.members, files, strict=True):
        await cluster.stop_member(member)
        file.unlink()
    for member in cluster.members[:2]:
        await cluster.start_member(member)

    leader = await cluster.leader()
    assert leader.event_level == EVENT_LEVEL_UNREPORTED
    assert leader.behind_event_level(EVENT_LEVEL) == (NodeId("node-3"),)
    await cluster.start_member(NodeId("node-3"))
    await eventually(lambda: leader.event_level == EVENT_LEVEL, "the third was heard")
    await cluster.stop()


def tell_all(simulation: MembershipSimulation, node_id: str, level: int) -> None:
    """Report this level of ``node_id`` to every node that is up."""
    for node in simulation.nodes:
        if node.is_up:
            node.mesh.event_levels[NodeId(node_id)] = level


@run_by(membership)
async def test_a_learner_counts_as_soon_as_it_is_one(simulation: MembershipSimulation) -> None:
    newcomer = simulation.node(4)
    tell_all(simulation, "node-4", EVENT_LEVEL_UNREPORTED)
    leader = log_of(await simulation.leader())
    assert leader.event_level == EVENT_LEVEL

    await simulation.add_learner(newcomer)

    assert leader.event_level == EVENT_LEVEL_UNREPORTED
    assert leader.behind_event_level(EVENT_LEVEL) == (newcomer.node_id,)
    tell_all(simulation, "node-4", EVENT_LEVEL)
    assert leader.event_level == EVENT_LEVEL


@pytest.mark.parametrize("kind", [ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE])
@run_by(membership)
async def test_members_are_not_changed_while_one_does_not_know_such_entries(
    simulation: MembershipSimulation, *, kind: ChangeKind
) -> None:
    newcomer = simulation.node(4)
    if kind is ChangeKind.PROMOTE:
        await simulation.add_learner(newcomer)
    else:
        await newcomer.start(joining=True)
    leader = await simulation.leader()
    before, last_index = members(leader), log_of(leader).status.last_index
    follower = (await simulation.followers_of_three())[0]
    tell_all(simulation, follower.node_id, EVENT_LEVEL_UNREPORTED)

    with pytest.raises(Refused, match=f"{follower.node_id} is not known to know changes of"):
        await simulation.change(kind, newcomer)

    assert (members(leader), log_of(leader).status.last_index) == (before, last_index)
    tell_all(simulation, follower.node_id, EVENT_LEVEL)
    await simulation.change(kind, newcomer)


@run_by(membership)
async def test_the_one_that_does_not_know_such_entries_can_be_removed(
    simulation: MembershipSimulation,
) -> None:
    leader = await simulation.leader()
    older, other = await simulation.followers_of_three()
    older.crash()
    tell_all(simulation, older.node_id, EVENT_LEVEL_UNREPORTED)
    remove = MemberChange(ChangeKind.REMOVE, older.node_id)

    made = await log_of(leader).change_members(remove)

    assert made.voters == tuple(sorted((leader.node_id, other.node_id)))
    assert log_of(leader).event_level == EVENT_LEVEL
