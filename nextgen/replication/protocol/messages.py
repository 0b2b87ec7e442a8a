"""The messages between the replicas of one group, and the check of what a peer sent.

A message is a flat map with a ``type``. Fields of a later version are optional, and an earlier
version ignores them, so both work together. The two messages that pysyncobj makes itself
(``request_vote``, ``response_vote``) keep its field names. Every number has a bound, so that every
accepted message can be written to a journal (ADR 0056).

    pre_vote            would you vote for me?           -> pre_vote_answer
                        for term 0: which is your term?  see ``term_probe``
    request_vote        vote for me                      -> response_vote, or silence
    append              entries, or none: a heartbeat    -> append_answer
    timeout_now         the leader hands over: campaign
    snapshot_chunk      a piece of a view's copy         -> snapshot_answer
    view_diverged       a majority's digest differs from the one of this append_answer: stop

Heartbeats of several groups to one peer share a message: see ``protocol.heartbeats``.
"""

from __future__ import annotations

from typing import Any

from nextgen.kernel.limits.cluster import ENTRIES_PER_MESSAGE_MAX
from nextgen.kernel.limits.raft import ENTRY_EVENTS_MAX, RAFT_NUMBER_MAX, TERM_MAX
from nextgen.replication.mesh.frames import Message, RemoteProtocolError
from nextgen.replication.protocol.membership import decode_configuration, is_configuration

_CHECKSUM_MAX = (1 << 32) - 1
_DIGEST_MAX = (1 << 64) - 1  # Hashes: of a view, and of how it is hashed.

# What a field holds: a number up to the given one, or a value of the given type.
_FIELDS: dict[str, dict[str, int | type]] = {
    "pre_vote": {"term": TERM_MAX, "last_log_index": RAFT_NUMBER_MAX, "last_log_term": TERM_MAX},
    "pre_vote_answer": {"term": TERM_MAX, "granted": bool, "asked_term": TERM_MAX},
    "request_vote": {
        "term": TERM_MAX,
        "last_log_index": RAFT_NUMBER_MAX,
        "last_log_term": TERM_MAX,
        "transfer": bool,
    },
    "response_vote": {"term": TERM_MAX},
    "append": {
        "term": TERM_MAX,
        "previous_index": RAFT_NUMBER_MAX,
        "previous_term": TERM_MAX,
        "commit_index": RAFT_NUMBER_MAX,
        "read_round": RAFT_NUMBER_MAX,
        "entries": list,
    },
    "append_answer": {
        "term": TERM_MAX,
        "success": bool,
        "index": RAFT_NUMBER_MAX,
        "read_round": RAFT_NUMBER_MAX,
        "applied_index": RAFT_NUMBER_MAX,
        "view_lag_ms": RAFT_NUMBER_MAX,
        "disk_takes_writes": bool,
    },
    "timeout_now": {"term": TERM_MAX},
    "view_diverged": {
        "term": TERM_MAX,
        "scheme": _DIGEST_MAX,
        "index": RAFT_NUMBER_MAX,
        "position": RAFT_NUMBER_MAX,
        "digest": _DIGEST_MAX,
    },
    "snapshot_chunk": {
        "term": TERM_MAX,
        "index": RAFT_NUMBER_MAX,
        "index_term": TERM_MAX,
        "position": RAFT_NUMBER_MAX,
        "offset": RAFT_NUMBER_MAX,
        "total": RAFT_NUMBER_MAX,
        "data": bytes,
        "checksum": _CHECKSUM_MAX,
        "file_checksum": _CHECKSUM_MAX,
        "round": RAFT_NUMBER_MAX,
    },
    "snapshot_answer": {
        "term": TERM_MAX,
        "index": RAFT_NUMBER_MAX,
        "offset": RAFT_NUMBER_MAX,
        "installed": bool,
        "round": RAFT_NUMBER_MAX,
    },
}

# Fields that an earlier version neither sends nor reads.
_OPTIONAL_FIELDS: dict[str, dict[str, int | type]] = {
    "snapshot_answer": {"installing": bool},
    "append_answer": {"hurry": bool, "wants_snapshot": RAFT_NUMBER_MAX},
    "pre_vote_answer": {"log_is_empty": bool, "term_is_known": bool},
}

_NOTHING: dict[str, int | type] = {}

# The same as ``_FIELDS``, parted: every heartbeat of every group is checked.
_NUMBERS = {
    kind: tuple((name, bound) for name, bound in fields.items() if isinstance(bound, int))
    for kind, fields in _FIELDS.items()
}
_VALUES = {
    kind: tuple((name, bound) for name, bound in fields.items() if isinstance(bound, type))
    for kind, fields in _FIELDS.items()
}

_EARLIER_TERMS = {
    "append": "previous_term",
    "pre_vote": "last_log_term",
    "request_vote": "last_log_term",
    "snapshot_chunk": "index_term",
}
"""Terms of entries: none is later than the sender's term."""

