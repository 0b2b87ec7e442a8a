"""Where an export is kept: a port with two adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is there. ``path`` is relative to the export, with slashes."""

    path: str
    bytes: int


class Draft(Protocol):
    """A data file that is being written; nobody reads it before it is published."""

    def write(self, data: bytes) -> int: ...

    def publish(self, path: str) -> None:
        """Make it durable under its name. It must not be there already.

        Raises:
            ExportRefused: It is there, or another exporter took over.
            OSError: The disk refuses.
        """

    def discard(self) -> None:
        """Remove it as well as possible. Harmless when published."""


class Store(Protocol):
    """One export's directory. All methods block; one thread at a time per shard."""

    @property
    def url(self) -> str:
        """What people call it."""

    def acquire(self) -> None:
        """Keep every other exporter away, making the directory on first use.

        Raises:
            ExportRefused: Another exporter uses it.
        """

    def release(self) -> None:
        """Let the next exporter in. Harmless when not acquired."""

    def confirm(self) -> None:
        """Renew what ``acquire`` gave, if it must be renewed.

        Raises:
            ExportRefused: Another exporter took over.
        """

    def list(self) -> Sequence[StoredFile]:
        """Return every file, hidden ones included; none if there is no directory."""

    def read(self, path: str) -> bytes | None:
        """Return a small file's content, None if it is not there."""

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file at once: a reader sees the old or the new content."""

    def draft(self, path: str) -> Draft:
        """Begin a data file; ``path`` is the draft's own."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading, seekable."""

    def remove(self, path: str) -> None:
        """Remove a file."""
