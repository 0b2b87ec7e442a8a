from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import ENTRIES_PER_MESSAGE_MAX
from nextgen.kernel.limits.raft import ENTRY_EVENTS_MAX, RAFT_NUMBER_MAX, TERM_MAX
from nextgen.replication.journal.format import Kind, encode_record
from nextgen.replication.mesh.frames import Message, RemoteProtocolError
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.membership import CONFIGURATION_MARK, encode_configuration
from nextgen.replication.protocol.messages import check_message

APPEND: Message = {
    "type": "append",
    "term": 3,
    "previous_index": 4,
    "previous_term": 2,
    "commit_index": 4,
    "read_round": 0,
    "entries": [[5, 2, 9, 1, b"a"], [6, 3, 10, 0, b"b"]],
}


def test_a_sound_message_passes() -> None:
    assert check_message(APPEND) == "append"


@pytest.mark.parametrize(
    "change",
    [
        {"type": "unknown"},
        {"type": 7},
        {"term": -1},
        {"term": True},
        {"term": "3"},
        {"commit_index": None},
        {"entries": [[6, 2, 9, 1, b"a"]]},  # A gap.
        {"entries": [[5, 1, 9, 1, b"a"]]},  # A term that falls.
        {"entries": [[5, 4, 9, 1, b"a"]]},  # A term beyond the leader's.
        {"entries": [[5, 2, 9, 1]]},
        {"entries": [[5, 2, 9, 1, "text"]]},
        {"entries": ["entry"]},
    ],
)
def test_a_message_that_may_not_be_is_refused(change: Message) -> None:
    with pytest.raises(RemoteProtocolError):
        check_message({**APPEND, **change})


def configuration(index: int) -> bytes:
    return encode_configuration(Configuration((NodeId("node-1"),), (), index))


SNAPSHOT_CHUNK: Message = {
    "type": "snapshot_chunk",
    "term": 3,
    "index": 4,
    "index_term": 2,
    "position": 9,
    "offset": 0,
    "total": 1,
    "data": b"a",
    "checksum": 1,
    "file_checksum": 1,
    "round": 1,
}


@pytest.mark.parametrize("message", [APPEND, SNAPSHOT_CHUNK])
def test_a_configuration_passes_where_it_can_have_held(message: Message) -> None:
    assert check_message({**message, "configuration": configuration(4)}) == message["type"]

    for wrong in (configuration(5), b"", b"\x90", "text", None, CONFIGURATION_MARK):
        with pytest.raises(RemoteProtocolError):
            check_message({**message, "configuration": wrong})


def test_an_entry_with_a_configuration_is_what_that_says() -> None:
    def carrying(payload: bytes, events: int = 0) -> Message:
        return {**APPEND, "entries": [[5, 2, 9, events, payload]]}

    assert check_message(carrying(configuration(5))) == "append"
    for wrong in (
        carrying(configuration(6)),
        carrying(configuration(5), events=1),
        carrying(CONFIGURATION_MARK + b"\x90"),
    ):
        with pytest.raises(RemoteProtocolError):
            check_message(wrong)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=4) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*APPEND, "configuration", "data"]), values))
def test_whatever_a_peer_sends_raises_nothing_but_a_protocol_error(message: Message) -> None:
    with contextlib.suppress(RemoteProtocolError):
        check_message({"type": "append", **message})


# Bounds ------------------------------------------------------------------------------------------

_NUMBERS = {
    TERM_MAX: {"term", "previous_term", "last_log_term", "index_term", "asked_term"},
    RAFT_NUMBER_MAX: {
        *("previous_index", "commit_index", "read_round", "index", "applied_index", "round"),
        *("view_lag_ms", "position", "offset", "total", "last_log_index"),
    },
}
SOUND: dict[str, Message] = {
    "append": APPEND,
    "snapshot_chunk": SNAPSHOT_CHUNK,
    "pre_vote": {"term": 5, "last_log_index": 4, "last_log_term": 3},
    "pre_vote_answer": {"term": 5, "granted": True, "asked_term": 5},
    "request_vote": {"term": 5, "last_log_index": 4, "last_log_term": 3, "transfer": False},
    "response_vote": {"term": 5},
    "append_answer": {
        "term": 5,
        "success": True,
        "index": 4,
        "read_round": 1,
        "applied_index": 4,
        "view_lag_ms": 3,
        "disk_takes_writes": True,
        "digest": [1, 2, 3, 4],
    },
    "timeout_now": {"term": 5},
    "view_diverged": {"term": 5, "scheme": 1, "index": 2, "position": 3, "digest": 4},
    "snapshot_answer": {"term": 5, "index": 4, "offset": 3, "installed": True, "round": 1},
}


