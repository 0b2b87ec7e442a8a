import pytest

from brokers.domain.refusal import Refusal, ServerError
from protos.pulsar import PulsarApi_pb2 as pulsar


def test_codes_are_pulsars() -> None:
    assert sorted(ServerError) == sorted(pulsar.ServerError.values())


def test_a_refusal_has_a_code_and_says_why() -> None:
    refusal = Refusal(5, "somebody is there")

    assert (refusal.code, refusal.message, str(refusal)) == (
        ServerError.CONSUMER_BUSY,
        "somebody is there",
        "somebody is there",
    )
    with pytest.raises(ValueError, match="99"):
        Refusal(99, "no such code")
