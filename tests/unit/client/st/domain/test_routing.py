"""Hashes and routes, with the vectors of the reference."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.st.domain.key_hash import (
    bucket_hash,
    classic_partition,
    key_hash,
    segment_hash,
)
from nextgen.client.st.domain.layout import make_layout
from nextgen.client.st.domain.router import Router
from nextgen.client.st.errors import NoActiveSegment, UncoveredHash
from tests.unit.client.st.domain.layouts import new_layout, segment, split

VECTORS = """
a 3c2569b2 1009084850 2
ab 9bbfd75f 465557343 3
abc b3dd93fa 870159354 2
abcd 43ed676a 1139631978 2
k1 fdc6602a 2110152746 2
k2 d8367fc8 1479966664 0
key1 9b970125 462881061 1
key2 737139b4 1936800180 0
key01 825dba24 39696932 0
key02 2ccef98b 751761803 3
hello 248bfa47 613153351 3
test ba6bd213 980144659 3
order-0 cb9645d0 1268139472 0
order-42 4b11a18e 1259446670 2
my-key 6df0b931 1844492593 1
customer-99 d8ffee14 1493167636 0
user-1 f8a28763 2023917411 3
user-2 de9747cb 1586972619 3
user-3 2b6266fb 727869179 3
ключ 9a592042 442048578 2
日本 c4d9f942 1155135810 2
"""
CASES = [("", "00000000", "0", "0"), *(line.split() for line in VECTORS.split("\n") if line)]


@pytest.mark.parametrize(("key", "raw", "classic", "quarter"), CASES)
def test_a_key_has_the_hashes_of_the_reference(
    key: str, raw: str, classic: str, quarter: str
) -> None:
    hash32 = key_hash(key)

    assert hash32 == int(raw, 16)
    assert segment_hash(hash32) == int(raw[:4], 16)
    assert bucket_hash(hash32) == int(raw[4:], 16)
    assert classic_partition(hash32, 2**31) == int(classic)
    assert classic_partition(hash32, 4) == int(quarter)


@pytest.mark.parametrize(("key", "raw", "_", "quarter"), CASES)
def test_a_key_goes_to_the_segment_that_has_the_high_half_of_its_hash(
    key: str, raw: str, _: str, quarter: str
) -> None:
    layout = new_layout(4)

    chosen = Router(layout).route(key_hash(key))

    assert chosen.hash_range.start <= int(raw[:4], 16) <= chosen.hash_range.end
    partitions = make_layout(
        0,
        [
            segment(index, 0, 0xFFFF, legacy=f"persistent://public/default/t-partition-{index}")
            for index in range(4)
        ],
    )
    assert Router(partitions).route(key_hash(key)).segment_id == int(quarter)


def test_a_layout_of_classic_and_other_segments_is_routed_by_range() -> None:
    legacy = "persistent://public/default/t-partition-0"
    layout = make_layout(1, [segment(0, 0, 0x7FFF, legacy=legacy), segment(1, 0x8000, 0xFFFF)])

    assert Router(layout).route(key_hash("hello")).segment_id == 0
    assert Router(layout).route(key_hash("test")).segment_id == 1


def test_messages_without_key_take_turns_in_the_order_of_ranges_over_layouts() -> None:
    layout = split(new_layout(2), 0)
    router = Router(layout)

    starts = [router.route(None).hash_range.start for _ in range(4)]

    assert starts == [0, 0x4000, 0x8000, 0]
    assert Router(layout, turn=router.turn).route(None).hash_range.start == 0x4000


def test_a_hash_that_no_active_segment_has_is_an_error_of_its_own() -> None:
    layout = make_layout(1, [segment(0, 0x0000, 0x3FFF), segment(1, 0x8000, 0xFFFF)])

    with pytest.raises(UncoveredHash):
        Router(layout).route(0x4000_0000)
    with pytest.raises(UncoveredHash):
        Router(make_layout(1, [segment(0, 0x10, 0xFFFF)])).route(0)


def test_a_layout_without_active_segment_is_an_error_of_its_own() -> None:
    with pytest.raises(NoActiveSegment):
        Router(make_layout(3, [segment(0, 0, 0xFFFF, is_active=False)])).route(1)


@given(st.integers(1, 300), st.lists(st.text(max_size=8), min_size=1, max_size=20))
def test_every_key_has_exactly_one_segment(count: int, keys: list[str]) -> None:
    layout = new_layout(count)
    router = Router(layout)

    for key in keys:
        hash16 = segment_hash(key_hash(key))
        having = [
            each for each in layout.active if each.hash_range.start <= hash16 <= each.hash_range.end
        ]
        assert having == [router.route(key_hash(key))]


def test_turns_are_even() -> None:
    router = Router(new_layout(5))

    counts = Counter(router.route(None).segment_id for _ in range(50))

    assert set(counts.values()) == {10}
