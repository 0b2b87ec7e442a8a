"""Small files that are replaced as a whole and checked when they are read. Calls block.

The new content is written beside the old file, synced and renamed: a crash leaves one of the two. A
checksum reveals a damaged file.
"""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from nextgen.storage.disk import Storage, read_content, replace_content

_CHECKSUM_BYTES = 4


def replace_file(storage: Storage, path: Path, payload: bytes, *, label: str) -> None:
    """Replace the content of the file at ``path``, durably and atomically.

    Its syncs are labelled ``<label>.file`` and ``<label>.name``.

    Raises:
        OSError: The disk refuses. The file is unchanged.
    """
    checksum = crc32c(payload).to_bytes(_CHECKSUM_BYTES, "big")
    replace_content(storage, path, checksum + payload, label=label)


def read_checked(storage: Storage, path: Path) -> bytes | None:
    """Return the content of the file at ``path``; empty if it is damaged, None if there is none.

    Raises:
        OSError: The disk cannot read it.
    """
    data = read_content(storage, path)
    if data is None:
        return None
    checksum, payload = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    is_sound = int.from_bytes(checksum, "big") == crc32c(payload)
    return payload if is_sound else b""
