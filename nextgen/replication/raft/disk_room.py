"""Checks a replica's disk for space, and reacts to a lack of it.

    free space below the reserve   the leader takes no proposals, so that committed entries can
                                   still be folded: reads go on
    no space at all                the journal or the view stalls: nothing is acknowledged here,
                                   and the replica does not campaign
    either, and a follower has     the leader hands over to it
    more room

Both end by themselves when there is space again: journal and view try again all the time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import DISK_RESERVE_BYTES
from nextgen.replication.journal.journal import Journal
from nextgen.replication.ports import GroupId
from nextgen.replication.raft.applier import Applier
from nextgen.replication.raft.replicator import Replicator

FreeBytes = Callable[[Path], int]
"""Returns the free bytes of a directory's disk."""

_MIB = 1024 * 1024

_logger = logging.getLogger(__name__)


def disk_free_bytes(directory: Path) -> int:
    """Return the bytes that an unprivileged process may still write; 0 if they are unknown."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def endless_disk(_directory: Path) -> int:
    """Return more space than a simulation, whose disk is memory, will ever use."""
    return 2**62


class DiskRoom:
    """One replica's disk. ``look`` at it regularly."""

    def __init__(self, group_id: GroupId, journal: Journal, applier: Applier) -> None:
        self._group_id = group_id
        self._journal = journal
        self._applier = applier
        self._low: str | None = None
        self._logged: str | None = None

    @property
    def is_stalled(self) -> bool:
        """True while a necessary write waits for space."""
        return self._journal.stalled is not None or self._applier.stalled is not None

    @property
    def trouble(self) -> str | None:
        """Why no further record is accepted here, None while there is space."""
        return self._journal.stalled or self._applier.stalled or self._low

    def look(self, free_bytes: int) -> None:
        """Record the free space, and log a change."""
        is_low = free_bytes < DISK_RESERVE_BYTES
        reserve_mib = DISK_RESERVE_BYTES // _MIB
        self._low = f"less than {reserve_mib} MiB of disk are free" if is_low else None
        trouble = self.trouble
        if trouble is not None and self._logged is None:
            _logger.warning("group %s takes no writes here: %s", self._group_id, trouble)
        elif trouble is None and self._logged is not None:
            _logger.warning("group %s takes writes here again", self._group_id)
        self._logged = trouble

    def check(self, commit_position: int) -> None:
        """Return if a proposal may be accepted.

        The first record always is: without the slots in it a shard cannot even be read.

        Raises:
            Unavailable: The disk is full, or nearly so. Nothing was proposed.
        """
        trouble = self.trouble
        if trouble is not None and commit_position:
            raise Unavailable(
                f"group {self._group_id} takes no writes ({trouble}): it goes on by itself when "
                "there is space again"
            )

    def should_hand_over(self, replicator: Replicator, commit_index: int, is_stuck: bool) -> bool:
        """Return whether a leader should step down.

        ``is_stuck``: its loop or its disk has stalled. If the cause is a lack of space, it steps
        down only for a follower with more space: otherwise it keeps leading and answers reads.
        """
        if self.trouble is None:
            return is_stuck
        best = replicator.best_follower()
        if best is None:
            return False
        follower = replicator.followers[best]
        return follower.disk_takes_writes and follower.match_index >= commit_index
