"""The hash of a topic list: the vectors of Apache Pulsar."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from nextgen.pulsar.topic_lists.hash import hash_text, sort_key, topics_hash

UPSTREAM = "persistent://my-property/my-ns/pattern-topic-"
BEYOND = "persistent://t/n/\U0001f600"
"""Its first UTF-16 code unit is below that of U+FFFD, though its code point is above."""
BELOW = "persistent://t/n/\ufffd"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "00000000"),
        ([f"{UPSTREAM}1"], "0d0602ed"),
        ([f"{UPSTREAM}{number}" for number in (1, 2, 3)], "90d4a04a"),
        ([f"persistent://tenant/ns/topic{number}" for number in (1, 2, 3)], "77a2e276"),
    ],
)
def test_the_reference_vectors(names: list[str], expected: str) -> None:
    assert topics_hash(names) == expected
    assert topics_hash(reversed(names)) == expected


def test_names_beyond_the_basic_plane_are_sorted_as_java_sorts_them() -> None:
    assert sorted([BELOW, BEYOND], key=sort_key) == [BEYOND, BELOW]
    assert sorted([BELOW, BEYOND]) == [BELOW, BEYOND]
    assert topics_hash([BELOW, BEYOND]) == hash_text(crc32c(f"{BEYOND},{BELOW}".encode()))


def test_names_are_distinguished_at_their_borders() -> None:
    assert topics_hash(["ab", "c"]) != topics_hash(["a", "bc"])


def test_repeated_names_count() -> None:
    assert topics_hash(["a", "a"]) != topics_hash(["a"])


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.text(alphabet="a\u00e9\ufffd\U0001f600"),
)
def test_the_order_is_that_of_code_units(one: str, other: str) -> None:
    def units(text: str) -> list[int]:
        data = text.encode("utf-16-be")
        return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]

    assert (sort_key(one) < sort_key(other)) == (units(one) < units(other))
