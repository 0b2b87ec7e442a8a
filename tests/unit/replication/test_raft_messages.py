from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.replication.mesh_frames import Message, RemoteProtocolError
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


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=4) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*APPEND, "offset", "data"]), values))
def test_whatever_a_peer_sends_raises_nothing_but_a_protocol_error(message: Message) -> None:
    with contextlib.suppress(RemoteProtocolError):
        check_message({"type": "append", **message})
