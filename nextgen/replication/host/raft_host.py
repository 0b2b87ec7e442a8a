"""All Raft groups of one process: one mesh, one heartbeat timer, one place on disk.

<data_directory>/group-<id>/journal/    segments and mark
<data_directory>/group-<id>/snapshots/  complete snapshots, at most two, and what arrives of one
<data_directory>/group-<id>/diverged    the view is not to be trusted: see ``distrust``
<data_directory>/group-<id>.member      this node has been a member: it may have voted
<data_directory>/event-levels           which events the peers know: see ``event_levels_file``
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.kernel.limits.snapshot import SNAPSHOT_TRANSFERS_MAX
from nextgen.replication.config import RaftConfig
from nextgen.replication.election.library_check import check_library
from nextgen.replication.host.distrust import begin_again_if_distrusted, note_distrust
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.handovers import Handovers
from nextgen.replication.host.shared_heartbeats import SharedHeartbeats
from nextgen.replication.host.view_join import join_view
from nextgen.replication.journal.journal import Journal, JournalBroken
from nextgen.replication.journal.unverified import BLANK_INDEX, UNKNOWN_INDEX
from nextgen.replication.journal.worker import Runner
from nextgen.replication.journal.writers import WriterPool
from nextgen.replication.mesh.event_levels_file import EventLevelsFile
from nextgen.replication.mesh.frames import HEARTBEATS_CHANNEL, Message
from nextgen.replication.mesh.handshake import ClusterSecret, MeshTls
from nextgen.replication.mesh.mesh import Mesh, MeshChannel
from nextgen.replication.ports import (
    AppliedPoint,
    Configuration,
    GroupId,
    NodeId,
    StateMachine,
)
from nextgen.replication.raft.disk_room import FreeBytes, disk_free_bytes, endless_disk
from nextgen.replication.raft.replica import RaftReplica
from nextgen.replication.retention.named_readers import NamedReaders, ReadersFile
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.replication.snapshot.transfer import SnapshotTransfer
from nextgen.replication.view.turns import ViewTurns
from nextgen.storage.disk import DiskStorage, Storage

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class HostMesh(Protocol):
    """The part of a mesh that a host needs; see ``Mesh``."""

    @property
    def port(self) -> int: ...
    @property
    def connection_count(self) -> int: ...
    @property
    def outbox_bytes(self) -> int: ...
    @property
    def unproven_count(self) -> int: ...
    @property
    def refused_count(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def register(self, channel: int, receiver: MeshChannel) -> None: ...
    def unregister(self, channel: int) -> None: ...
    async def set_peer_address(self, node_id: NodeId, host: str, port: int) -> None: ...
    def send(self, node_id: NodeId, channel: int, message: Message) -> bool: ...
    def is_connected(self, node_id: NodeId) -> bool: ...
    def peer_event_level(self, node_id: NodeId) -> int: ...
    def peer_shares_heartbeats(self, node_id: NodeId) -> bool: ...
    def keep_event_levels(
        self, known: Mapping[NodeId, int], on_heard: Callable[[Mapping[NodeId, int]], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """Network and threads of a host. The simulation brings its own."""

    mesh: HostMesh
    make_executor: Callable[[str], Executor]  # One worker, with a name for its thread.
    make_runner: Callable[[], Runner]  # For one journal.
    free_bytes: FreeBytes = endless_disk


def host_environment(
    node_id: NodeId,
    cluster_id: str,
    *,
    listen_host: str,
    listen_port: int,
    secret: ClusterSecret | None = None,
    tls: MeshTls | None = None,
) -> HostEnvironment:
    """Return sockets and threads."""
    return HostEnvironment(
        mesh=Mesh(
            node_id,
            cluster_id,
            listen_host=listen_host,
            listen_port=listen_port,
            secret=secret,
            tls=tls,
        ),
        make_executor=lambda name: ThreadPoolExecutor(1, thread_name_prefix=name),
        make_runner=WriterPool().runner,
        free_bytes=disk_free_bytes,
    )


class PySyncObjHost:
    """All Raft groups of one process: one listener, one connection to each peer.

    ``listen_port`` 0 takes any free port: see ``port``.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        cluster_id: str,
        listen_host: str,
        listen_port: int,
        data_directory: Path,
        config: RaftConfig | None = None,
        storage: Storage | None = None,
        random_source: random.Random | None = None,
        environment: HostEnvironment | None = None,
        secret: ClusterSecret | None = None,
        tls: MeshTls | None = None,
    ) -> None:
        """``secret`` is the one that peers must prove, ``tls`` what they need in its place; a given
        ``environment`` has its own."""
        check_library()
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._data_directory = data_directory
        self._config = config or RaftConfig()
        self._storage = storage or DiskStorage()
        self._random = random_source or random.Random()
        self._environment = environment or host_environment(
            node_id,
            cluster_id,
            listen_host=listen_host,
            listen_port=listen_port,
            secret=secret,
            tls=tls,
        )
        self._mesh = self._environment.mesh
        self._groups: dict[GroupId, PySyncObjGroup] = {}
        self._heartbeats = SharedHeartbeats(self._mesh, self._groups.get)
        self._mesh.register(HEARTBEATS_CHANNEL, self._heartbeats)
        self._handovers = Handovers()
        self._snapshot_executor = self._environment.make_executor("snapshot")
        self._transfer_executor = self._environment.make_executor("transfer")
        self._view_turns = ViewTurns(lambda: self._environment.make_executor("view"))
        self._transfers = asyncio.Semaphore(SNAPSHOT_TRANSFERS_MAX)
        self._event_levels = EventLevelsFile(self._storage, data_directory)
        self._heartbeat: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<PySyncObjHost node={self._node_id} groups={sorted(self._groups)}>"

    @property
    def port(self) -> int:
        """Where peers reach this process, once started."""
        return self._mesh.port

    @property
    def mesh(self) -> HostMesh:
        """The way to the other processes; read only."""
        return self._mesh

    @property
    def storage(self) -> Storage:
        """The disk of the data directory, for other files in it."""
        return self._storage

    @property
    def groups(self) -> Sequence[PySyncObjGroup]:
        """The open replicas."""
        return tuple(self._groups.values())

    async def start(self) -> None:
        # On the loop: a file of a few hundred bytes, before there is anything to wait for it.
        self._mesh.keep_event_levels(self._event_levels.load(), self._store_event_levels)
        await self._mesh.start()
        self._schedule_heartbeat()

    async def set_peer_address(self, node_id: NodeId, host: str, port: int) -> None:
        await self._mesh.set_peer_address(node_id, host, port)

    async def open_group(
        self,
        group_id: GroupId,
        members: Sequence[NodeId],
        state_machine: StateMachine | Callable[[], StateMachine],
        *,
        joining: bool = False,
        rejoining: bool = False,
    ) -> PySyncObjGroup:
        """Open this process's replica of ``group_id``, from disk if its journal is there.

        ``state_machine`` may be a function that opens it: it is called on a worker thread after
        the journal was found sound, so that a refusal to start changes no view.

        ``members`` are the voters that the group began with; a configuration in the log overrides
        them. ``joining``: this node is not among them, and knows nothing of its group until it
        hears from a leader. From then on it votes, and it campaigns once it is a voter.

        A replica without a journal votes only after all other voters have answered: either none of
        them has ever had an entry, or a leader has to restore the entries that this replica may
        have acknowledged (ADR 0048). ``rejoining``: the group has had a leader before, so it is
        not founded again even if every disk was lost; the note of a membership has the same effect.

        Raises:
            JournalCorrupted: The journal has a gap that no leader can repair; the message
                describes how to rebuild the replica. Nothing on disk was changed.
            WrongCluster: The directory belongs to another cluster, node or group.
        """
        assert group_id not in self._groups, f"group {group_id} is open already"
        assert joining or self._node_id in members, f"{self._node_id} is no member of {group_id}"
        given = Configuration(() if joining else tuple(sorted(members)))
        broken: list[Callable[[Exception], None]] = []

        def journal_broke(error: JournalBroken) -> None:
            for report in broken:
                report(error)

        journal, files, readers, view, applied = await self._blocking(
            lambda: self._open_files(
                group_id,
                given,
                state_machine,
                journal_broke,
                rejoining=rejoining,
                is_founding=not joining and len(members) > 1,
            )
        )
        if journal.unverified_index not in (0, BLANK_INDEX):
            _logger.warning(
                "group %s: this replica lost a part of its log (%s); it votes again when a "
                "leader has given it back",
                group_id,
                journal.recovery.outcome.value,
            )
        group = PySyncObjGroup(
            applied=applied,
            handovers=self._handovers,
            on_stopped=self._forget,
            event_level_of=self._event_level_of,
        )
        broken.append(group.broken)
        self._wire(group, group_id, given, journal, view, files, readers, applied)
        self._groups[group_id] = group
        self._mesh.register(group_id, group.engine)
        return group

    async def stop(self) -> None:
        """Hand leadership over, stop every group, close the mesh."""
        await asyncio.gather(*(group.stop() for group in self.groups))
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        await self._mesh.stop()
        self._snapshot_executor.shutdown(wait=True)
        self._transfer_executor.shutdown(wait=True)
        self._view_turns.close()

    def abandon(self) -> None:
        """Release everything at once, as a killed process would. For simulations.

        Nothing is written, handed over or awaited; the environment must be dead already.
        """
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for group in self.groups:
            group.abandon()
        self._groups.clear()

    # Inside -----------------------------------------------------------------------------------

    def _was_member(self, group_id: GroupId) -> bool:
        return _member_file(group_id) in self._storage.list_names(self._data_directory)

    def _remember_member(self, group_id: GroupId) -> None:
        """Note, before the first vote, that this node has been a member.

        The note is outside the journal's folder, which an operator moves away when it is damaged.
        """
        storage = self._storage
        note = storage.open(self._data_directory / _member_file(group_id), create=True)
        storage.close(note)
        storage.sync_directory(self._data_directory, label="group.member_name")

    def _open_files(
        self,
        group_id: GroupId,
        given: Configuration,
        state_machine: StateMachine | Callable[[], StateMachine],
        on_broken: Callable[[JournalBroken], None],
        *,
        rejoining: bool,
        is_founding: bool,
    ) -> tuple[Journal, SnapshotFiles, ReadersFile, StateMachine, AppliedPoint]:
        """Recover the journal and open the view. Blocks."""
        directory = self._data_directory / f"group-{group_id}"
        was_member = self._was_member(group_id)
        unverified_if_new = BLANK_INDEX if is_founding else 0
        if rejoining or was_member:
            unverified_if_new = UNKNOWN_INDEX
        journal = Journal.open(
            self._storage,
            directory / "journal",
            cluster_id=self._cluster_id,
            group_id=group_id,
            node_id=self._node_id,
            unverified_if_new=unverified_if_new,
            runner=self._environment.make_runner(),
            on_broken=on_broken,
            segment_bytes=self._config.journal_segment_bytes,
        )
        view: StateMachine | None = None
        try:
            if not was_member:
                self._remember_member(group_id)
            files = SnapshotFiles(
                self._storage, directory / "snapshots", self._config.snapshot_progress_bytes
            )
            files.prepare()
            view = state_machine() if callable(state_machine) else state_machine
            begin_again_if_distrusted(self._storage, directory, files, view)
            voters = (journal.configuration or given).voters
            has_others = any(voter != self._node_id for voter in voters)
            applied = join_view(journal, view, files, directory, has_others=has_others)
            files.drop_up_to(applied.index)
            files.partial.drop_if_behind(applied.index)
            readers = ReadersFile(self._storage, directory)
            return journal, files, readers, view, applied
        except BaseException:
            journal.close()
            if view is not None and view is not state_machine:
                view.close()
            raise

    def _wire(
        self,
        group: PySyncObjGroup,
        group_id: GroupId,
        given: Configuration,
        journal: Journal,
        state_machine: StateMachine,
        files: SnapshotFiles,
        readers_file: ReadersFile,
        applied: AppliedPoint,
    ) -> None:
        replica = RaftReplica(
            group_id=group_id,
            node_id=self._node_id,
            given=given,
            journal=journal,
            state_machine=state_machine,
            applied=applied,
            link=self._heartbeats,
            config=self._config,
            turns=self._view_turns,
            random_source=self._random,
            owner=group,
        )
        snapshots = SnapshotTransfer(
            replica,
            state_machine,
            files,
            self._snapshot_executor,
            transfer_executor=self._transfer_executor,
            turns=self._view_turns,
            transfers=self._transfers,
            on_broken=group.broken,
        )

        # Before anything is applied, so that no snapshot cuts off the entries that they pin.
        readers = NamedReaders(snapshots.retention, readers_file, self._blocking)

        async def release() -> None:
            self._mesh.unregister(group_id)
            # Not on the loop: callers are redirected to the next leader at once.
            await self._blocking(state_machine.close)

        async def distrust() -> None:
            directory = self._data_directory / f"group-{group_id}"
            await self._blocking(lambda: note_distrust(self._storage, directory))

        group.attach(replica, snapshots, readers, state_machine, release, distrust)

    def _event_level_of(self, node_id: NodeId) -> int:
        return EVENT_LEVEL if node_id == self._node_id else self._mesh.peer_event_level(node_id)

    def disk_free_bytes(self) -> int:
        """Return the bytes that may still be written to the disk of this process's groups."""
        return self._environment.free_bytes(self._data_directory)

    def _store_event_levels(self, levels: Mapping[NodeId, int]) -> None:
        # One worker writes them, in order; a stop waits for it. What a disk refused is
        # tried again with the next hello.
        if levels != self._event_levels.stored:
            self._snapshot_executor.submit(self._event_levels.store, levels)

    def _forget(self, group: PySyncObjGroup) -> None:
        self._groups.pop(group.engine.group_id, None)

    def _schedule_heartbeat(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._config.heartbeat_ms / 1000
        self._heartbeat = loop.call_at(due, self._beat, due)

    def _beat(self, due: float) -> None:
        # All groups at once, so that what goes to one peer leaves in one message.
        late_ms = (asyncio.get_running_loop().time() - due) * 1000
        groups = self.groups
        free_bytes = self._environment.free_bytes(self._data_directory) if groups else 0
        with self._heartbeats.gathering():
            for group in groups:
                group.engine.disk.look(free_bytes)
                group.engine.heartbeat(late_ms)
                group.snapshots.compact_if_at_rest()
        self._schedule_heartbeat()

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._snapshot_executor, work)


def _member_file(group_id: GroupId) -> str:
    return f"group-{group_id}.member"
