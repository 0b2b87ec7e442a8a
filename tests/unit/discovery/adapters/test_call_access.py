"""What a gRPC call needs to be allowed: every method has a row, or is for superusers."""

import pytest

from discovery.adapters.servers.call_access import (
    CallNeed,
    needs_of_call,
    needs_of_watch,
    reads_policies,
    without_policies,
)
from discovery.domain.watch_scope import WatchedKind
from nextgen.client.transport.node_calls import CLIENT_CALLS
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.access import CLUSTER, Action, Resource
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.kernel.limits.shadow import SHADOWS_PER_TOPIC_MAX
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import Item, Topic
from protos.nextgen.v1.policies_pb2 import Policies

PAID = "persistent://acme/orders/paid"
COPY = "persistent://other/copies/paid"
TENANT = Resource.tenant("acme")
NAMESPACE = Resource.namespace("acme/orders")
TOPIC = Resource.topic(PAID)
SUPERUSER = [(Action.CHANGE, CLUSTER)]

NEEDS = {
    "CreateTenant": (pb.CreateTenantRequest(name="acme"), [(Action.CREATE, TENANT)]),
    "SetTenantProperties": (pb.SetPropertiesRequest(name="acme"), [(Action.CHANGE, TENANT)]),
    "DeleteTenant": (pb.DeleteRequest(name="acme"), [(Action.DELETE, TENANT)]),
    "GetTenant": (pb.GetObjectRequest(name="acme"), [(Action.READ, TENANT)]),
    "ListTenants": (pb.ListObjectsRequest(), [(Action.LIST, CLUSTER)]),
    "CreateNamespace": (
        pb.CreateNamespaceRequest(name="acme/orders"),
        [(Action.CREATE, NAMESPACE)],
    ),
    "SetNamespaceProperties": (
        pb.SetPropertiesRequest(name="acme/orders"),
        [(Action.CHANGE, NAMESPACE)],
    ),
    "DeleteNamespace": (pb.DeleteRequest(name="acme/orders"), [(Action.DELETE, NAMESPACE)]),
    "GetNamespace": (pb.GetObjectRequest(name="acme/orders"), [(Action.READ, NAMESPACE)]),
    "ListNamespaces": (pb.ListObjectsRequest(parent="acme"), [(Action.LIST, TENANT)]),
    "CreateTopics": (
        pb.CreateTopicsRequest(
            topics=[
                shard_pb.TopicSpec(name=PAID),
                shard_pb.TopicSpec(name=COPY, properties={SHADOW_SOURCE_PROPERTY: PAID}),
                shard_pb.TopicSpec(name="a//b"),
            ]
        ),
        [
            (Action.CREATE, TOPIC),
            (Action.CREATE, Resource.topic(COPY)),
            (Action.CHANGE, TOPIC),
        ],
    ),
    "SetTopicProperties": (pb.SetPropertiesRequest(name=PAID), [(Action.CHANGE, TOPIC)]),
    "DeleteTopic": (pb.DeleteRequest(name=f"{PAID}-partition-3"), [(Action.DELETE, TOPIC)]),
    "RenameTopic": (
        pb.RenameTopicRequest(name=PAID, new_name="other/copies/paid"),
        [(Action.DELETE, TOPIC), (Action.CREATE, Resource.topic(COPY))],
    ),
    "RenameNamespace": (
        pb.RenameParentRequest(name="acme/orders", new_name="other/copies"),
        [(Action.DELETE, NAMESPACE), (Action.CREATE, Resource.namespace("other/copies"))],
    ),
    "RenameTenant": (
        pb.RenameParentRequest(name="acme", new_name="other"),
        [(Action.DELETE, TENANT), (Action.CREATE, Resource.tenant("other"))],
    ),
    "UpdateLayout": (pb.UpdateLayoutRequest(name=PAID, kind="split"), SUPERUSER),
    "CreateScalableSubscription": (
        pb.ScalableSubscriptionRequest(name="topic://acme/orders/all", subscription="s"),
        [(Action.CONSUME, Resource.topic("topic://acme/orders/all"), "s")],
    ),
    "DeleteScalableSubscription": (
        pb.ScalableSubscriptionRequest(name="topic://acme/orders/all", subscription="s"),
        [(Action.CONSUME, Resource.topic("topic://acme/orders/all"), "s")],
    ),
    "SeekScalableSubscription": (
        pb.ScalableSubscriptionRequest(name="topic://acme/orders/all", subscription="s"),
        [(Action.CONSUME, Resource.topic("topic://acme/orders/all"), "s")],
    ),
    "UpdatePartitions": (pb.UpdatePartitionsRequest(name=PAID), [(Action.CHANGE, TOPIC)]),
    "GetTopic": (pb.GetObjectRequest(name=PAID), [(Action.READ, TOPIC)]),
    "GetScalableTopic": (pb.GetObjectRequest(name=PAID), [(Action.READ, TOPIC)]),
    "ListTopics": (pb.ListObjectsRequest(parent="acme/orders"), [(Action.LIST, NAMESPACE)]),
    "CountTopics": (pb.CountTopicsRequest(parent="acme/orders"), [(Action.LIST, NAMESPACE)]),
    "MoveTopics": (
        pb.MoveTopicsRequest(moves=[shard_pb.TopicMove(topic=f"{PAID}-partition-1")]),
        [(Action.UNLOAD, TOPIC)],
    ),
    "UnloadTopics": (
        pb.UnloadTopicsRequest(topics=[PAID, "a//b"]),
        [(Action.UNLOAD, TOPIC)],
    ),
    "SetPolicies": (
        pb.SetPoliciesRequest(name=PAID, policies=Policies(shadow_topics=[COPY])),
        [(Action.CHANGE, TOPIC), (Action.CHANGE, Resource.topic(COPY))],
    ),
    "GetPolicies": (pb.GetPoliciesRequest(name=PAID), [(Action.READ, NAMESPACE)]),
    "DrainBroker": (shard_pb.DrainRequest(), SUPERUSER),
    "SetBrokerCapacity": (shard_pb.SetCapacityRequest(), SUPERUSER),
    "Rebalance": (shard_pb.RebalanceRequest(), SUPERUSER),
    "CountUnits": (shard_pb.UnitCountRequest(), SUPERUSER),
    "GetPositions": (pb.GetPositionsRequest(), [(Action.CONNECT, CLUSTER)]),
    "GetCluster": (pb.GetClusterRequest(), SUPERUSER),
    "GetCounters": (pb.GetCountersRequest(), SUPERUSER),
    "WatchShardMap": (pb.WatchRequest(), SUPERUSER),
}

