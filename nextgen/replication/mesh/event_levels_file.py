"""Which events the peers of a process know, kept over its restarts.

<data_directory>/event-levels   the last reported level of each peer; replaced as a whole

Without it, processes started while another one is away would not know that process's level, and
could write no later events until it is back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgpack

from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.replication.mesh.frames import is_event_level
from nextgen.replication.ports import NodeId
from nextgen.storage.checked_file import read_checked, replace_file
from nextgen.storage.disk import Storage

EVENT_LEVELS_NAME = "event-levels"

_logger = logging.getLogger(__name__)


class EventLevelsFile:
    """The stored levels of one process's peers. Calls block."""

    def __init__(self, storage: Storage, data_directory: Path) -> None:
        self._storage = storage
        self._path = data_directory / EVENT_LEVELS_NAME
        self.stored: Mapping[NodeId, int] = {}
        """The levels that were loaded, or stored since."""

    def load(self) -> Mapping[NodeId, int]:
        """Return the stored levels; an unreadable file counts as empty: each peer reports again."""
        self.stored = self._load()
        return self.stored

    def store(self, levels: Mapping[NodeId, int]) -> None:
        """Replace the stored levels, durably. If the disk refuses, a line is logged and the earlier
        levels stay."""
        try:
            replace_file(self._storage, self._path, msgpack.packb(dict(levels)), label="levels")
        except OSError as error:
            _logger.warning("%s cannot be written: %s", self._path, error)
        else:
            self.stored = levels

    def _load(self) -> dict[NodeId, int]:
        try:
            payload = read_checked(self._storage, self._path)
        except OSError as error:
            _logger.warning("%s cannot be read: %s", self._path, error)
            return {}
        if payload is None:
            return {}
        levels = _parse(payload)
        if levels is None:
            _logger.warning("%s is damaged: peers have to say again what they know", self._path)
        return levels or {}


def _parse(payload: bytes) -> dict[NodeId, int] | None:
    try:
        stored = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException):
        return None
    if not isinstance(stored, dict):
        return None
    levels: dict[NodeId, int] = {}
    for node_id, level in stored.items():
        if not isinstance(node_id, str) or not is_event_level(level):
            return None
        if len(node_id.encode()) <= NODE_ID_BYTES_MAX:  # Earlier releases stored any.
            levels[NodeId(node_id)] = level
    return levels
