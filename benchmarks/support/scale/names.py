"""The topics of a scale run: the n-th name is known without any list."""

from __future__ import annotations

LARGE_NAMESPACE = "scale-0/large"
"""Every tenth topic is in it."""

LARGE_EVERY = 10
TENANTS = 10
NAMESPACES = 100


def name_of(number: int) -> str:
    """Return the name of a topic: neighbours in number are far apart in the order of names."""
    local = number * 7_919 % 10**11
    return f"persistent://{namespace_of(number)}/customer-{local:012d}"


def namespace_of(number: int) -> str:
    if number % LARGE_EVERY == 0:
        return LARGE_NAMESPACE
    return f"scale-{number % TENANTS}/n-{number // LARGE_EVERY % NAMESPACES:02d}"


def namespaces() -> list[str]:
    """Return every namespace that a name may have, ascending."""
    found = {LARGE_NAMESPACE}
    found |= {
        f"scale-{tenant}/n-{n:02d}" for tenant in range(1, TENANTS) for n in range(NAMESPACES)
    }
    return sorted(found)