def numbers_up_to(limit: int) -> list[tuple[str, str]]:
    return [
        (kind, name)
        for kind, message in SOUND.items()
        for name in message
        if name in _NUMBERS[limit]
    ]


def saying(kind: str, name: str, value: int) -> Message:
    message = {**SOUND[kind], "type": kind, name: value}
    if kind == "append":
        message["entries"] = []
    if name in _NUMBERS[TERM_MAX] - {"asked_term"}:
        message["term"] = max(message["term"], value)  # No entry is of a later term.
    return message


@pytest.mark.parametrize(("kind", "name"), numbers_up_to(TERM_MAX))
def test_term_max_is_taken_in_every_field_and_one_more_refused(kind: str, name: str) -> None:
    assert check_message(saying(kind, name, TERM_MAX)) == kind
    for wrong in (TERM_MAX + 1, 2**64 - 1):
        with pytest.raises(RemoteProtocolError):
            check_message(saying(kind, name, wrong))


@pytest.mark.parametrize(("kind", "name"), numbers_up_to(RAFT_NUMBER_MAX))
def test_raft_number_max_is_taken_in_every_field_and_one_more_refused(kind: str, name: str) -> None:
    assert check_message(saying(kind, name, RAFT_NUMBER_MAX)) == kind
    for wrong in (RAFT_NUMBER_MAX + 1, 2**64 - 1):
        with pytest.raises(RemoteProtocolError):
            check_message(saying(kind, name, wrong))


def test_every_number_of_every_message_has_a_bound() -> None:
    for kind, sound in SOUND.items():
        for name, value in sound.items():
            if type(value) is int:
                with pytest.raises(RemoteProtocolError):
                    check_message({**sound, "type": kind, name: 2**64})


@pytest.mark.parametrize(
    ("kind", "name"), [("append", "previous_term"), ("pre_vote", "last_log_term")]
)
def test_no_entry_is_of_a_later_term_than_its_sender(kind: str, name: str) -> None:
    sound = {**SOUND[kind], "type": kind, "entries": []}

    check_message({**sound, name: sound["term"]})
    with pytest.raises(RemoteProtocolError, match=name):
        check_message({**sound, name: sound["term"] + 1})


def test_entry_events_max_is_taken_and_one_more_refused() -> None:
    check_message({**APPEND, "entries": [[5, 2, 9, ENTRY_EVENTS_MAX, b"a"]]})
    with pytest.raises(RemoteProtocolError, match="position"):
        check_message({**APPEND, "entries": [[5, 2, 9, ENTRY_EVENTS_MAX + 1, b"a"]]})


def test_a_message_has_no_more_entries_than_a_leader_sends() -> None:
    entries = [[5 + number, 2, 9, 0, b"a"] for number in range(ENTRIES_PER_MESSAGE_MAX + 1)]

    check_message({**APPEND, "entries": entries[:-1]})
    with pytest.raises(RemoteProtocolError, match="entries"):
        check_message({**APPEND, "entries": entries})


@pytest.mark.parametrize("data", [b"x" * 256, b""])
def test_a_configuration_names_nodes_by_ids_that_a_journal_holds(data: bytes) -> None:
    node_id = NodeId(data.decode())
    wrong = encode_configuration(Configuration((node_id,), (), 4))

    with pytest.raises(RemoteProtocolError, match="node id"):
        check_message({**APPEND, "configuration": wrong})


numbers = st.integers(0, 2**64 - 1) | st.sampled_from(
    [TERM_MAX, RAFT_NUMBER_MAX, ENTRY_EVENTS_MAX, 2**32, 2**63]
)


@given(numbers, numbers, numbers, numbers)
def test_whatever_passes_can_be_written_to_a_journal(
    term: int, index: int, position: int, events: int
) -> None:
    entry = [index + 1, term, position, events, b"a"]
    message = {**APPEND, "term": term, "previous_index": index, "entries": [entry]}
    try:
        check_message({**message, "previous_term": term})
    except RemoteProtocolError:
        return

    encode_record(0, Kind.HARD_STATE, term=term)
    encode_record(
        0,
        Kind.ENTRY,
        payload=b"a",
        events=events,
        index=index + 1,
        term=term,
        first_position=position,
    )
    encode_record(0, Kind.RESET, index=index, term=term, first_position=position + events)
