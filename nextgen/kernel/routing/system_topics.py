"""Topics that Pulsar keeps for itself: listings leave them out unless they are asked for."""

from __future__ import annotations

_LOCAL_NAMES = frozenset(
    {
        "__change_events",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_indexes",
        "__transaction_buffer_snapshot_segments",
    }
)
_BEGINNINGS = (
    "persistent://pulsar/system/transaction_coordinator_assign",
    "persistent://pulsar/system/__transaction_log_",
)
_END = "__transaction_pending_ack"


def is_system_topic(base_text: str) -> bool:
    """Return whether ``TopicName.base_text`` is the name of one of Pulsar's own topics."""
    if base_text.startswith(_BEGINNINGS):
        return True
    # Nearly all names are users', and this is the fastest test.
    return "__" in base_text and (
        base_text.endswith(_END) or base_text.rpartition("/")[2] in _LOCAL_NAMES
    )
