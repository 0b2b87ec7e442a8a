"""The demo's verdict: broken promises, and expected events that did not happen."""

from __future__ import annotations

from typing import Any

IN_FLIGHT_WANTED = 100
"""Sends in flight to the broker at the moment of its kill."""

KILLS = 3

_MUST_BE_NONE = (
    ("lost", "acknowledged and never delivered"),
    ("duplicated", "delivered twice"),
    ("out_of_order", "out of order"),
    ("unknown", "never sent"),
    ("failed", "given up by the client"),
    ("unanswered", "never acknowledged"),
    ("other_ids", "at a shadow under another id than at its source"),
)

_STRUCK = {
    "led": "the killed leader had the metadata of no shadow",
    "served": "the killed broker served no shadow",
    "fed": "the killed broker served no source of another broker's shadow",
}


def complaints_about(result: dict[str, Any]) -> list[str]:
    """Return a sentence for each complaint; none if every promise was kept."""
    complaints = [
        f"{result[name]} messages were {text}" for name, text in _MUST_BE_NONE if result[name]
    ]
    if not result["sent"]:
        complaints.append("no send was acknowledged")
    if result["kills"] < KILLS:
        complaints.append(f"{result['kills']} of {KILLS} kills happened")
    if result["leader_failovers"] < 1:
        complaints.append("no leadership was taken over")
    complaints += [text for kind, text in _STRUCK.items() if not result["shadows_struck"].get(kind)]
    if not result["received_at_shadows"]:
        complaints.append("no message arrived at a shadow")
    if result["in_flight_at_kill"] < IN_FLIGHT_WANTED:
        complaints.append(
            f"{result['in_flight_at_kill']} sends were in flight when the broker was killed, "
            f"{IN_FLIGHT_WANTED} should have been"
        )
    return complaints
