"""The file of records: JSON lines between a line that names the format and one that counts.

    {"format": "nextgen-metadata", "version": 1}
    {"tenant": "acme", "properties": {"adminRoles": "[\"root\"]"}}
    {"namespace": "acme/orders", "policies": {"message_ttl_ms": "60000"}}
    {"topic": "persistent://acme/orders/eu", "partitions": 4, "properties": {"owner": "shop"}}
    {"topic": "persistent://acme/orders/us", "schemas": [{"type": "STRING", "schema": ""}]}
    {"end": {"tenants": 1, "namespaces": 1, "topics": 2}}

Policies are in the JSON form of ``protos/nextgen/v1/policies.proto``. Fields without a value are
left out. Parents stand before what is in them; a file without its last line was cut off.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TextIO

from google.protobuf import json_format

from nextgen.client.wire.policies import policies_from_proto, policies_to_proto
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json
from nextgen.kernel.limits.bulk import METADATA_LINE_BYTES_MAX
from nextgen.migration.records import Record, Remarks, SchemaVersion, SourceFailed
from protos.nextgen.v1.policies_pb2 import Policies as WirePolicies

FORMAT = "nextgen-metadata"
FORMAT_VERSION = 1

_FIELDS = frozenset({"properties", "policies", "partitions", "schemas"})
_SCHEMA_FIELDS = frozenset({"type", "schema", "properties"})


async def write_lines(records: AsyncIterator[Record], path: Path) -> Counter[PolicyLevel]:
    """Write ``records`` to the file ``path``, which is there whole or not at all; return counts.

    Raises:
        SourceFailed: The file cannot be written.
    """
    counts: Counter[PolicyLevel] = Counter()
    begun = path.with_name(f".{path.name}.begun")
    try:
        with begun.open("w", encoding="utf-8") as out:
            _write(out, {"format": FORMAT, "version": FORMAT_VERSION})
            async for record in records:
                counts[record.level] += 1
                _write(out, line_of(record))
            _write(out, {"end": {f"{level.value}s": counts[level] for level in PolicyLevel}})
            out.flush()
            os.fsync(out.fileno())
        begun.replace(path)
    except OSError as error:
        raise SourceFailed(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        begun.unlink(missing_ok=True)
    return counts


class LinesSource:
    """The records of a file. It is read twice: nothing is yielded of a file that is not whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def records(self, remarks: Remarks) -> AsyncIterator[Record]:
        """See ``Source``."""
        del remarks  # A file holds what can be carried.
        for _ in read_lines(self._path):
            pass
        for record in read_lines(self._path):
            yield record


def read_lines(path: Path) -> Iterator[Record]:
    """Yield the records of a file.

    Raises:
        SourceFailed: It cannot be read, is cut off, or line N is no record; the text says which.
    """
    try:
        with path.open("rb") as lines:
            yield from _records(lines, path)
    except OSError as error:
        raise SourceFailed(f"{path} cannot be read: {error.strerror or error}") from error


def line_of(record: Record) -> dict[str, Any]:
    """Return the JSON object of a record."""
    found: dict[str, Any] = {record.level.value: record.name}
    if record.partitions:
        found["partitions"] = record.partitions
    if record.properties:
        found["properties"] = dict(record.properties)
    if record.policies != NO_POLICIES:
        message = policies_to_proto(record.policies)
        found["policies"] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    if record.schemas:
        found["schemas"] = [
            {"type": each.type, "schema": each.text}
            | ({"properties": dict(each.properties)} if each.properties else {})
            for each in record.schemas
        ]
    return found


def record_of(fields: dict[str, Any]) -> Record:
    """Return the record of a JSON object.

    Raises:
        ValueError: It is none.
    """
    level = next((level for level in PolicyLevel if level.value in fields), None)
    if level is None:
        raise ValueError("it is no tenant, namespace or topic")
    unknown = set(fields) - _FIELDS - {level.value}
    if unknown:
        raise ValueError(f"it has an unknown field {min(unknown)[:80]!r}")
    schemas = fields.get("schemas", [])
    if not isinstance(schemas, list):
        raise ValueError("schemas are no list")
    return Record(
        level,
        as_text(fields[level.value]),
        properties=_properties(fields),
        policies=_policies(fields["policies"]) if "policies" in fields else NO_POLICIES,
        partitions=as_count(fields.get("partitions", 0)),
        schemas=tuple([_schema(each) for each in schemas]),
    )


def _properties(fields: dict[str, Any]) -> dict[str, str]:
    properties = fields.get("properties", {})
    if not isinstance(properties, dict):
        raise ValueError("properties are no object")
    return {name: as_text(value) for name, value in properties.items()}


def _schema(fields: Any) -> SchemaVersion:
    if not isinstance(fields, dict) or set(fields) - _SCHEMA_FIELDS:
        raise ValueError("a schema has a type, a schema and properties")
    return SchemaVersion(as_text(fields["type"]), as_text(fields["schema"]), _properties(fields))


def _policies(fields: Any) -> Policies:
    try:
        return policies_from_proto(json_format.ParseDict(fields, WirePolicies()))
    except (json_format.ParseError, TypeError, AttributeError) as error:
        raise ValueError(f"policies: {error}") from error


def _records(lines: Any, path: Path) -> Iterator[Record]:
    counts: Counter[PolicyLevel] = Counter()
    number, has_ended = 0, False
    while line := lines.readline(METADATA_LINE_BYTES_MAX + 1):
        number += 1
        where = f"{path}, line {number}"
        if len(line) > METADATA_LINE_BYTES_MAX:
            raise SourceFailed(f"{where}: it is longer than {METADATA_LINE_BYTES_MAX} bytes")
        if has_ended:
            raise SourceFailed(f"{where}: it stands behind the last line")
        try:
            fields = parse_json(line.decode("utf-8"))
            if not isinstance(fields, dict):
                raise ValueError("it is no object")
            if number == 1:
                _check_format(fields)
            elif "end" in fields:
                _check_counts(fields["end"], counts)
                has_ended = True
            else:
                record = record_of(fields)
                counts[record.level] += 1
                yield record
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise SourceFailed(f"{where}: {error}") from error
    if not has_ended:
        raise SourceFailed(f"{path} is cut off behind line {number}: its last line is missing")


def _check_format(fields: dict[str, Any]) -> None:
    if fields.get("format") != FORMAT:
        raise ValueError(f"the format is {str(fields.get('format'))[:80]!r} and not {FORMAT}")
    if fields.get("version") != FORMAT_VERSION:
        version = str(fields.get("version"))[:80]
        raise ValueError(f"format version {version}, this program reads {FORMAT_VERSION}")


def _check_counts(given: Any, counts: Counter[PolicyLevel]) -> None:
    for level in PolicyLevel:
        if (number := as_count(given[f"{level.value}s"])) != counts[level]:
            raise ValueError(f"{number} {level.value}s were written, {counts[level]} are here")


def _write(out: TextIO, fields: dict[str, Any]) -> None:
    out.write(json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n")
