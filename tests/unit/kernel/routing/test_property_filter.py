"""Filters by properties: what they describe, which are refused, at the limits and beyond."""

from __future__ import annotations

import pytest

from nextgen.kernel.limits.cluster import PROPERTIES_BYTES_MAX, PROPERTIES_MAX
from nextgen.kernel.routing.property_filter import (
    EVERY_TOPIC,
    InvalidFilter,
    PropertyFilter,
    parse_filter,
    property_filter,
)


@pytest.mark.parametrize(
    ("texts", "properties", "expected"),
    [
        ([], {}, True),
        ([], {"a": "1"}, True),
        (["a=1"], {"a": "1", "b": "2"}, True),
        (["a=1"], {"a": "2"}, False),
        (["a=1"], {"b": "1"}, False),
        (["a=1", "b=2"], {"a": "1", "b": "2", "c": "3"}, True),
        (["a=1", "b=2"], {"a": "1"}, False),
        (["a=1", "a=1"], {"a": "1"}, True),
        (["a="], {"a": ""}, True),
        (["a="], {}, False),
        (["a=1=2"], {"a": "1=2"}, True),
    ],
)
def test_all_pairs_must_be_there_with_these_values(texts, properties, expected):
    assert parse_filter(texts).matches(properties) is expected


@pytest.mark.parametrize("text", ["", "a", "=1", "="])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(InvalidFilter, match="is no key=value"):
        parse_filter([text])


def test_two_values_of_one_key_are_refused():
    with pytest.raises(InvalidFilter, match="property 'a' has two values"):
        parse_filter(["a=1", "a=2"])


def test_the_order_of_pairs_does_not_matter():
    assert parse_filter(["b=2", "a=1"]) == PropertyFilter((("a", "1"), ("b", "2")))
    assert bool(parse_filter(["a=1"]))
    assert not EVERY_TOPIC


def test_properties_max_are_taken_and_one_more_is_refused():
    pairs = [(str(number), "") for number in range(PROPERTIES_MAX)]
    assert len(property_filter(pairs).pairs) == PROPERTIES_MAX

    with pytest.raises(InvalidFilter, match=f"at most {PROPERTIES_MAX} properties"):
        property_filter([*pairs, ("one more", "")])
    with pytest.raises(InvalidFilter, match=f"at most {PROPERTIES_MAX} properties"):
        property_filter([("same", "")] * (PROPERTIES_MAX + 1))


def test_properties_bytes_max_are_taken_and_one_more_is_refused():
    most = [("é", "x" * (PROPERTIES_BYTES_MAX - 2))]
    assert property_filter(most).size_bytes == PROPERTIES_BYTES_MAX

    with pytest.raises(InvalidFilter, match=f"{PROPERTIES_BYTES_MAX + 1} bytes"):
        property_filter([("é", "x" * (PROPERTIES_BYTES_MAX - 1))])


def test_a_long_key_is_shown_in_part():
    with pytest.raises(InvalidFilter) as refused:
        parse_filter(["k" * 1_000])
    assert len(str(refused.value)) < 150
