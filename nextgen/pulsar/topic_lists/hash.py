"""The hash of a topic list, bit for bit as Apache Pulsar and its clients compute it."""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

_HASH_BYTES = 4
HASH_CHARACTERS = 2 * _HASH_BYTES
"""Length of the text form."""


def topics_hash(names: Iterable[str]) -> str:
    """Return the hash of a set of full topic names, in any order. Nothing is removed as repeated.

    It is the CRC-32C of the sorted names with commas between them, its bytes in little-endian order
    as hexadecimal digits.
    """
    return hash_text(crc32c(",".join(in_order(names)).encode()))


def hash_text(checksum: int) -> str:
    """Return the text form of a CRC-32C over sorted names with commas between them."""
    return checksum.to_bytes(_HASH_BYTES, "little").hex()


def in_order(names: Iterable[str]) -> list[str]:
    """Return ``names`` sorted by ``sort_key``."""
    names = list(names)
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=sort_key)
    return names


def sort_key(name: str) -> bytes:
    """Return the key by which names are sorted: their UTF-16 code units, as Java compares them.

    Only names with characters beyond U+FFFF stand elsewhere than in the order of code points.
    """
    return name.encode("utf-16-be")
