"""Parses commands: their names and slots, without deciding anything.

An invalid name does not fail the request: it is the command's rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from nextgen.client.wire.policies import policies_from_proto, unknown_choice
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import (
    COMMAND_ID_BYTES,
    NAME_PART_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    STORED_INTEGER_MAX,
    TOPICS_PER_CREATE_MAX,
)
from nextgen.kernel.limits.write import WRITE_REQUEST_COST
from nextgen.kernel.routing.hashing import hash64, slot_of
from nextgen.kernel.routing.names import (
    Domain,
    InvalidName,
    NamespaceName,
    TopicName,
    parse_namespace,
    parse_tenant,
    parse_topic,
)
from nextgen.kernel.routing.shadows import shadow_source_of
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import (
    AbandonLayoutChange,
    AdmitShadow,
    ChangeLayout,
    CloseParentGate,
    Command,
    CreateNamespace,
    CreateScalableSubscription,
    CreateTenant,
    CreateTopics,
    DeleteNamespace,
    DeleteScalableSubscription,
    DeleteTenant,
    DeleteTopic,
    GrowShadows,
    GrowTopic,
    RegisterScalableConsumer,
    RemoveScalableConsumer,
    RenameTopic,
    ReopenParentGate,
    SeekScalableSubscription,
    SetNamespaceProperties,
    SetPolicies,
    SetTenantProperties,
    SetTopicProperties,
    TopicOutcome,
    TopicSpec,
    UnlistShadow,
    UseTopicsRequest,
)
from shards.domain import policies
from shards.domain.parent_gate import ParentKind
from shards.domain.shadows.rules import canonical_properties, check_shadow
from shards.domain.topic import check_creatable
from shards.wire.event import to_properties
from shards.wire.name_orders import OnPoint, OnRename, names_part, parse_point, parse_rename

TenantBody = CreateTenant | SetTenantProperties | SetPolicies | DeleteTenant
NamespaceBody = CreateNamespace | SetNamespaceProperties | SetPolicies | DeleteNamespace
TopicBody = SetTopicProperties | SetPolicies | GrowTopic | DeleteTopic
ScalableBody = (
    ChangeLayout
    | AbandonLayoutChange
    | CreateScalableSubscription
    | DeleteScalableSubscription
    | SeekScalableSubscription
    | RegisterScalableConsumer
    | RemoveScalableConsumer
)
GateBody = CloseParentGate | ReopenParentGate
SourceBody = AdmitShadow | UnlistShadow


@dataclass(frozen=True, slots=True)
class OnTenant:
    """A command about one tenant. ``slot`` is that of its routing key, here and below."""

    command_id: bytes
    body: TenantBody
    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class OnNamespace:
    """A command about one namespace."""

    command_id: bytes
    body: NamespaceBody
    name: NamespaceName
    slot: int


@dataclass(frozen=True, slots=True)
class OnTopic:
    """A command about one topic that should be there."""

    command_id: bytes
    body: TopicBody
    name: TopicName
    slot: int


@dataclass(frozen=True, slots=True)
class OnScalable:
    """A command about one scalable topic that should be there."""

    command_id: bytes
    body: ScalableBody
    name: TopicName
    slot: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """One topic of a create; ``refusal`` is set if there can be no such topic.

    ``source`` is the name of the topic that it is to be a shadow of, "" for none.
    """

    spec: TopicSpec
    name: TopicName
    slot: int
    refusal: Rejected | None
    source: str = ""


@dataclass(frozen=True, slots=True)
class OnNewTopics:
    """``topics`` are in the order of the command; an invalid one is a ``Rejected``, and one whose
    first outcome is known has that."""

    command_id: bytes
    topics: tuple[NewTopic | Rejected | TopicOutcome, ...]
    on_demand: bool = False
    preferred_broker_id: str = ""
    by_policy: bool = False
    """Whether and with how many partitions is decided by the policies of each namespace."""
    batch_id: bytes = b""
    """The client's command that this is a part of, b"" if it is a whole one."""
    hashes: tuple[int, ...] = ()
    """Of a part: the hashes of the names, by which its outcome names the topics."""
    earlier: tuple[tuple[int, TopicOutcome], ...] = ()
    """Of a part: what an earlier attempt decided about topics that are not in this one."""


