"""Which gRPC methods are open to every caller, and which need proof of the cluster secret.

Clients of a cluster use the open methods: discovery's service, and the check of a lookup at its
destination. All others are for the cluster's own processes and its operators. Servers consult
``OPEN_CALLS`` alone, so a method in neither set needs proof; a test requires that each is in one of
them (ADR 0057).
"""

from __future__ import annotations

GET_CHALLENGE = "/nextgen.v1.PeerService/GetChallenge"


def _of(service: str, *methods: str) -> frozenset[str]:
    return frozenset(f"/{service}/{method}" for method in methods)


OPEN_CALLS = (
    _of(
        "nextgen.v1.DiscoveryService",
        *("Lookup", "LookupStream", "GetPositions"),
        *("CreateTenant", "SetTenantProperties", "DeleteTenant", "GetTenant", "ListTenants"),
        *("CreateNamespace", "SetNamespaceProperties", "DeleteNamespace"),
        *("GetNamespace", "ListNamespaces"),
        *("CreateTopics", "SetTopicProperties", "DeleteTopic", "GetTopic"),
        *("GetScalableTopic", "UpdateLayout"),
        *("CreateScalableSubscription", "DeleteScalableSubscription", "SeekScalableSubscription"),
        *("ListTopics", "CountTopics"),
        *("UpdatePartitions",),
        *("SetPolicies", "GetPolicies"),
        *(
            "MoveTopics",
            "UnloadTopics",
            "DrainBroker",
            "SetBrokerCapacity",
            "Rebalance",
            "CountUnits",
        ),
        *("GetCluster", "GetCounters"),
        *("WatchTenants", "WatchNamespaces", "WatchTopics", "WatchAssignments", "WatchShardMap"),
    )
    | _of("nextgen.v1.BrokerService", "Serves", "ServesStream")
    | _of("nextgen.v1.PeerService", "GetChallenge")
    | _of("grpc.health.v1.Health", "Check", "Watch", "List")
    | _of("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo")
)
"""Paths of methods that are answered without proof."""

NODE_CALLS = (
    _of(
        "nextgen.v1.ClusterService",
        *("Join", "LeaseCapacity", "GetClusterState", "GetManagerStatus", "ChangeReplicas"),
        *("GetCapacity", "SetQuotas", "GetQuotas", "SetConfiguration", "GetConfiguration"),
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
