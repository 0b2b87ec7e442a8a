"""What a configuration is on disk and on the wire, and what a change makes of one."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import GROUP_MEMBERS_MAX
from nextgen.kernel.limits.raft import RAFT_NUMBER_MAX
from nextgen.replication.ports import ChangeKind, Configuration, MemberChange, NodeId, Record
from nextgen.replication.protocol.entry_codec import decode_records, encode_records
from nextgen.replication.protocol.membership import (
    CONFIGURATION_MARK,
    ConfigurationHistory,
    after_change,
    decode_configuration,
    decode_if_known,
    encode_configuration,
    encode_if_known,
    is_configuration,
    members_of,
)

node_ids = st.text(min_size=1, max_size=20).map(NodeId)


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(f"node-{number:02}") for number in numbers)


def change(kind: ChangeKind, number: int) -> MemberChange:
    return MemberChange(kind, nodes(number)[0])


PRESENT = Configuration(nodes(1, 2, 3), nodes(4), 7)


@given(
    st.lists(node_ids, min_size=1, max_size=GROUP_MEMBERS_MAX, unique=True),
    st.integers(0, GROUP_MEMBERS_MAX),
    st.integers(1, RAFT_NUMBER_MAX),
)
def test_a_configuration_is_read_back_as_it_was_written(
    members: list[NodeId], learners: int, index: int
) -> None:
    voters = max(len(members) - learners, 1)
    configuration = Configuration(
        tuple(sorted(members[:voters])), tuple(sorted(members[voters:])), index
    )

    payload = encode_configuration(configuration)

    assert is_configuration(payload)
    assert decode_configuration(payload) == configuration
    assert decode_records(payload) == ()
    assert msgpack.unpackb(payload)["configuration"][0] == index


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=20))
def test_records_are_never_taken_for_a_configuration(payloads: list[bytes]) -> None:
    assert not is_configuration(encode_records(Record(payload, 1) for payload in payloads))


def test_no_configuration_has_no_bytes() -> None:
    assert encode_if_known(None) == b""
    assert decode_if_known(b"") is None
    assert decode_if_known(encode_if_known(PRESENT)) == PRESENT


@pytest.mark.parametrize(
    "fields",
    [
        "text",
        [7, ["a"]],
        ["7", ["a"], []],
        [True, ["a"], []],
        [0, ["a"], []],
        [7, [], ["a"]],
        [7, ["a"], ["a"]],
        [7, ["b", "a"], []],
        [7, ["a", "a"], []],
        [7, ["a", 1], []],
        [7, ["a"], "b"],
        [7, [f"n{i:02}" for i in range(GROUP_MEMBERS_MAX + 1)], []],
    ],
)
def test_what_no_leader_makes_is_no_configuration(fields: object) -> None:
    with pytest.raises(ValueError, match=r"configuration|members"):
        decode_configuration(CONFIGURATION_MARK + msgpack.packb(fields))


@pytest.mark.parametrize(
    "payload", [b"", b"\x90", CONFIGURATION_MARK, CONFIGURATION_MARK + b"\xc1"]
)
def test_bytes_that_are_cut_off_or_other_are_no_configuration(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not a configuration"):
        decode_configuration(payload)


# Changes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "voters", "learners"),
    [
        (change(ChangeKind.ADD_LEARNER, 5), (1, 2, 3), (4, 5)),
        (change(ChangeKind.PROMOTE, 4), (1, 2, 3, 4), ()),
        (change(ChangeKind.REMOVE, 4), (1, 2, 3), ()),
        (change(ChangeKind.REMOVE, 2), (1, 3), (4,)),
    ],
)
def test_a_step_changes_one_member(
    step: MemberChange, voters: tuple[int, ...], learners: tuple[int, ...]
) -> None:
    assert after_change(PRESENT, step, index=9) == Configuration(
        nodes(*voters), nodes(*learners), 9
    )


@pytest.mark.parametrize(
    "step",
    [
        change(ChangeKind.ADD_LEARNER, 4),
        change(ChangeKind.ADD_LEARNER, 1),
        change(ChangeKind.PROMOTE, 3),
        change(ChangeKind.REMOVE, 9),
    ],
)
def test_a_step_that_was_made_already_changes_nothing(step: MemberChange) -> None:
    assert after_change(PRESENT, step, index=9) is PRESENT


@pytest.mark.parametrize(
    ("present", "step", "code"),
    [
        (PRESENT, change(ChangeKind.PROMOTE, 9), RejectionCode.NOT_FOUND),
        (
            Configuration(nodes(1), nodes(4), 7),
            change(ChangeKind.REMOVE, 1),
            RejectionCode.NOT_ALLOWED,
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    present: Configuration, step: MemberChange, code: RejectionCode
) -> None:
    with pytest.raises(Refused) as refused:
        after_change(present, step, index=9)
    assert refused.value.code == code


def test_a_group_has_so_many_members_and_no_more() -> None:
    almost = Configuration(nodes(*range(GROUP_MEMBERS_MAX - 2)), nodes(90), 7)

    full = after_change(almost, change(ChangeKind.ADD_LEARNER, 91), index=8)

    assert len(members_of(full)) == GROUP_MEMBERS_MAX
    assert decode_configuration(encode_configuration(full)) == full
    with pytest.raises(Refused) as refused:
        after_change(full, change(ChangeKind.ADD_LEARNER, 92), index=9)
    assert refused.value.code == RejectionCode.LIMIT_EXCEEDED


# What a log holds ---------------------------------------------------------------------------


def held(*indexes: int) -> ConfigurationHistory:
    return ConfigurationHistory([Configuration(nodes(1), nodes(index), index) for index in indexes])


def indexes_of(history: ConfigurationHistory) -> list[int]:
    return [item.index for item in history.items]


def test_the_newest_holds_and_each_is_found_where_it_held() -> None:
    history = held(3, 8)

    assert history.newest is history.items[-1]
    assert [getattr(history.at(index), "index", None) for index in (2, 3, 7, 8, 99)] == (
        [None, 3, 3, 8, 8]
    )


def test_cutting_the_tail_falls_back_to_the_one_before() -> None:
    history = held(3, 8)

    history.truncate_from(9)
    assert indexes_of(history) == [3, 8]
    history.truncate_from(8)
    assert indexes_of(history) == [3]
    history.truncate_from(1)
    assert history.newest is None


def test_cutting_the_beginning_keeps_what_held_there() -> None:
    history = held(3, 8, 12)

    history.cut_before(7)
    assert indexes_of(history) == [3, 8, 12]
    history.cut_before(8)
    assert indexes_of(history) == [8, 12]
    history.cut_before(100)
    assert indexes_of(history) == [12]


def test_what_is_learned_of_an_entry_replaces_what_was_thought_of_it() -> None:
    history = held(3, 6, 12)

    history.learn(Configuration(nodes(7), (), 5), index=9)

    assert indexes_of(history) == [3, 5, 12]
    assert history.at(9) == Configuration(nodes(7), (), 5)


def test_to_learn_that_the_members_never_changed_forgets_what_was_thought() -> None:
    history = held(3, 6, 12)

    history.learn(None, index=9)

    assert indexes_of(history) == [12]


def test_an_entry_that_arrives_after_its_configuration_was_learned_is_there_once() -> None:
    history = held(3)
    ahead = Configuration(nodes(7), (), 9)
    history.learn(ahead, index=20)

    history.append(Configuration(nodes(6), (), 5))
    history.append(ahead)

    assert indexes_of(history) == [3, 5, 9]
