"""Round robin among consumers: by priority level, and within a level in turn."""

from __future__ import annotations

from itertools import groupby
from typing import Generic, Protocol, TypeVar

from nextgen.kernel.limits.pulsar import ROUND_ROBIN_ENTRIES


class Member(Protocol):
    """The properties of a consumer that taking turns needs."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def priority_level(self) -> int: ...


MemberType = TypeVar("MemberType", bound=Member)


class RoundRobin(Generic[MemberType]):
    """Gives each member ``turn_entries`` entries before it is the next one's turn.

    A ready member of a higher level (a lower number) comes before all members of lower levels.
    """

    __slots__ = ("_current", "_left", "_levels", "_turn_entries")

    def __init__(self, turn_entries: int = ROUND_ROBIN_ENTRIES) -> None:
        self._levels: list[list[MemberType]] = []
        self._current: MemberType | None = None
        self._left = 0
        self._turn_entries = turn_entries

    def set_members(self, members: list[MemberType]) -> None:
        """Replace the members. The member that was next stays near the front."""
        by_level = sorted(members, key=lambda member: member.priority_level)
        self._levels = [
            list(level) for _, level in groupby(by_level, lambda member: member.priority_level)
        ]
        self._current = None

    def next(self) -> MemberType | None:
        """Return the member that gets the next entry, None if none is ready."""
        current = self._current
        if current is not None and self._left > 0 and current.is_ready:
            self._left -= 1
            return current
        for level in self._levels:
            for index, member in enumerate(level):
                if member.is_ready:
                    # All members up to this one move behind the others.
                    level[:] = level[index + 1 :] + level[: index + 1]
                    self._current = member
                    self._left = self._turn_entries - 1
                    return member
        self._current = None
        return None
