"""What an earlier owner has stored of a chunked message."""

from __future__ import annotations

from brokers.adapters.ledger.memory_ledger import MemoryLedger, MemoryLedgerStore
from brokers.ports.ledger import NewEntry
from brokers.service.producing.begun_message import begun_message
from nextgen.kernel.limits.pulsar import CHUNK_SEARCH_MS
from nextgen.pulsar.payload import message_payload
from protos.pulsar.PulsarApi_pb2 import MessageMetadata

NOW_MS = 1_000_000


class World:
    """A ledger whose clock is set by hand."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.store = MemoryLedgerStore(now_ms=lambda: self.now_ms)

    async def open(self) -> MemoryLedger:
        return await self.store.open("id", "", 1, topic_name="t")


def entry(name: str, sequence_id: int, chunk: tuple[int, int] | None = None) -> NewEntry:
    metadata = MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1)
    if chunk is not None:
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
        metadata.uuid = "u"
    return NewEntry(message_payload(metadata, b"x" * 100), 1, name, sequence_id)


async def test_the_chunks_of_others_and_whole_messages_do_not_count():
    ledger = await World().open()
    for given in [entry("p", 4), entry("p", 5, (0, 3)), entry("p", 5, (1, 3)), entry("q", 9)]:
        await ledger.append(given)

    assert await begun_message(ledger, "p", NOW_MS) == (5, 1)
    assert await begun_message(ledger, "q", NOW_MS) is None
    assert await begun_message(ledger, "r", NOW_MS) is None


async def test_a_message_that_is_whole_is_not_begun():
    ledger = await World().open()
    for chunk_id in range(3):
        await ledger.append(entry("p", 5, (chunk_id, 3)))

    assert await begun_message(ledger, "p", NOW_MS) is None


async def test_an_empty_topic_has_nothing_begun():
    assert await begun_message(await World().open(), "p", NOW_MS) is None


async def test_what_no_client_goes_on_with_is_not_looked_for():
    ledger = await World().open()
    await ledger.append(entry("p", 5, (0, 3)))

    assert await begun_message(ledger, "p", NOW_MS + CHUNK_SEARCH_MS) == (5, 0)
    assert await begun_message(ledger, "p", NOW_MS + CHUNK_SEARCH_MS + 1) is None


async def test_chunk_search_bytes_max_are_read_and_no_more():
    ledger = await World().open()
    size = len(entry("p", 5, (0, 3)).payload)
    for chunk_id in range(2):
        await ledger.append(entry("p", 5, (chunk_id, 3)))

    whole = await begun_message(ledger, "p", NOW_MS, bytes_max=2 * size, step_bytes=1)
    part = await begun_message(ledger, "p", NOW_MS, bytes_max=size, step_bytes=1)

    assert (whole, part) == ((5, 1), (5, 0))
