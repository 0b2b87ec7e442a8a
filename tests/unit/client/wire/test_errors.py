"""Errors survive the wire: every kind, and kinds of a later release."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.wire.errors import (
    ERROR_METADATA_KEY,
    ReportedDefinite,
    ReportedIndefinite,
    error_of_rpc,
    from_detail,
    raise_for_rpc,
    status_code,
    to_detail,
)
from nextgen.kernel import errors
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import ERROR_MESSAGE_CHARACTERS_MAX
from protos.nextgen.v1.errors_pb2 import ErrorDetail


def leaves(kind: type) -> list[type]:
    """Return ``kind``'s classes of the kernel that are raised themselves."""
    found = [kind] if kind.__module__ == errors.__name__ and "reason" in vars(kind) else []
    for child in kind.__subclasses__():
        found += leaves(child)
    return found


def example(kind: type) -> errors.MetadataError:
    if kind is errors.Refused:
        return errors.Refused(RejectionCode.NO_CAPACITY, "there is no room for 9 more", room=0)
    if kind is errors.NotLeader:
        return errors.NotLeader(3, "127.0.0.1:7001")
    if kind is errors.StaleShardMap:
        return errors.StaleShardMap(
            "slot 7 is not here",
            4,
            moved_to=2,
            moved_slots=[(5, 7), (9, 9)],
            moved_names={"t/n/x": 7},
        )
    if kind is errors.PositionCompacted:
        return errors.PositionCompacted(3, 90, 120)
    if kind is errors.PositionAhead:
        return errors.PositionAhead(9, 7, is_final=True)
    if kind is errors.Overloaded:
        return errors.Overloaded("64 requests wait", retry_after_ms=250)
    return kind("it went wrong with value 7")


KINDS = [kind for kind in leaves(errors.MetadataError) if kind is not errors.MetadataError]


class FailedCall(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str, trailing: tuple = ()) -> None:
        self._code, self._details, self._trailing = code, details, trailing

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailing


def test_every_kind_of_the_kernel_is_covered_here():
    assert len(KINDS) >= 14


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_what_it_was(kind):
    error = example(kind)

    back = from_detail(ErrorDetail.FromString(to_detail(error).SerializeToString()))

    assert type(back) is kind
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_a_compacted_position_names_the_oldest_and_the_snapshot():
    assert str(errors.PositionCompacted(3, 90)).endswith("the oldest is 90")
    assert "snapshot is of position 120" in str(errors.PositionCompacted(3, 90, 120))
    assert status_code(errors.PositionCompacted(3, 90)) is grpc.StatusCode.OUT_OF_RANGE


def test_a_position_of_the_future_says_whose_word_that_is():
    assert "known here is 7" in str(errors.PositionAhead(9, 7))
    assert "committed event is 7" in str(errors.PositionAhead(9, 7, is_final=True))
    assert status_code(errors.PositionAhead(9, 7)) is grpc.StatusCode.OUT_OF_RANGE


@given(reason=st.text(), message=st.text(), indefinite=st.booleans(), code=st.text())
def test_any_detail_can_be_raised_and_never_turns_definite(reason, message, indefinite, code):
    detail = ErrorDetail(reason=reason, message=message, indefinite=indefinite, rejection_code=code)

    error = from_detail(detail)

    assert isinstance(error, errors.MetadataError)
    assert isinstance(status_code(error), grpc.StatusCode)
    if reason not in {"REFUSED", "NOT_LEADER", "STALE_SHARD_MAP"}:
        assert isinstance(error, errors.Indefinite) is indefinite


@pytest.mark.parametrize("edges", [[5], [7, 5], [0, 16_384], [1, 2, 3]])
def test_malformed_ranges_of_moved_slots_are_none(edges):
    detail = ErrorDetail(reason="STALE_SHARD_MAP", moved_to=2, moved_slots=edges)

    error = from_detail(detail)

    assert isinstance(error, errors.StaleShardMap)
    assert (error.moved_to, error.moved_slots) == (2, ())


def test_an_unknown_reason_keeps_its_name():
    detail = ErrorDetail(reason="MOON_PHASE", message="wrong moon", indefinite=True)

    error = from_detail(detail)

    assert isinstance(error, ReportedIndefinite)
    assert (error.reason, str(error)) == ("MOON_PHASE", "wrong moon")
    assert isinstance(from_detail(ErrorDetail(reason="MOON_PHASE")), ReportedDefinite)


def test_a_long_or_unprintable_message_fits_into_metadata():
    detail = to_detail(errors.Unavailable("\udc80" + "x" * 5_000))

    assert len(detail.message) == ERROR_MESSAGE_CHARACTERS_MAX
    assert len(detail.SerializeToString()) < 8_192


@pytest.mark.parametrize("code", list(RejectionCode))
def test_every_rejection_has_a_status_of_its_own_choice(code):
    assert status_code(errors.Refused(code, "no")) is not grpc.StatusCode.UNKNOWN


def test_the_detail_in_the_trailing_metadata_wins():
    detail = to_detail(errors.Refused("NOT_FOUND", "no topic x"))
    call = FailedCall(
        grpc.StatusCode.NOT_FOUND, "no", ((ERROR_METADATA_KEY, detail.SerializeToString()),)
    )

    with pytest.raises(errors.Refused, match="no topic x") as caught:
        raise_for_rpc(call)
    assert caught.value.code == "NOT_FOUND"
    assert caught.value.__cause__ is call


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; x", errors.Unavailable),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", errors.ConnectionLost),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max", errors.InvalidRequest),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", errors.InvalidRequest),
        (grpc.StatusCode.CANCELLED, "", errors.ConnectionLost),
        (grpc.StatusCode.UNKNOWN, "boom", errors.ConnectionLost),
    ],
)
def test_a_call_that_failed_without_a_detail_is_indefinite_unless_grpc_knows(code, details, kind):
    assert type(error_of_rpc(FailedCall(code, details))) is kind


def test_a_damaged_detail_is_as_good_as_none():
    call = FailedCall(grpc.StatusCode.INTERNAL, "x", ((ERROR_METADATA_KEY, b"\xff\xff"),))

    assert type(error_of_rpc(call)) is errors.ConnectionLost


def test_a_name_that_is_said_to_be_in_no_slot_is_none():
    detail = ErrorDetail(reason="STALE_SHARD_MAP")
    detail.moved_names.add(routing_key="t/n/x", slot=16_384)
    detail.moved_names.add(routing_key="t/n/y", slot=16_383)

    error = from_detail(detail)

    assert isinstance(error, errors.StaleShardMap)
    assert error.moved_names == {"t/n/y": 16_383}
