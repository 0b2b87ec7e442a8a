"""The words of authorisation: who does what to which object.

``access_rules`` decides with them; every port asks with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Action(StrEnum):
    """An action on a resource."""

    CONNECT = "connect"
    LOOK_UP = "look_up"
    LIST = "list"
    READ = "read"
    """Read metadata, policies and statistics."""
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    UNLOAD = "unload"
    """Unassign it from its broker, or move it."""
    PRODUCE = "produce"
    CONSUME = "consume"


class ResourceKind(StrEnum):
    """The kind of a resource: each contains those below it."""

    CLUSTER = "cluster"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class Resource(NamedTuple):
    """The object of an action. ``name`` is canonical; "" for the cluster.

    A tuple, because a create of a thousand topics makes a thousand of them.
    """

    kind: ResourceKind
    name: str

    @staticmethod
    def tenant(name: str) -> Resource:
        return Resource(ResourceKind.TENANT, name)

    @staticmethod
    def namespace(name: str) -> Resource:
        return Resource(ResourceKind.NAMESPACE, name)

    @staticmethod
    def topic(name: str) -> Resource:
        return Resource(ResourceKind.TOPIC, name)


CLUSTER = Resource(ResourceKind.CLUSTER, "")


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client, settled once per connection or, over HTTP, per request."""

    name: str
    """The role. Behind a proxy, that of the proxy's client."""

    proxy: str = ""
    """The role of the proxy that acts for it; empty without one."""


ANONYMOUS = Principal("anonymous")
"""Every client of a server that does not authenticate its clients."""
