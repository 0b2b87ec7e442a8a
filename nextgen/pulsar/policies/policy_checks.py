"""What Pulsar checks of a policy's value. Each returns a sentence, "" if the value is fine."""

from __future__ import annotations

from typing import Any

from nextgen.kernel.governance import client_limits
from nextgen.kernel.governance.auto_scale_policy import problem
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX

_TOPIC_TYPES = frozenset({"partitioned", "non-partitioned"})


def not_negative(value: Any) -> str:
    return f"it is {value}, at least 0 is needed" if value is not None and value < 0 else ""


def at_least_minus_one(value: Any) -> str:
    return f"it is {value}, at least -1 is needed" if value < -1 else ""


def retention(value: Any) -> str:
    time, size = value["retentionTimeInMinutes"], value["retentionSizeInMB"]
    if min(time, size) < -1:
        return "a time and a size are at least -1"
    if (time == 0) != (size == 0):
        return "time and size are both 0, or none of them is"
    return ""


def persistence(value: Any) -> str:
    ensemble, write = value["bookkeeperEnsemble"], value["bookkeeperWriteQuorum"]
    acknowledged = value["bookkeeperAckQuorum"]
    if not ensemble >= write >= acknowledged > 0:
        return "bookkeeperEnsemble >= bookkeeperWriteQuorum >= bookkeeperAckQuorum > 0 is needed"
    # Java's library of the 4.2 line sends -1 for "as brokers are configured".
    if problem := at_least_minus_one(value["managedLedgerMaxMarkDeleteRate"]):
        return f"managedLedgerMaxMarkDeleteRate: {problem}"
    return ""


def auto_creation(value: Any) -> str:
    if not value["allowAutoTopicCreation"]:
        return ""
    kind, partitions = value["topicType"], value["defaultNumPartitions"]
    if kind not in _TOPIC_TYPES:
        return f"topicType is {str(kind)[:80]!a}, it must be partitioned or non-partitioned"
    if kind == "non-partitioned":
        return "defaultNumPartitions is for partitioned topics" if partitions is not None else ""
    if partitions is None or not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        return f"defaultNumPartitions is {partitions}, 1 to {PARTITIONS_PER_TOPIC_MAX} is needed"
    return ""


def inactive_topics(value: Any) -> str:
    return not_negative(value["maxInactiveDurationSeconds"])


def delayed_delivery(value: Any) -> str:
    return not_negative(min(value["tickTime"], value["maxDeliveryDelayInMillis"]))


def auto_scale(value: Any) -> str:
    return problem(value)


def limit(policy: str, value: Any) -> str:
    return client_limits.problem(policy, value)


def name(value: Any) -> str:
    return "" if value.strip() else "it is blank"
