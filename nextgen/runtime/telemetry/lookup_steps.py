"""The 23 steps of a lookup that assigns, as marks in traces (docs/flows/lookup.md).

Steps 9 to 23 are in the trace of the lookup. Steps that happened earlier have traces of their own.
Both ends derive the trace's id from its subject, so no message carries it:

    session   1 2 3 4   of a broker session
    grant     6 7       of a broker session's capacity
    lease     5 8       of a shard's capacity on a broker session

Step 11 names these three. Metadata that a session already has is marked with the trace in which it
was sent. A mark is a span without a length, with a name like ``step 19 assign topic``.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from types import MappingProxyType

from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from nextgen.runtime.telemetry import tracing

STEP_NAMES = MappingProxyType(
    {
        1: "establish session",
        2: "session id",
        3: "heartbeat",
        4: "load report",
        5: "lease capacity units",
        6: "ask for capacity units",
        7: "capacity units granted",
        8: "capacity units leased",
        9: "look topic up",
        10: "look topic up at its controller",
        11: "assign topic",
        12: "assignment received",
        13: "subscribe tenant metadata",
        14: "subscribe namespace metadata",
        15: "subscribe topic metadata",
        16: "tenant metadata",
        17: "namespace metadata",
        18: "topic metadata",
        19: "assign topic to broker",
        20: "sync position",
        21: "sync position to controller",
        22: "controller answers",
        23: "discovery answers",
    }
)
"""By the numbers of the seed's diagram."""

STEP = "step"
"""Attribute of a mark: its number."""

AHEAD = "ahead"
"""Attribute of a mark of what happened earlier, in the trace that ``TRACE`` names if it was
recorded."""

TRACE = "trace"
SESSION_TRACE, GRANT_TRACE, LEASE_TRACE = "session_trace", "grant_trace", "lease_trace"
REFERENCES = (SESSION_TRACE, GRANT_TRACE, LEASE_TRACE)
"""Attributes of step 11: the traces in which steps 1 to 8 are."""

_TRACE_ID_DIGITS = 32
_SPAN_ID_DIGITS = 16


def step(
    number: int,
    parent: Span | str | None = None,
    at: float | None = None,
    /,
    **attributes: AttributeValue,
) -> None:
    """Mark a step, below the current span unless ``parent`` is given; see ``tracing.record``.

    ``at`` is a moment of ``time.monotonic()``, the present by default.
    """
    if tracing.active is None:
        return
    moment = time.monotonic() if at is None else at
    name = f"step {number:02d} {STEP_NAMES[number]}"
    tracing.record(name, moment, moment, parent, **{STEP: number}, **attributes)


def ahead(number: int, trace_id: str) -> None:
    """Mark a step that happened earlier, in the trace of that id; "": it was not recorded."""
    attributes: dict[str, AttributeValue] = {AHEAD: True, TRACE: trace_id}
    step(number, **attributes)


def session_parent(session_id: str) -> str:
    """Return the ``traceparent`` of the trace of a broker session's beginning."""
    return _parent("session", session_id)


def grant_parent(session_id: str) -> str:
    """Return the ``traceparent`` of the trace of a broker session's grant."""
    return _parent("grant", session_id)


def lease_parent(shard_id: int, session_id: str) -> str:
    """Return the ``traceparent`` of the trace of a shard's first lease on a broker session."""
    return _parent("lease", f"{shard_id} {session_id}")


def references(shard_id: int, session_id: str) -> dict[str, AttributeValue]:
    """Return the ids of the traces that precede an assignment to a session: see ``REFERENCES``."""
    return {
        SESSION_TRACE: _trace_id(session_parent(session_id)),
        GRANT_TRACE: _trace_id(grant_parent(session_id)),
        LEASE_TRACE: _trace_id(lease_parent(shard_id, session_id)),
    }


def _parent(kind: str, what: str) -> str:
    size_bytes = (_TRACE_ID_DIGITS + _SPAN_ID_DIGITS) // 2
    digits = blake2b(f"{kind} {what}".encode(), digest_size=size_bytes).hexdigest()
    return f"00-{digits[:_TRACE_ID_DIGITS]}-{digits[_TRACE_ID_DIGITS:]}-01"


def _trace_id(parent: str) -> str:
    return parent.split("-")[1]
