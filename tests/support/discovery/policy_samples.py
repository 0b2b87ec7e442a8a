"""A value for every policy of Pulsar, as its Admin REST sends it."""

from __future__ import annotations

from typing import Any

from nextgen.pulsar.policies.policy_table import Policy

SAMPLES: dict[str, Any] = {
    "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
    "messageTTL": 60,
    "idleUnloadSeconds": 90,
    "deduplication": False,
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "maxTopicsPerNamespace": 5,
    "schemaCompatibilityStrategy": "BACKWARD",
    "schemaAutoUpdateCompatibilityStrategy": "AutoUpdateDisabled",
    "isAllowAutoUpdateSchema": False,
    "schemaValidationEnforced": True,
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": True},
    "subscriptionExpirationTime": 7,
    "subscriptionTypesEnabled": ["Shared", "Key_Shared"],
    "subscriptionAuthMode": "Prefix",
    "replicateSubscriptionState": True,
    "persistence": {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": 2,
        "managedLedgerMaxMarkDeleteRate": 1.5,
    },
    "persistence/bookieAffinity": {
        "bookkeeperAffinityGroupPrimary": "a",
        "bookkeeperAffinityGroupSecondary": None,
    },
    "publishRate": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 3,
        "deleteWhileInactive": True,
    },
    "delayedDelivery": {"tickTime": 5, "active": True, "maxDeliveryDelayInMillis": 0},
    "encryptionRequired": True,
    "antiAffinity": "group",
    "offloadThreshold": 5,
    "offloadThresholdInSeconds": 6,
    "offloadDeletionLagMs": 7,
    "offloadPolicies": {"managedLedgerOffloadDriver": "S3", "s3ManagedLedgerOffloadBucket": None},
    "entryFilters": {"entryFilterNames": "a,b"},
    "dispatcherPauseOnAckStatePersistent": True,
    "allowedClusters": ["local"],
    "migration": True,
    "scalableTopicAutoScalePolicy": {"enabled": True, "maxSegments": 4},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 10},
}
DISPATCH = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 7,
    "relativeToPublishRate": True,
    "ratePeriodInSecond": 2,
}


def sample(policy: Policy) -> Any:
    """Return a value of a policy that differs from its value while it is unset."""
    name = policy.stored_as or policy.name
    if name in SAMPLES:
        return SAMPLES[name]
    return DISPATCH if name.endswith("ispatchRate") else 4