WATCHES = {
    "WatchTenants": WatchedKind.TENANTS,
    "WatchNamespaces": WatchedKind.NAMESPACES,
    "WatchTopics": WatchedKind.TOPICS,
    "WatchAssignments": WatchedKind.ASSIGNMENTS,
}

BY_NAME = {"Lookup", "LookupStream", "Serves", "ServesStream"}
"""Methods that are asked for name by name."""


def test_every_method_for_clients_is_asked_for():
    methods = {path.rpartition("/")[2] for path in CLIENT_CALLS}

    assert methods == {*NEEDS, *WATCHES, *BY_NAME}


@pytest.mark.parametrize("method", sorted(NEEDS))
def test_a_call_needs_an_action_on_every_object_that_it_names(method):
    request, needs = NEEDS[method]

    assert needs_of_call(method, request) == [CallNeed(*need) for need in needs]


def test_a_method_that_is_not_in_the_table_is_for_superusers():
    assert needs_of_call("Invented", None) == [CallNeed(*SUPERUSER[0])]


def test_a_migration_is_for_the_tenants_admins():
    request = pb.UpdateLayoutRequest(name=PAID, kind="migrate")

    assert needs_of_call("UpdateLayout", request) == [CallNeed(Action.CHANGE, TOPIC)]


@pytest.mark.parametrize("method", ["ListNamespaces", "ListTopics", "CountTopics"])
def test_a_listing_without_a_parent_is_for_superusers(method):
    assert needs_of_call(method, pb.ListObjectsRequest()) == [CallNeed(Action.LIST, CLUSTER)]


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("GetTopic", pb.GetObjectRequest(name="persistent://acme//x")),
        ("CreateTenant", pb.CreateTenantRequest(name="no tenant")),
        ("SetPolicies", pb.SetPoliciesRequest(name=PAID, policies=Policies(shadow_topics=["//"]))),
        (
            "CreateTopics",
            pb.CreateTopicsRequest(
                topics=[shard_pb.TopicSpec(name=COPY, properties={SHADOW_SOURCE_PROPERTY: "//"})]
            ),
        ),
    ],
)
def test_a_name_that_is_none_is_told_before_anything_is_begun(method, request_):
    with pytest.raises(InvalidRequest):
        needs_of_call(method, request_)


def test_a_call_that_names_more_objects_than_any_takes_is_refused():
    most = pb.UnloadTopicsRequest(topics=[PAID] * NAMES_PER_LOOKUP_MAX)
    assert len(needs_of_call("UnloadTopics", most)) == NAMES_PER_LOOKUP_MAX

    most.topics.append(PAID)
    with pytest.raises(InvalidRequest, match="1025 objects, at most 1024"):
        needs_of_call("UnloadTopics", most)


