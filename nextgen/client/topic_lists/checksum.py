"""CRC-32C of texts that are joined: combined from those of the parts, without reading them again.

A CRC is linear over GF(2). Behind ``n`` more bytes, the CRC of a text is the product of its own CRC
and ``x^(8n)`` modulo the polynomial of Castagnoli; the CRC of what follows is added. A part carries
that power of its length, so joining two parts takes two products. (This is ``crc32_combine`` of
zlib, for another polynomial; the library crc32c has none.)
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from crc32c import crc32c

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with the coefficient of x^0 in the highest bit, as the checksum has it."""
_ONE = 1 << 31
_TO_THE_8TH = _ONE >> 8
_MASK = 0xFFFFFFFF


class Part(NamedTuple):
    """What is kept of a text that is joined with others."""

    checksum: int
    """Its CRC-32C."""
    power: int
    """``x^(8n)`` for its ``n`` bytes, modulo the polynomial."""


EMPTY = Part(0, _ONE)


def part_of(text: bytes) -> Part:
    return Part(crc32c(text), power_of(len(text)))


def joined(first: Part, second: Part) -> Part:
    """Return the part of two texts, one behind the other."""
    if first.power == _ONE:
        return second
    if second.power == _ONE:
        return first
    return Part(
        _product(first.checksum, second.power) ^ second.checksum,
        _product(first.power, second.power),
    )


def without_beginning(beginning: Part, whole: int, rest_bytes: int) -> int:
    """Return the CRC-32C of the ``rest_bytes`` that follow ``beginning`` in a text with the CRC
    ``whole``."""
    return whole ^ _product(beginning.checksum, power_of(rest_bytes))


def power_of(length: int) -> int:
    """Return ``x^(8 * length)`` modulo the polynomial."""
    power = _ONE
    place = 0
    while length:
        length, digit = divmod(length, 256)
        if digit:
            power = _product(power, _powers(place)[digit])
        place += 1
    return power


@cache
def _powers(place: int) -> tuple[int, ...]:
    """Return the powers for lengths of 0 to 256, each times ``256**place``."""
    step = _TO_THE_8TH if place == 0 else _powers(place - 1)[256]
    powers = [_ONE]
    for _ in range(256):
        powers.append(_product(powers[-1], step))
    return tuple(powers)


def _product(left: int, right: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the one of Castagnoli."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = (left << 1) & _MASK
        right = (right >> 1) ^ _POLYNOMIAL if right & 1 else right >> 1
    return product
