"""A file that one thread appends to, in rounds: written, then fsynced."""

from __future__ import annotations

from contextlib import suppress

from brokers.adapters.ledger.format.files import sync_file
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.storage.disk import Handle, SharedStorage


class AppendFile:
    """The end of a file. A write opens the file; ``close`` only closes the handle.

    ``handle`` is that of a newly created file; it is closed here too. The owner sets ``path`` when
    the file is renamed.

    After an error nothing more may be appended: the bytes behind ``durable`` are unknown.
    """

    __slots__ = ("_handle", "_label", "_reserved", "_storage", "durable", "end", "path", "salt")

    def __init__(
        self,
        storage: SharedStorage,
        path: str,
        *,
        end: int,
        salt: int,
        label: str,
        handle: Handle | None = None,
    ) -> None:
        self._storage = storage
        self._label = label
        self._handle = handle
        self._reserved = 0
        self.path = path
        self.salt = salt
        self.end = end
        self.durable = end
        """The offset up to which the file is known to be fsynced."""

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    @property
    def is_dirty(self) -> bool:
        return self.end > self.durable

    def append(self, content: bytes) -> None:
        """Write ``data`` at the end.

        Raises:
            OSError: Any part of the data may have been written.
        """
        handle = self._open()
        end = self.end + len(content)
        if -1 < self._reserved < end:
            self._reserve(handle, end)
        self._storage.pwrite(handle, content, self.end)
        self.end = end

    def sync(self) -> None:
        """Return when all appended bytes are on the medium."""
        sync_file(self._storage, self._open(), label=self._label)
        self.durable = self.end

    def finish(self) -> None:
        """Release reserved space and close the file for good.

        Call it only if all rounds succeeded: otherwise there may be bytes behind the end that a
        successor has sealed.
        """
        if self._reserved > self.end:
            with suppress(OSError):
                self._storage.truncate(self._open(), self.end)
        self.close()

    def close(self) -> None:
        """Close the handle."""
        if self._handle is not None:
            self._storage.close(self._handle)
            self._handle = None

    def _open(self) -> Handle:
        if self._handle is None:
            self._handle = self._storage.open(self.path)
        return self._handle

    def _reserve(self, handle: Handle, end: int) -> None:
        """Reserve space ahead, as much as the file has already.

        An fsync takes half the time if it need not write a new size. If the disk does not support
        it or is full, this is not tried again: the writes themselves will report an error.
        """
        step = min(
            max(pulsar_limits.LEDGER_RESERVE_BYTES_MIN, self._reserved),
            pulsar_limits.LEDGER_RESERVE_BYTES_MAX,
        )
        try:
            self._storage.preallocate(handle, end + step, begin=self.end)
        except OSError:
            self._reserved = -1
            return
        self._reserved = end + step
