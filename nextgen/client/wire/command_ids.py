"""Ids of the parts of a command that several shards carry out."""

from __future__ import annotations

from hashlib import blake2b

from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES


def derived_command_id(command_id: bytes, shard_id: int) -> bytes:
    """Return the id of the part of a command that ``shard_id`` carries out.

    It is the same at every discovery node and in every release, so that a retry finds the first
    outcome.
    """
    digest = blake2b(command_id, digest_size=COMMAND_ID_BYTES)
    digest.update(shard_id.to_bytes(4, "big"))
    return digest.digest()
