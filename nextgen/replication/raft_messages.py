"""The messages between the replicas of one group, and the check of what a peer sent.

A message is a flat map with a ``type``. Fields that a later version added are optional, and
what an earlier version does not know it ignores: the two work together. The two messages that
pysyncobj makes itself (``request_vote``, ``response_vote``) keep its field names.

    pre_vote            would you vote for me?           -> pre_vote_answer
                        for term 0: which is your term?  see ``term_probe``
    request_vote        vote for me                      -> response_vote, or silence
    append              entries, or none: a heartbeat    -> append_answer
    timeout_now         the leader hands over: campaign
    snapshot_chunk      a piece of a view's copy         -> snapshot_answer
    view_diverged       a majority's digest differs from the one of this append_answer: stop
"""

from __future__ import annotations

from typing import Any

from nextgen.replication.membership import decode_configuration, is_configuration
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
    "view_diverged": {"term": int, "scheme": int, "index": int, "position": int, "digest": int},
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

# What an earlier version neither sends nor looks at.
_OPTIONAL_FIELDS: dict[str, dict[str, type]] = {
    "snapshot_chunk": {"file_checksum": int, "round": int},
    "snapshot_answer": {"round": int, "installing": bool},
    "append_answer": {"hurry": bool},
    "pre_vote_answer": {"log_is_empty": bool, "term_is_known": bool},
}

CONFIGURATION_FIELD = "configuration"
"""In ``append``: what held behind ``previous_index``. In ``snapshot_chunk``: at the snapshot's
point. Left out while the log says nothing of its members."""

LOG_IS_EMPTY_FIELD = "log_is_empty"
"""In the answer to a probe: this replica never had an entry, and did not lose its log."""

TERM_IS_KNOWN_FIELD = "term_is_known"
"""In the answer to a probe: False from a replica that lost its own term."""

HURRY_FIELD = "hurry"
"""In ``append_answer``: somebody follows the log here and wants to know of commits at once."""

_DIGEST_NUMBERS = 4  # Scheme, index, position, digest.
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
        # What msgpack makes has exactly these types; True is no number.
        if type(message.get(name)) is not expected or (expected is int and message[name] < 0):
            raise RemoteProtocolError(f"{kind} lacks a valid {name}")
    for name, expected in _OPTIONAL_FIELDS.get(kind, {}).items():
        if name in message and not _is_value(message[name], expected):
            raise RemoteProtocolError(f"{kind} has an invalid {name}")
    if CONFIGURATION_FIELD in message and kind in ("append", "snapshot_chunk"):
        held_at = message["previous_index" if kind == "append" else "index"]
        if _check_configuration(message[CONFIGURATION_FIELD]) > held_at:
            raise RemoteProtocolError(f"a configuration that held at {held_at} was made later")
    if kind == "append":
        _check_entries(message)
    elif kind == "append_answer":
        _check_digest(message.get("digest"))
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
        if is_configuration(entry[4]) and (_check_configuration(entry[4]), 0) != (index, entry[3]):
            raise RemoteProtocolError(f"entry {index} is not what its configuration says")


def _check_digest(digest: Any) -> None:
    if digest is None:
        return
    if not isinstance(digest, list) or not all(_is_value(value, int) for value in digest):
        raise RemoteProtocolError("a digest is no list of numbers")
    if len(digest) != _DIGEST_NUMBERS:
        raise RemoteProtocolError(f"a digest has {_DIGEST_NUMBERS} numbers, not {len(digest)}")


def _check_configuration(data: Any) -> int:
    """Return the index of the configuration in ``data`` if it is a sound one."""
    try:
        return decode_configuration(data if isinstance(data, bytes) else b"").index
    except ValueError as error:
        raise RemoteProtocolError(f"a configuration is not one: {error}") from None
