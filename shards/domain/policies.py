"""Policies of a tenant, namespace or topic, which the aggregates keep as bytes.

The bytes of the command are stored unchanged, so that fields of a later release survive and all
replicas keep the same. The aggregates share one command and one decision; docs/flows/policies.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import Policies, PolicyLevel, check_policies
from nextgen.kernel.limits.placement import (
    NAMESPACE_POLICIES_BYTES_MAX,
    PERMITTED_TOPIC_POLICIES_BYTES_MAX,
    POLICIES_BYTES_MAX,
)
from nextgen.kernel.limits.shadow import SOURCE_POLICIES_BYTES_MAX

PackedPolicies = bytes
"""A serialised ``Policies`` message (policies.proto)."""

NO_PACKED_POLICIES: PackedPolicies = b""


@dataclass(frozen=True, slots=True)
class SetPolicies:
    """Replace all policies; ``NO_PACKED_POLICIES`` clears them.

    ``policies`` is ``packed``, parsed. ``expected_version`` is the policies' own version, 0 means
    any; with ``expects_none`` they must never have been set. Of several commands that expect one
    version exactly one is accepted, so a repetition is recognised by its command id alone.
    """

    name: str
    packed: PackedPolicies
    policies: Policies
    expected_version: int = 0
    expects_none: bool = False

    @property
    def is_conditional(self) -> bool:
        return self.expects_none or self.expected_version > 0


def check_set(command: SetPolicies, level: PolicyLevel, version: int) -> Rejected | None:
    """Return why an existing object may not get the policies of ``command``, None if it may."""
    expected = 0 if command.expects_none else command.expected_version
    if command.is_conditional and expected != version:
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"the policies of {level.value} {command.name} are at version {version}, "
            f"command expected {expected}",
        )
    bytes_max = _bytes_max(command.policies, level)
    if len(command.packed) > bytes_max:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"policies have {len(command.packed)} bytes, at most {bytes_max} are allowed",
        )
    return check_policies(command.policies, level)


def _bytes_max(policies: Policies, level: PolicyLevel) -> int:
    permits = bool(policies.permissions or policies.subscription_permissions)
    if permits and level is PolicyLevel.NAMESPACE:
        return NAMESPACE_POLICIES_BYTES_MAX
    if policies.shadow_topics:
        return SOURCE_POLICIES_BYTES_MAX
    return PERMITTED_TOPIC_POLICIES_BYTES_MAX if permits else POLICIES_BYTES_MAX


def changes_nothing(command: SetPolicies, present: PackedPolicies) -> bool:
    """Return whether an accepted ``command`` needs no event.

    A conditional command always does: the new version shows that it was the one accepted.
    """
    return command.packed == present and not command.is_conditional
