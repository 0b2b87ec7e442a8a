"""What happened, in order: as one hash, and as text for the reader of one seed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

_INSTANT = struct.Struct("<d")

_PARTS_MAX = 1_000
"""Taken into the hash together: one call for each would be most of what a trace costs."""


class Trace:
    """Takes in everything; equal runs have equal hashes. ``echo`` gets each line of text."""

    def __init__(self, clock: Callable[[], float], echo: Callable[[str], None] | None) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=16)
        self._parts: list[bytes] = []
        self._names: dict[str, bytes] = {}
        self._echo = echo
        self.steps = 0

    @property
    def digest(self) -> str:
        self._flush()
        return self._hash.hexdigest()

    def step(self, process_name: str) -> None:
        """Count one callback of a process."""
        self.steps += 1
        name = self._names.get(process_name)
        if name is None:
            name = self._names[process_name] = process_name.encode()
        parts = self._parts
        parts.append(_INSTANT.pack(self._clock()))
        parts.append(name)
        if len(parts) > _PARTS_MAX:
            self._flush()

    def frame(self, sender: str, target: str, frame: bytes, text: Callable[[], str]) -> None:
        """Note a frame as it arrives; ``text`` is called only if the trace is printed."""
        self._parts.append(frame)
        if self._echo is not None:
            self._say(f"{sender} > {target}: {text()}")

    def note(self, line: str) -> None:
        """Note anything else."""
        self._parts.append(line.encode())
        if self._echo is not None:
            self._say(line)

    def _flush(self) -> None:
        self._hash.update(b"".join(self._parts))
        self._parts.clear()

    def _say(self, line: str) -> None:
        assert self._echo is not None
        self._echo(f"{self._clock():11.4f}  {line}")
