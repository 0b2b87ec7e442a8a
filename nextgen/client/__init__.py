"""The client library, and the calls by which the processes of a cluster reach each other.

Importing this package loads neither gRPC nor protobuf, so that ``--help`` stays fast.
Programs import ``Client`` or ``BlockingClient`` from here; our own code imports the modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextgen.client.blocking import BlockingClient
    from nextgen.client.client import Client
    from nextgen.client.model import (
        ClusterState,
        CreatedTopic,
        Namespace,
        NewTopic,
        ObjectPolicies,
        ScalableSubscription,
        ScalableTopic,
        Tenant,
        Topic,
        TopicCount,
        TopicLocation,
        TopicNamesPage,
        Written,
    )
    from nextgen.client.watch_model import (
        Assignment,
        Change,
        ChangeKind,
        ShardMap,
        WatchedObjects,
    )

__all__ = [
    "Assignment",
    "BlockingClient",
    "Change",
    "ChangeKind",
    "Client",
    "ClusterState",
    "CreatedTopic",
    "Namespace",
    "NewTopic",
    "ObjectPolicies",
    "ScalableSubscription",
    "ScalableTopic",
    "ShardMap",
    "Tenant",
    "Topic",
    "TopicCount",
    "TopicLocation",
    "TopicNamesPage",
    "WatchedObjects",
    "Written",
]

_MODULES = {
    "Assignment": "watch_model",
    "BlockingClient": "blocking",
    "Change": "watch_model",
    "ChangeKind": "watch_model",
    "Client": "client",
    "ShardMap": "watch_model",
    "WatchedObjects": "watch_model",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'model')}"), name)
