"""The check of acknowledgement intervals over lists that are already complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nextgen.audit.interval_check import AcknowledgedInterval, Grant, IntervalAudit
from nextgen.audit.verdict import Finding


def check_intervals(
    intervals: Iterable[AcknowledgedInterval],
    grants: Iterable[Grant],
    *,
    tolerance_ns: int = 0,
    has_whole_log: bool = True,
) -> Iterator[Finding]:
    """Yield what is wrong with all intervals and a log that was read to its end."""
    audit = IntervalAudit(tolerance_ns)
    audit.has_whole_log = has_whole_log
    for grant in grants:
        yield from audit.granted(grant)
    for interval in intervals:
        yield from audit.heard(interval)
    yield from audit.log_is_read()
