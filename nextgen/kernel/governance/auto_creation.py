"""Auto-creation: whether and how a request for a missing topic of a namespace creates it.

The policies of namespace and tenant decide. If they set nothing, properties of the namespace do,
under Pulsar's own names:

    allowAutoTopicCreation   true | false                        default true
    autoTopicCreationType    non-partitioned | partitioned       default non-partitioned
    defaultNumPartitions     1 to PARTITIONS_PER_TOPIC_MAX       default 1; partitioned only

A value that is none of these creates nothing: a topic with the wrong number of partitions is
harder to get rid of than one that is missing, and its absence is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nextgen.kernel.governance.policies import NO_AUTO_CREATION
from nextgen.kernel.governance.policies import AutoCreation as AutoCreationPolicy
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX

ALLOW_PROPERTY = "allowAutoTopicCreation"
TYPE_PROPERTY = "autoTopicCreationType"
PARTITIONS_PROPERTY = "defaultNumPartitions"

_ALLOWED = {"true": True, "false": False}
_TYPES = frozenset({"non-partitioned", "partitioned"})
_SHOWN_CHARACTERS_MAX = 80
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class AutoCreation:
    """A namespace's rule for requests for topics that do not exist."""

    is_allowed: bool
    partitions: int
    """Number of partitions of a created topic; 0 means that it is not partitioned."""

    problem: str = ""
    """Why nothing is created although it was not forbidden: which property has which value."""


def auto_creation(
    properties: Mapping[str, str], policy: AutoCreationPolicy = NO_AUTO_CREATION
) -> AutoCreation:
    """Return what is in force for a namespace with these properties and this policy.

    A field that the policy sets takes precedence over the property of the same meaning, which is
    then not read. Values of properties are compared without regard to case.
    """
    is_allowed, is_partitioned = policy.is_allowed, policy.is_partitioned
    if is_allowed is None:
        is_allowed, problem = _allowed_by(properties)
        if problem is not None:
            return problem
    if not is_allowed:
        return AutoCreation(False, 0)
    if is_partitioned is None:
        is_partitioned, problem = _partitioned_by(properties)
        if problem is not None:
            return problem
    if not is_partitioned:
        return AutoCreation(True, 0)
    if policy.default_partitions is not None:
        return AutoCreation(True, policy.default_partitions)
    return _partitions_by(properties)


def _allowed_by(properties: Mapping[str, str]) -> tuple[bool, AutoCreation | None]:
    allow = properties.get(ALLOW_PROPERTY, "true").strip().lower()
    if allow not in _ALLOWED:
        return False, _refused(ALLOW_PROPERTY, allow, "true or false")
    return _ALLOWED[allow], None


def _partitioned_by(properties: Mapping[str, str]) -> tuple[bool, AutoCreation | None]:
    kind = properties.get(TYPE_PROPERTY, "non-partitioned").strip().lower()
    if kind not in _TYPES:
        return False, _refused(TYPE_PROPERTY, kind, "non-partitioned or partitioned")
    return kind == "partitioned", None


def _partitions_by(properties: Mapping[str, str]) -> AutoCreation:
    count = properties.get(PARTITIONS_PROPERTY, "1").strip()
    is_number = count.isascii() and count.isdigit() and len(count) <= _DIGITS_MAX
    if not is_number or not 1 <= int(count) <= PARTITIONS_PER_TOPIC_MAX:
        return _refused(PARTITIONS_PROPERTY, count, f"1 to {PARTITIONS_PER_TOPIC_MAX}")
    return AutoCreation(True, int(count))


def _refused(name: str, value: str, wanted: str) -> AutoCreation:
    shown = ascii(value[:_SHOWN_CHARACTERS_MAX])
    return AutoCreation(False, 0, f"property {name} is {shown}, it must be {wanted}")
