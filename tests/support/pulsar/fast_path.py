"""What the fast path takes a command for, seen by the answer it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nextgen.pulsar.frames import FrameReader, parse_command
from nextgen.pulsar.lookups import (
    answer_burst,
    lookup_answer_beginnings,
    partitions_answer_beginnings,
)
from protos.pulsar.PulsarApi_pb2 import BaseCommand

URL = "pulsar://127.0.0.1:6650"


class FastQuestion(NamedTuple):
    """A LOOKUP, or else a PARTITIONED_METADATA, of ``topic`` as the client spelled it."""

    is_lookup: bool
    topic: str
    request_id: int


class KnowsEverything:
    """Answers for every topic, and records the requested ones."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def lookup(self, topic: str, _now: float) -> Sequence[bytes]:
        self.topics.append(topic)
        return lookup_answer_beginnings(URL)

    def partitions(self, topic: str, _now: float) -> Sequence[bytes]:
        self.topics.append(topic)
        return partitions_answer_beginnings(0)


def framed(command: bytes) -> bytes:
    """Return ``command`` as the only thing in a frame, whether or not it is a command at all."""
    return (4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def read_fast(command: bytes) -> FastQuestion | None:
    """Return what the fast path takes ``command`` for, None if it leaves it to the codec."""
    known, answers = KnowsEverything(), list[bytes]()
    frame = framed(command)
    behind, lookups = answer_burst(frame, 0, known, 0.0, answers)
    if not behind:
        return None
    assert behind == len(frame), "it answered a part of a frame"
    (raw,) = FrameReader().feed(b"".join(answers))
    answer = parse_command(raw.command)
    if answer.type == BaseCommand.LOOKUP_RESPONSE:
        assert lookups == 1
        return FastQuestion(True, known.topics[-1], answer.lookupTopicResponse.request_id)
    return FastQuestion(False, known.topics[-1], answer.partitionMetadataResponse.request_id)
