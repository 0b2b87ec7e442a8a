"""Which events a program knows, as one number: what lets two releases share a group.

Events only grow, and a replica that meets one it does not know stops for good. So each process
says up to which level it knows events, and a leader writes those of a later level only when every
member of its group has said that it knows them. Each component has a table of its events' levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode

EVENT_LEVEL_UNSAID = 1
"""What a process knows that says nothing: the events of the releases without this number."""

EVENT_LEVEL = 4
"""What this program knows. Raised by one with the first event type, or form of an entry, that the
release before does not know; never lowered."""

EVENT_LEVEL_MAX = 10_000
"""The highest level that a process may say it knows; a higher one is a mistake, not a release."""

CONFIGURATION_LEVEL = 2
"""Of the entries that hold a group's configuration: they came in with changes of the members."""


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
