"""The event level: which event types a program can read, as one number.

Event types are only ever added, and a replica that reads an unknown one stops for good. So each
process reports its level, and a leader appends events of a later level only when every member of
its group has reported at least that level. That lets two releases share a group (ADR 0041).
Each component has a table of its events' levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode

EVENT_LEVEL_UNREPORTED = 1
"""The level of a process that reports none: it is of a release before levels existed."""

EVENT_LEVEL = 11
"""The level of this program. Raised by one with the first event type, or form of an entry, that the
release before does not know; never lowered."""

EVENT_LEVEL_MAX = 10_000
"""The highest level that a process may report; a higher one is a mistake, not a release."""

CONFIGURATION_LEVEL = 2
"""Level of entries with a group's configuration, which were introduced with membership changes."""


def not_known_everywhere(group: str, members: Sequence[str], what: str) -> Refused:
    """Return why ``what`` is not written to the log of ``group``: these members may not know it.

    Final until an operator has acted, so no client repeats it blindly.
    """
    are, them = ("is", "it") if len(members) == 1 else ("are", "them")
    return Refused(
        RejectionCode.NOT_ALLOWED,
        f"{group}: {', '.join(members)} {are} not known to know {what}: "
        f"upgrade or start {them} first",
    )
