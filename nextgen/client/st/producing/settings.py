"""What a producer is made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nextgen.client.st.errors import InvalidSettings, NotSupported
from nextgen.client.st.settings import not_negative, positive, refuse_unsupported, texts
from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    ST_BATCH_BYTES_MAX,
    ST_BATCH_MESSAGES_MAX,
    ST_CHUNKED_MESSAGE_BYTES_MAX,
    ST_CHUNKS_PER_MESSAGE_MAX,
    ST_SEND_TIMEOUT_MS_DEFAULT,
)
from protos.pulsar import PulsarApi_pb2 as pulsar

UNSUPPORTED = {
    "encryption_keys": "encrypt the payload in a custom schema",
    "crypto_key_reader": "encrypt the payload in a custom schema",
    "transaction": "this client has no transactions",
    "message_router": "the layout of the topic routes; choose the key",
}
"""Settings of the Java client that this one does not have, and what to do."""


METADATA_BYTES_MAX = 64 * 1024
"""Room that is left for a message's key, properties and the rest of its metadata."""

ENTRY_PAYLOAD_BYTES_MAX = PULSAR_MESSAGE_BYTES_MAX - METADATA_BYTES_MAX


class AccessMode(Enum):
    """Who else may produce to the topic."""

    SHARED = pulsar.Shared
    EXCLUSIVE = pulsar.Exclusive
    """Nobody: it fails while there is another one."""

    EXCLUSIVE_WITH_FENCING = pulsar.ExclusiveWithFencing
    """Nobody: those that are there are ended."""

    WAIT_FOR_EXCLUSIVE = pulsar.WaitForExclusive
    """Nobody: it waits, without a limit, until it is the only one."""


class Compression(Enum):
    """How batches are compressed."""

    NONE = pulsar.NONE
    LZ4 = pulsar.LZ4
    ZLIB = pulsar.ZLIB
    ZSTD = pulsar.ZSTD
    SNAPPY = pulsar.SNAPPY


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of one producer; ``PulsarClient.create_producer`` documents them."""

    name: str = ""
    access_mode: AccessMode = AccessMode.SHARED
    compression: Compression = Compression.NONE
    batching_enabled: bool = True
    batching_delay_ms: int = 1
    batch_messages_max: int = ST_BATCH_MESSAGES_MAX
    batch_bytes_max: int = ST_BATCH_BYTES_MAX
    send_timeout_ms: int = ST_SEND_TIMEOUT_MS_DEFAULT
    chunking_enabled: bool = False
    chunk_bytes: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    create_if_missing: bool = True

    @staticmethod
    def of(given: dict[str, Any]) -> ProducerSettings:
        """Return checked settings.

        Raises:
            NotSupported: A setting of the Java client that this one does not have.
            InvalidSettings: Any other problem.
        """
        known = set(ProducerSettings.__dataclass_fields__)
        refuse_unsupported({name: given[name] for name in given if name not in known}, UNSUPPORTED)
        settings = ProducerSettings(**given)
        settings._check()
        return settings

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that a message may have."""
        if not self.chunking_enabled:
            return ENTRY_PAYLOAD_BYTES_MAX
        chunk_bytes = self.chunk_bytes or ENTRY_PAYLOAD_BYTES_MAX
        return min(ST_CHUNKED_MESSAGE_BYTES_MAX, ST_CHUNKS_PER_MESSAGE_MAX * chunk_bytes)

    def chunk_bytes_at(self, message_bytes_max: int) -> int:
        """Return how many bytes of a payload go into an entry of a server; 0 is no limit."""
        if not self.chunking_enabled:
            return 0
        largest = max(message_bytes_max - METADATA_BYTES_MAX, 1)
        return min(self.chunk_bytes, largest) if self.chunk_bytes else largest

    def _check(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidSettings(f"name is {self.name!r}, it must be a string")
        if not isinstance(self.access_mode, AccessMode):
            raise NotSupported(f"access mode {self.access_mode!r} is not supported")
        if not isinstance(self.compression, Compression):
            raise InvalidSettings(f"compression is {self.compression!r}, not a Compression")
        not_negative("batching_delay_ms", self.batching_delay_ms)
        not_negative("send_timeout_ms", self.send_timeout_ms)
        not_negative("chunk_bytes", self.chunk_bytes)
        if self.chunk_bytes and not self.chunking_enabled:
            raise InvalidSettings("chunk_bytes needs chunking_enabled")
        texts("properties", self.properties)
        positive("batch_messages_max", self.batch_messages_max)
        positive("batch_bytes_max", self.batch_bytes_max)
