from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.replication.membership import CONFIGURATION_MARK, encode_configuration
from nextgen.replication.mesh_frames import Message, RemoteProtocolError
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.raft_messages import check_message

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
