"""The compressions of Pulsar clients. Servers pass bodies on as they are; operators and our own
client read them."""

from __future__ import annotations

from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX
from protos.pulsar.PulsarApi_pb2 import CompressionType


class NotDecompressed(ValueError):
    """A body is not what its metadata says."""


def compressed(compression: int, body: bytes) -> bytes:
    """Return ``body`` in one of Pulsar's compressions."""
    if compression == CompressionType.NONE:
        return body
    import cramjam

    match compression:
        case CompressionType.LZ4:
            return bytes(cramjam.lz4.compress_block(body, store_size=False))
        case CompressionType.ZLIB:
            return bytes(cramjam.zlib.compress(body))
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(body))
        case CompressionType.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(body))
    raise ValueError(f"compression {compression} is not known")


def decompressed(
    compression: int, body: bytes, size_bytes: int, *, at_most: int = PULSAR_MESSAGE_BYTES_MAX
) -> bytes:
    """Return ``body`` as it was before its client compressed it.

    ``size_bytes`` is the uncompressed size in the message's metadata. No more than that is
    produced, whatever the body says of itself.

    Raises:
        NotDecompressed: ``body`` is not of this compression, ``compression`` is unknown, or
            ``size_bytes`` is smaller than the content or above ``at_most``.
    """
    if compression == CompressionType.NONE:
        return body
    if size_bytes > at_most:
        raise NotDecompressed(f"{size_bytes} bytes are more than a message may have")
    # Only operators need it, and few of them: it is not loaded before.
    import cramjam

    content = bytearray(size_bytes)
    try:
        match compression:
            case CompressionType.LZ4:
                # Without output_len the first bytes count as the size.
                size = cramjam.lz4.decompress_block_into(body, content, output_len=size_bytes)
            case CompressionType.ZLIB:
                size = cramjam.zlib.decompress_into(body, content)
            case CompressionType.ZSTD:
                size = cramjam.zstd.decompress_into(body, content)
            case CompressionType.SNAPPY:
                size = cramjam.snappy.decompress_raw_into(body, content)
            case _:
                raise NotDecompressed(f"compression {compression} is not known")
    except cramjam.DecompressionError as error:
        raise NotDecompressed(str(error)) from error
    return bytes(memoryview(content)[:size])
