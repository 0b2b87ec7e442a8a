"""Small files that are replaced as a whole and checked when they are read. Calls block.

What is written stands beside the old one, is synced and renamed: a crash leaves one of the two.
A checksum tells a damaged file from a sound one.
"""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from nextgen.replication.storage import Storage

_CHECKSUM_BYTES = 4


def replace_file(storage: Storage, path: Path, payload: bytes, *, label: str) -> None:
    """Give the file at ``path`` another content, durably and at once.

    Its syncs are labelled ``<label>.file`` and ``<label>.name``.

    Raises:
        OSError: The disk refuses. What was there before still is.
    """
    draft = path.with_name(f"{path.name}.draft")
    storage.unlink(draft)
    handle = storage.open(draft, create=True)
    try:
        storage.pwrite(handle, crc32c(payload).to_bytes(_CHECKSUM_BYTES, "big") + payload, 0)
        storage.sync(handle, label=f"{label}.file")
    finally:
        storage.close(handle)
    storage.rename(draft, path)
    storage.sync_directory(path.parent, label=f"{label}.name")


def read_checked(storage: Storage, path: Path) -> bytes | None:
    """Return the content of the file at ``path``; empty if it is damaged, None if there is none.

    Raises:
        OSError: The disk does not give it.
    """
    if path.name not in storage.list_names(path.parent):
        return None
    handle = storage.open(path)
    try:
        data = storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)
    checksum, payload = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    is_sound = int.from_bytes(checksum, "big") == crc32c(payload)
    return payload if is_sound else b""
