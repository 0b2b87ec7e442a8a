"""Heartbeats of many groups in one message, and their answers in one.

    heartbeats          [group, term, previous index and term, commit index, read round], …
    heartbeat_answers   [group, term, index, read round, applied index, view lag, disk takes writes,
                         expedite, digest], …

Each record is an ``append`` without entries, or the successful ``append_answer`` to it, and means
the same (``protocol.messages``): every group checks its own term. A peer that can read these
messages says so in its hello (ADR 0129).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nextgen.kernel.limits.raft import HEARTBEATS_PER_MESSAGE_MAX, RAFT_NUMBER_MAX
from nextgen.replication.mesh.frames import Message, RemoteProtocolError
from nextgen.replication.ports import GroupId
from nextgen.replication.protocol.messages import (
    CONFIGURATION_FIELD,
    DIGEST_FIELD,
    EXPEDITE_FIELD,
    check_digest,
)

HEARTBEATS = "heartbeats"
HEARTBEAT_ANSWERS = "heartbeat_answers"

_RECORDS = "records"
_ANSWER_NUMBERS = 6
_ANSWER_FIELDS = 9


class Heartbeat(NamedTuple):
    """An ``append`` without entries and without a configuration."""

    group_id: GroupId
    term: int
    previous_index: int
    previous_term: int
    commit_index: int
    read_round: int

    def as_append(self) -> Message:
        """Return the message of its own that it stands for."""
        return {
            "type": "append",
            "term": self.term,
            "previous_index": self.previous_index,
            "previous_term": self.previous_term,
            "commit_index": self.commit_index,
            "read_round": self.read_round,
            "entries": [],
        }


def heartbeat_in(group_id: int, message: Message) -> Heartbeat | None:
    """Return the heartbeat that ``message`` is, None for any other message."""
    if message["type"] != "append" or message["entries"] or CONFIGURATION_FIELD in message:
        return None
    return Heartbeat(
        GroupId(group_id),
        message["term"],
        message["previous_index"],
        message["previous_term"],
        message["commit_index"],
        message["read_round"],
    )


def answer_record(group_id: GroupId, answer: Message) -> list[Any]:
    """Return the record of a successful ``append_answer``."""
    return [
        group_id,
        answer["term"],
        answer["index"],
        answer["read_round"],
        answer["applied_index"],
        answer["view_lag_ms"],
        answer["disk_takes_writes"],
        EXPEDITE_FIELD in answer,
        answer[DIGEST_FIELD],
    ]


def shared_message(kind: str, records: Sequence[Any]) -> Message:
    """Return the message with at most ``HEARTBEATS_PER_MESSAGE_MAX`` records."""
    assert len(records) <= HEARTBEATS_PER_MESSAGE_MAX, f"{len(records)} records in one message"
    return {"type": kind, _RECORDS: records}


def parse_heartbeats(message: Message) -> list[Heartbeat]:
    """Return the heartbeats in a message.

    Raises:
        RemoteProtocolError: It holds something else, or too many.
    """
    records = _records(message)
    for record in records:
        if type(record) is not list or len(record) != len(Heartbeat._fields):
            raise RemoteProtocolError("a shared heartbeat has other fields")
        if not all(map(_is_number, record)):
            raise RemoteProtocolError("a shared heartbeat has an invalid number")
    return [Heartbeat(*record) for record in records]


def parse_answers(message: Message) -> list[tuple[GroupId, Message]]:
    """Return the group and the ``append_answer`` of each record.

    Raises:
        RemoteProtocolError: See ``parse_heartbeats``.
    """
    return [_parse_answer(record) for record in _records(message)]


def _parse_answer(record: Any) -> tuple[GroupId, Message]:
    if type(record) is not list or len(record) != _ANSWER_FIELDS:
        raise RemoteProtocolError("an answer to a shared heartbeat has other fields")
    group_id, term, index, read_round, applied_index, view_lag_ms = record[:_ANSWER_NUMBERS]
    disk_takes_writes, is_expedited, digest = record[_ANSWER_NUMBERS:]
    if not all(map(_is_number, record[:_ANSWER_NUMBERS])):
        raise RemoteProtocolError("an answer to a shared heartbeat has an invalid number")
    if type(disk_takes_writes) is not bool or type(is_expedited) is not bool:
        raise RemoteProtocolError("an answer to a shared heartbeat has an invalid flag")
    check_digest(digest)
    answer: Message = {
        "type": "append_answer",
        "term": term,
        "success": True,
        "index": index,
        "read_round": read_round,
        "applied_index": applied_index,
        "view_lag_ms": view_lag_ms,
        "disk_takes_writes": disk_takes_writes,
        DIGEST_FIELD: digest,
    }
    if is_expedited:
        answer[EXPEDITE_FIELD] = True
    return GroupId(group_id), answer


def _records(message: Message) -> list[Any]:
    records = message.get(_RECORDS)
    if type(records) is not list or len(records) > HEARTBEATS_PER_MESSAGE_MAX:
        raise RemoteProtocolError(f"no list of at most {HEARTBEATS_PER_MESSAGE_MAX} records")
    return records


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= RAFT_NUMBER_MAX
