"""Which gRPC methods are open to every caller, and which need proof of the cluster secret.

Clients of a cluster use the open methods: discovery's service, and the check of a lookup at its
destination. All others are for the cluster's own processes and its operators. Servers consult
``OPEN_CALLS`` alone, so a method in neither set needs proof; a test requires that each is in one of
them (ADR 0057).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nextgen.runtime.security.node_identity import NodeRole

GET_CHALLENGE = "/nextgen.v1.PeerService/GetChallenge"


def _of(service: str, *methods: str) -> frozenset[str]:
    return frozenset(f"/{service}/{method}" for method in methods)


CLIENT_CALLS = _of(
    "nextgen.v1.DiscoveryService",
    *("Lookup", "LookupStream", "GetPositions"),
    *("CreateTenant", "SetTenantProperties", "DeleteTenant", "GetTenant", "ListTenants"),
    *("CreateNamespace", "SetNamespaceProperties", "DeleteNamespace"),
    *("GetNamespace", "ListNamespaces"),
    *("CreateTopics", "SetTopicProperties", "RenameTopic", "DeleteTopic", "GetTopic"),
    *("RenameNamespace", "RenameTenant"),
    *("GetScalableTopic", "UpdateLayout"),
    *("CreateScalableSubscription", "DeleteScalableSubscription", "SeekScalableSubscription"),
    *("ListTopics", "CountTopics"),
    *("UpdatePartitions",),
    *("SetPolicies", "GetPolicies"),
    *("MoveTopics", "UnloadTopics", "DrainBroker", "SetBrokerCapacity"),
    *("Rebalance", "CountUnits"),
    *("GetCluster", "GetCounters"),
    *("WatchTenants", "WatchNamespaces", "WatchTopics", "WatchAssignments", "WatchShardMap"),
) | _of("nextgen.v1.BrokerService", "Serves", "ServesStream")
"""Paths of methods for clients: if clients have to prove their role, with these (ADR 0146)."""

OPEN_CALLS = (
    CLIENT_CALLS
    | _of("nextgen.v1.PeerService", "GetChallenge")
    | _of("grpc.health.v1.Health", "Check", "Watch", "List")
    | _of("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo")
)
"""Paths of methods that are answered without proof of the cluster secret."""

NODE_CALLS = (
    _of(
        "nextgen.v1.ClusterService",
        *("Join", "LeaseCapacity", "GetClusterState", "GetManagerStatus", "ChangeReplicas"),
        *("GetCapacity", "SetQuotas", "GetQuotas", "SetConfiguration", "GetConfiguration"),
        *("ExcludeNode", "PlanSlots", "GetPlans", "StopPlan"),
        *("ExcludeNode", "SetNodeState", "GetReplicaPlan", "BalanceReplicas"),
    )
    | _of(
        "nextgen.v1.ShardService",
        *("Exchange", "ReadEvents", "PinLog", "Watch", "GetNodeStatus"),
        *("TransferLeadership", "VerifyReplica"),
    )
    | _of("nextgen.v1.BrokerSessionService", "Connect")
    | _of(
        "nextgen.v1.BrokerService",
        *("GetBrokerStatus", "GetSchema", "GetTopicStats", "GetMetadata", "ListHeldNamespaces"),
        *("WatchAcknowledgements", "FollowSources"),
    )
    | _of(
        "nextgen.v1.StockBrokerService",
        *("GetStockBroker", "ListOpenTopics", "ClaimTopics", "CloseForeignTopics"),
    )
    | _of(
        "nextgen.v1.TopicAdmin",
        *("GetStats", "GetInternalStats", "GetLastMessageId"),
        *("CreateSubscription", "DeleteSubscription", "UpdateSubscription"),
        *("SkipMessages", "ResetCursor", "ExpireMessages"),
        *("PeekMessage", "GetMessage", "ExamineMessage", "FindByTime", "AnalyzeBacklog"),
        *("Terminate", "Truncate", "Trim", "EndUnit", "RemoveUnit"),
        *("ListSchemas", "CheckSchema", "AddSchema", "DeleteSchema"),
    )
)
"""Paths of methods for the cluster's own processes and its operators."""

_EVERYBODY = frozenset(NodeRole)
_MEMBERS = _EVERYBODY - {NodeRole.CLUSTER_MANAGER}
"""Roles of those who call a cluster manager, which calls shard nodes and nobody else."""

_CALLERS: Mapping[str, frozenset[NodeRole]] = MappingProxyType(
    {
        "nextgen.v1.ClusterService": _MEMBERS,
        "nextgen.v1.ShardService": _EVERYBODY,
        "nextgen.v1.BrokerSessionService": frozenset({NodeRole.BROKER}),
        "nextgen.v1.BrokerService": _MEMBERS,
        "nextgen.v1.StockBrokerService": frozenset({NodeRole.OPERATOR}),
        "nextgen.v1.TopicAdmin": _MEMBERS,
    }
)
"""Which roles may call the methods of a service; none may call those of a service that is not here.
"""

_CALLERS_OF_METHOD: Mapping[str, frozenset[NodeRole]] = MappingProxyType(
    {
        "/nextgen.v1.ClusterService/LeaseCapacity": frozenset({NodeRole.SHARD_NODE}),
        "/nextgen.v1.ClusterService/ChangeReplicas": frozenset({NodeRole.OPERATOR}),
        "/nextgen.v1.ClusterService/SetQuotas": frozenset({NodeRole.OPERATOR}),
        "/nextgen.v1.ClusterService/ExcludeNode": frozenset({NodeRole.OPERATOR}),
        "/nextgen.v1.ClusterService/PlanSlots": frozenset({NodeRole.OPERATOR}),
        "/nextgen.v1.ClusterService/StopPlan": frozenset({NodeRole.OPERATOR}),
        "/nextgen.v1.ClusterService/SetNodeState": frozenset({NodeRole.OPERATOR}),
        "/nextgen.v1.ClusterService/BalanceReplicas": frozenset({NodeRole.OPERATOR}),
    }
)
"""Methods that fewer may call."""


def callers_of(method: str) -> frozenset[NodeRole]:
    """Return the roles whose holders may call a method that is not open (ADR 0144)."""
    service = method.removeprefix("/").partition("/")[0]
    return _CALLERS_OF_METHOD.get(method) or _CALLERS.get(service, frozenset())
