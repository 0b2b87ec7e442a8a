"""Every policy of a namespace in one table, from which routes and documentation are generated.

A policy is enforced here if it has a field of its own (``Enforced``). All others are stored as JSON
by their name, and returned (ADR 0073): nothing acts on them, but for those that shards and brokers
read there (``is_acted_on``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any, Final

from pydantic import TypeAdapter

from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.pulsar import CONSUMER_UNACKED_MAX, SUBSCRIPTION_UNACKED_MAX
from nextgen.pulsar.policies import policy_checks as checks
from nextgen.pulsar.policies import policy_types as types
from nextgen.pulsar.policies import policy_values as values
from nextgen.pulsar.policies.policy_values import Enforced, with_stored
from nextgen.pulsar.policies.refusal import PolicyRefused

UNSET: Final = object()
"""While it is unset the answer has no content: 204."""


@dataclass(frozen=True)
class Policy:
    """One policy of a namespace or topic."""

    name: str
    """The end of its path, and what it is stored under unless ``stored_as`` says otherwise."""
    field: str
    """Its field in the object of all policies."""
    kind: Any
    """The type of its value."""
    summary: str
    _: KW_ONLY
    unset: Any = UNSET
    """The answer while it is unset: a value, None for ``null``, or ``UNSET``."""
    set_by: str = "POST"
    removed_at: str | None = ""
    """Another end of the path for DELETE; "" for the same; None if it cannot be removed."""
    check: Callable[[Any], str] | None = None
    refused_with: int = 412
    enforced: Enforced | None = None
    is_by_cluster: bool = False
    """In the object of all policies its values stand by cluster."""
    is_text: bool = False
    """It travels as a text without quotes."""
    set_without_body: Any = UNSET
    """The value that a request without a body sets."""
    is_in_query: bool = False
    """Its value travels as the query's parameter of its name."""
    stored_as: str = ""
    """What it is stored under if not its name: a topic's value must win over its namespace's."""
    is_removed_by_null: bool = False
    """Setting it to null, or without a body, removes it."""
    is_acted_on: bool = False
    """It is stored as it is, and shards and brokers read it there."""
    note: str = ""

    @cached_property
    def type(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.kind)

    @property
    def default(self) -> Any:
        """Its value in the object of all policies while it is unset."""
        return None if self.unset is UNSET else self.unset

    def plain(self, value: Any) -> Any:
        """Return a value that ``type`` has checked as JSON's own types."""
        return self.type.dump_python(value, mode="json")

    def read(self, policies: Policies) -> Any:
        """Return the value that is set, ``UNSET`` if none is."""
        if self.enforced is not None:
            value = self.enforced.read(policies)
            return UNSET if value is None else value
        key = self.stored_as or self.name
        text = next((text for name, text in policies.stored if name == key), None)
        return UNSET if text is None else json.loads(text)

    def write(self, policies: Policies, value: Any) -> Policies:
        """Return ``policies`` with this value; None or ``UNSET`` removes it."""
        if value is UNSET:
            value = None
        if self.enforced is not None:
            return self.enforced.write(policies, value)
        text = None if value is None else json.dumps(value, separators=(",", ":"))
        return with_stored(policies, self.stored_as or self.name, text)


def _count(name: str, field: str, summary: str, **more: Any) -> Policy:
    """Return a policy whose value is a number that is not negative."""
    return Policy(name, field, types.Int, summary, check=checks.not_negative, **more)


def _limit(name: str, field: str, summary: str, note: str = "") -> Policy:
    """Return a number that brokers do not let clients exceed."""
    return _count(name, field, f"{summary}; 0: no bound", is_acted_on=True, note=note)


def _rate(name: str, field: str, kind: Any, summary: str) -> Policy:
    """Return a rate that brokers keep clients to."""
    check = partial(checks.limit, name)
    return Policy(name, field, kind, summary, is_by_cluster=True, check=check, is_acted_on=True)


