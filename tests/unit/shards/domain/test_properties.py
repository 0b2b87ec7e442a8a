"""Limits of a properties map: at the limit, and one beyond it."""

import pytest

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    PROPERTY_KEY_BYTES_MAX,
    PROPERTY_VALUE_BYTES_MAX,
)
from shards.domain.properties import check_properties


def numbered(count, value=""):
    return tuple((f"{number:04}", value) for number in range(count))


FULL = numbered(4, "v" * (PROPERTIES_BYTES_MAX // 4 - 4))


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param((), id="none"),
        pytest.param(numbered(PROPERTIES_MAX), id="count"),
        pytest.param((("k" * PROPERTY_KEY_BYTES_MAX, ""),), id="key"),
        pytest.param((("k", "v" * PROPERTY_VALUE_BYTES_MAX),), id="value"),
        pytest.param(FULL, id="total"),
    ],
)
def test_properties_at_a_limit_are_accepted(properties):
    assert check_properties(properties) is None


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(numbered(PROPERTIES_MAX + 1), id="count"),
        pytest.param((("k" * (PROPERTY_KEY_BYTES_MAX + 1), ""),), id="key"),
        pytest.param((("", "v"),), id="empty-key"),
        pytest.param((("ü" * (PROPERTY_KEY_BYTES_MAX // 2 + 1), ""),), id="key-in-bytes"),
        pytest.param((("k", "v" * (PROPERTY_VALUE_BYTES_MAX + 1)),), id="value"),
        pytest.param((*FULL, ("z", "")), id="total"),
    ],
)
def test_properties_beyond_a_limit_are_refused(properties):
    refusal = check_properties(properties)

    assert refusal is not None
    assert refusal.code is RejectionCode.LIMIT_EXCEEDED
