"""What gRPC calls of discovery are authorized for: an action, and each object that they name."""

import pytest

from discovery.adapters.servers.call_authorization import action_of, authorizer
from nextgen.kernel.errors import Forbidden, InvalidRequest
from nextgen.kernel.governance.access import CLUSTER, Action, Resource
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.runtime.security.authorization import everyone as authorization
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb

PAID = "persistent://acme/orders/paid"
PAID_TOPIC = Resource.topic(PAID)


@pytest.mark.parametrize(
    ("method", "request_", "action", "resources"),
    [
        ("CreateTenant", pb.CreateTenantRequest(name="a"), "create", [Resource.tenant("a")]),
        ("GetNamespace", pb.GetObjectRequest(name="a/b"), "read", [Resource.namespace("a/b")]),
        (
            "DeleteTopic",
            pb.DeleteRequest(name="acme/orders/paid"),
            "delete",
            [Resource.topic(PAID)],
        ),
        ("ListNamespaces", pb.ListObjectsRequest(parent="a"), "list", [Resource.tenant("a")]),
        ("ListTenants", pb.ListObjectsRequest(), "list", [CLUSTER]),
        (
            "CreateTopics",
            pb.CreateTopicsRequest(topics=[shard_pb.TopicSpec(name=PAID)]),
            "create",
            [Resource.topic(PAID)],
        ),
        (
            "MoveTopics",
            pb.MoveTopicsRequest(moves=[shard_pb.TopicMove(topic=f"{PAID}-partition-3")]),
            "unload",
            [Resource.topic(PAID)],
        ),
        (
            "UnloadTopics",
            pb.UnloadTopicsRequest(topics=[PAID, "a/b/c/d/e"]),
            "unload",
            [Resource.topic(PAID), Resource.topic("a/b/c/d/e")],
        ),
        ("GetCluster", pb.GetClusterRequest(), "read", [CLUSTER]),
    ],
)
def test_a_call_is_authorized_for_every_object_that_it_names(
    monkeypatch, method, request_, action, resources
):
    asked = []
    monkeypatch.setattr(authorization, "authorize", lambda *what: asked.append(what[1:]))

    authorizer(method, type(request_))(request_)

    assert asked == [(Action(action), resource) for resource in resources]


def test_every_method_of_the_service_has_an_action():
    service = pb.DESCRIPTOR.services_by_name["DiscoveryService"]

    assert {method.name: action_of(method.name) for method in service.methods}


def test_one_object_that_may_not_be_touched_ends_the_call(monkeypatch):
    def refuse(_principal, _action, resource):
        if resource.name == PAID:
            raise Forbidden("not that")

    monkeypatch.setattr(authorization, "authorize", refuse)
    request = pb.UnloadTopicsRequest(topics=["persistent://acme/orders/other", PAID])

    with pytest.raises(Forbidden):
        authorizer("UnloadTopics", pb.UnloadTopicsRequest)(request)


def test_a_call_that_names_more_objects_than_any_takes_is_refused_before_it_is_authorized(
    monkeypatch,
):
    authorized = []
    monkeypatch.setattr(authorization, "authorize", lambda *what: authorized.append(what))
    authorize = authorizer("UnloadTopics", pb.UnloadTopicsRequest)

    authorize(pb.UnloadTopicsRequest(topics=[PAID] * NAMES_PER_LOOKUP_MAX))
    assert len(authorized) == NAMES_PER_LOOKUP_MAX

    with pytest.raises(InvalidRequest, match="1025 objects, at most 1024"):
        authorize(pb.UnloadTopicsRequest(topics=[PAID] * (NAMES_PER_LOOKUP_MAX + 1)))
    assert len(authorized) == NAMES_PER_LOOKUP_MAX
