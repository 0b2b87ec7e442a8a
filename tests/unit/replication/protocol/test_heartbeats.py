"""Messages that several groups share: what they stand for, and what is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from nextgen.kernel.limits.raft import HEARTBEATS_PER_MESSAGE_MAX, RAFT_NUMBER_MAX
from nextgen.replication.mesh.frames import RemoteProtocolError, decode_frame, encode_frame
from nextgen.replication.ports import GroupId
from nextgen.replication.protocol.heartbeats import (
    HEARTBEAT_ANSWERS,
    HEARTBEATS,
    Heartbeat,
    answer_record,
    heartbeat_in,
    parse_answers,
    parse_heartbeats,
    shared_message,
)
from nextgen.replication.protocol.messages import check_message

HEARTBEAT = Heartbeat(GroupId(7), 3, 20, 2, 19, 5)
ANSWER = {
    "type": "append_answer",
    "term": 3,
    "success": True,
    "index": 20,
    "read_round": 5,
    "applied_index": 18,
    "view_lag_ms": 4,
    "disk_takes_writes": True,
    "digest": [1, 2, 3, 4],
}


def sent(message: dict[str, Any]) -> dict[str, Any]:
    """Return ``message`` as its receiver reads it."""
    return decode_frame(encode_frame(-2, message)[4:])[1]


def test_a_shared_heartbeat_stands_for_an_append_without_entries() -> None:
    append = HEARTBEAT.as_append()
    assert check_message(append) == "append"
    assert heartbeat_in(7, append) == HEARTBEAT
    assert parse_heartbeats(sent(shared_message(HEARTBEATS, [HEARTBEAT]))) == [HEARTBEAT]


@pytest.mark.parametrize(
    "more",
    [{"entries": [(21, 3, 40, 1, b"x")]}, {"configuration": b"c"}, {"type": "timeout_now"}],
    ids=lambda more: next(iter(more)),
)
def test_no_other_message_is_shared(more: dict[str, Any]) -> None:
    assert heartbeat_in(7, {**HEARTBEAT.as_append(), **more}) is None


@pytest.mark.parametrize("more", [{}, {"hurry": True}, {"digest": None}], ids=str)
def test_a_shared_answer_stands_for_the_answer_of_one_group(more: dict[str, Any]) -> None:
    answer = {**ANSWER, **more}
    message = shared_message(HEARTBEAT_ANSWERS, [answer_record(GroupId(7), answer)])
    assert parse_answers(sent(message)) == [(7, answer)]
    assert check_message(answer) == "append_answer"


def test_heartbeats_per_message_max_share_a_message_and_one_more_is_refused() -> None:
    answer = answer_record(GroupId(7), {**ANSWER, "digest": [2**64 - 1] * 4})
    for kind, record, parse in (
        (HEARTBEATS, HEARTBEAT._replace(term=RAFT_NUMBER_MAX), parse_heartbeats),
        (HEARTBEAT_ANSWERS, [*answer[:8], [0, 1, 2, 3]], parse_answers),
    ):
        records = [record] * HEARTBEATS_PER_MESSAGE_MAX
        assert len(parse(sent(shared_message(kind, records)))) == HEARTBEATS_PER_MESSAGE_MAX
        with pytest.raises(AssertionError, match="records in one message"):
            shared_message(kind, [*records, record])
        with pytest.raises(RemoteProtocolError, match="no list of at most"):
            parse(sent({"type": kind, "records": [*records, record]}))


BAD_NUMBERS = [-1, RAFT_NUMBER_MAX + 1, True, 1.0, "1", None, b"1", [1]]


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize("place", range(6))
def test_a_record_with_an_invalid_number_is_refused(place: int, value: object) -> None:
    heartbeat: list[Any] = list(HEARTBEAT)
    heartbeat[place] = value
    with pytest.raises(RemoteProtocolError, match="invalid number"):
        parse_heartbeats({"records": [heartbeat]})
    answer = answer_record(GroupId(7), ANSWER)
    answer[place] = value
    with pytest.raises(RemoteProtocolError, match="invalid number"):
        parse_answers({"records": [answer]})


@pytest.mark.parametrize("place", [6, 7])
@pytest.mark.parametrize("value", [0, 1, None, "x", [True]], ids=repr)
def test_an_answer_with_an_invalid_flag_is_refused(place: int, value: object) -> None:
    answer = answer_record(GroupId(7), ANSWER)
    answer[place] = value
    with pytest.raises(RemoteProtocolError, match="invalid flag"):
        parse_answers({"records": [answer]})


@pytest.mark.parametrize("digest", [[], [1, 2, 3], [1, 2, 3, -1], 5, "x", {}], ids=repr)
def test_an_answer_with_an_invalid_digest_is_refused(digest: object) -> None:
    answer = [*answer_record(GroupId(7), ANSWER)[:8], digest]
    with pytest.raises(RemoteProtocolError, match="digest"):
        parse_answers({"records": [answer]})


@pytest.mark.parametrize("records", [None, 5, {}, "x", [5], [[]], [[1] * 5], [[1] * 10]], ids=repr)
def test_what_is_no_list_of_records_is_refused(records: object) -> None:
    for parse in (parse_heartbeats, parse_answers):
        with pytest.raises(RemoteProtocolError):
            parse({"records": records})
        with pytest.raises(RemoteProtocolError):
            parse(msgpack.unpackb(msgpack.packb({"other": records})))
