"""The names of a topic's units, as lists of topics have them."""

from __future__ import annotations

from nextgen.kernel.routing.names import PARTITION_SUFFIX


def unit_names(name: str, partitions: int) -> list[str]:
    """Return the names that a topic has in lists: its own, or those of its partitions."""
    if not partitions:
        return [name]
    return [f"{name}{PARTITION_SUFFIX}{number}" for number in range(partitions)]
