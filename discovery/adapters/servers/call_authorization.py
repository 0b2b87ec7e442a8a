"""Which action a gRPC call is, on which resources: what ``authorize`` is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from google.protobuf.message import Message

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.access import (
    ANONYMOUS,
    CLUSTER,
    Action,
    Resource,
    ResourceKind,
)
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, Domain, InvalidName, parse_topic
from nextgen.runtime.security.authorization import everyone as authorization

_ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        "Create": Action.CREATE,
        "Set": Action.CHANGE,
        "Update": Action.CHANGE,
        "Seek": Action.CHANGE,
        "Delete": Action.DELETE,
        "Get": Action.READ,
        "List": Action.LIST,
        "Count": Action.LIST,
        "Watch": Action.LIST,
        "Lookup": Action.LOOK_UP,
        "Move": Action.UNLOAD,
        "Unload": Action.UNLOAD,
        "Drain": Action.UNLOAD,
        "Rebalance": Action.UNLOAD,
    }
)
"""By the verb that a method's name begins with."""

_WRITTEN_OUT = tuple(f"{domain}://" for domain in (Domain.PERSISTENT, Domain.NON_PERSISTENT))


def action_of(method: str) -> Action:
    """Return the action of a method; every method has one."""
    return next(action for verb, action in _ACTIONS.items() if method.startswith(verb))


def authorizer(method: str, request_type: type[Message]) -> Callable[[Any], None]:
    """Return what authorizes a request of ``method``, once for each object that it names.

    A name that is none is left to the service, which refuses it. What is returned raises
    ``Forbidden``, and ``InvalidRequest`` if the request names more objects than any call takes:
    before it makes something of each.
    """
    action = action_of(method)
    fields = {field.name for field in request_type.DESCRIPTOR.fields}

    def names(request: Any) -> Iterable[str]:
        if "moves" in fields:
            return [move.topic for move in _bounded(request.moves)]
        if "topics" in fields:
            return [getattr(topic, "name", topic) for topic in _bounded(request.topics)]
        name = request.name if "name" in fields else request.parent if "parent" in fields else ""
        return (name,) if name else ()

    def authorize(request: Any) -> None:
        resources = [_resource(name) for name in names(request)] or (CLUSTER,)
        for resource in resources:
            authorization.authorize(ANONYMOUS, action, resource)

    return authorize


def _bounded(named: Sequence[Any]) -> Sequence[Any]:
    if len(named) > NAMES_PER_LOOKUP_MAX:
        raise InvalidRequest(
            f"a request names {len(named)} objects, at most {NAMES_PER_LOOKUP_MAX} are allowed"
        )
    return named


def _resource(name: str) -> Resource:
    """Return the object that ``name`` names: a tenant without a slash, a namespace with one."""
    if name.startswith(_WRITTEN_OUT) and PARTITION_SUFFIX not in name:
        return Resource(ResourceKind.TOPIC, name)  # Canonical already, as nearly all are.
    slashes = name.count("/")
    if slashes == 0:
        return Resource.tenant(name)
    if slashes == 1:
        return Resource.namespace(name)
    try:
        return Resource.topic(parse_topic(name).base_text)
    except InvalidName:
        return Resource.topic(name)