@dataclass(frozen=True, slots=True)
class OnGate:
    """An order to the gate of a parent, from the parent's home shard."""

    command_id: bytes
    body: GateBody
    kind: ParentKind


@dataclass(frozen=True, slots=True)
class OnSource:
    """An order to the home shard of a source, from the shard of one of its shadows."""

    command_id: bytes
    body: SourceBody
    name: TopicName
    slot: int


@dataclass(frozen=True, slots=True)
class OnShadows:
    """An order to the shadows of a source in one shard, from the source's home shard."""

    command_id: bytes
    body: GrowShadows


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A command whose object cannot exist."""

    command_id: bytes
    rejected: Rejected


_ShardOrder = OnGate | OnSource | OnShadows | OnPoint
"""What shards send to each other."""

ParsedCommand = (
    OnTenant
    | OnNamespace
    | OnTopic
    | OnRename
    | OnScalable
    | OnNewTopics
    | _ShardOrder
    | RefusedCommand
)


def parse_command(command: Command) -> ParsedCommand:
    """Return ``command`` with its names parsed.

    Raises:
        InvalidRequest: Its body is missing, or exceeds a limit.
    """
    if len(command.command_id) not in (0, COMMAND_ID_BYTES):
        raise InvalidRequest(
            f"a command id has {COMMAND_ID_BYTES} bytes, this one {len(command.command_id)}"
        )
    field = command.WhichOneof("body")
    parse = None if field is None else COMMAND_PARSERS.get(field)
    if field is None or parse is None:
        raise InvalidRequest("a command without a body, or of a kind that is not known here")
    try:
        parsed = parse(command.command_id, getattr(command, field))
        if command.batch_id and command.command_id and isinstance(parsed, OnNewTopics):
            hashes = tuple([hash64(spec.name) for spec in command.create_topics.topics])
            given = parsed.command_id, parsed.topics, parsed.on_demand, parsed.preferred_broker_id
            return OnNewTopics(*given, batch_id=command.batch_id, hashes=hashes)
        return parsed
    except InvalidName as error:
        return RefusedCommand(command.command_id, invalid_name(error))


def is_of_tenant(command: ParsedCommand) -> bool:
    """Return whether a command is about an object of a tenant, and not another shard's order."""
    return not isinstance(command, _ShardOrder | RefusedCommand)


def tenants_of(commands: Iterable[ParsedCommand]) -> Collection[str]:
    """Return the tenants whose objects ``commands`` are about.

    The cluster's own commands, and those whose objects cannot exist, are about none.
    """
    tenants: dict[str, None] = {}
    for command in commands:
        match command:
            case OnTenant():
                tenants[command.name] = None
            case OnNamespace() | OnTopic() | OnRename() | OnScalable():
                tenants[command.name.tenant] = None
            case OnNewTopics():
                for topic in command.topics:
                    if isinstance(topic, NewTopic):
                        tenants[topic.name.tenant] = None
            case OnGate() | OnSource() | OnShadows() | OnPoint() | RefusedCommand():
                pass
            case _:
                assert_never(command)
    return tenants


def cost_of(commands: Sequence[ParsedCommand]) -> int:
    """Return the cost of a request of ``commands`` for a shard, in topics."""
    cost = WRITE_REQUEST_COST
    for command in commands:
        cost += len(command.topics) if isinstance(command, OnNewTopics) else 1
    return cost


def invalid_name(error: InvalidName) -> Rejected:
    return Rejected(RejectionCode.INVALID_NAME, str(error))


def to_policies(name: str, body: SetPolicies) -> policies.SetPolicies:
    """Return the order to set the policies of the object called ``name``."""
    return policies.SetPolicies(
        name,
        body.policies.SerializeToString(deterministic=True),
        policies_from_proto(body.policies),
        body.expected_version,
        body.expects_none,
    )


