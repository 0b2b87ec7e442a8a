"""Writes and reads the files of a backup: pages of objects, compressed and counted."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from google.protobuf.message import DecodeError

from nextgen.backup.errors import BackupUnusable
from nextgen.backup.manifest import BackupFile
from nextgen.export.stores.store import Draft, Store
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from protos.nextgen.v1.inventory_pb2 import Item, ItemPage

LENGTH_BYTES = 4
COMPRESSION_LEVEL = 1
"""A fifth of the bytes, for a second of processor time for a million topics; higher levels take
several for little less."""

_READ_BYTES = 1 << 20


class ItemsWriter:
    """Writes one file. ``publish`` or ``discard`` it. ``label`` is its own among open ones."""

    def __init__(self, store: Store, label: str) -> None:
        self._store = store
        self._draft: Draft = store.draft(f".{label}.draft")
        self._compressor = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._sha256 = hashlib.sha256()
        self._bytes = 0
        self._items = 0

    def write(self, items: Sequence[Item]) -> None:
        """Write a page of objects, as many as one message may carry."""
        if not items:
            return
        page = ItemPage(items=items).SerializeToString()
        self._items += len(items)
        self._write(
            self._compressor.compress(len(page).to_bytes(LENGTH_BYTES, "big"))
            + self._compressor.compress(page)
        )

    def publish(self, path: str) -> BackupFile:
        """Make the file durable as ``path``, which no manifest names yet, and return its entry."""
        self._write(self._compressor.flush())
        with contextlib.suppress(FileNotFoundError):
            self._store.remove(path)
        self._draft.publish(path)
        return BackupFile(path, self._items, self._bytes, self._sha256.hexdigest())

    def discard(self) -> None:
        self._draft.discard()

    def _write(self, data: bytes) -> None:
        if data:
            self._draft.write(data)
            self._sha256.update(data)
            self._bytes += len(data)


def read_pages(store: Store, file: BackupFile) -> Iterator[Sequence[Item]]:
    """Yield the pages of a file in order.

    Raises:
        BackupUnusable: It is missing or damaged.
        OSError: The store cannot be read.
    """
    where = f"{store.url}/{file.path}"
    found = 0
    try:
        with store.open(file.path) as raw, gzip.GzipFile(fileobj=raw) as opened:
            while head := opened.read(LENGTH_BYTES):
                size = int.from_bytes(head, "big")
                if len(head) < LENGTH_BYTES or not 0 < size <= GRPC_MESSAGE_BYTES_MAX:
                    raise BackupUnusable(f"{where} is damaged: a page of {size} bytes")
                page = ItemPage.FromString(opened.read(size))
                found += len(page.items)
                yield page.items
    except (FileNotFoundError, EOFError, zlib.error, gzip.BadGzipFile, DecodeError) as error:
        raise BackupUnusable(
            f"{where} is missing or damaged ({error}): take another copy"
        ) from error
    if found != file.items:
        raise BackupUnusable(f"{where} holds {found} objects, the manifest says {file.items}")


def check_file(store: Store, file: BackupFile) -> None:
    """Check a file's length and digest.

    Raises:
        BackupUnusable: It is missing, cut off or altered.
        OSError: The store cannot be read.
    """
    where = f"{store.url}/{file.path}"
    try:
        with store.open(file.path) as opened:
            digest, size = _digest(opened)
    except FileNotFoundError as error:
        raise BackupUnusable(f"{where} is missing: the backup is not whole") from error
    if size != file.bytes:
        raise BackupUnusable(
            f"{where} has {size} bytes and not {file.bytes}: it was cut off or altered"
        )
    if digest != file.sha256:
        raise BackupUnusable(f"{where} was altered: its SHA-256 is not that of the manifest")


def _digest(opened: BinaryIO) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while block := opened.read(_READ_BYTES):
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size
