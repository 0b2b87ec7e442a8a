"""A view that differed from a majority's is not served again before it was rebuilt.

<data_directory>/group-<id>/diverged   the view, and every copy of it here, is not to be trusted

The note is written when the replica stops and removed when all files of the view are gone. A crash
in between is repaired at the next start.
"""

from __future__ import annotations

import logging
from pathlib import Path

from nextgen.replication.ports import StateMachine
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.storage.disk import Storage

_NOTE = "diverged"

_logger = logging.getLogger(__name__)


def note_distrust(storage: Storage, directory: Path) -> None:
    """Remember, durably, that the view of the group in ``directory`` is wrong. Blocks."""
    storage.close(storage.open(directory / _NOTE, create=True))
    storage.sync_directory(directory, label="group.diverged_name")


def begin_again_if_distrusted(
    storage: Storage, directory: Path, files: SnapshotFiles, view: StateMachine
) -> None:
    """Empty the view if it was found wrong, so that it is built from the log, which is sound, or by
    a leader's snapshot if the beginning of the log was compacted. Blocks.
    """
    if _NOTE not in storage.list_names(directory):
        return
    _logger.warning("%s: the view had diverged and is built again", directory)
    view.quarantine()
    files.remove_all()
    storage.unlink(directory / _NOTE)
    storage.sync_directory(directory, label="group.trusted_again")
