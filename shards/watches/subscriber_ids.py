"""Subscriber ids of broker managers and topic controllers, which act on metadata.

node-1/broker-manager-3/7      the broker manager of shard 3, led in term 7 by node-1
node-1/topic-controller-all/5c0e    the topic controllers of all shards that node-1 leads
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import MetadataError

_BROKER_MANAGER = "broker-manager"
_TOPIC_CONTROLLER = "topic-controller"


def broker_manager_id(node_id: str, shard_id: int, term: int) -> str:
    """Return the subscriber id of the broker manager of a shard, led in ``term`` by a node."""
    return f"{node_id}/{_BROKER_MANAGER}-{shard_id}/{term}"


def topic_controllers_id(node_id: str, incarnation: str) -> str:
    """Return the subscriber id of a node's topic controllers; ``incarnation`` is of its process.

    Earlier releases have one for each controller, with its shard and term in it."""
    return f"{node_id}/{_TOPIC_CONTROLLER}-all/{incarnation}"


def managed_shard(subscriber_id: str) -> int | None:
    """Return the shard whose broker manager this subscriber is, None if it is none."""
    kind, number = _kind_of(subscriber_id)
    return int(number) if kind == _BROKER_MANAGER and number.isdecimal() else None


def manager_reader(shard_id: int) -> str:
    """Return the reader id of a shard's broker manager, whichever node leads the shard."""
    return f"{_BROKER_MANAGER}-{shard_id}"


def reader_of(subscriber_id: str) -> str | None:
    """Return the id under which a subscriber that was given an object will watch it.

    None for a subscriber that effective writes do not wait for. The successor of a broker manager
    watches what its predecessor was given, so that id has no term; topic controllers decide by what
    they read as long as their process lives, so its id says which process.
    """
    shard_id = managed_shard(subscriber_id)
    if shard_id is not None:
        return manager_reader(shard_id)
    return subscriber_id if _kind_of(subscriber_id)[0] == _TOPIC_CONTROLLER else None


def _kind_of(subscriber_id: str) -> tuple[str, str]:
    """Return the kind in a subscriber id and its shard's number, "" for other subscribers."""
    kind, _, number = subscriber_id.rpartition("/")[0].rpartition("/")[2].rpartition("-")
    return kind, number


class AcknowledgingStream(Protocol):
    """The stream of a subscription: a change stream with acknowledged watches, or a leased
    watch."""

    @property
    def subscriber_id(self) -> str: ...

    def has_taken_in(self, changes: Collection[Change], position: int) -> bool:
        """Return whether ``position`` was acknowledged for every watch that matches ``changes``."""
        ...

    def prompt(self, position: int = 0) -> None:
        """Send an update as soon as it can carry ``position``; at once for 0."""
        ...

    def fail(self, error: MetadataError) -> None:
        """End the subscription with ``error``."""
        ...
