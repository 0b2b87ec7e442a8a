"""What an earlier owner has stored of a chunked message that is not whole yet.

Its producer sends the chunks again that were not acknowledged. Some of them may be stored, and
consumers give a message up whose chunk comes twice. Looked for only when a producer that was here
before goes on with a chunk.
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
    """Return sequence id and highest chunk of the message that a producer has begun last.

    None if its last entry was no chunk, or the last chunk, or is older than clients go on
    sending.

    Raises:
        LedgerDamaged, StorageFailed: As the ledger says.
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
