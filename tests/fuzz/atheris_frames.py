"""Coverage-guided fuzzing of the Pulsar codec, for those who have atheris.

    python -m tests.fuzz.atheris_frames [libFuzzer's options, for example -max_total_time=300]

``make soak`` runs it where atheris can be imported. It starts from the corpus of the other tests.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, NoReturn

import atheris
import structlog

with atheris.instrument_imports(include=["nextgen.pulsar"]):
    from nextgen.pulsar.frames import FrameReader, MalformedFrame
    from tests.fuzz.test_codec import what_becomes_of
    from tests.fuzz.test_connection import GREETING, AnsweringConnection
    from tests.support.pulsar.frames import (
        connect_frame,
        every_command,
        frame_of,
        plausible_session,
    )
    from tests.support.pulsar.transport import MemoryTransport

from nextgen.pulsar.keep_alive import KeepAlive


def read_frames(data: bytes) -> None:
    """Feed ``data`` whole and byte by byte: the same frames, and then the same end."""
    whole, single = FrameReader(), FrameReader()
    found = []
    for reader, chunks in ((whole, [data]), (single, [data[i : i + 1] for i in range(len(data))])):
        frames = []
        for chunk in chunks:
            try:
                frames += reader.feed(chunk)
            except MalformedFrame:
                break
        found.append((frames, reader.error is None, reader.pending_bytes))
    assert found[0] == found[1]
    for frame in found[0][0]:
        what_becomes_of(frame)


def drive_connection(data: bytes) -> None:
    """Hand ``data`` to a connection that was greeted."""

    async def main() -> None:
        keep_alive = KeepAlive()
        transport = MemoryTransport(AnsweringConnection(keep_alive, GREETING))
        transport.receive(connect_frame())
        transport.receive(data)
        transport.abort()
        keep_alive.close()
        await asyncio.sleep(0)

    asyncio.run(main())


def fuzz_one(data: bytes) -> None:
    read_frames(data)
    drive_connection(data)


def write_corpus(folder: Path) -> None:
    rng = random.Random(1)
    for number, made in enumerate([*every_command(), *plausible_session(rng)]):
        (folder / f"{number:03}").write_bytes(frame_of(made, rng))


def only_bugs(_logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
    """Drop what is logged, except what a handler raised that it must not."""
    if level == "error":
        raise AssertionError(event)
    raise structlog.DropEvent


if __name__ == "__main__":
    structlog.configure(processors=[only_bugs])
    with tempfile.TemporaryDirectory() as corpus:
        write_corpus(Path(corpus))
        atheris.Setup([*sys.argv, corpus], fuzz_one)
        atheris.Fuzz()