POLICIES: tuple[Policy, ...] = (
    Policy(
        "retention",
        "retention_policies",
        types.RetentionPolicies,
        "How long acknowledged messages are kept",
        check=checks.retention,
        enforced=values.RETENTION,
        note="Whole segments are dropped.",
    ),
    _count(
        "messageTTL",
        "message_ttl_in_seconds",
        "Seconds after which messages count as acknowledged",
        enforced=values.MESSAGE_TTL,
    ),
    Policy(
        "deduplication",
        "deduplicationEnabled",
        types.Flag,
        "Whether a message that its producer repeats is stored once",
        enforced=values.DEDUPLICATION,
    ),
    _count(
        "idleUnloadSeconds",
        "idle_unload_seconds",
        "Seconds without clients after which a topic leaves its broker; 0: never",
        enforced=values.IDLE_UNLOAD,
        note="Unset: the service-level setting `loadBalancerIdleUnloadSeconds`.",
    ),
    Policy(
        "autoTopicCreation",
        "autoTopicCreationOverride",
        types.AutoTopicCreationOverride,
        "Whether and how topics are created on demand",
        unset=None,
        check=checks.auto_creation,
        refused_with=406,
        enforced=values.AUTO_CREATION,
    ),
    _count(
        "maxTopicsPerNamespace",
        "max_topics_per_namespace",
        "The largest number of topics; 0: no bound",
        enforced=values.TOPICS_MAX,
    ),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        types.SchemaCompatibilityStrategy,
        "Which schemas may follow those that a topic has",
        unset="UNDEFINED",
        set_by="PUT",
        removed_at=None,
        enforced=values.COMPATIBILITY,
        note="Unset: FULL.",
    ),
    Policy(
        "schemaAutoUpdateCompatibilityStrategy",
        "schema_auto_update_compatibility_strategy",
        types.SchemaAutoUpdateStrategy,
        "The same by its older names",
        unset="Full",
        set_by="PUT",
        removed_at=None,
        enforced=values.AUTO_UPDATE,
        note="One policy with schemaCompatibilityStrategy.",
    ),
    Policy(
        "isAllowAutoUpdateSchema",
        "is_allow_auto_update_schema",
        types.Flag,
        "Whether clients may add schemas",
        unset=True,
        removed_at=None,
        enforced=values.AUTO_UPDATE_ALLOWED,
        note="Operators may.",
    ),
    Policy(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        types.Flag,
        "Whether clients without a schema are refused",
        unset=False,
        removed_at=None,
    ),
    Policy(
        "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride",
        types.AutoSubscriptionCreationOverride,
        "Whether subscriptions are created on demand",
    ),
    _count(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        "Minutes after which an unused subscription is deleted",
    ),
    Policy(
        "subscriptionTypesEnabled",
        "subscription_types_enabled",
        types.SubscriptionTypes,
        "The kinds of subscriptions that are allowed; none: all",
        unset=[],
    ),
    Policy(
        "subscriptionAuthMode",
        "subscription_auth_mode",
        types.SubscriptionAuthMode,
        "Whether a subscription's name begins with its role",
        unset="None",
        removed_at=None,
        enforced=values.SUBSCRIPTION_AUTH_MODE,
    ),
    Policy(
        "replicateSubscriptionState",
        "replicate_subscription_state",
        types.Flag,
        "Whether subscriptions are replicated to other clusters",
        removed_at=None,
    ),
    Policy(
        "persistence",
        "persistence",
        types.PersistencePolicies,
        "Copies of messages in BookKeeper",
        check=checks.persistence,
        note="Brokers here keep messages in the ledger directory.",
    ),
    Policy(
        "persistence/bookieAffinity",
        "bookieAffinityGroup",
        types.BookieAffinityGroup,
        "Groups of bookies that get them",
    ),
    _rate("publishRate", "publishMaxMessageRate", types.PublishRate, "Publishing to a topic"),
    _rate("dispatchRate", "topicDispatchRate", types.DispatchRate, "Dispatching of a topic"),
    _rate(
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
        types.DispatchRate,
        "Dispatching to a subscription",
    ),
    Policy(
        "replicatorDispatchRate",
        "replicatorDispatchRate",
        types.DispatchRate,
        "Dispatching to another cluster",
        is_by_cluster=True,
    ),
    _rate("subscribeRate", "clusterSubscribeRate", types.SubscribeRate, "Subscribing"),
    _limit("maxProducersPerTopic", "max_producers_per_topic", "Producers of a topic"),
    _limit("maxConsumersPerTopic", "max_consumers_per_topic", "Consumers of a topic"),
    _limit(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        "Consumers of a subscription",
    ),
    _limit("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", "Subscriptions of a topic"),
    _count(
        "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
        "Messages that a Shared or Key_Shared consumer may leave unacknowledged",
        is_acted_on=True,
        note=f"At most {CONSUMER_UNACKED_MAX:,}, whatever it says; 0: as many.",
    ),
    _count(
        "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
        "The same for all consumers of a subscription",
        is_acted_on=True,
        note=f"At most {SUBSCRIPTION_UNACKED_MAX:,}, whatever it says; 0: as many.",
    ),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        types.Int | None,
        "Seconds between two snapshots of what producers sent",
        check=checks.not_negative,
        removed_at=None,
        is_removed_by_null=True,
        note="Set to null, or without a body, it is removed.",
    ),
    Policy(
        "inactiveTopicPolicies",
        "inactive_topic_policies",
        types.InactiveTopicPolicies,
        "Whether and when unused topics are deleted",
        check=checks.inactive_topics,
    ),
    Policy(
        "delayedDelivery",
        "delayed_delivery_policies",
        types.DelayedDeliveryPolicies,
        "Delivery of messages at a time that they name",
        check=checks.delayed_delivery,
    ),
    Policy(
        "encryptionRequired",
        "encryption_required",
        types.Flag,
        "Whether unencrypted messages are refused",
        unset=False,
        removed_at=None,
    ),
    Policy(
        "antiAffinity",
        "namespaceAntiAffinityGroup",
        str,
        "A group of namespaces that are not to share a failure domain",
        check=checks.name,
        is_text=True,
        note="See placement rules of this project for the topics of one name.",
    ),
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        types.Long,
        "Bytes after which a topic is compacted",
        set_by="PUT",
        check=checks.not_negative,
    ),
    Policy(
        "offloadThreshold",
        "offload_threshold",
        types.Long,
        "Bytes after which messages are offloaded",
        unset=-1,
        set_by="PUT",
        removed_at=None,
        check=checks.at_least_minus_one,
    ),
    Policy(
        "offloadThresholdInSeconds",
        "offload_threshold_in_seconds",
        types.Long,
        "Seconds after which messages are offloaded",
        unset=-1,
        set_by="PUT",
        removed_at=None,
        check=checks.at_least_minus_one,
    ),
    Policy(
        "offloadDeletionLagMs",
        "offload_deletion_lag_ms",
        types.Long,
        "Milliseconds after which offloaded messages are deleted here",
        set_by="PUT",
    ),
    Policy(
        "offloadPolicies",
        "offload_policies",
        types.FreeForm,
        "Where messages are offloaded to",
        removed_at="removeOffloadPolicies",
    ),
    Policy("entryFilters", "entryFilters", types.EntryFilters, "Filters in front of consumers"),
    Policy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled",
        types.Flag,
        "Whether dispatching waits for cursors to be stored",
        unset=False,
        set_without_body=True,
    ),
    Policy(
        "allowedClusters",
        "allowed_clusters",
        types.Names,
        "Clusters that topics may be in",
        unset=[],
        removed_at=None,
    ),
    Policy(
        "migration",
        "migrated",
        types.Flag,
        "Whether it moves to another Pulsar cluster",
        unset=False,
        removed_at=None,
    ),
    Policy(
        "scalableTopicAutoScalePolicy",
        "scalableTopicAutoScalePolicy",
        types.AutoScalePolicy,
        "How scalable topics grow and shrink",
        check=checks.auto_scale,
        is_acted_on=True,
        note="Field by field over the settings of the same names.",
    ),
)
"""In the order of the documentation: what is enforced comes first."""


def without_contradiction(after: Policies, before: Policies = NO_POLICIES) -> Policies:
    """Return ``after``, unless it has a contradiction that ``before`` has not.

    Raises:
        PolicyRefused: 412.
    """
    problem = values.quota_problem(after)
    if problem and not values.quota_problem(before):
        raise PolicyRefused(412, problem)
    return after


def checked(policy: Policy, body: Any) -> Any:
    """Return the value of a body that the policy's type has read; None removes the policy.

    Raises:
        PolicyRefused: It makes no sense.
    """
    value = policy.plain(body)
    problem = policy.check(value) if policy.check is not None else ""
    if problem:
        raise PolicyRefused(policy.refused_with, f"{policy.name}: {problem}")
    is_undefined = policy.kind is types.SchemaCompatibilityStrategy and value == "UNDEFINED"
    return None if is_undefined else value
