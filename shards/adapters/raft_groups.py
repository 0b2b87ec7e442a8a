"""``Groups`` of a node: Raft over the network, journals and views on disk.

<data directory>/cluster.binpb     what was known of the cluster: map and addresses
<data directory>/group-<id>/view/  the view of one shard; beside it what Raft keeps
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError

from nextgen.kernel.errors import JournalCorrupted, Unavailable
from nextgen.replication.ports import GroupId, NodeId
from nextgen.replication.raft_host import PySyncObjHost
from nextgen.replication.view_store import ViewStore
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from shards.node import OpenedGroup
from shards.projections.fold import fold
from shards.projections.rows import query_of
from shards.projections.tables import METADATA

_KNOWN_FILE = "cluster.binpb"


class RaftGroups:
    """Opens groups in one data directory, which is open for this process alone."""

    def __init__(self, host: PySyncObjHost, data_directory: Path) -> None:
        self._host = host
        self._data_directory = data_directory

    async def open(
        self, shard_id: int, members: Sequence[NodeId], *, is_led_elsewhere: bool
    ) -> OpenedGroup:
        directory = self._data_directory / f"group-{shard_id}"
        # Nothing on this disk though the shard is led already: it may have voted and forgotten.
        rejoining = is_led_elsewhere and not directory.exists()
        stores: list[ViewStore] = []

        def open_view() -> ViewStore:
            stores.append(ViewStore(directory / "view", METADATA, fold))
            return stores[-1]

        log = await self._host.open_group(
            GroupId(shard_id), members, open_view, rejoining=rejoining
        )
        return OpenedGroup(log, query_of(stores[0].reader))

    async def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        await self._host.set_peer_address(node_id, host, port)

    async def store(self, known: ClusterUpdate) -> None:
        try:
            await asyncio.to_thread(self._store, known.SerializeToString(deterministic=True))
        except OSError as error:
            raise Unavailable(f"{self._data_directory} takes no files: {error}") from error

    def stored(self) -> ClusterUpdate | None:
        """Return what was stored last, None if nothing ever was.

        Raises:
            JournalCorrupted: It cannot be read.
        """
        path = self._data_directory / _KNOWN_FILE
        try:
            return ClusterUpdate.FromString(path.read_bytes())
        except FileNotFoundError:
            return None
        except DecodeError as error:
            raise JournalCorrupted(
                f"{path} is damaged: remove it, the cluster manager will send it again"
            ) from error

    def _store(self, data: bytes) -> None:
        path = self._data_directory / _KNOWN_FILE
        # A restart learns what it knew: not writing it again needs no space on a full disk.
        if path.exists() and path.read_bytes() == data:
            return
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        descriptor = os.open(self._data_directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
