"""Broken frames against the codec: it reads them, or says ``MalformedFrame``, and nothing else.

``pytest tests/fuzz --seed=N`` repeats one run.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from nextgen.pulsar.frames import FrameReader, MalformedFrame, RawFrame, parse_command
from nextgen.pulsar.payload import ChecksumMismatch, open_payload
from tests.support.pulsar.fast_path import read_fast
from tests.support.pulsar.frames import FrameMutator

FRAMES = [30_000, pytest.param(120_000, marks=pytest.mark.slow)]
FRESH_STARTS = 0.5
"""How often a frame that is not complete is dropped; else the next ones are taken for its end."""


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--seed")
    return 2_026 if given is None else int(given)


@pytest.mark.parametrize("frames", FRAMES)
def test_no_frame_breaks_the_codec(seed: int, frames: int) -> None:
    mutator = FrameMutator(seed)
    rng = random.Random(seed)
    reader = FrameReader()
    counts = {"parsed": 0, "refused": 0, "broken streams": 0, "payloads": 0}

    for _ in range(frames):
        for chunk in chunks_of(mutator.next_frame(), rng):
            try:
                read = reader.feed(chunk)
            except MalformedFrame:
                counts["broken streams"] += 1
                reader = FrameReader()
                break
            for frame in read:
                counts[what_becomes_of(frame)] += 1
        if reader.pending_bytes and rng.random() < FRESH_STARTS:
            reader = FrameReader()

    print(f"seed {seed}: {counts}")
    assert min(counts.values()) > frames // 1_000, counts


def chunks_of(data: bytes, rng: random.Random) -> list[bytes]:
    """Cut ``data`` somewhere, or leave it whole."""
    if rng.random() < 0.5:
        return [data]
    at = rng.randrange(len(data) + 1)
    return [data[:at], data[at:]]


def what_becomes_of(frame: RawFrame) -> str:
    fast = read_fast(frame.command)
    try:
        command = parse_command(frame.command)
    except MalformedFrame:
        assert fast is None, "the fast path accepted what the general codec refuses"
        return "refused"
    if fast is not None:
        inner = command.lookupTopic if fast.is_lookup else command.partitionMetadata
        assert (fast.topic, fast.request_id) == (inner.topic, inner.request_id)
    if not frame.payload:
        return "parsed"
    with suppress(MalformedFrame, ChecksumMismatch):
        open_payload(frame.payload)
    return "payloads"