def test_a_list_of_more_shadows_than_a_topic_has_is_refused():
    request = pb.SetPoliciesRequest(name=PAID)
    request.policies.shadow_topics.extend([COPY] * SHADOWS_PER_TOPIC_MAX)
    assert len(needs_of_call("SetPolicies", request)) == SHADOWS_PER_TOPIC_MAX + 1

    request.policies.shadow_topics.append(COPY)
    with pytest.raises(InvalidRequest, match="shadows, at most"):
        needs_of_call("SetPolicies", request)


@pytest.mark.parametrize(
    ("kind", "fields", "needs"),
    [
        (WatchedKind.TENANTS, {}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.TENANTS, {"prefix": "acme"}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.TENANTS, {"names": ["acme"]}, [(Action.READ, TENANT)]),
        (WatchedKind.NAMESPACES, {}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.NAMESPACES, {"prefix": "acme"}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.NAMESPACES, {"prefix": "acme/"}, [(Action.LIST, TENANT)]),
        (WatchedKind.NAMESPACES, {"prefix": "acme/orders"}, [(Action.LIST, TENANT)]),
        (WatchedKind.NAMESPACES, {"names": ["acme/orders"]}, [(Action.READ, NAMESPACE)]),
        (WatchedKind.TOPICS, {}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.TOPICS, {"prefix": "persistent"}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.TOPICS, {"prefix": "persistent://acme"}, [(Action.LIST, CLUSTER)]),
        (WatchedKind.TOPICS, {"prefix": "persistent://acme/ord"}, [(Action.LIST, TENANT)]),
        (WatchedKind.TOPICS, {"prefix": "persistent://acme/orders"}, [(Action.LIST, TENANT)]),
        (WatchedKind.TOPICS, {"prefix": "persistent://acme/orders/"}, [(Action.READ, NAMESPACE)]),
        (WatchedKind.TOPICS, {"prefix": f"{PAID}/a/b"}, [(Action.READ, NAMESPACE)]),
        (WatchedKind.TOPICS, {"names": [PAID, f"{PAID}2"]}, [(Action.READ, NAMESPACE)]),
        (WatchedKind.TOPICS, {"pattern": "acme/orders/.*"}, [(Action.LIST, NAMESPACE)]),
        (WatchedKind.ASSIGNMENTS, {"names": [PAID]}, [(Action.LOOK_UP, TOPIC)]),
        (
            WatchedKind.ASSIGNMENTS,
            {"prefix": "persistent://acme/orders/"},
            [(Action.LIST, NAMESPACE)],
        ),
    ],
)
def test_a_watch_needs_to_list_what_it_covers(kind, fields, needs):
    request = pb.WatchRequest(**fields)

    assert needs_of_watch(kind, request) == [CallNeed(*need) for need in needs]


@pytest.mark.parametrize(
    "fields", [{"prefix": "bad name"}, {"names": ["a//b"]}, {"pattern": "one-part"}]
)
def test_a_watch_of_what_is_none_is_refused(fields):
    with pytest.raises(InvalidRequest):
        needs_of_watch(WatchedKind.TOPICS, pb.WatchRequest(**fields))


def test_policies_of_topics_are_for_those_who_may_read_the_namespace():
    need = CallNeed(Action.READ, NAMESPACE)

    assert reads_policies("GetTopic", pb.GetObjectRequest(name=PAID)) == need
    assert reads_policies("ListTopics", pb.ListObjectsRequest(parent="acme/orders")) == need
    names = pb.ListObjectsRequest(parent="acme/orders", names_only=True)
    assert reads_policies("ListTopics", names) is None
    assert reads_policies("CountTopics", pb.CountTopicsRequest(parent="acme/orders")) is None


def test_an_answer_without_policies_has_everything_else():
    topic = Topic(name=PAID, partitions=3, policies=Policies(shadow_topics=[COPY]))
    one = pb.GetObjectResponse(item=Item(name=PAID, topic=topic), position=7)
    many = pb.ListObjectsResponse(items=[Item(name=PAID, topic=topic)], next_page_token="more")
    for answer in (one, many):
        without_policies(answer)

    topic.ClearField("policies")
    assert one == pb.GetObjectResponse(item=Item(name=PAID, topic=topic), position=7)
    assert many.items[0].topic == topic
    assert many.next_page_token == "more"
    absent = pb.GetObjectResponse(item=Item(name=PAID))
    without_policies(absent)
    assert not absent.item.HasField("topic")
