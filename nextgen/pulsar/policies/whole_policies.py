"""All policies of a namespace as one object: read as Pulsar's, and taken when one is created."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, TypeAdapter, create_model

from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.pulsar.policies.auth_policies import (
    AuthPolicies,
    auth_policies,
    with_auth_policies,
)
from nextgen.pulsar.policies.policy_checks import at_least_minus_one
from nextgen.pulsar.policies.policy_table import (
    POLICIES,
    UNSET,
    Policy,
    checked,
    without_contradiction,
)
from nextgen.pulsar.policies.policy_types import BacklogQuotaBody, BundlesData, Names
from nextgen.pulsar.policies.policy_values import BACKLOG_QUOTA, with_stored
from nextgen.pulsar.policies.refusal import PolicyRefused

WHOLE_BUNDLE = "0x00000000_0xffffffff"
"""The only bundle of any namespace: topics are placed one by one."""

STORAGE_QUOTA = "destination_storage"
"""The quota that is enforced: bytes."""

AGE_QUOTA = "message_age"
"""The quota that is stored only: seconds."""

_STORED_QUOTA = f"backlogQuota/{AGE_QUOTA}"
_BUNDLES_MAX = 2**32
"""As in Pulsar."""


def _by_cluster(kind: Any) -> Any:
    return dict.__class_getitem__((str, kind))


def _given(value: Any) -> Any:
    """Return None for an empty text: Go's library sends it where nothing was chosen."""
    return None if value == "" else value


def _fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for policy in POLICIES:
        kind = _by_cluster(policy.kind) if policy.is_by_cluster else policy.kind
        fields[policy.field] = (Annotated[kind | None, BeforeValidator(_given)], None)
    fields["auth_policies"] = (AuthPolicies | None, None)
    fields["replication_clusters"] = (Names | None, None)
    fields["bundles"] = (BundlesData | None, None)
    fields["backlog_quota_map"] = (dict[str, BacklogQuotaBody] | None, None)
    fields["properties"] = (dict[str, str] | None, None)
    return fields


PoliciesBody: type[BaseModel] = create_model("Policies", **_fields())
_OPTIONAL: Any = PoliciesBody | None
BODY: TypeAdapter[Any] = TypeAdapter(_OPTIONAL)


def bundles() -> dict[str, Any]:
    """Return the bundles of any namespace."""
    return {"boundaries": WHOLE_BUNDLE.split("_"), "numBundles": 1}


def whole(policies: Policies, properties: dict[str, str], cluster: str) -> dict[str, Any]:
    """Return the object of all policies; what is unset has its default."""
    found: dict[str, Any] = {
        "auth_policies": auth_policies(policies),
        "replication_clusters": [cluster],
        "bundles": bundles(),
        "backlog_quota_map": quotas(policies),
        "properties": properties,
    }
    for policy in POLICIES:
        value = policy.read(policies)
        if policy.is_by_cluster:
            found[policy.field] = {} if value is UNSET else {cluster: value}
        else:
            found[policy.field] = policy.default if value is UNSET else value
    return found


def policies_of(body: Any, cluster: str) -> Policies:
    """Return what a namespace is created with.

    Raises:
        PolicyRefused: A value makes no sense, or a cluster does not exist.
    """
    policies = NO_POLICIES
    if body is None:
        return policies
    if unknown := sorted(set(body.replication_clusters or ()) - {cluster}):
        raise PolicyRefused(412, f"cluster {unknown[0][:80]!a} does not exist")
    if body.bundles is not None and not 0 <= body.bundles.numBundles <= _BUNDLES_MAX:
        raise PolicyRefused(
            412, f"{body.bundles.numBundles} bundles, 1 to {_BUNDLES_MAX} are needed"
        )
    for policy in POLICIES:
        given = getattr(body, policy.field)
        if policy.is_by_cluster:
            given = None if not given else next(iter(given.values()))
        if _says_something(policy, given):
            policies = policy.write(policies, checked(policy, given))
    for kind, quota in (body.backlog_quota_map or {}).items():
        policies = with_quota(policies, kind, quota)
    if body.auth_policies is not None:
        policies = with_auth_policies(policies, body.auth_policies)
    return without_contradiction(policies)


def _says_something(policy: Policy, given: Any) -> bool:
    return given is not None and given != policy.default and given not in ([], {})


# Backlog quotas -----------------------------------------------------------------------------------


def quotas(policies: Policies) -> dict[str, Any]:
    """Return the backlog quotas that are set, by kind."""
    found: dict[str, Any] = {}
    if (stored := BACKLOG_QUOTA.read(policies)) is not None:
        found[STORAGE_QUOTA] = stored
    for name, text in policies.stored:
        if name == _STORED_QUOTA:
            found[AGE_QUOTA] = _QUOTA.dump_python(_QUOTA.validate_json(text), mode="json")
    return found


def with_quota(policies: Policies, kind: str, quota: BacklogQuotaBody | None) -> Policies:
    """Return ``policies`` with a quota of a kind, or without any of it.

    Raises:
        PolicyRefused: 412, there is no such kind, or the quota makes no sense.
    """
    if kind not in (STORAGE_QUOTA, AGE_QUOTA):
        raise PolicyRefused(412, f"{kind[:80]!a} is neither {STORAGE_QUOTA} nor {AGE_QUOTA}")
    if quota is None:
        if kind == STORAGE_QUOTA:
            return BACKLOG_QUOTA.write(policies, None)
        return with_stored(policies, _STORED_QUOTA, None)
    limit = quota.limitSize if quota.limitSize is not None else quota.limit
    plain = {**quota.model_dump(), "limitSize": -1 if limit is None else limit}
    problem = at_least_minus_one(min(plain["limitSize"], quota.limitTime))
    if problem:
        raise PolicyRefused(412, f"backlogQuota: {problem}")
    if kind == STORAGE_QUOTA:
        return BACKLOG_QUOTA.write(policies, plain)
    return with_stored(policies, _STORED_QUOTA, BacklogQuotaBody(**plain).model_dump_json())


_QUOTA: TypeAdapter[BacklogQuotaBody] = TypeAdapter(BacklogQuotaBody)
