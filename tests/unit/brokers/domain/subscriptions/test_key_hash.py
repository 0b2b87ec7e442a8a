"""The reference values of MurmurHash3_x86_32 are public (they circulate with every port of it)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.subscriptions.key_hash import KEY_SLOTS, key_slot, murmur3_32
from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX
from tests.support.costs.processor_time import processor_time, slowness


@pytest.mark.parametrize(
    ("data", "unsigned"),
    [
        (b"", 0),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"!Ce\x87", 0xF55B516B),
        (b"!Ce", 0x7E4A8634),
        (b"!C", 0xA0F7B07A),
        (b"!", 0x72661CF4),
    ],
)
def test_murmur3_is_the_published_one_without_its_sign(data: bytes, unsigned: int) -> None:
    assert murmur3_32(data) == unsigned & 0x7FFFFFFF


@given(st.binary(max_size=40))
def test_every_key_has_a_slot_and_never_slot_0(key: bytes) -> None:
    assert 0 < key_slot(key) < KEY_SLOTS


def test_what_would_be_slot_0_is_slot_1() -> None:
    assert murmur3_32(b"") % KEY_SLOTS == 0
    assert key_slot(b"") == 1


def test_a_key_counts_to_its_end_however_long_it_is() -> None:
    beginning = b"k" * PULSAR_MESSAGE_BYTES_MAX

    assert key_slot(beginning + b"1") != key_slot(beginning + b"2")


def test_a_key_as_long_as_a_message_is_hashed_within_a_fraction_of_a_turn() -> None:
    """In Python 16 KB took 2 ms, and all of a message's 5 MB would take most of a second."""
    key = b"k" * PULSAR_MESSAGE_BYTES_MAX

    with processor_time() as taken:
        key_slot(key)

    assert taken.seconds < 0.1 * slowness()