def first_policies(body: CreateTenant | CreateNamespace) -> policies.SetPolicies | None:
    """Return the order to set the policies that a parent is created with, None without any."""
    if not body.HasField("policies"):
        return None
    return to_policies(body.name, SetPolicies(policies=body.policies))


def slots_of(command: ParsedCommand) -> tuple[int, ...]:
    """Return the slots of the names in ``command``. The shard must have them to carry it out; of
    the topic that it is about (``topic_of``) it may instead have the topic."""
    if isinstance(command, OnNewTopics):
        return tuple([each.slot for each in command.topics if isinstance(each, NewTopic)])
    match command:
        case (
            OnTenant()
            | OnNamespace()
            | OnTopic()
            | OnRename()
            | OnScalable()
            | OnSource()
            | OnPoint()
        ):
            return (command.slot,)
        case _:
            return ()


def topic_of(command: ParsedCommand) -> TopicName | None:
    """Return the name of the topic that should be there, for which the shard must answer; None of
    other commands."""
    return command.name if isinstance(command, OnTopic | OnRename | OnSource) else None


def _tenant(command_id: bytes, body: TenantBody) -> ParsedCommand:
    name = parse_tenant(body.name)
    return OnTenant(command_id, body, name, slot_of(name))


def _namespace(command_id: bytes, body: NamespaceBody) -> ParsedCommand:
    name = parse_namespace(body.name)
    return OnNamespace(command_id, body, name, slot_of(name.text))


def _create_namespace(command_id: bytes, body: CreateNamespace) -> ParsedCommand:
    if problem := unknown_choice(body.policies):
        return RefusedCommand(command_id, Rejected(RejectionCode.NOT_ALLOWED, problem))
    return _namespace(command_id, body)


def _topic(command_id: bytes, body: TopicBody) -> ParsedCommand:
    name = parse_topic(body.name)
    refused = names_part(name)
    if refused is not None:
        return RefusedCommand(command_id, refused)
    return OnTopic(command_id, body, name, slot_of(name.routing_key))


def _rename(command_id: bytes, body: RenameTopic) -> ParsedCommand:
    parsed = parse_rename(command_id, body)
    return RefusedCommand(command_id, parsed) if isinstance(parsed, Rejected) else parsed


def _scalable(command_id: bytes, body: ScalableBody) -> ParsedCommand:
    name = parse_topic(body.name)
    if name.domain is not Domain.TOPIC:
        rejected = Rejected(
            RejectionCode.INVALID_NAME, f"{name.text} is not the name of a scalable topic"
        )
        return RefusedCommand(command_id, rejected)
    return OnScalable(command_id, body, name, slot_of(name.routing_key))


def _create_topics(command_id: bytes, body: CreateTopics) -> ParsedCommand:
    if not 0 < len(body.topics) <= TOPICS_PER_CREATE_MAX:
        raise InvalidRequest(
            f"{len(body.topics)} topics to create, 1 to {TOPICS_PER_CREATE_MAX} are allowed"
        )
    if len(body.topics) > 1 and any(spec.migrates for spec in body.topics):
        # Its layout may fill a good part of a record.
        raise InvalidRequest("a topic that replaces a classic one is created alone")
    topics = tuple([_new_topic(spec) for spec in body.topics])
    return OnNewTopics(command_id, topics, body.on_demand, body.preferred_broker_id)


def used_topics(request: UseTopicsRequest) -> OnNewTopics:
    """Return the creation of topics that clients begin to use.

    Raises:
        InvalidRequest: Too many names, or none.
    """
    if not 0 < len(request.names) <= TOPICS_PER_CREATE_MAX:
        raise InvalidRequest(
            f"{len(request.names)} topics to use, 1 to {TOPICS_PER_CREATE_MAX} are allowed"
        )
    topics = tuple([_new_topic(TopicSpec(name=name)) for name in request.names])
    return OnNewTopics(b"", topics, True, request.preferred_broker_id, by_policy=True)


