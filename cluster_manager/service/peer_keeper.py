"""Adds the replicas that the flags name back to the cluster manager's group.

All of them are voters from the beginning, so this acts only after a promotion. The last survivor is
then the only voter, and the others return with empty disks (ADR 0049).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.replication.ports import ChangeKind, MemberChange, NodeId, ReplicatedLog

LOOK_AGAIN_S = 1.0
"""Between two checks. Only a returning replica waits for the next one."""

_logger = structlog.get_logger(__name__)


class PeerKeeper:
    """Changes one member at a time while this replica leads; see the module."""

    def __init__(
        self,
        log: ReplicatedLog,
        peers: Sequence[NodeId],
        is_connected: Callable[[NodeId], bool],
    ) -> None:
        self._log = log
        self._peers = peers
        self._is_connected = is_connected

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            if self._log.is_leader and (change := self._next_change()) is not None:
                await self._make(change)

    def _next_change(self) -> MemberChange | None:
        """Return the next change; None if no replica is missing, or no missing one is connected."""
        status = self._log.status
        present = {member.node_id: member.match_index for member in status.progress}
        for peer in self._peers:
            if peer in status.members:
                continue
            if peer not in status.learners:
                if self._is_connected(peer):
                    return MemberChange(ChangeKind.ADD_LEARNER, peer)
            elif present.get(peer):
                return MemberChange(ChangeKind.PROMOTE, peer)
        return None

    async def _make(self, change: MemberChange) -> None:
        try:
            configuration = await self._log.change_members(change)
        except MetadataError as error:
            _logger.info("members wait", node=change.node_id, why=str(error))
            return
        _logger.info(
            "members changed",
            change=change.kind.value,
            node=change.node_id,
            voters=list(configuration.voters),
            learners=list(configuration.learners),
        )
