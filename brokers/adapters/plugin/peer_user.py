"""Whose process is at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import os
import socket
import struct

ROOT = 0
_CREDENTIALS = struct.Struct("3i")
"""Process id, user id, group id."""


def user_of_peer(connection: socket.socket) -> int | None:
    """Return the user id of the process that listened, or connected, at the other end.

    None where the platform does not say it: the permissions of the file are what is left.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    _pid, user, _group = _CREDENTIALS.unpack(raw)
    return int(user)


def is_trusted(user: int | None) -> bool:
    """Return whether a process of this user may be the broker that this process commands."""
    return user is None or user in (os.geteuid(), ROOT)
