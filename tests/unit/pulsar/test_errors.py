import pytest

from nextgen.kernel import errors
from nextgen.kernel.events.decider import RejectionCode
from nextgen.pulsar.errors import server_error_of
from protos.pulsar.PulsarApi_pb2 import ServerError


@pytest.mark.parametrize(
    "error",
    [
        errors.NotLeader(1),
        errors.StaleShardMap("old"),
        errors.Unavailable("nobody"),
        errors.Overloaded("full"),
        errors.SessionExpired("gone"),
        errors.ProposalLost("moved"),
        errors.ConnectionLost("broken"),
        errors.DeadlineExceeded("late"),
        errors.Refused(RejectionCode.NO_CAPACITY, "full"),
        errors.Refused(RejectionCode.SHARE_EXCEEDED, "beyond its share"),
        errors.Refused(RejectionCode.NO_BROKER, "none"),
        errors.Refused(RejectionCode.STALE_EPOCH, "old"),
    ],
)
def test_trouble_that_passes_is_what_every_client_retries(error: errors.MetadataError) -> None:
    assert server_error_of(error) == ServerError.MetadataError


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (RejectionCode.INVALID_NAME, ServerError.InvalidTopicName),
        (RejectionCode.NOT_FOUND, ServerError.TopicNotFound),
        (RejectionCode.PARENT_NOT_FOUND, ServerError.TopicNotFound),
        (RejectionCode.NOT_ALLOWED, ServerError.NotAllowedError),
        (RejectionCode.LIMIT_EXCEEDED, ServerError.NotAllowedError),
        ("A_CODE_OF_THE_FUTURE", ServerError.NotAllowedError),
    ],
)
def test_a_refusal_says_what_is_wrong(code: str, expected: ServerError) -> None:
    assert server_error_of(errors.Refused(code, "no")) == expected


def test_what_no_repetition_mends_is_not_to_be_repeated() -> None:
    assert server_error_of(errors.InvalidRequest("nonsense")) == ServerError.NotAllowedError


@pytest.mark.parametrize("code", list(RejectionCode))
def test_no_refusal_costs_a_client_its_connection(code: RejectionCode) -> None:
    assert server_error_of(errors.Refused(code, "no")) not in {
        ServerError.ServiceNotReady,
        ServerError.TooManyRequests,
        ServerError.UnknownError,
    }
