"""What a client needs to be allowed for each method of ``DiscoveryService`` (ADR 0158).

A method that is not in the table is for superusers only. ``Lookup`` and ``LookupStream`` are asked
for name by name: see ``permitted_lookups``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import Message

from discovery.domain.parent_rename import needs_of_parent_rename
from discovery.domain.shadow_access import needs_of_new_topic, needs_of_shadows
from discovery.domain.topic_rename import needs_of_rename
from discovery.domain.watch_scope import WatchedKind, parse_scope
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.access import CLUSTER, Action, Resource, ResourceKind
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.kernel.limits.shadow import SHADOWS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import (
    InvalidName,
    parse_namespace,
    parse_tenant,
    parse_topic,
)
from nextgen.pulsar.topic_lists.namespace_pattern import parse_namespace_pattern
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item


class CallNeed(NamedTuple):
    """One thing that a caller has to be allowed."""

    action: Action
    resource: Resource
    subscription: str = ""


Needs = Sequence[CallNeed]
NeedsOf = Callable[[Any], Needs]


def needs_of_call(method: str, request: Any) -> Needs:
    """Return what a call of ``method`` needs, all of it.

    Raises:
        InvalidRequest: It names more objects than any call takes, or one that is no name.
    """
    try:
        return _NEEDS.get(method, _superuser)(request)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error


def needs_of_watch(kind: WatchedKind, request: pb.WatchRequest) -> Needs:
    """Return what a watch needs: to list what it covers.

    Topics come with their policies, so a watch of topics needs to read their namespaces, unless it
    is a list by pattern, which has names only.

    Raises:
        InvalidRequest: Its names, prefix or pattern are malformed.
    """
    try:
        if request.pattern:
            namespace, _ = parse_namespace_pattern(request.pattern)
            return [CallNeed(Action.LIST, Resource.namespace(namespace.text))]
        scope = parse_scope(kind, request.prefix, request.names)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
    if not scope.names:
        covering = _covering(kind, request.prefix)
        is_read = kind is WatchedKind.TOPICS and covering.kind is ResourceKind.NAMESPACE
        return [CallNeed(Action.READ if is_read else Action.LIST, covering)]
    if kind is WatchedKind.ASSIGNMENTS:
        return [CallNeed(Action.LOOK_UP, Resource.topic(name)) for name in scope.names]
    if kind is WatchedKind.TOPICS:
        namespaces = dict.fromkeys(namespace_of(name) for name in scope.names)
        return [CallNeed(Action.READ, namespace) for namespace in namespaces]
    return [CallNeed(Action.READ, _resource(name)) for name in scope.names]


def reads_policies(method: str, request: Any) -> CallNeed | None:
    """Return what the caller needs to see the policies in the answer; None: there are none.

    Policies say who has permissions: a topic's are for the tenant's admins, the topic is not.

    Raises:
        InvalidName: The request names no topic and no namespace.
    """
    match method:
        case "GetTopic":
            return CallNeed(Action.READ, namespace_of(request.name))
        case "ListTopics" if not request.names_only:
            return CallNeed(Action.READ, _resource(request.parent))
    return None


def without_policies(answer: Message) -> None:
    """Take the policies of topics out of an answer."""
    items: Iterable[Item] = ()
    if isinstance(answer, pb.GetObjectResponse):
        items = (answer.item,)
    elif isinstance(answer, pb.ListObjectsResponse):
        items = answer.items
    for item in items:
        if item.HasField("topic"):
            item.topic.ClearField("policies")


def namespace_of(topic: str) -> Resource:
    """Return the namespace of a topic.

    Raises:
        InvalidName: It is no topic's name.
    """
    name = parse_topic(topic)
    return Resource.namespace(f"{name.tenant}/{name.namespace}")


def _covering(kind: WatchedKind, prefix: str) -> Resource:
    """Return the narrowest resource that contains all names with ``prefix``."""
    if kind is WatchedKind.TENANTS:
        return CLUSTER
    path = prefix
    if kind is not WatchedKind.NAMESPACES:
        path = prefix.partition("://")[2]
    parts = path.split("/")
    if kind is not WatchedKind.NAMESPACES and len(parts) > 2:
        return Resource.namespace(parse_namespace("/".join(parts[:2])).text)
    return Resource.tenant(parse_tenant(parts[0])) if len(parts) > 1 else CLUSTER


def _superuser(_request: Any) -> Needs:
    return [CallNeed(Action.CHANGE, CLUSTER)]


def _everybody(_request: Any) -> Needs:
    return [CallNeed(Action.CONNECT, CLUSTER)]


def _on(action: Action, field: str = "name") -> NeedsOf:
    """The action on the object in ``field``; on the cluster if it names none."""

    def needs(request: Any) -> Needs:
        name = getattr(request, field)
        return [CallNeed(action, _resource(name) if name else CLUSTER)]

    return needs


def _unloaded(request: pb.UnloadTopicsRequest) -> Needs:
    return _each(_bounded(request.topics), Action.UNLOAD)


def _moved(request: pb.MoveTopicsRequest) -> Needs:
    return _each([move.topic for move in _bounded(request.moves)], Action.UNLOAD)


def _created(request: pb.CreateTopicsRequest) -> Needs:
    topics = _bounded(request.topics)
    needs = _each([topic.name for topic in topics], Action.CREATE)
    for topic in topics:
        needs += [CallNeed(*need) for need in needs_of_new_topic(topic.properties)]
    return needs


def _renamed(request: pb.RenameTopicRequest) -> Needs:
    return [CallNeed(*need) for need in needs_of_rename(request.name, request.new_name)]


def _renamed_parent(request: pb.RenameParentRequest) -> Needs:
    needs = needs_of_parent_rename(_resource, request.name, request.new_name)
    return [CallNeed(*need) for need in needs]


def _each(names: Iterable[str], action: Action) -> list[CallNeed]:
    """Topics of a batch. A name that is none needs nothing: it is refused, and others are not."""
    needs = []
    for name in names:
        with suppress(InvalidName):
            needs.append(CallNeed(action, _topic(name)))
    return needs


def _policies(request: pb.SetPoliciesRequest) -> Needs:
    shadows = request.policies.shadow_topics
    if len(shadows) > SHADOWS_PER_TOPIC_MAX:
        raise InvalidRequest(f"{len(shadows)} shadows, at most {SHADOWS_PER_TOPIC_MAX} are allowed")
    besides = [CallNeed(*need) for need in needs_of_shadows(shadows)]
    return [CallNeed(Action.CHANGE, _resource(request.name)), *besides]


def _read_policies(request: pb.GetPoliciesRequest) -> Needs:
    """Policies are for the tenant's admins, those of a topic too: who may read its namespace."""
    resource = _resource(request.name)
    if resource.kind is ResourceKind.TOPIC:
        resource = namespace_of(resource.name)
    return [CallNeed(Action.READ, resource)]


