"""The storage of an export: a port with two adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An existing file. ``path`` is relative to the export, with slashes."""

    path: str
    bytes: int


class Draft(Protocol):
    """A data file that is being written. Readers ignore it before it is published."""

    def write(self, data: bytes) -> int: ...

    def publish(self, path: str) -> None:
        """Make the file durable under its name, which must not exist yet.

        Raises:
            ExportRefused: The name exists, or another exporter took over.
            OSError: The disk refuses.
        """

    def discard(self) -> None:
        """Try to remove the file. Harmless when published."""


class Store(Protocol):
    """One export's directory. All methods block; one thread at a time per shard."""

    @property
    def url(self) -> str:
        """The store's address, for messages."""

    def acquire(self) -> None:
        """Lock the store against other exporters; create the directory on first use.

        Raises:
            ExportRefused: Another exporter uses it.
        """

    def release(self) -> None:
        """Release the lock. Harmless when not acquired."""

    def confirm(self) -> None:
        """Renew the lock of ``acquire``, if it expires.

        Raises:
            ExportRefused: Another exporter took over.
        """

    def list(self) -> Sequence[StoredFile]:
        """Return every file, hidden ones included; none if there is no directory."""

    def read(self, path: str) -> bytes | None:
        """Return a small file's content, None if it does not exist."""

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file atomically: a reader sees the old or the new content."""

    def draft(self, path: str) -> Draft:
        """Begin a data file; ``path`` is the path of the draft."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading, seekable."""

    def remove(self, path: str) -> None:
        """Remove a file."""
