"""Pulsar's strategies: the versions with which a new schema must be compatible, and the direction.

*Backward*: the new schema reads data that was written with a version. *Forward*: a version reads
data that is written with the new schema. Consumers only read, so only the first applies to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from brokers.domain.schemas.compatibility import ComparisonBudget, reading_obstacle
from brokers.domain.schemas.schema import Schema
from nextgen.kernel.governance.policies import SchemaCompatibility

_BACKWARD = frozenset(
    {
        SchemaCompatibility.BACKWARD,
        SchemaCompatibility.BACKWARD_TRANSITIVE,
        SchemaCompatibility.FULL,
        SchemaCompatibility.FULL_TRANSITIVE,
    }
)
_FORWARD = frozenset(
    {
        SchemaCompatibility.FORWARD,
        SchemaCompatibility.FORWARD_TRANSITIVE,
        SchemaCompatibility.FULL,
        SchemaCompatibility.FULL_TRANSITIVE,
    }
)
_WITH_ALL = frozenset(
    {
        SchemaCompatibility.BACKWARD_TRANSITIVE,
        SchemaCompatibility.FORWARD_TRANSITIVE,
        SchemaCompatibility.FULL_TRANSITIVE,
    }
)
_READS_ALL = frozenset(
    {SchemaCompatibility.BACKWARD_TRANSITIVE, SchemaCompatibility.FULL_TRANSITIVE}
)


def is_with_all(strategy: SchemaCompatibility) -> bool:
    """Return whether a version must be compatible with all earlier ones, not only the latest."""
    return strategy in _WITH_ALL


def reads_all(strategy: SchemaCompatibility) -> bool:
    """Return whether a consumer must read all versions, not only the latest."""
    return strategy in _READS_ALL


def version_obstacles(
    new: Schema, earlier: Schema, strategy: SchemaCompatibility, budget: ComparisonBudget
) -> Iterator[str | None]:
    """Yield after each part of the work the reason to refuse ``new`` as the next version, or None.

    A part, parsing or comparing, may take ten milliseconds and more; the caller can yield to other
    tasks in between.
    """
    if strategy is SchemaCompatibility.ALWAYS_INCOMPATIBLE:
        yield "its schema must not change"
    if strategy in _BACKWARD or strategy in _FORWARD:
        yield from budget.parse_ahead(earlier)
    if strategy in _BACKWARD:
        yield reading_obstacle(new, earlier, budget)
    if strategy in _FORWARD:
        yield reading_obstacle(earlier, new, budget)


def consumer_obstacles(
    reader: Schema, version: Schema, strategy: SchemaCompatibility, budget: ComparisonBudget
) -> Iterator[str | None]:
    """Yield as ``version_obstacles`` why a consumer with schema ``reader`` is refused, or None."""
    if strategy is not SchemaCompatibility.ALWAYS_COMPATIBLE:
        yield from budget.parse_ahead(version)
        yield reading_obstacle(reader, version, budget)