def _layout(request: pb.UpdateLayoutRequest) -> Needs:
    """Segments are split and merged by superusers; a topic is migrated by the tenant's admins."""
    if request.kind == "migrate":
        return [CallNeed(Action.CHANGE, _resource(request.name))]
    return _superuser(request)


def _subscription(request: pb.ScalableSubscriptionRequest) -> Needs:
    return [CallNeed(Action.CONSUME, _topic(request.name), request.subscription)]


_NEEDS: Mapping[str, NeedsOf] = MappingProxyType(
    {
        "CreateTenant": _on(Action.CREATE),
        "SetTenantProperties": _on(Action.CHANGE),
        "DeleteTenant": _on(Action.DELETE),
        "GetTenant": _on(Action.READ),
        "ListTenants": lambda _: [CallNeed(Action.LIST, CLUSTER)],
        "CreateNamespace": _on(Action.CREATE),
        "SetNamespaceProperties": _on(Action.CHANGE),
        "DeleteNamespace": _on(Action.DELETE),
        "GetNamespace": _on(Action.READ),
        "ListNamespaces": _on(Action.LIST, "parent"),
        "CreateTopics": _created,
        "SetTopicProperties": _on(Action.CHANGE),
        "DeleteTopic": _on(Action.DELETE),
        "RenameTopic": _renamed,
        "RenameNamespace": _renamed_parent,
        "RenameTenant": _renamed_parent,
        "UpdateLayout": _layout,
        "CreateScalableSubscription": _subscription,
        "DeleteScalableSubscription": _subscription,
        "SeekScalableSubscription": _subscription,
        "UpdatePartitions": _on(Action.CHANGE),
        "GetTopic": _on(Action.READ),
        "GetScalableTopic": _on(Action.READ),
        "ListTopics": _on(Action.LIST, "parent"),
        "CountTopics": _on(Action.LIST, "parent"),
        "MoveTopics": _moved,
        "UnloadTopics": _unloaded,
        "SetPolicies": _policies,
        "GetPolicies": _read_policies,
        "DrainBroker": _superuser,
        "SetBrokerCapacity": _superuser,
        "Rebalance": _superuser,
        "CountUnits": _superuser,
        # Numbers of events, without which no client can write with the consistency it wants.
        "GetPositions": _everybody,
        "GetCluster": _superuser,
        "GetCounters": _superuser,
        "WatchShardMap": _superuser,
    }
)


def _bounded(named: Sequence[Any]) -> Sequence[Any]:
    if len(named) > NAMES_PER_LOOKUP_MAX:
        raise InvalidRequest(
            f"a request names {len(named)} objects, at most {NAMES_PER_LOOKUP_MAX} are allowed"
        )
    return named


def _topic(name: str) -> Resource:
    """Return the topic of a name, which may be a partition's.

    Raises:
        InvalidName: It is none.
    """
    return Resource.topic(parse_topic(name).base_text)


def _resource(name: str) -> Resource:
    """Return the object that ``name`` names: a tenant without a slash, a namespace with one.

    Raises:
        InvalidName: It is none.
    """
    if "://" not in name:
        slashes = name.count("/")
        if slashes == 0:
            return Resource.tenant(parse_tenant(name))
        if slashes == 1:
            return Resource.namespace(parse_namespace(name).text)
    return _topic(name)
