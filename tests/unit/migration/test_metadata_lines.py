"""The file of metadata: what is written is read again, and what was cut off or altered is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from nextgen.client.wire.policies import pack_policies
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionAuthMode,
    SubscriptionPermission,
)
from nextgen.kernel.governance.policies import (
    NO_POLICIES,
    PlacementRules,
    Policies,
    PolicyLevel,
    Retention,
)
from nextgen.kernel.limits.bulk import METADATA_LINE_BYTES_MAX
from nextgen.kernel.limits.cluster import PROPERTIES_BYTES_MAX
from nextgen.kernel.limits.placement import (
    NAMESPACE_POLICIES_BYTES_MAX,
    PERMISSIONS_PER_OBJECT_MAX,
)
from nextgen.migration.metadata_lines import LinesSource, read_lines, write_lines
from nextgen.migration.records import Record, Remarks, SchemaVersion, SourceFailed

HEADER = '{"format": "nextgen-metadata", "version": 1}\n'
NOTHING = '{"end": {"tenants": 0, "namespaces": 0, "topics": 0}}\n'
ONE = '{"end": {"tenants": 1, "namespaces": 0, "topics": 0}}\n'
RECORDS = [
    Record(PolicyLevel.TENANT, "acme", {"größe": "\u2028 ü"}),
    Record(
        PolicyLevel.NAMESPACE,
        "acme/orders",
        policies=Policies(
            retention=Retention(time_ms=-1, size_bytes=2**40),
            placement=PlacementRules(zones=("a", "b")),
            permissions=(Permission("röle", (AuthAction.PRODUCE, AuthAction.CONSUME)),),
            subscription_permissions=(SubscriptionPermission("s", ("a", "b")),),
            subscription_auth_mode=SubscriptionAuthMode.PREFIX,
            stored=(("maxConsumersPerTopic", "3"),),
        ),
    ),
    Record(PolicyLevel.TOPIC, "persistent://acme/orders/eu", {"team": "a"}, partitions=3),
    Record(
        PolicyLevel.TOPIC,
        "non-persistent://acme/orders/eu",
        policies=replace(NO_POLICIES, deduplication=False),
    ),
    Record(
        PolicyLevel.TOPIC,
        "persistent://acme/orders/us",
        schemas=(SchemaVersion("STRING", ""), SchemaVersion("JSON", '{"type": "ü"}', {"a": "b"})),
    ),
]


async def given(records: list[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


def written(path: Path) -> Path:
    asyncio.run(write_lines(given(RECORDS), path))
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path / "all.jsonl"))) == RECORDS


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = written(tmp_path / "all.jsonl")
    before = path.read_bytes()

    async def failing() -> AsyncIterator[Record]:
        yield RECORDS[0]
        raise SourceFailed("the source is gone")

    with pytest.raises(SourceFailed, match="gone"):
        asyncio.run(write_lines(failing(), path))

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_read_of_a_file_that_was_cut_off_anywhere(tmp_path: Path) -> None:
    content = written(tmp_path / "all.jsonl").read_bytes()
    path = tmp_path / "cut.jsonl"

    async def first() -> Record | None:
        async for record in LinesSource(path).records(Remarks()):
            return record
        return None

    for length in range(0, len(content) - 2, 7):
        path.write_bytes(content[:length])
        with pytest.raises(SourceFailed):
            asyncio.run(first())


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", "cut off behind line 0"),
        ("nonsense\n", "line 1: Expecting value"),
        ('{"format": "parquet", "version": 1}\n', "'parquet' and not nextgen-metadata"),
        ('{"format": "nextgen-metadata", "version": 2}\n', "format version 2"),
        (HEADER, "its last line is missing"),
        (HEADER + NOTHING + '{"tenant": "a"}\n', "line 3: it stands behind the last line"),
        (HEADER + '{"tenant": "a"}\n' + NOTHING, "line 3: 0 tenants were written, 1 are here"),
        (HEADER + ONE, "1 tenants were written, 0 are here"),
        (HEADER + "[1]\n" + NOTHING, "line 2: it is no object"),
        (HEADER + '{"broker": "a"}\n' + NOTHING, "it is no tenant, namespace or topic"),
        (HEADER + '{"tenant": 1}\n' + NOTHING, "line 2: 1 is not a text"),
        (HEADER + '{"tenant": "a", "roles": []}\n' + ONE, "unknown field 'roles'"),
        (HEADER + '{"tenant": "a", "properties": []}\n' + ONE, "properties are no object"),
        (HEADER + '{"tenant": "a", "properties": {"a": 1}}\n' + ONE, "1 is not a text"),
        (HEADER + '{"topic": "a", "partitions": -1}\n' + ONE, "-1 is not a count"),
        (HEADER + '{"tenant": "a", "policies": {"x": 1}}\n' + ONE, "policies: "),
        (HEADER + '{"tenant": "a", "policies": [1]}\n' + ONE, "policies: "),
        (HEADER + '{"topic": "a", "schemas": {}}\n' + ONE, "schemas are no list"),
        (HEADER + '{"topic": "a", "schemas": [1]}\n' + ONE, "a schema has a type"),
        (HEADER + '{"topic": "a", "schemas": [{"type": "JSON", "x": ""}]}\n' + ONE, "a schema has"),
        (HEADER + '{"topic": "a", "schemas": [{"type": "JSON"}]}\n' + ONE, "'schema'"),
        (HEADER + "[" * 100_000 + "\n" + NOTHING, "line 2: it is nested too deep"),
        (HEADER + "\udcff\n" + NOTHING, "line 2: 'utf-8' codec"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, lines: str, problem: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(lines.encode("utf-8", "surrogateescape"))

    with pytest.raises(SourceFailed) as failure:
        list(read_lines(path))

    assert problem in str(failure.value)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed, match=r"none\.jsonl cannot be read: No such file"):
        list(read_lines(tmp_path / "none.jsonl"))


def test_metadata_line_bytes_max_is_accepted_and_one_more_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"

    def line(size: int) -> str:
        empty = len(json.dumps({"tenant": "a", "properties": {"a": ""}}))
        value = "x" * (size - empty - 1)
        return json.dumps({"tenant": "a", "properties": {"a": value}}) + "\n"

    path.write_text(HEADER + line(METADATA_LINE_BYTES_MAX) + ONE)
    assert len(list(read_lines(path))) == 1

    path.write_text(HEADER + line(METADATA_LINE_BYTES_MAX + 1) + ONE)
    with pytest.raises(SourceFailed, match="line 2: it is longer than 4194304 bytes"):
        list(read_lines(path))


def test_a_namespace_with_the_most_and_longest_permissions_is_a_line(tmp_path: Path) -> None:
    """As JSON they are several times as long as in the policies."""
    roles = [f"{number:04d}" + '"' * 48 for number in range(PERMISSIONS_PER_OBJECT_MAX)]
    policies = Policies(permissions=tuple(Permission(role, tuple(AuthAction)) for role in roles))
    assert len(pack_policies(policies)) > 0.9 * NAMESPACE_POLICIES_BYTES_MAX
    assert len(pack_policies(policies)) <= NAMESPACE_POLICIES_BYTES_MAX
    properties = {"a": '"' * (PROPERTIES_BYTES_MAX - 1)}
    namespace = Record(PolicyLevel.NAMESPACE, "acme/large", properties, policies)
    records = [RECORDS[0], namespace]
    path = tmp_path / "large.jsonl"

    asyncio.run(write_lines(given(records), path))

    assert max(map(len, path.read_bytes().splitlines())) > 4 * NAMESPACE_POLICIES_BYTES_MAX
    assert list(read_lines(path)) == records
