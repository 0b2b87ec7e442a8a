"""Which messages of a batch are still open: a bit each, set while not acknowledged.

On the wire it is what Java's ``BitSet.toLongArray`` gives: signed 64-bit words, lowest first. Here
it is one integer, because Python's are as long as they need to be.
"""

from __future__ import annotations

from collections.abc import Sequence

_WORD_BITS = 64
_WORD_MASK = 2**_WORD_BITS - 1
_SIGN_BIT = 2 ** (_WORD_BITS - 1)


def mask_of(words: Sequence[int]) -> int:
    """Return the bits of ``words``, which may be signed or unsigned."""
    mask = 0
    for index, word in enumerate(words):
        mask |= (word & _WORD_MASK) << (_WORD_BITS * index)
    return mask


def words_of(mask: int) -> tuple[int, ...]:
    """Return the bits as signed words without empty ones at the end."""
    words = []
    while mask:
        word = mask & _WORD_MASK
        words.append(word - 2**_WORD_BITS if word & _SIGN_BIT else word)
        mask >>= _WORD_BITS
    return tuple(words)


def all_open(message_count: int) -> int:
    """Return the mask of a batch none of which is acknowledged."""
    return (1 << message_count) - 1
