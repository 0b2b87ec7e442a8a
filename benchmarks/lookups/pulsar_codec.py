"""What does the Pulsar codec cost: lookups by hand, lookups by the general codec, messages?

    .venv/bin/python benchmarks/lookups/pulsar_codec.py --rounds 5

One lookup is: cut out of the stream, understood, answered. Both ways run in turns in one process
on the same bytes, so the ratio holds on a busy machine too. The last line is JSON: microseconds
of processor time, the best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence

from nextgen.pulsar.frames import FrameReader, encode_command, encode_frame, parse_command
from nextgen.pulsar.lookups import answer_burst, lookup_answer_beginnings
from nextgen.pulsar.payload import message_payload, open_payload
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandSend,
    MessageMetadata,
)

URL = "pulsar://127.0.0.1:6650"
LOOKUPS = 64 * 200
LOOKUPS_PER_READ = 64
SENDS = 10_000
MESSAGE_BYTES = 100


def lookup(number: int) -> bytes:
    """Return a LOOKUP as the C++ client sends it."""
    asked = CommandLookupTopic(
        topic=f"persistent://public/default/topic-{number:06}",
        request_id=number,
        authoritative=False,
        advertised_listener_name="",
    )
    return encode_command(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked))


class AtOneBroker:
    """Every topic is at the same broker, and none is partitioned."""

    def __init__(self) -> None:
        self._beginnings = lookup_answer_beginnings(URL)

    def lookup(self, topic: str, now: float) -> Sequence[bytes]:
        return self._beginnings

    def partitions(self, topic: str, now: float) -> None:
        return None


def by_hand(reads: list[bytes]) -> list[bytes]:
    """Answer all lookups through the fast path."""
    known = AtOneBroker()
    answers: list[bytes] = []
    for data in reads:
        behind, _ = answer_burst(data, 0, known, 0.0, answers)
        assert behind == len(data)
    return answers


def generally(reads: list[bytes]) -> list[bytes]:
    """Answer all lookups through protobuf objects."""
    reader = FrameReader()
    answers = []
    for data in reads:
        for frame in reader.feed(data):
            asked = parse_command(frame.command).lookupTopic
            answer = CommandLookupTopicResponse(
                brokerServiceUrl=URL,
                response=CommandLookupTopicResponse.Connect,
                request_id=asked.request_id,
                authoritative=True,
            )
            answers.append(
                encode_command(
                    BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer)
                )
            )
    return answers


def sends() -> bytes:
    """Return unbatched SENDs as one stream."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_000)
    payload = message_payload(metadata, bytes(MESSAGE_BYTES))
    return b"".join(
        encode_frame(
            BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=number)),
            payload,
        )
        for number in range(SENDS)
    )


def receive(stream: bytes) -> None:
    """Cut out, parse and check every SEND."""
    for frame in FrameReader().feed(stream):
        parse_command(frame.command)
        open_payload(frame.payload)


def best_us(rounds: int, count: int, works: list[Callable[[], object]]) -> list[float]:
    """Return the microseconds that one of ``count`` items takes in each of ``works``."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            started = time.process_time()
            work()
            best[place] = min(best[place], (time.process_time() - started) / count * 1e6)
    return best


def meanings(answers: list[bytes]) -> list[BaseCommand]:
    return [parse_command(frame.command) for frame in FrameReader().feed(b"".join(answers))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds

    numbers = range(100_000, 100_000 + LOOKUPS)
    reads = [
        b"".join(lookup(number) for number in numbers[at : at + LOOKUPS_PER_READ])
        for at in range(0, LOOKUPS, LOOKUPS_PER_READ)
    ]
    assert meanings(by_hand(reads)) == meanings(generally(reads)), "the two codecs disagree"

    fast_us, general_us = best_us(
        rounds, LOOKUPS, [lambda: by_hand(reads), lambda: generally(reads)]
    )
    stream = sends()
    (send_us,) = best_us(rounds, SENDS, [lambda: receive(stream)])
    print(
        json.dumps(
            {
                "benchmark": "pulsar_codec",
                "python": platform.python_version(),
                "lookup_by_hand_us": round(fast_us, 2),
                "lookup_generally_us": round(general_us, 2),
                "ratio": round(general_us / fast_us, 1),
                "send_of_100_bytes_us": round(send_us, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
