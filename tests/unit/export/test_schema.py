"""The schema of exported files only grows, and its version says when."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from nextgen.export.format.schema import (
    SCHEMA_VERSION,
    event_schema,
    payload_fields,
    type_of,
)
from protos.nextgen.v1.events_pb2 import Event

GOLDEN = Path(__file__).parent / "golden"
WORDS = re.compile(r"[^<>, ]+|[<>]")


def leaves(schema: pa.Schema) -> list[str]:
    """Return one line ``path: type`` for each column that holds values, in order."""
    found: list[str] = []
    for field in schema:
        _add_leaves(field.name, field.type, "" if field.nullable else " not null", found)
    return found


def _add_leaves(path: str, type_: pa.DataType, suffix: str, found: list[str]) -> None:
    if pa.types.is_struct(type_):
        for child in type_:
            _add_leaves(f"{path}.{child.name}", child.type, "", found)
    else:
        found.append(f"{path}: {type_}{suffix}")


def _holds(column: str, later: str) -> bool:
    """Return whether ``later`` has all of ``column``: structs in a list may get fields more.

    A reader that gives the later type finds null for them in earlier files.
    """
    if "list<" not in column:
        return column == later
    found = iter(WORDS.findall(later))
    return all(word in found for word in WORDS.findall(column))


def golden(version: int) -> list[str]:
    return (GOLDEN / f"schema_v{version}.txt").read_text().splitlines()


def test_the_schema_is_the_one_of_its_version() -> None:
    """If this fails: raise SCHEMA_VERSION and write ``leaves(event_schema())`` to a file more."""
    assert leaves(event_schema()) == golden(SCHEMA_VERSION)


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_no_column_of_an_earlier_version_is_gone_or_changed(version: int) -> None:
    present = leaves(event_schema())
    for column in golden(version):
        assert any(_holds(column, later) for later in present), column


def test_every_event_type_has_a_column() -> None:
    named = {field.name for field in Event.DESCRIPTOR.oneofs_by_name["payload"].fields}

    assert named <= set(event_schema().names)
    assert len(payload_fields()) == len(named)


def test_a_message_that_contains_itself_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="loop.proto", package="l", syntax="proto3")
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="again", number=1, type=11, type_name=".l.Loop", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    with pytest.raises(TypeError, match="nested too deeply"):
        type_of(pool.FindMessageTypeByName("l.Loop").fields_by_name["again"])