CONFIGURATION_FIELD = "configuration"
"""In ``append``: the configuration behind ``previous_index``. In ``snapshot_chunk``: at the
snapshot's point. Left out while the log has no configuration."""

LOG_IS_EMPTY_FIELD = "log_is_empty"
"""In the answer to a probe: this replica never had an entry, and did not lose its log."""

TERM_IS_KNOWN_FIELD = "term_is_known"
"""In the answer to a probe: False from a replica that lost its own term."""

EXPEDITE_FIELD = "hurry"
"""In ``append_answer``: a reader waits for commits here, so the leader expedites them.
The key keeps its name, because it is part of the protocol between releases."""

SNAPSHOT_WANTED_FIELD = "wants_snapshot"
"""In ``append_answer``: this view ends before its log begins, so that entries do not help it. The
index that a snapshot must have reached."""

DIGEST_FIELD = "digest"
"""In ``append_answer``: scheme, index, position and digest of the newest digest point."""

_DIGEST_BOUNDS = (_DIGEST_MAX, RAFT_NUMBER_MAX, RAFT_NUMBER_MAX, _DIGEST_MAX)
"""Bounds of scheme, index, position and digest."""

_ENTRY_FIELDS = 5


def check_message(message: Message) -> str:
    """Return the type of ``message`` after checking that it has every field it must have.

    Raises:
        RemoteProtocolError: It is unknown, or a field is missing or of another type.
    """
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise RemoteProtocolError("a message of an unknown type")
    _check_fields(kind, message)
    if CONFIGURATION_FIELD in message and kind in ("append", "snapshot_chunk"):
        held_at = message["previous_index" if kind == "append" else "index"]
        if _check_configuration(message[CONFIGURATION_FIELD]) > held_at:
            raise RemoteProtocolError(f"a configuration that held at {held_at} was made later")
    if kind == "append":
        _check_entries(message)
    elif kind == "append_answer":
        check_digest(message.get(DIGEST_FIELD))
    return kind


def _check_fields(kind: str, message: Message) -> None:
    get = message.get
    for name, number_max in _NUMBERS[kind]:
        number = get(name)
        if type(number) is not int or not 0 <= number <= number_max:
            raise RemoteProtocolError(f"{kind} lacks a valid {name}")
    for name, expected in _VALUES[kind]:
        if type(get(name)) is not expected:
            raise RemoteProtocolError(f"{kind} lacks a valid {name}")
    for name, bound in _OPTIONAL_FIELDS.get(kind, _NOTHING).items():
        if name in message and not _is_value(message[name], bound):
            raise RemoteProtocolError(f"{kind} has an invalid {name}")
    earlier = _EARLIER_TERMS.get(kind)
    if earlier is not None and message[earlier] > message["term"]:
        raise RemoteProtocolError(f"{kind} has a {earlier} behind its term")


def _is_value(value: Any, expected: int | type) -> bool:
    # What msgpack makes has exactly these types; True is no number.
    if type(expected) is int:
        return type(value) is int and 0 <= value <= expected
    return type(value) is expected


def _check_entries(message: Message) -> None:
    index, term, last_term = message["previous_index"], message["previous_term"], message["term"]
    entries = message["entries"]
    if len(entries) > ENTRIES_PER_MESSAGE_MAX:
        raise RemoteProtocolError(f"an append has {len(entries)} entries")
    for entry in entries:
        if type(entry) is not list or len(entry) != _ENTRY_FIELDS:
            raise RemoteProtocolError("an entry does not have five fields")
        its_index, its_term, position, events, payload = entry
        index += 1
        if type(its_index) is not int or its_index != index:
            raise RemoteProtocolError(f"entry {index} is out of order")
        if type(its_term) is not int or not term <= its_term <= last_term:
            raise RemoteProtocolError(f"the term of entry {index} is out of order")
        if not _is_value(position, RAFT_NUMBER_MAX) or not _is_value(events, ENTRY_EVENTS_MAX):
            raise RemoteProtocolError(f"entry {index} has an invalid position")
        if type(payload) is not bytes:
            raise RemoteProtocolError(f"entry {index} has no payload")
        term = its_term
        if is_configuration(payload) and (_check_configuration(payload), 0) != (index, events):
            raise RemoteProtocolError(f"entry {index} does not match its configuration")


def check_digest(digest: Any) -> None:
    """Return if ``digest`` can be the newest digest of a replica, or None.

    Raises:
        RemoteProtocolError: It cannot.
    """
    if digest is None:
        return
    if type(digest) is not list or len(digest) != len(_DIGEST_BOUNDS):
        raise RemoteProtocolError(f"a digest is no list of {len(_DIGEST_BOUNDS)} numbers")
    if not all(map(_is_value, digest, _DIGEST_BOUNDS)):
        raise RemoteProtocolError("a digest has an invalid number")


def _check_configuration(data: Any) -> int:
    """Return the index of the configuration in ``data`` if it is a sound one."""
    try:
        return decode_configuration(data if isinstance(data, bytes) else b"").index
    except ValueError as error:
        raise RemoteProtocolError(f"a configuration is not one: {error}") from None
