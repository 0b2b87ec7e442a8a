"""The names of a set at one moment, and what differs between two moments.

A snapshot holds the blocks of its set. A change replaces a block, so a later snapshot shares all
others, and comparing the two reads the replaced ones only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from nextgen.pulsar.topic_lists.hash import sort_key

DIVIDER = b"\0"
"""Stands before each name of a block: names have no control characters."""


class NameSnapshot:
    """Sorted names that never change."""

    __slots__ = ("__weakref__", "_count", "blocks", "hash", "text_bytes")

    def __init__(self, hash_: str, blocks: tuple[bytes, ...], count: int, text_bytes: int) -> None:
        self.hash = hash_
        self.blocks = blocks
        self.text_bytes = text_bytes
        """Bytes of the names, and one more for each."""
        self._count = count

    def __repr__(self) -> str:
        return f"<NameSnapshot names={self._count} hash={self.hash}>"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks:
            yield from names_of(block)


NO_NAMES = NameSnapshot("00000000", (), 0, 0)


def block_of(names: Sequence[str]) -> bytes:
    return DIVIDER + "\0".join(names).encode()


def names_of(block: bytes) -> list[str]:
    return block.decode()[1:].split("\0")


def differences(before: NameSnapshot, after: NameSnapshot) -> Iterator[tuple[list[str], list[str]]]:
    """Yield what was created and deleted between two snapshots, sorted, a few blocks at a time."""
    # Blocks are in order and do not overlap: a block of both has no name in common with others.
    shared = {id(block) for block in before.blocks}.intersection(map(id, after.blocks))
    old_blocks = (block for block in before.blocks if id(block) not in shared)
    new_blocks = (block for block in after.blocks if id(block) not in shared)
    old: list[str] = []
    new: list[str] = []
    while True:
        old = old or _next_names(old_blocks)
        new = new or _next_names(new_blocks)
        if not old and not new:
            return
        if not old or not new:
            yield new, old
            old, new = [], []
            continue
        limit = min(sort_key(old[-1]), sort_key(new[-1]))
        old_end = bisect_right(old, limit, key=sort_key)
        new_end = bisect_right(new, limit, key=sort_key)
        were, are = set(old[:old_end]), set(new[:new_end])
        yield (
            [name for name in new[:new_end] if name not in were],
            [name for name in old[:old_end] if name not in are],
        )
        old, new = old[old_end:], new[new_end:]


def _next_names(blocks: Iterator[bytes]) -> list[str]:
    block = next(blocks, None)
    return [] if block is None else names_of(block)
