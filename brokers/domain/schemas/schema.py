"""A topic's schema, as sent by producers and consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class SchemaKind(IntEnum):
    """Numbers of ``Schema.Type`` in the Pulsar protocol that the rules here use."""

    NONE = 0
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    KEY_VALUE = 15
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21


STRUCTURES = frozenset({SchemaKind.JSON, SchemaKind.PROTOBUF, SchemaKind.AVRO})
"""Kinds whose data is an Avro schema in JSON."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One version's content. ``kind`` is a number of ``Schema.Type``, also one not known here."""

    name: str
    kind: int
    data: bytes
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_the_same_as(self) -> tuple[int, bytes]:
        """The identity of a schema. Schemas that differ in name or properties only are equal."""
        return (self.kind, self.data)


def version_bytes(version: int) -> bytes:
    """Return the protocol's form of a version. Versions count from 0."""
    return version.to_bytes(8, "big")
