"""Files of quotas: the same quotas are the same bytes, and what is no such file is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.quota_file import QuotaFile, from_bytes, to_bytes
from nextgen.kernel.limits.cluster import BROKERS_MAX
from nextgen.kernel.limits.placement import (
    QUOTA_FILE_BYTES_MAX,
    QUOTA_SOURCE_BYTES_MAX,
    QUOTA_TENANTS_MAX,
    QUOTA_UNITS_MAX,
)

UNITS = st.dictionaries(st.text(max_size=20), st.integers(0, QUOTA_UNITS_MAX), max_size=8)


def document(**changed: Any) -> bytes:
    whole = {"format": "nextgen-quotas", "format_version": 1, "version": 1, **changed}
    return json.dumps(whole).encode()


@given(st.integers(1, 2**63 - 1), UNITS, UNITS, st.text(max_size=20))
def test_what_is_written_is_read_back(
    version: int, brokers: dict[str, int], tenants: dict[str, int], source: str
) -> None:
    quotas = QuotaFile(version, brokers, tenants, source, {"cluster_id": "c"})

    assert from_bytes(to_bytes(quotas)) == quotas


@given(UNITS)
def test_the_order_of_names_changes_no_byte(tenants: dict[str, int]) -> None:
    backwards = dict(reversed(tenants.items()))

    assert to_bytes(QuotaFile(1, {}, tenants)) == to_bytes(QuotaFile(1, {}, backwards))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "no file of quotas"),
        (b"{}", "no file of quotas"),
        (document(format="other"), "no file of quotas"),
        (document(format_version=2), "format version 2, 1 is known"),
        (document(unit=1), "no member 'unit'"),
        (document(version=0), "version is 0"),
        (document(version=True), "version is True"),
        (document(brokers=[]), "brokers of quotas are an object"),
        (document(tenants={"a": -1}), "quota of 'a' is -1"),
        (document(tenants={"a": 1.5}), "quota of 'a' is 1.5"),
        (document(source=1), "source is a text"),
        (document(made_from=1), "is an object"),
        (document().replace(b'"version": 1', b'"version": 1, "version": 2'), "'version' twice"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_file_of_quotas_is_refused_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        from_bytes(content)


@pytest.mark.parametrize(
    ("what", "at_limit", "beyond"),
    [
        ("brokers", BROKERS_MAX, BROKERS_MAX + 1),
        ("tenants", QUOTA_TENANTS_MAX, QUOTA_TENANTS_MAX + 1),
    ],
)
def test_as_many_names_as_allowed_and_not_one_more(what: str, at_limit: int, beyond: int) -> None:
    def named(count: int) -> bytes:
        return document(**{what: {f"n{number}": 0 for number in range(count)}})

    assert len(getattr(from_bytes(named(at_limit)), what)) == at_limit
    with pytest.raises(InvalidRequest, match="at most"):
        from_bytes(named(beyond))


def test_units_and_source_have_bounds() -> None:
    assert from_bytes(document(tenants={"a": QUOTA_UNITS_MAX})).tenants == {"a": QUOTA_UNITS_MAX}
    with pytest.raises(InvalidRequest):
        from_bytes(document(tenants={"a": QUOTA_UNITS_MAX + 1}))
    assert from_bytes(document(source="d" * QUOTA_SOURCE_BYTES_MAX))
    with pytest.raises(InvalidRequest):
        from_bytes(document(source="d" * (QUOTA_SOURCE_BYTES_MAX + 1)))


def test_a_file_has_a_bound() -> None:
    content = document()
    assert from_bytes(content + b" " * (QUOTA_FILE_BYTES_MAX - len(content)))
    with pytest.raises(InvalidRequest, match="at most"):
        from_bytes(content + b" " * (QUOTA_FILE_BYTES_MAX - len(content) + 1))
