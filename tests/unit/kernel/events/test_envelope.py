import dataclasses

import pytest

from nextgen.kernel.events.envelope import Envelope

ENVELOPE = Envelope(
    shard_id=3,
    position=1042,
    term=7,
    time_ms=1_700_000_000_000,
    schema_version=1,
    causation_id=b"c" * 16,
    event="TopicCreated",
)


def test_an_event_is_named_by_its_shard_and_position() -> None:
    assert ENVELOPE.event_id == "3:1042"


def test_an_envelope_is_a_value_and_never_changes() -> None:
    assert dataclasses.replace(ENVELOPE) == ENVELOPE
    assert dataclasses.replace(ENVELOPE, term=8) != ENVELOPE
    with pytest.raises(dataclasses.FrozenInstanceError):
        ENVELOPE.position = 1  # type: ignore[misc]
