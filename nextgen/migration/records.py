"""What is carried: one record for each tenant, namespace and topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel

NOT_CARRIED_MAX = 1_000
"""Remarks that a report keeps, some 200 bytes each; beyond it they are counted."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a topic's schema, as Pulsar's Admin REST takes it: ``text`` is its definition,
    empty for a primitive type."""

    type: str
    text: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One object. ``name`` is canonical: ``tenant``, ``tenant/namespace``, a topic's full name."""

    level: PolicyLevel
    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    policies: Policies = NO_POLICIES
    partitions: int = 0
    """Of a topic; 0 if it is not partitioned."""
    schemas: tuple[SchemaVersion, ...] = ()
    """Of a topic, the oldest first."""


class Source(Protocol):
    """A place that records come from."""

    def records(self, remarks: Remarks) -> AsyncIterator[Record]:
        """Yield each object once, parents before what is in them.

        ``remarks`` is given what the source has and a record cannot carry.

        Raises:
            SourceFailed: The source ends early, or answers what no source of its kind may.
        """
        ...


class SourceFailed(RefusesToStart):
    """The source cannot be read to its end. What was imported stays; a repetition goes on."""

    reason = "SOURCE_FAILED"


class Remarks:
    """What cannot be carried, for the report."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, name: str, what: str) -> None:
        """Note that ``what`` of the object ``name`` is not carried."""
        self.count += 1
        if len(self.first) < NOT_CARRIED_MAX:
            self.first.append(f"{name[:300]}: {what[:300]}")
