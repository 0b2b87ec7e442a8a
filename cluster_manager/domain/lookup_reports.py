"""Windows of lookups that discovery processes report: each minute of a process is recorded once.

The state is the last minute of each process. Windows are sent in order, so one that is not later
was recorded already or is too late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.lookup_slo import LOOKUP_WINDOW_MS, LookupWindow
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.placement import (
    LOOKUP_PROCESS_BYTES_MAX,
    LOOKUP_PROCESSES_MAX,
    LOOKUP_WINDOW_AHEAD_MS_MAX,
    LOOKUP_WINDOW_LATE_MS_MAX,
    LOOKUPS_PER_WINDOW_MAX,
)

ProcessKey = tuple[str, str]
"""Node id and process."""


@dataclass(frozen=True, slots=True)
class RecordLookupWindow:
    """A discovery process reported this window."""

    window: LookupWindow
    now_ms: int
    """Unix time of the cluster manager's clock."""


@dataclass(frozen=True, slots=True)
class LookupWindowRecorded:
    """The window counts. Its verdict follows from its numbers."""

    window: LookupWindow


@dataclass(frozen=True, slots=True)
class LookupReports:
    """When the last window of each process began. The mapping is never changed in place."""

    last_began_at_ms: Mapping[ProcessKey, int] = field(default_factory=dict)


INITIAL = LookupReports()


def decide(
    state: LookupReports, command: RecordLookupWindow
) -> Accepted[LookupWindowRecorded] | Rejected:
    """Accept a possible window that is later than the last one of its process."""
    window = command.window
    absurd = _why_absurd(window, command.now_ms)
    if absurd:
        return Rejected(RejectionCode.NOT_ALLOWED, f"{_name(window)} {absurd}")
    key = (window.node_id, window.process)
    last_ms = state.last_began_at_ms.get(key)
    if last_ms is not None and window.began_at_ms <= last_ms:
        return Rejected(
            RejectionCode.ALREADY_EXISTS,
            f"{_name(window)} is not later than the last that was taken, of {last_ms}",
        )
    known = _remembered(state, window.began_at_ms)
    if key not in known and len(known) >= LOOKUP_PROCESSES_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{len(known)} processes report windows, {LOOKUP_PROCESSES_MAX} are allowed",
        )
    return Accepted((LookupWindowRecorded(window),))


def evolve(state: LookupReports, event: LookupWindowRecorded) -> LookupReports:
    """Return the reports after ``event``."""
    window = event.window
    known = _remembered(state, window.began_at_ms)
    return LookupReports({**known, (window.node_id, window.process): window.began_at_ms})


def forgotten_before_ms(began_at_ms: int) -> int:
    """Return the time before which a process's last window must have begun to be forgotten."""
    return began_at_ms - 2 * LOOKUP_WINDOW_LATE_MS_MAX


def _remembered(state: LookupReports, began_at_ms: int) -> Mapping[ProcessKey, int]:
    """Return the processes that may still send windows, at the time of this window."""
    limit_ms = forgotten_before_ms(began_at_ms)
    return {key: last for key, last in state.last_began_at_ms.items() if last >= limit_ms}


def _why_absurd(window: LookupWindow, now_ms: int) -> str:
    if not 0 < len(window.process.encode()) <= LOOKUP_PROCESS_BYTES_MAX:
        return f"names its process by more than {LOOKUP_PROCESS_BYTES_MAX} bytes, or not at all"
    if not 0 < len(window.node_id.encode()) <= NODE_ID_BYTES_MAX:
        return "names no node"
    if window.began_at_ms % LOOKUP_WINDOW_MS:
        return "does not begin with a minute"
    if window.began_at_ms > now_ms + LOOKUP_WINDOW_AHEAD_MS_MAX:
        return f"lies in the future: it is {now_ms} here"
    if window.began_at_ms < now_ms - LOOKUP_WINDOW_LATE_MS_MAX:
        return f"comes too late: it is {now_ms} here"
    if not 0 < window.lookups <= LOOKUPS_PER_WINDOW_MAX:
        return f"has {window.lookups} lookups, 1 to {LOOKUPS_PER_WINDOW_MAX} are possible"
    if not window.too_slow <= window.errors <= window.lookups:
        return (
            f"has {window.errors} errors of {window.lookups} lookups, "
            f"of which {window.too_slow} took too long"
        )
    return ""


def _name(window: LookupWindow) -> str:
    return f"window {window.began_at_ms} of {window.node_id} {window.process}"
