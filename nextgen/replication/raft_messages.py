"""The messages between the replicas of one group, and the check of what a peer sent.

A message is a flat map with a ``type``. The two that pysyncobj makes itself
(``request_vote``, ``response_vote``) keep its field names.

    pre_vote            would you vote for me?           -> pre_vote_answer
    request_vote        vote for me                      -> response_vote, or silence
    append              entries, or none: a heartbeat    -> append_answer
    timeout_now         the leader hands over: campaign
    snapshot_chunk      a piece of a view's copy         -> snapshot_answer
"""

from __future__ import annotations

from typing import Any

from nextgen.replication.mesh_frames import Message, RemoteProtocolError

_FIELDS: dict[str, dict[str, type]] = {
    "pre_vote": {"term": int, "last_log_index": int, "last_log_term": int},
    "pre_vote_answer": {"term": int, "granted": bool, "asked_term": int},
    "request_vote": {
        "term": int,
        "last_log_index": int,
        "last_log_term": int,
        "transfer": bool,
    },
    "response_vote": {"term": int},
    "append": {
        "term": int,
        "previous_index": int,
        "previous_term": int,
        "commit_index": int,
        "read_round": int,
        "entries": list,
    },
    "append_answer": {
        "term": int,
        "success": bool,
        "index": int,
        "read_round": int,
        "applied_index": int,
        "view_lag_ms": int,
        "disk_takes_writes": bool,
    },
    "timeout_now": {"term": int},
    "snapshot_chunk": {
        "term": int,
        "index": int,
        "index_term": int,
        "position": int,
        "offset": int,
        "total": int,
        "data": bytes,
        "checksum": int,
    },
    "snapshot_answer": {"term": int, "index": int, "offset": int, "installed": bool},
}

_ENTRY_FIELDS = (int, int, int, int, bytes)


def check_message(message: Message) -> str:
    """Return the type of ``message`` after checking that it has every field it must have.

    Raises:
        RemoteProtocolError: It is unknown, or a field is missing or of another type.
    """
    kind = message.get("type")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None or not isinstance(kind, str):
        raise RemoteProtocolError(f"unknown message {kind!r}")
    for name, expected in fields.items():
        if not _is_value(message.get(name), expected):
            raise RemoteProtocolError(f"{kind} lacks a valid {name}")
    if kind == "append":
        _check_entries(message)
    return kind


def _is_value(value: Any, expected: type) -> bool:
    if expected is int:
        return type(value) is int and value >= 0
    return isinstance(value, expected)


def _check_entries(message: Message) -> None:
    index = message["previous_index"]
    term = message["previous_term"]
    for entry in message["entries"]:
        if not isinstance(entry, list) or len(entry) != len(_ENTRY_FIELDS):
            raise RemoteProtocolError("an entry does not have five fields")
        if not all(map(_is_value, entry, _ENTRY_FIELDS)):
            raise RemoteProtocolError("an entry has a field of another type")
        index += 1
        if entry[0] != index or not term <= entry[1] <= message["term"]:
            raise RemoteProtocolError(f"entry {entry[0]} of term {entry[1]} is out of order")
        term = entry[1]
