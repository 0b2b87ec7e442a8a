"""Finds the chunks that an earlier owner has stored of an incomplete message.

The producer repeats the chunks that were not acknowledged. Some of them may be stored, and
consumers drop a message with a repeated chunk. The search is made only when a producer that was
connected before continues with a chunk.
"""

from __future__ import annotations

from brokers.ports.ledger import LedgerReader
from brokers.service.entry_metadata import metadata_of
from nextgen.kernel.limits.pulsar import CHUNK_SEARCH_BYTES_MAX, CHUNK_SEARCH_MS

_STEP_ENTRIES = 500
_STEP_BYTES = 4 * 1024 * 1024


async def begun_message(
    ledger: LedgerReader,
    producer_name: str,
    now_ms: int,
    *,
    bytes_max: int = CHUNK_SEARCH_BYTES_MAX,
    step_bytes: int = _STEP_BYTES,
) -> tuple[int, int] | None:
    """Return sequence id and highest stored chunk of a producer's incomplete message.

    None if its last entry is not a chunk, or is the last chunk, or is so old that clients no longer
    continue the message.

    Raises:
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    begun = None
    read_bytes = 0
    after = await ledger.before_time(now_ms - CHUNK_SEARCH_MS)
    while read_bytes < bytes_max:
        entries = await ledger.read(after, entries_max=_STEP_ENTRIES, bytes_max=step_bytes)
        if not entries:
            break
        for entry in entries:
            read_bytes += len(entry.payload)
            if entry.producer_name != producer_name:
                continue
            metadata = metadata_of(entry)
            begun = None
            if metadata is not None and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
                begun = (int(metadata.sequence_id), int(metadata.chunk_id))
        after = entries[-1].position
    return begun
