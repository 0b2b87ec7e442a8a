"""Which versions of a topic's schema a newcomer must go with, and how: Pulsar's strategies.

*Backward* is that the newcomer reads what was written with a version, *forward* that the version
reads what the newcomer writes. Consumers only read: of them what they read is asked.
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
    """Return whether a version must go with all before it, not only with the latest."""
    return strategy in _WITH_ALL


def reads_all(strategy: SchemaCompatibility) -> bool:
    """Return whether a consumer must read all versions, not only the latest."""
    return strategy in _READS_ALL


def version_obstacles(
    new: Schema, earlier: Schema, strategy: SchemaCompatibility, budget: ComparisonBudget
) -> Iterator[str | None]:
    """Yield of each comparison why ``new`` may not become a version behind ``earlier``, or None.

    A comparison may take tens of milliseconds: others can have their turn between two.
    """
    if strategy is SchemaCompatibility.ALWAYS_INCOMPATIBLE:
        yield "its schema is not to change"
    if strategy in _BACKWARD:
        yield reading_obstacle(new, earlier, budget)
    if strategy in _FORWARD:
        yield reading_obstacle(earlier, new, budget)


def consumer_obstacle(
    reader: Schema,
    version: Schema,
    strategy: SchemaCompatibility,
    budget: ComparisonBudget | None = None,
) -> str | None:
    """Return why a consumer with schema ``reader`` may not come, None if it may."""
    if strategy is SchemaCompatibility.ALWAYS_COMPATIBLE:
        return None
    return reading_obstacle(reader, version, budget)
