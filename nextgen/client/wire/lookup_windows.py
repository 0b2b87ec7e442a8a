"""Windows of lookups, to protobuf and back."""

from __future__ import annotations

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.lookup_slo import LATENCY_CLASSES, LookupWindow
from protos.nextgen.v1.events_pb2 import LookupWindowRecorded


def window_to_proto(window: LookupWindow) -> LookupWindowRecorded:
    """Return ``window`` with its verdict."""
    return LookupWindowRecorded(
        node_id=window.node_id,
        process=window.process,
        began_at_ms=window.began_at_ms,
        lookups=window.lookups,
        errors=window.errors,
        too_slow=window.too_slow,
        latency_counts=window.latency_counts,
        is_bad=window.is_bad,
        why_bad=window.why_bad,
    )


def window_from_proto(stored: LookupWindowRecorded) -> LookupWindow:
    """Return the window; its verdict follows from its counts.

    Raises:
        InvalidRequest: Its counts contradict each other.
    """
    if len(stored.latency_counts) != LATENCY_CLASSES:
        classes = len(stored.latency_counts)
        raise InvalidRequest(f"a window has {LATENCY_CLASSES} classes of latency, not {classes}")
    window = LookupWindow(
        node_id=stored.node_id,
        process=stored.process,
        began_at_ms=stored.began_at_ms,
        errors=stored.errors,
        latency_counts=tuple(stored.latency_counts),
    )
    if window.lookups != stored.lookups or window.too_slow != stored.too_slow:
        raise InvalidRequest(
            f"the window has {stored.lookups} lookups, {stored.too_slow} of them too slow; "
            f"its classes have {window.lookups} and {window.too_slow}"
        )
    return window
