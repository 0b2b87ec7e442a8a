"""The types of Pulsar's policies, field by field as in its JSON.

Bounds that Pulsar checks itself, and answers with 412, are in ``policy_checks``; what its JSON
reader refuses is 400: here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

Int = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Double = Annotated[float, Field(allow_inf_nan=False)]


def _flag(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""Go's library sends some flags as texts."""

Scalar = bool | Long | Double | str | None
Names = list[str]
SomeNames = Annotated[list[str], Field(min_length=1)]

RETENTION_SIZE_MB_MAX = 2**43 - 1
"""More megabytes have no number of bytes in 63 bits."""


class RetentionPolicies(BaseModel):
    """How long acknowledged messages are kept; -1: for ever."""

    retentionTimeInMinutes: Int = 0
    retentionSizeInMB: Annotated[int, Field(ge=-(2**63), le=RETENTION_SIZE_MB_MAX)] = 0


class BacklogQuotaBody(BaseModel):
    """The largest backlog, and what happens beyond it."""

    limit: Long | None = None
    limitSize: Long | None = None
    limitTime: Int = -1
    policy: Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"] = (
        "producer_request_hold"
    )


class PersistencePolicies(BaseModel):
    """Copies in BookKeeper."""

    bookkeeperEnsemble: Int = 2
    bookkeeperWriteQuorum: Int = 2
    bookkeeperAckQuorum: Int = 2
    managedLedgerMaxMarkDeleteRate: Double = 0.0


class BookieAffinityGroup(BaseModel):
    """Groups of bookies."""

    bookkeeperAffinityGroupPrimary: str | None = None
    bookkeeperAffinityGroupSecondary: str | None = None


class AutoTopicCreationOverride(BaseModel):
    """Whether and how topics are created on demand."""

    allowAutoTopicCreation: bool = False
    topicType: str | None = None
    defaultNumPartitions: Int | None = None


class AutoSubscriptionCreationOverride(BaseModel):
    """Whether subscriptions are created on demand."""

    allowAutoSubscriptionCreation: bool = False


class PublishRate(BaseModel):
    """Messages and bytes a second; -1: no bound."""

    publishThrottlingRateInMsg: Int = -1
    publishThrottlingRateInByte: Long = -1


class DispatchRate(BaseModel):
    """Messages and bytes in a period; -1: no bound."""

    dispatchThrottlingRateInMsg: Int = -1
    dispatchThrottlingRateInByte: Long = -1
    relativeToPublishRate: bool = False
    ratePeriodInSecond: Int = 1


class SubscribeRate(BaseModel):
    """Subscribes of a consumer in a period; -1: no bound."""

    subscribeThrottlingRatePerConsumer: Int = -1
    ratePeriodInSecond: Int = 30


class DelayedDeliveryPolicies(BaseModel):
    """Delivery of messages at a time that they name."""

    tickTime: Long = 0
    active: bool = False
    maxDeliveryDelayInMillis: Long = 0


class InactiveTopicPolicies(BaseModel):
    """Deletion of topics that nobody uses."""

    inactiveTopicDeleteMode: Literal[
        "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
    ] = "delete_when_no_subscriptions"
    maxInactiveDurationSeconds: Int = 0
    deleteWhileInactive: bool = False


class EntryFilters(BaseModel):
    """Filters in front of consumers."""

    entryFilterNames: str = ""


SubscriptionTypes = list[Literal["Exclusive", "Shared", "Failover", "Key_Shared"]]
SubscriptionAuthMode = Literal["None", "Prefix"]
SchemaCompatibilityStrategy = Literal[
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]
SchemaAutoUpdateStrategy = Literal[
    "AutoUpdateDisabled",
    "Backward",
    "Forward",
    "Full",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
]


class AutoScalePolicy(BaseModel):
    """How a scalable topic grows and shrinks. What is left out is decided elsewhere."""

    enabled: bool | None = None
    maxSegments: Int | None = None
    minSegments: Int | None = None
    maxDagDepth: Int | None = None
    splitCooldownSeconds: Long | None = None
    mergeCooldownSeconds: Long | None = None
    rebucketCooldownSeconds: Long | None = None
    mergeWindowSeconds: Long | None = None
    splitMsgRateInThreshold: Double | None = None
    splitBytesRateInThreshold: Double | None = None
    splitMsgRateOutThreshold: Double | None = None
    splitBytesRateOutThreshold: Double | None = None
    splitVsRebucketMinMsgRateInThreshold: Double | None = None
    mergeMsgRateInThreshold: Double | None = None
    mergeBytesRateInThreshold: Double | None = None
    mergeMsgRateOutThreshold: Double | None = None
    mergeBytesRateOutThreshold: Double | None = None

    @model_serializer(mode="wrap")
    def _set_ones(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


FreeForm = dict[str, Scalar | list[Scalar] | dict[str, Scalar]]
"""An object whose fields depend on plugins."""


class BundlesData(BaseModel):
    """Bundles that a namespace is to have: accepted, and ignored."""

    boundaries: Names | None = None
    numBundles: Int = 0