def _new_topic(spec: TopicSpec) -> NewTopic | Rejected:
    try:
        name = parse_topic(spec.name)
    except InvalidName as error:
        return invalid_name(error)
    properties = to_properties(spec.properties)
    refusal = check_creatable(
        name, spec.partitions, properties, spec.segments, migrates=spec.migrates
    )
    refusal = refusal or check_shadow(name, properties)
    source = ""
    if spec.properties and refusal is None:
        source = shadow_source_of(spec.properties)
        if source:
            spec.properties.update(canonical_properties(spec.properties))
            source = shadow_source_of(spec.properties)
    return NewTopic(spec, name, slot_of(name.routing_key), refusal, source)


def _set_policies(command_id: bytes, body: SetPolicies) -> ParsedCommand:
    if problem := unknown_choice(body.policies):
        # It could be stored, but this release would not act on it: the caller must know that.
        return RefusedCommand(command_id, Rejected(RejectionCode.NOT_ALLOWED, problem))
    parse = _POLICY_HOLDERS.get(body.kind)
    if parse is None:
        raise InvalidRequest(f"objects of kind {body.kind} have no policies")
    return parse(command_id, body)


_POLICY_HOLDERS: dict[int, Callable[[bytes, Any], ParsedCommand]] = {
    KIND_TENANT: _tenant,
    KIND_NAMESPACE: _namespace,
    KIND_TOPIC: _topic,
}


def _gate(command_id: bytes, body: GateBody) -> ParsedCommand:
    try:
        kind = ParentKind(body.parent_kind)
    except ValueError:
        raise InvalidRequest(f"{body.parent_kind!a} is no kind of parent") from None
    _check_attempt(body.parent_id, body.attempt)
    if kind is ParentKind.TENANT:
        parse_tenant(body.parent_name)
    elif kind is ParentKind.NAMESPACE:
        parse_namespace(body.parent_name)
    else:
        _check_source(body.parent_name)
    return OnGate(command_id, body, kind)


def _check_attempt(parent_id: str, attempt: int) -> None:
    if not parent_id or not attempt:
        raise InvalidRequest("an order to a gate names the parent's id and the attempt")
    if attempt > STORED_INTEGER_MAX or len(parent_id) > NAME_PART_BYTES_MAX:
        raise InvalidRequest(f"the attempt {attempt} or the parent's id is beyond any that is")


def _check_source(text: str) -> TopicName:
    name = parse_topic(text)
    if name.domain is not Domain.PERSISTENT or name.text != text or name.partition is not None:
        raise InvalidRequest(f"{text[:200]!a} is not the name of a source as it is spelled out")
    return name


def _source(command_id: bytes, body: SourceBody) -> ParsedCommand:
    name = _check_source(body.source)
    if isinstance(body, AdmitShadow):
        if not body.shard_id:
            raise InvalidRequest("a shadow is admitted for a shard")
    else:
        _check_source(body.shadow)
    return OnSource(command_id, body, name, slot_of(name.routing_key))


def _shadows(command_id: bytes, body: GrowShadows) -> ParsedCommand:
    _check_source(body.source)
    _check_attempt(body.source_id, body.attempt)
    if not 1 <= body.partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidRequest(f"no topic has {body.partitions} partitions")
    return OnShadows(command_id, body)


COMMAND_PARSERS: dict[str, Callable[[bytes, Any], ParsedCommand]] = {
    "create_tenant": _tenant,
    "set_tenant_properties": _tenant,
    "delete_tenant": _tenant,
    "create_namespace": _create_namespace,
    "set_namespace_properties": _namespace,
    "delete_namespace": _namespace,
    "create_topics": _create_topics,
    "set_topic_properties": _topic,
    "delete_topic": _topic,
    "grow_topic": _topic,
    "rename_topic": _rename,
    "point_name": parse_point,
    "set_policies": _set_policies,
    "change_layout": _scalable,
    "abandon_layout_change": _scalable,
    "create_scalable_subscription": _scalable,
    "delete_scalable_subscription": _scalable,
    "seek_scalable_subscription": _scalable,
    "register_scalable_consumer": _scalable,
    "remove_scalable_consumer": _scalable,
    "close_parent_gate": _gate,
    "reopen_parent_gate": _gate,
    "admit_shadow": _source,
    "unlist_shadow": _source,
    "grow_shadows": _shadows,
}
"""By the name of the body's field."""
