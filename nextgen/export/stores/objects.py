"""An export on anything that pyarrow or fsspec can open: object stores, memory.

An object appears atomically, so nothing is renamed: a file is spooled on this machine and uploaded
when it is closed. There is no lock. Instead the exporter holds a lease: it writes its name with an
expiry into ``.exporter.json``, renews it, and reads it before each file and each manifest. A second
exporter is refused, and one that paused longer than its lease stops. Two exporters can still race
between this read and the following write; ``check`` reports the damage.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyarrow import fs

from nextgen.export.errors import ExportRefused
from nextgen.export.stores.layout import LEASE
from nextgen.export.stores.store import StoredFile
from nextgen.kernel.input.json_fields import parse_json
from nextgen.kernel.limits.stream import EXPORT_LEASE_MS, EXPORT_LEASE_RENEWED_MS

COPY_BYTES = 1024 * 1024


def file_system_of(url: str) -> tuple[Any, str]:
    """Return the pyarrow file system of ``url``, and the folder in it.

    Raises:
        ExportRefused: Neither library supports it, or a package for it is not installed.
    """
    try:
        system, folder = fs.FileSystem.from_uri(url)
        return system, folder.rstrip("/")
    except (pa.ArrowException, OSError) as arrow_error:
        import fsspec

        try:
            opened, folder = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise ExportRefused(f"{url} cannot be opened: {error}; {arrow_error}") from error
        return fs.PyFileSystem(fs.FSSpecHandler(opened)), folder.rstrip("/")


class ObjectStore:
    """See ``Store``. ``wall_clock_ms`` is compared with that of other machines: the length of the
    lease allows for clock skew."""

    def __init__(
        self,
        url: str,
        system: Any,
        folder: str,
        *,
        wall_clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._url = url
        self._system = system
        self._folder = folder
        self._now_ms = wall_clock_ms
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._renewed_ms: int | None = None

    @property
    def url(self) -> str:
        return self._url

    def acquire(self) -> None:
        assert self._renewed_ms is None, "the store is acquired already"
        owner, expires_ms = self._lease()
        if owner and expires_ms > self._now_ms():
            raise ExportRefused(
                f"{self._url} is in use by another exporter, {owner}: stop that one; if it was "
                f"killed, its lease ends in {(expires_ms - self._now_ms()) / 1000:.0f} s"
            )
        self._system.create_dir(self._folder, recursive=True)
        self._renew()
        self._check_owner()

    def release(self) -> None:
        if self._renewed_ms is None:
            return
        self._renewed_ms = None
        if self._lease()[0] == self._owner:
            self._system.delete_file(self._at(LEASE))

    def confirm(self) -> None:
        assert self._renewed_ms is not None, "the store is not acquired"
        self._check_owner()
        if self._now_ms() - self._renewed_ms >= EXPORT_LEASE_RENEWED_MS:
            self._renew()

    def list(self) -> Sequence[StoredFile]:
        selector = fs.FileSelector(self._folder, allow_not_found=True, recursive=True)
        found = [
            StoredFile(info.path[len(self._folder) :].lstrip("/"), info.size or 0)
            for info in self._system.get_file_info(selector)
            if info.is_file
        ]
        return sorted(found, key=lambda file: file.path)

    def read(self, path: str) -> bytes | None:
        try:
            with self._system.open_input_stream(self._at(path)) as stream:
                return cast(bytes, stream.read())
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        self.confirm()
        self._write(path, content)

    def draft(self, path: str) -> ObjectDraft:
        return ObjectDraft(self)

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._system.open_input_file(self._at(path)))

    def remove(self, path: str) -> None:
        self.confirm()
        self._system.delete_file(self._at(path))

    def upload(self, path: str, source: BinaryIO) -> None:
        """Write a data file from ``source``; refuse a name that exists already."""
        self.confirm()
        target = self._at(path)
        if self._system.get_file_info(target).type != fs.FileType.NotFound:
            raise ExportRefused(f"{target} is there already, and was not exported by this run")
        # Some stores have real folders, which must be created.
        self._system.create_dir(target.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(target) as stream:
            shutil.copyfileobj(source, stream, COPY_BYTES)

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _write(self, path: str, content: bytes) -> None:
        with self._system.open_output_stream(self._at(path)) as stream:
            stream.write(content)

    def _renew(self) -> None:
        now_ms = self._now_ms()
        fields = {"exporter": self._owner, "expires_ms": now_ms + EXPORT_LEASE_MS}
        self._write(LEASE, json.dumps(fields).encode())
        self._renewed_ms = now_ms

    def _lease(self) -> tuple[str, int]:
        """Return the owner and expiry of the lease; an unreadable lease has no owner."""
        content = self.read(LEASE)
        try:
            fields = parse_json(content or b"{}")
            return str(fields["exporter"]), int(fields["expires_ms"])
        except (ValueError, KeyError, TypeError):
            return "", 0

    def _check_owner(self) -> None:
        owner, _ = self._lease()
        if owner != self._owner:
            raise ExportRefused(
                f"{self._url} was taken over by another exporter, {owner or 'unknown'}: "
                "this one stops, and wrote nothing since"
            )


class ObjectDraft:
    """See ``Draft``: a temporary file of this machine until it is published."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        # The file lives as long as the draft, which ends in publish or discard.
        self._spool: Any = tempfile.TemporaryFile(prefix="nextgen-export-")  # noqa: SIM115

    def write(self, data: bytes) -> int:
        return int(self._spool.write(data))

    def publish(self, path: str) -> None:
        self._spool.seek(0)
        self._store.upload(path, self._spool)
        self._spool.close()

    def discard(self) -> None:
        self._spool.close()
