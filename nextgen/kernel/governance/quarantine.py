"""Whether a broker is in quarantine, although the clocks of nodes may differ."""

from __future__ import annotations

from nextgen.kernel.limits.placement import QUARANTINE_MS


def is_quarantined(until_ms: int, now_ms: int) -> bool:
    """Return whether a quarantine that ends at ``until_ms`` lasts at ``now_ms``; both Unix time.

    Another node stamped the end, ``QUARANTINE_MS`` ahead of its own clock. An end that is more than
    twice as far ahead of this clock says that the clocks differ: then there is no quarantine. To
    believe it would close a sound broker for as long as the clocks are apart.
    """
    return now_ms < until_ms <= now_ms + 2 * QUARANTINE_MS
