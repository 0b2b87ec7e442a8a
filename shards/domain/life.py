"""Life of a parent: while it is being deleted nothing is created below it."""

from __future__ import annotations

from enum import IntEnum


class Life(IntEnum):
    """Status of a tenant or namespace. The numbers are stored: they never change."""

    ACTIVE = 0
    DELETING = 1
