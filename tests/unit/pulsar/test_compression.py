"""The compressions of clients: no more is produced than the metadata announces."""

from __future__ import annotations

import zlib

import cramjam
import pytest

from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX
from nextgen.pulsar.compression import NotDecompressed, decompressed
from protos.pulsar.PulsarApi_pb2 import CompressionType

COMPRESS = {
    CompressionType.NONE: bytes,
    CompressionType.LZ4: lambda body: bytes(cramjam.lz4.compress_block(body, store_size=False)),
    CompressionType.ZLIB: zlib.compress,
    CompressionType.ZSTD: lambda body: bytes(cramjam.zstd.compress(body)),
    CompressionType.SNAPPY: lambda body: bytes(cramjam.snappy.compress_raw(body)),
}
COMPRESSED = [kind for kind in COMPRESS if kind != CompressionType.NONE]
BODY = b"as it was " * 1_000


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("body", [b"", b"x", BODY])
def test_a_body_comes_back_as_it_was(compression: int, body: bytes):
    compressed = COMPRESS[compression](body)

    assert decompressed(compression, compressed, len(body)) == body


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_body_larger_than_announced_is_refused(compression: int):
    bomb = COMPRESS[compression](bytes(PULSAR_MESSAGE_BYTES_MAX))

    with pytest.raises(NotDecompressed):
        decompressed(compression, bomb, 1_000)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_body_smaller_than_announced_is_not_filled_up(compression: int):
    compressed = COMPRESS[compression](BODY)

    assert decompressed(compression, compressed, len(BODY) + 10) == BODY


@pytest.mark.parametrize("compression", COMPRESSED)
def test_pulsar_message_bytes_max_are_decompressed_and_one_more_is_refused(compression: int):
    body = bytes(PULSAR_MESSAGE_BYTES_MAX)
    compressed = COMPRESS[compression](body)

    assert decompressed(compression, compressed, PULSAR_MESSAGE_BYTES_MAX) == body
    with pytest.raises(NotDecompressed, match="more than a message may have"):
        decompressed(compression, compressed, PULSAR_MESSAGE_BYTES_MAX + 1)


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("damaged", [b"", b"???", b"\xff" * 100])
def test_damage_is_refused(compression: int, damaged: bytes):
    with pytest.raises(NotDecompressed):
        decompressed(compression, damaged, 5)


def test_an_unknown_compression_is_refused():
    with pytest.raises(NotDecompressed, match="compression 9 is not known"):
        decompressed(9, b"body", 4)
