"""A view's content as a number: the sum, modulo 2^64, of a hash of each of its rows.

    digest = sum of xxh3_64(msgpack(row), seed = xxh3_64(table))  over all rows of all tables

A sum does not depend on the order of its terms, so a fold keeps it by subtracting the rows that
it replaces and adding those that it writes, and a scan of the tables gives the same number.
It finds faults, not forgeries (ADR 0027).

Every ``DIGEST_POSITIONS`` events all replicas take it at the same place in the log: behind the
entry whose events reach the multiple, however the entries were batched.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

import msgpack
import xxhash
from sqlalchemy import MetaData, Table

from nextgen.kernel.limits.cluster import DIGEST_POSITIONS, DIGEST_SCAN_ROWS
from nextgen.replication.ports import Entry

DIGEST_VERSION = 1
"""Changes with the content and form of the hash: digests of two versions cannot be compared."""

_MASK = 2**64 - 1
_SIGN = 2**63
_PACK_BUFFER_BYTES = 4_096


def rows_digest(table: str, rows: Collection[tuple[Any, ...]]) -> int:
    """Return the sum of the hashes of ``rows``, of all columns in the table's order.

    The values MUST be as SQLite gives them back: int, str, bytes, float or None, never bool.
    """
    if not rows:
        return 0
    pack = msgpack.Packer(buf_size=_PACK_BUFFER_BYTES).pack
    digest, seed = xxhash.xxh3_64_intdigest, _seed(table)
    return sum([digest(pack(row), seed) for row in rows]) & _MASK


def plus(digest: int, change: int) -> int:
    """Return ``digest`` after a change of any sign."""
    return (digest + change) & _MASK


def stored_of(digest: int) -> int:
    """Return ``digest`` as SQLite can keep it: its integers have a sign."""
    return digest - 2**64 if digest >= _SIGN else digest


def digest_of(stored: int) -> int:
    """Return the digest that ``stored_of`` has turned into ``stored``."""
    return stored & _MASK


def scan(
    connection: sqlite3.Connection, metadata: MetaData, *, pause_s: float = 0.0
) -> tuple[int, int]:
    """Return the digest of every row of ``metadata``'s tables, and how many rows there are.

    ``pause_s`` is slept after each ``DIGEST_SCAN_ROWS`` rows, for the threads that wait.
    """
    digest = rows = 0
    for table in metadata.sorted_tables:
        cursor = connection.execute(select_of(table))
        while some := cursor.fetchmany(DIGEST_SCAN_ROWS):
            digest += rows_digest(table.name, some)
            rows += len(some)
            if pause_s:
                time.sleep(pause_s)
    return digest & _MASK, rows


def select_of(table: Table) -> str:
    """Return the statement that reads all of ``table`` as it is hashed."""
    return f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name}"


def next_digest_position(position: int) -> int:
    """Return the first position behind ``position`` at which digests are taken."""
    return (position // DIGEST_POSITIONS + 1) * DIGEST_POSITIONS


def batches_of(entries: Sequence[Entry], position: int) -> Iterator[Sequence[Entry]]:
    """Cut ``entries``, which follow event ``position``, so that each digest point ends a batch."""
    start = 0
    for end, entry in enumerate(entries, start=1):
        if entry.next_position - 1 >= next_digest_position(position):
            yield entries[start:end]
            start, position = end, entry.next_position - 1
    if start < len(entries):
        yield entries[start:]


@cache
def _seed(table: str) -> int:
    return xxhash.xxh3_64_intdigest(table.encode())
