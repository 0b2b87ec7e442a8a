"""``Groups`` of a node: Raft over the network, journals and views on disk.

<data directory>/cluster.binpb        the last known map and addresses
<data directory>/group-<id>/view/     the view of one shard; beside it Raft's files
<data directory>/group-<id>.removed/  the last replica of the shard that was removed from here

All of it but SQLite's own files goes through the host's ``Storage``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import structlog
from google.protobuf.message import DecodeError

from nextgen.kernel.errors import JournalCorrupted, Overloaded, Unavailable
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.host.verification import Verified, ViewVerification
from nextgen.replication.ports import GroupId, NodeId
from nextgen.replication.view.store import ViewStore
from nextgen.storage.disk import DiskStorage, Storage, read_content, replace_content
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from shards.node.shard_node import OpenedGroup
from shards.projections.rows import query_of
from shards.projections.stored_view import open_view_store

_KNOWN_FILE = "cluster.binpb"
_ASIDE_SUFFIX = ".removed"

_logger = structlog.get_logger(__name__)


class RaftGroups:
    """Opens groups in one data directory, which only this process uses."""

    def __init__(self, host: PySyncObjHost, data_directory: Path) -> None:
        self._host = host
        self._storage = host.storage
        self._data_directory = data_directory
        self._verifications: dict[int, ViewVerification] = {}
        self._verifying = asyncio.Lock()

    async def verify(self, shard_id: int, at_position: int) -> Verified:
        """Rebuild and compare this node's replica of a shard; see ``ViewVerification``.

        Raises:
            Overloaded: Another replica is being verified: each takes disk space and half a core.
            Unavailable: The shard has no replica here, or it cannot be verified at the moment.
        """
        verification = self._verifications.get(shard_id)
        if verification is None:
            raise Unavailable(f"shard {shard_id} has no replica here")
        if self._verifying.locked():
            raise Overloaded("this node verifies a replica already")
        async with self._verifying:
            return await verification.run(at_position)

    async def open(
        self, shard_id: int, members: Sequence[NodeId], *, is_joining: bool, may_be_lost: bool
    ) -> OpenedGroup:
        directory = self._data_directory / f"group-{shard_id}"
        stores: list[ViewStore] = []

        def open_view() -> ViewStore:
            stores.append(open_view_store(directory / "view"))
            return stores[-1]

        log = await self._host.open_group(
            GroupId(shard_id), members, open_view, joining=is_joining, rejoining=may_be_lost
        )
        self._verifications[shard_id] = ViewVerification(
            log,
            stores[0],
            directory / "verify",
            open_view_store,
        )
        return OpenedGroup(log, query_of(stores[0].reader), stores[0].read_transaction)

    async def put_aside(self, shard_ids: AbstractSet[int]) -> Sequence[int]:
        closed = shard_ids - {group.engine.group_id for group in self._host.groups}
        try:
            return await asyncio.to_thread(self._put_aside, sorted(closed))
        except OSError as error:
            # It is no longer a replica; the next reconciliation with the map tries again.
            _logger.warning("data of a removed replica stays", why=str(error))
            return ()

    def disk_free_bytes(self) -> int:
        return self._host.disk_free_bytes()

    async def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        await self._host.set_peer_address(node_id, host, port)

    async def store(self, known: ClusterUpdate) -> None:
        try:
            await asyncio.to_thread(self._store, known.SerializeToString(deterministic=True))
        except OSError as error:
            raise Unavailable(f"{self._data_directory} takes no files: {error}") from error

    def stored(self) -> ClusterUpdate | None:
        """Return the last stored map and addresses, None if there are none."""
        return known_cluster(self._data_directory, self._storage)

    def _put_aside(self, shard_ids: Sequence[int]) -> Sequence[int]:
        """Rename the groups' folders. The note that this node was a member stays: it may have
        voted."""
        storage, moved = self._storage, []
        # One reading of the folder: of many shards a node has replicas of few.
        present = set(storage.list_names(self._data_directory))
        for shard_id in shard_ids:
            if f"group-{shard_id}" not in present:
                continue
            directory = self._data_directory / f"group-{shard_id}"
            aside = directory.with_name(f"{directory.name}{_ASIDE_SUFFIX}")
            if not storage.is_directory(directory):
                continue
            storage.remove_tree(aside)
            storage.rename(directory, aside)
            moved.append(shard_id)
        if moved:
            storage.sync_directory(self._data_directory, label="group.put_aside")
        return moved

    def _store(self, data: bytes) -> None:
        path = self._data_directory / _KNOWN_FILE
        # After a restart the same map comes again: skipping that write needs no disk space.
        if read_content(self._storage, path) != data:
            replace_content(self._storage, path, data, label="cluster")


def known_cluster(data_directory: Path, storage: Storage | None = None) -> ClusterUpdate | None:
    """Return the map and addresses that a node stored last, None if there are none.

    Raises:
        JournalCorrupted: The file cannot be read.
    """
    path = data_directory / _KNOWN_FILE
    data = read_content(storage or DiskStorage(), path)
    if data is None:
        return None
    try:
        return ClusterUpdate.FromString(data)
    except DecodeError as error:
        raise JournalCorrupted(
            f"{path} is damaged: remove it, the cluster manager will send it again"
        ) from error
