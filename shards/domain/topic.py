"""One topic in a shard's inventory: may it be created, changed, deleted?

A scalable topic is one too; its segments are another aggregate (``shards.domain.scalable``).
A topic is kept under its base name. Its partitions are not objects of their own: they exist as soon
as they are assigned. Whether its namespace exists is not checked here but by the namespace's gate
in this shard (``shards.domain.parent_gate``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.policies import PolicyLevel
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import Domain, TopicName, parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from shards.domain.placement.broker_kinds import (
    broker_kind_in,
    check_broker_kind_kept,
    check_renamed_kind,
    check_topic_kind,
    with_broker_kind,
)
from shards.domain.policies import (
    NO_PACKED_POLICIES,
    PackedPolicies,
    SetPolicies,
    changes_nothing,
    check_set,
)
from shards.domain.properties import Properties, check_properties
from shards.domain.renames.names import OldName, TopicRenamed
from shards.domain.renames.rules import check_rename, leads, names_after
from shards.domain.scalable.decider import check_segments
from shards.domain.shadows.rules import check_shadow

CREATABLE_DOMAINS = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT, Domain.TOPIC})

_TWINS = {Domain.PERSISTENT: Domain.TOPIC, Domain.TOPIC: Domain.PERSISTENT}


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """``topic_id`` is minted for this command: the same id again is a retry.

    ``namespace_id`` comes from the namespace's open gate, ``broker_kind`` from the properties of
    that namespace, ``time_ms`` from the leader's clock.
    """

    topic_id: str
    name: TopicName
    namespace_id: str
    time_ms: int
    partitions: int = 0
    properties: Properties = ()
    broker_kind: str = ""


@dataclass(frozen=True, slots=True)
class SetTopicProperties:
    """Replace all properties. ``expected_version`` 0 means any."""

    name: str
    properties: Properties
    expected_version: int = 0


@dataclass(frozen=True, slots=True)
class GrowTopic:
    """Have ``partitions`` partitions in all, at least as many as now.

    ``follows_source``: a shadow is to have as many as its source gets. It grows in no other way.
    """

    name: str
    partitions: int
    follows_source: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """``topic_id`` is the topic found by the first attempt of the deletion, "" for none: a retry
    that finds another topic under the name must not delete that one."""

    name: str
    topic_id: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class RenameTopic:
    """``topic_id`` is the topic that was found under ``name``, ``namespace_id`` comes from the open
    gate of the new namespace, ``broker_kind`` from its properties, ``time_ms`` from the leader's
    clock. That nobody else has ``new_name`` was found out before."""

    name: TopicName
    topic_id: str
    new_name: TopicName
    namespace_id: str
    time_ms: int
    grace_ms: int
    broker_kind: str = ""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """``created_time_ms`` is the time of the record it is stored in."""

    topic_id: str
    name: str
    partitions: int
    namespace_id: str
    created_time_ms: int
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class TopicPropertiesSet:
    """``topic_id`` is "" in a log from before topics were renamed."""

    name: str
    properties: Properties
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class TopicPoliciesSet:
    """``policies`` are all its policies, ``NO_PACKED_POLICIES`` if they were cleared."""

    name: str
    topic_id: str
    policies: PackedPolicies
    policies_version: int


@dataclass(frozen=True, slots=True)
class TopicPartitionsGrown:
    """``partitions`` is more than before."""

    name: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """``partitions`` is the number that it had. ``forced``: its name is to rest for a moment.
    ``former_names`` do not lead to it any more."""

    name: str
    topic_id: str
    partitions: int = 0
    forced: bool = False
    former_names: tuple[str, ...] = ()


TopicCommand = (
    CreateTopic | SetTopicProperties | SetPolicies | GrowTopic | RenameTopic | DeleteTopic
)
TopicEvent = (
    TopicCreated
    | TopicPropertiesSet
    | TopicPoliciesSet
    | TopicPartitionsGrown
    | TopicRenamed
    | TopicDeleted
)


@dataclass(frozen=True, slots=True)
class Topic:
    """State of a topic that exists. ``partitions`` is 0 for one that is not partitioned."""

    topic_id: str
    name: str
    partitions: int
    version: int
    namespace_id: str
    created_time_ms: int
    properties: Properties
    policies: PackedPolicies = NO_PACKED_POLICIES
    policies_version: int = 0
    """Grows by 1 with each change of the policies; 0: never set."""
    former_names: tuple[OldName, ...] = ()
    """All that may lead to it, the latest last; of a topic that was ever renamed at least that."""

    @property
    def is_renamed(self) -> bool:
        """Whether it ever had another name: its own may be of another slot than its id."""
        return bool(self.former_names)

    @property
    def broker_kind(self) -> str:
        """The only kind of brokers that may serve it: its messages are where these keep them."""
        return broker_kind_in(self.properties)

    @property
    def source(self) -> str:
        """The name of the topic that this one is a shadow of, "" if it is none."""
        return _source(self.properties) or ""


TopicState = Topic | None
INITIAL: TopicState = None


def decide(topic: TopicState, command: TopicCommand) -> Accepted[TopicEvent] | Rejected:
    """Decide what ``command`` means for ``topic``."""
    match command:
        case CreateTopic():
            return _decide_create(topic, command)
        case SetTopicProperties():
            return _decide_set_properties(topic, command)
        case SetPolicies():
            return _decide_set_policies(topic, command)
        case GrowTopic():
            return _decide_grow(topic, command)
        case RenameTopic():
            return _decide_rename(topic, command)
        case DeleteTopic():
            return _decide_delete(topic, command)
        case _:
            assert_never(command)


def evolve(topic: TopicState, event: TopicEvent) -> TopicState:
    """Return ``topic`` as it is after ``event``."""
    match event:
        case TopicCreated():
            return Topic(
                event.topic_id,
                event.name,
                event.partitions,
                1,
                event.namespace_id,
                event.created_time_ms,
                event.properties,
            )
        case TopicPropertiesSet():
            assert topic is not None, f"properties set on topic {event.name}, never created"
            return replace(topic, properties=event.properties, version=topic.version + 1)
        case TopicPoliciesSet():
            assert topic is not None, f"policies set on topic {event.name}, never created"
            return replace(
                topic,
                policies=event.policies,
                policies_version=event.policies_version,
                version=topic.version + 1,
            )
        case TopicPartitionsGrown():
            assert topic is not None, f"partitions of topic {event.name}, never created"
            return replace(topic, partitions=event.partitions, version=topic.version + 1)
        case TopicRenamed():
            assert topic is not None, f"topic {event.name} renamed, never created"
            return replace(
                topic,
                name=event.new_name,
                namespace_id=event.namespace_id,
                former_names=event.former_names,
                version=topic.version + 1,
            )
        case TopicDeleted():
            return None
        case _:
            assert_never(event)


def twin_of(name: TopicName) -> str:
    """Return the name that no topic may have beside a topic called ``name``; "" if all may.

    A classic topic and a scalable one of the same tenant, namespace and base name never coexist:
    clients that know only one of the domains would meet in different topics.
    """
    twin = _TWINS.get(name.domain)
    return "" if twin is None else f"{twin}://{name.routing_key}"


def unit_names(topic: Topic) -> tuple[str, ...]:
    """Return the names of a classic topic's units: its partitions', or its own."""
    name = parse_topic(topic.name)
    if not topic.partitions:
        return (name.text,)
    return tuple([name.of_partition(number).text for number in range(topic.partitions)])


def taken_by_twin(name: TopicName) -> Rejected:
    """Return why ``name`` is not free while the topic ``twin_of(name)`` exists."""
    if name.domain is Domain.TOPIC:
        return Rejected(
            RejectionCode.ALREADY_EXISTS, f"{name.base_text}: topic {twin_of(name)} already exists"
        )
    return Rejected(
        RejectionCode.SCALABLE, f"topic {name.base_text} is scalable: {twin_of(name)} exists"
    )


def check_creatable(
    name: TopicName,
    partitions: int,
    properties: Properties,
    segments: int = 0,
    *,
    migrates: bool = False,
) -> Rejected | None:
    """Return why no such topic may exist, in any state of the inventory; None if one may.

    ``segments`` are those that a scalable topic begins with, 0 for one. ``migrates``: it replaces
    a classic topic, and has what that one has.
    """
    if migrates and (name.domain is not Domain.TOPIC or partitions or properties or segments):
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{name.base_text} cannot replace a classic topic with partitions, segments or "
            "properties of its own, or under a name that is not in topic://",
        )
    if name.domain not in CREATABLE_DOMAINS:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"topics in the domain {name.domain.value} are not created, "
            f"create {name.base_text} instead",
        )
    if name.domain is Domain.TOPIC:
        return _check_scalable(name, partitions, segments) or check_properties(properties)
    if segments:
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"topic {name.base_text} is not scalable: it has no segments"
        )
    if name.partition is not None:
        return Rejected(
            RejectionCode.INVALID_NAME,
            f"{name.text} names a partition, create {name.base_text} with partitions instead",
        )
    if not 0 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{partitions} partitions asked for, at most {PARTITIONS_PER_TOPIC_MAX} are allowed",
        )
    return check_properties(properties)


def _check_scalable(name: TopicName, partitions: int, segments: int) -> Rejected | None:
    if partitions:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"topic {name.base_text} is scalable: it has segments, not partitions",
        )
    return check_segments(segments or 1)


def _decide_create(topic: TopicState, command: CreateTopic) -> Accepted[TopicEvent] | Rejected:
    refusal = check_creatable(command.name, command.partitions, command.properties)
    refusal = refusal or check_shadow(command.name, command.properties)
    refusal = refusal or check_topic_kind(command.name, command.broker_kind, command.properties)
    if refusal is not None:
        return refusal
    name = command.name.base_text
    if topic is not None:
        if topic.topic_id == command.topic_id:
            return Accepted(())
        return Rejected(RejectionCode.ALREADY_EXISTS, f"topic {name} already exists")
    created = TopicCreated(
        command.topic_id,
        name,
        command.partitions,
        command.namespace_id,
        command.time_ms,
        with_broker_kind(command.properties, command.broker_kind),
    )
    return Accepted((created,))


def _decide_set_properties(
    topic: TopicState, command: SetTopicProperties
) -> Accepted[TopicEvent] | Rejected:
    if topic is None:
        return _not_found(command.name)
    if topic.properties == command.properties:
        return Accepted(())
    if command.expected_version not in (0, topic.version):
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"topic {command.name} is at version {topic.version}, "
            f"command expected {command.expected_version}",
        )
    refusal = check_properties(command.properties)
    if refusal is not None:
        return refusal
    if _source(command.properties) != _source(topic.properties):
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"property {SHADOW_SOURCE_PROPERTY} of topic {command.name} is set at its creation "
            "and never changed",
        )
    refusal = check_broker_kind_kept(f"topic {command.name}", topic.properties, command.properties)
    if refusal is not None:
        return refusal
    return Accepted((TopicPropertiesSet(command.name, command.properties, topic.topic_id),))


def _decide_set_policies(
    topic: TopicState, command: SetPolicies
) -> Accepted[TopicEvent] | Rejected:
    if topic is None:
        return _not_found(command.name)
    version = topic.policies_version
    refusal = check_set(command, PolicyLevel.TOPIC, version)
    if refusal is not None:
        return refusal
    if changes_nothing(command, topic.policies):
        return Accepted(())
    event = TopicPoliciesSet(command.name, topic.topic_id, command.packed, version + 1)
    return Accepted((event,))


def _decide_grow(topic: TopicState, command: GrowTopic) -> Accepted[TopicEvent] | Rejected:
    if topic is None:
        return _not_found(command.name)
    if topic.source and not command.follows_source:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"topic {command.name} is a shadow and grows with its source: grow {topic.source}",
        )
    wanted, present = command.partitions, topic.partitions
    if not present:
        return Rejected(RejectionCode.NOT_PARTITIONED, f"topic {command.name} is not partitioned")
    if not 1 <= wanted <= PARTITIONS_PER_TOPIC_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{wanted} partitions asked for, 1 to {PARTITIONS_PER_TOPIC_MAX} are allowed",
        )
    if wanted < present:
        return Rejected(
            RejectionCode.FEWER_PARTITIONS,
            f"topic {command.name} has {present} partitions, {wanted} would be fewer",
        )
    if wanted == present:
        return Accepted(())
    return Accepted((TopicPartitionsGrown(command.name, topic.topic_id, wanted),))


def _decide_rename(topic: TopicState, command: RenameTopic) -> Accepted[TopicEvent] | Rejected:
    name, new_name = command.name.base_text, command.new_name.base_text
    if topic is None or topic.topic_id != command.topic_id:
        return _not_found(name)
    refusal = check_rename(command.name, command.new_name, command.grace_ms)
    if refusal is not None:
        return refusal
    if topic.source:
        return Rejected(RejectionCode.NOT_ALLOWED, f"topic {name} is a shadow: it keeps its name")
    refusal = check_renamed_kind(name, topic.broker_kind, new_name, command.broker_kind)
    if refusal is not None:
        return refusal
    if new_name == name or leads(topic.former_names, new_name, command.time_ms):
        return Rejected(
            RejectionCode.ALREADY_EXISTS,
            f"{new_name} is a name of topic {name} already: names lead in no circle",
        )
    names = names_after(name, topic.former_names, command.time_ms, command.grace_ms)
    if isinstance(names, Rejected):
        return names
    former, dropped = names
    renamed = TopicRenamed(
        name,
        topic.topic_id,
        new_name,
        command.namespace_id,
        former,
        dropped,
        topic.partitions,
        topic.properties,
        topic.version + 1,
        topic.created_time_ms,
        topic.policies,
        topic.policies_version,
    )
    return Accepted((renamed,))


def _decide_delete(topic: TopicState, command: DeleteTopic) -> Accepted[TopicEvent] | Rejected:
    if not command.topic_id:
        return _not_found(command.name)
    if topic is None or topic.topic_id != command.topic_id:
        return Accepted(())
    former_names = tuple([each.name for each in topic.former_names])
    deleted = TopicDeleted(
        command.name, topic.topic_id, topic.partitions, command.forced, former_names
    )
    return Accepted((deleted,))


def _source(properties: Properties) -> str | None:
    return dict(properties).get(SHADOW_SOURCE_PROPERTY) if properties else None


def _not_found(name: str) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"topic {name} does not exist")
