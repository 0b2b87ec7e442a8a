"""The policies by which the scalable topics of one shard are split and merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_POLICY,
    AutoScalePolicy,
    resolve,
)
from nextgen.kernel.governance.policies import Policies
from shards.domain.topic import Topic


class NamespacePolicies(Protocol):
    """A ``PlacementPolicies``, as far as it is needed here."""

    def known(self, namespace: str) -> Policies | None: ...

    async def find(self, namespaces: Iterable[str]) -> dict[str, Policies | MetadataError]: ...


def resolved(service: AutoScalePolicy, namespace: Policies, topic: Topic | None) -> AutoScalePolicy:
    """Return the policy of a topic: ``service``, overridden by its namespace's and its own.

    Raises:
        InvalidAutoScale: What results makes no sense.
    """
    own = unpack_policies(topic.policies) if topic is not None and topic.policies else None
    return resolve(service, override_of(namespace), "" if own is None else override_of(own))


def override_of(policies: Policies) -> str:
    """Return the override that an object's policies have, "" for none."""
    stored: Mapping[str, str] = dict(policies.stored)
    return stored.get(AUTO_SCALE_POLICY, "")
