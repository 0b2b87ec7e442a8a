"""What a client needs to be allowed for each command of the Pulsar protocol (ADR 0158).

``PulsarConnection`` asks before it handles a command. A type of command that is neither in the
table nor in ``UNASKED`` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nextgen.kernel.errors import Forbidden
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.routing.names import parse_namespace, parse_topic
from nextgen.runtime.security.authorization.authorizer import Access
from protos.pulsar.PulsarApi_pb2 import BaseCommand


class Need(NamedTuple):
    """One thing that a client has to be allowed."""

    action: Action
    resource: Resource
    subscription: str = ""
    is_kept: bool = False
    """Whether it is used for longer than the command: by a producer, a consumer or a watch."""


def needs_of(command: BaseCommand) -> tuple[Need, ...]:
    """Return what ``command`` needs, all of it; ``command`` is not one of ``UNASKED``.

    Raises:
        InvalidName: It is about a name that is none.
        Forbidden: Nobody may do it: it is not known here.
    """
    needs = NEEDS.get(command.type)
    if needs is None:
        raise Forbidden(f"{BaseCommand.Type.Name(command.type)} is for nobody here")
    return needs(command)


class Kept:
    """What a producer, a consumer or a watch goes on using. ``release`` it with that."""

    __slots__ = ("_access", "_needs")

    def __init__(self, access: Access | None = None, needs: tuple[Need, ...] = ()) -> None:
        self._access = access
        self._needs = needs
        if access is not None:
            for action, resource, subscription, _ in needs:
                access.keep(action, resource, subscription)

    def release(self) -> None:
        """Say that it is used no more. Again: nothing happens."""
        access, self._access = self._access, None
        if access is not None:
            for action, resource, subscription, _ in self._needs:
                access.release(action, resource, subscription)


NOTHING_KEPT = Kept()
"""Where authorisation is off, and before anything is kept."""


def kept_by(access: Access | None, command: BaseCommand) -> Kept:
    """Keep what ``command`` goes on using, in the turn of the event loop in which it was allowed.

    The session's connection is closed when it is no longer allowed.
    """
    if access is None:
        return NOTHING_KEPT
    return Kept(access, tuple(need for need in needs_of(command) if need.is_kept))


def _about_topic(field: str, action: Action) -> Callable[[BaseCommand], tuple[Need, ...]]:
    def needs(command: BaseCommand) -> tuple[Need, ...]:
        name = parse_topic(getattr(command, field).topic)
        return (Need(action, Resource.topic(name.text)),)

    return needs


def _about_namespace(field: str, *, is_kept: bool) -> Callable[[BaseCommand], tuple[Need, ...]]:
    def needs(command: BaseCommand) -> tuple[Need, ...]:
        name = parse_namespace(getattr(command, field).namespace)
        return (Need(Action.LIST, Resource.namespace(name.text), is_kept=is_kept),)

    return needs


def _producer(command: BaseCommand) -> tuple[Need, ...]:
    request = command.producer
    topic = Resource.topic(parse_topic(request.topic).text)
    produce = Need(Action.PRODUCE, topic, is_kept=True)
    if not request.initial_subscription_name:
        return (produce,)
    return produce, Need(Action.CONSUME, topic, request.initial_subscription_name)


def _consumer(field: str) -> Callable[[BaseCommand], tuple[Need, ...]]:
    def needs(command: BaseCommand) -> tuple[Need, ...]:
        request = getattr(command, field)
        topic = Resource.topic(parse_topic(request.topic).text)
        return (Need(Action.CONSUME, topic, request.subscription, is_kept=True),)

    return needs


def _layout(command: BaseCommand) -> tuple[Need, ...]:
    topic = Resource.topic(parse_topic(command.scalableTopicLookup.topic).text)
    return (Need(Action.LOOK_UP, topic, is_kept=True),)


NEEDS: Mapping[int, Callable[[BaseCommand], tuple[Need, ...]]] = MappingProxyType(
    {
        BaseCommand.LOOKUP: _about_topic("lookupTopic", Action.LOOK_UP),
        BaseCommand.PARTITIONED_METADATA: _about_topic("partitionMetadata", Action.LOOK_UP),
        BaseCommand.GET_SCHEMA: _about_topic("getSchema", Action.READ),
        BaseCommand.GET_OR_CREATE_SCHEMA: _about_topic("getOrCreateSchema", Action.PRODUCE),
        BaseCommand.PRODUCER: _producer,
        BaseCommand.SUBSCRIBE: _consumer("subscribe"),
        BaseCommand.GET_TOPICS_OF_NAMESPACE: _about_namespace(
            "getTopicsOfNamespace", is_kept=False
        ),
        BaseCommand.WATCH_TOPIC_LIST: _about_namespace("watchTopicList", is_kept=True),
        BaseCommand.SCALABLE_TOPIC_LOOKUP: _layout,
        BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: _consumer("scalableTopicSubscribe"),
        BaseCommand.WATCH_SCALABLE_TOPICS: _about_namespace("watchScalableTopics", is_kept=True),
    }
)

_OF_THE_CONNECTION = "is about the connection itself"
_ADMITTED = "uses a producer, consumer or watch that was admitted"
_BY_A_SERVER = "is what a server sends: refused as malformed"
_TRANSACTION = "is refused to everybody: there are no transactions"

UNASKED: Mapping[int, str] = MappingProxyType(
    {
        BaseCommand.CONNECT: _OF_THE_CONNECTION,
        BaseCommand.AUTH_RESPONSE: _OF_THE_CONNECTION,
        BaseCommand.PING: _OF_THE_CONNECTION,
        BaseCommand.PONG: _OF_THE_CONNECTION,
        BaseCommand.SEND: _ADMITTED,
        BaseCommand.CLOSE_PRODUCER: _ADMITTED,
        BaseCommand.FLOW: _ADMITTED,
        BaseCommand.ACK: _ADMITTED,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _ADMITTED,
        BaseCommand.UNSUBSCRIBE: _ADMITTED,
        BaseCommand.SEEK: _ADMITTED,
        BaseCommand.GET_LAST_MESSAGE_ID: _ADMITTED,
        BaseCommand.CONSUMER_STATS: _ADMITTED,
        BaseCommand.CLOSE_CONSUMER: _ADMITTED,
        BaseCommand.WATCH_TOPIC_LIST_CLOSE: _ADMITTED,
        BaseCommand.SCALABLE_TOPIC_CLOSE: _ADMITTED,
        BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: _ADMITTED,
        BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: _ADMITTED,
        BaseCommand.NEW_TXN: _TRANSACTION,
        BaseCommand.ADD_PARTITION_TO_TXN: _TRANSACTION,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _TRANSACTION,
        BaseCommand.END_TXN: _TRANSACTION,
        BaseCommand.END_TXN_ON_PARTITION: _TRANSACTION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION: _TRANSACTION,
        BaseCommand.TC_CLIENT_CONNECT_REQUEST: _TRANSACTION,
        BaseCommand.WATCH_TC_ASSIGNMENTS: _TRANSACTION,
        BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: _TRANSACTION,
        BaseCommand.CONNECTED: _BY_A_SERVER,
        BaseCommand.SEND_RECEIPT: _BY_A_SERVER,
        BaseCommand.SEND_ERROR: _BY_A_SERVER,
        BaseCommand.MESSAGE: _BY_A_SERVER,
        BaseCommand.SUCCESS: _BY_A_SERVER,
        BaseCommand.ERROR: _BY_A_SERVER,
        BaseCommand.PRODUCER_SUCCESS: _BY_A_SERVER,
        BaseCommand.PARTITIONED_METADATA_RESPONSE: _BY_A_SERVER,
        BaseCommand.LOOKUP_RESPONSE: _BY_A_SERVER,
        BaseCommand.CONSUMER_STATS_RESPONSE: _BY_A_SERVER,
        BaseCommand.REACHED_END_OF_TOPIC: _BY_A_SERVER,
        BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: _BY_A_SERVER,
        BaseCommand.ACTIVE_CONSUMER_CHANGE: _BY_A_SERVER,
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: _BY_A_SERVER,
        BaseCommand.GET_SCHEMA_RESPONSE: _BY_A_SERVER,
        BaseCommand.AUTH_CHALLENGE: _BY_A_SERVER,
        BaseCommand.ACK_RESPONSE: _BY_A_SERVER,
        BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE: _BY_A_SERVER,
        BaseCommand.NEW_TXN_RESPONSE: _BY_A_SERVER,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE: _BY_A_SERVER,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: _BY_A_SERVER,
        BaseCommand.END_TXN_RESPONSE: _BY_A_SERVER,
        BaseCommand.END_TXN_ON_PARTITION_RESPONSE: _BY_A_SERVER,
        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE: _BY_A_SERVER,
        BaseCommand.TC_CLIENT_CONNECT_RESPONSE: _BY_A_SERVER,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS: _BY_A_SERVER,
        BaseCommand.WATCH_TOPIC_UPDATE: _BY_A_SERVER,
        BaseCommand.TOPIC_MIGRATED: _BY_A_SERVER,
        BaseCommand.SCALABLE_TOPIC_UPDATE: _BY_A_SERVER,
        BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: _BY_A_SERVER,
        BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE: _BY_A_SERVER,
        BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE: _BY_A_SERVER,
        BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE: _BY_A_SERVER,
    }
)
"""Types of commands that nobody is asked about, each with its reason."""
