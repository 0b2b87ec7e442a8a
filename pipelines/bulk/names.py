"""Which texts are names of topics that can be created: the rules of ``kernel.routing.names``.

They are columns: no row goes through Python. The shards' ``parse_topic`` and
``check_creatable`` decide in the end; a property test compares the two.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as f

from nextgen.kernel.limits.cluster import (
    NAME_PART_BYTES_MAX,
    TOPIC_LOCAL_NAME_BYTES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
)
from nextgen.kernel.routing.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    PARTITION_SUFFIX,
    Domain,
)

REASONS = (
    "missing",
    "not UTF-8",
    "too long",
    "unknown domain",
    "domain cannot be created",
    "not of three parts",
    "empty part",
    "tenant is no name",
    "namespace is no name",
    "control character",
    "white space at an end",
    "only dots",
    "names a partition",
)
"""Reasons to refuse a text. The first one that applies is reported."""

_SCALABLE = Domain.TOPIC.value
_CREATABLE = (Domain.PERSISTENT.value, Domain.NON_PERSISTENT.value, _SCALABLE)
_DOMAINS = tuple(domain.value for domain in Domain)
_INT32_MAX = 2**31 - 1

# Java's patterns know no ASCII flag that \w would need, and their $ also matches before a line end.
_PART = rf"\A[-=:.0-9A-Z_a-z]{{1,{NAME_PART_BYTES_MAX}}}\z"
_ORDINARY = (
    rf"\A(?:(?:non-)?persistent|topic)://(?!\.\.?/)[-=:.0-9A-Z_a-z]{{1,{NAME_PART_BYTES_MAX}}}"
    rf"/(?!\.\.?/)[-=:.0-9A-Z_a-z]{{1,{NAME_PART_BYTES_MAX}}}"
    rf"/(?!\.\.?\z)(?!.*{PARTITION_SUFFIX})[-=:.0-9A-Z_a-z]{{1,{TOPIC_LOCAL_NAME_BYTES_MAX}}}\z"
)
"""The usual spelling: a canonical name, recognised with one match."""

_CONTROL = r"[\x00-\x1f\x7f-\x9f]"
_SPACE = r"[\x20\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_SPACE_AT_AN_END = rf"\A{_SPACE}|{_SPACE}\z"
_ODD_LEVEL = r"(?s)(?:\A|/)\.{0,2}(?:/|\z)"
"""A level of a scalable topic's name that is empty or only dots."""
_PARTITION = rf"(?s)\A.*{PARTITION_SUFFIX}(0|[1-9][0-9]{{0,18}})\z"


def canonical_name(text: Column) -> Column:
    """Return the canonical form of the name ``text``; meaningless where ``refusal`` is set."""
    domain, tenant, namespace, local = _parts(text)
    spelled_out = f.concat(domain, f.lit("://"), tenant, f.lit("/"), namespace, f.lit("/"), local)
    return f.when(text.rlike(_ORDINARY), text).otherwise(spelled_out)


def refusal(text: Column) -> Column:
    """Return one of ``REASONS``, null for the name of a topic that can be created."""
    domain, tenant, namespace, local = _parts(text)
    parts = f.size(f.split(_path(text), "/"))
    is_scalable = domain == _SCALABLE
    number = f.regexp_extract(local, _PARTITION, 1).try_cast("bigint")
    checks = (
        text.isNull() | (text == ""),
        ~f.is_valid_utf8(text),
        f.length(text) > TOPIC_TEXT_CHARACTERS_MAX,
        ~domain.isin(*_DOMAINS),
        ~domain.isin(*_CREATABLE),
        f.when(is_scalable, parts < 3).otherwise(parts != 3),
        (tenant == "") | (namespace == "") | (local == ""),
        ~tenant.rlike(_PART) | tenant.isin(".", ".."),
        ~namespace.rlike(_PART) | namespace.isin(".", ".."),
        local.rlike(_CONTROL),
        local.rlike(_SPACE_AT_AN_END),
        f.when(is_scalable, local.rlike(_ODD_LEVEL)).otherwise(local.isin(".", "..")),
        number.between(0, _INT32_MAX),
    )
    too_long = f.octet_length(local) > TOPIC_LOCAL_NAME_BYTES_MAX
    reasons = [*zip(checks, REASONS, strict=True), (too_long, "too long")]
    chosen = reduce(
        lambda rest, check: f.when(check[0], f.lit(check[1])).otherwise(rest),
        reversed(reasons),
        f.lit(None).cast("string"),
    )
    return f.when(~f.coalesce(text.rlike(_ORDINARY), f.lit(False)), chosen)


def _path(text: Column) -> Column:
    """Return the part behind the domain; short names are completed."""
    with_domain = f.substring(text, f.instr(text, "://") + 3, f.length(text))
    short = f.when(
        f.instr(text, "/") == 0, f.concat(f.lit(f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}/"), text)
    ).otherwise(text)
    return f.when(f.instr(text, "://") > 0, with_domain).otherwise(short)


def _parts(text: Column) -> tuple[Column, Column, Column, Column]:
    """Return domain, tenant, namespace and local name; a missing part is null.

    Everything behind the namespace is the local name: a scalable topic's may have slashes.
    """
    scheme = f.lower(f.substring_index(text, "://", 1))
    domain = f.when(f.instr(text, "://") > 0, scheme).otherwise(f.lit(Domain.PERSISTENT.value))
    parts = f.split(_path(text), "/", 3)
    return domain, f.get(parts, f.lit(0)), f.get(parts, f.lit(1)), f.get(parts, f.lit(2))
