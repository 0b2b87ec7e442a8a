"""Exports of every schema version that there was, read with the columns of this release."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nextgen.export.format.schema import SCHEMA_VERSION
from pipelines.exports.input import open_export
from tests.support.golden.export import GOLDEN, read_events

VERSIONS = tuple(f"v{number}" for number in range(1, SCHEMA_VERSION + 1))


def said(value: Any) -> Any:
    """Return the meaning of a column or field: what an older file lacks was never set."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    elif hasattr(value, "ListFields"):
        value = {field.name: given for field, given in value.ListFields()}
    if isinstance(value, dict):
        fields = {name: said(each) for name, each in value.items()}
        return {name: each for name, each in fields.items() if each not in (None, {}, [])}
    if isinstance(value, str | bytes | bytearray | float | int):
        return bytes(value) if isinstance(value, bytearray) else value or None
    if hasattr(value, "items"):
        return dict(value.items())
    return [said(each) for each in value] if value is not None else None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_export_says_what_its_events_say(spark: SparkSession, version: str) -> None:
    found = open_export(GOLDEN / version)
    expected = read_events(version)
    rows = found.events(spark).orderBy("position").limit(1_000).collect()

    assert found.manifest.schema_version == int(version[1:])
    assert len(rows) == len(expected) == found.rows
    for row, event in zip(rows, expected, strict=True):
        event_type = event.WhichOneof("payload")
        columns = row.asDict()
        assert (row.position, row.term, row.shard_id) == (event.position, event.term, 1)
        assert row.time.astimezone(UTC).timestamp() * 1_000 == pytest.approx(event.time_ms)
        assert bytes(row.causation_id or b"") == event.causation_id
        assert row.event_type == event_type
        payloads = {name for name, value in columns.items() if hasattr(value, "asDict")}
        assert payloads == {event_type}
        assert said(columns[event_type]) == said(getattr(event, event_type))


def test_every_schema_version_has_a_golden_export() -> None:
    assert {path.name for path in GOLDEN.iterdir() if path.is_dir()} == set(VERSIONS)
