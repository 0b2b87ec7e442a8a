"""What a shard keeps of the names of renamed topics, beside the topics themselves.

A topic stays in the shard that has the slot in its id, its *home*. The shard that has the slot of
another name of it keeps a *pointer*; which of the names lead to the topic only its home knows. A
pointer is written before the topic is renamed, so a crash in between leaves one that leads nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from shards.domain.policies import NO_PACKED_POLICIES, PackedPolicies
from shards.domain.properties import Properties


@dataclass(frozen=True, slots=True)
class OldName:
    """A former name of a topic. It leads to the topic while the leader's clock is before
    ``until_ms``."""

    name: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class TopicPointer:
    """State: the home of ``topic_id`` may know the topic as ``name``."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class FormerName:
    """State, in the topic's home: ``name`` leads to the topic that is called ``current``, while the
    leader's clock is before ``until_ms``."""

    name: str
    topic_id: str
    current: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class TopicNamePointed:
    """The name is, or is about to be, one of the topic's. Replaces a pointer to another topic."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class TopicNameFreed:
    """The home of the topic says that the name does not lead to it and is not about to."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class TopicRenamed:
    """``former_names`` are all that lead to the topic behind this event, the latest, ``name``,
    last; ``dropped_names`` those that did and do not any more. No unit of the topic is assigned.

    What follows is the topic behind this event: who looks for the new name alone knew nothing of
    it.
    """

    name: str
    topic_id: str
    new_name: str
    namespace_id: str
    former_names: tuple[OldName, ...]
    dropped_names: tuple[str, ...] = ()
    partitions: int = 0
    properties: Properties = ()
    version: int = 0
    created_time_ms: int = 0
    policies: PackedPolicies = NO_PACKED_POLICIES
    policies_version: int = 0


NameEvent = TopicNamePointed | TopicNameFreed


def evolve_pointer(_: TopicPointer | None, event: NameEvent) -> TopicPointer | None:
    """Return the pointer of a name as it is after ``event``."""
    if isinstance(event, TopicNamePointed):
        return TopicPointer(event.name, event.topic_id)
    return None


def former_names_of(event: TopicRenamed) -> list[FormerName]:
    """Return what the home of a topic keeps of its former names after it was renamed."""
    return [
        FormerName(each.name, event.topic_id, event.new_name, each.until_ms)
        for each in event.former_names
    ]
