"""Reads a SUBSCRIBE, and checks its limits."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.adapters.pulsar.message_ids import position_of
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.schema import Schema
from brokers.service.subscriptions.subscription import (
    NO_EPOCH,
    ConsumerRequest,
    KeySharedRequest,
    SubscriptionKind,
    SubscriptionStart,
)
from brokers.wire import is_managed, stated_schema
from nextgen.kernel.limits.pulsar import (
    CONSUMER_NAME_BYTES_MAX,
    STICKY_RANGES_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_MAX,
)
from protos.pulsar import PulsarApi_pb2 as pulsar


@dataclass(frozen=True, slots=True)
class Subscribing:
    """The parts of a SUBSCRIBE that are kept. The client's ``metadata`` is unused and not kept."""

    request_id: int
    topic: str
    creates_topic: bool
    subscription: str
    start: SubscriptionStart
    request: ConsumerRequest
    schema: Schema | None


def subscribing_of(command: pulsar.CommandSubscribe) -> Subscribing:
    """Read a SUBSCRIBE.

    Raises:
        Refusal: It exceeds a limit.
    """
    problem = _excess(command)
    if problem is not None:
        raise Refusal(ServerError.NOT_ALLOWED, problem)
    return Subscribing(
        command.request_id,
        command.topic,
        command.force_topic_creation,
        command.subscription,
        _start(command),
        _request(command),
        stated_schema(command.schema) if command.HasField("schema") else None,
    )


def _excess(command: pulsar.CommandSubscribe) -> str | None:
    if not command.subscription:
        return "a subscription needs a name"
    if len(command.subscription.encode()) > SUBSCRIPTION_NAME_BYTES_MAX:
        return f"a subscription's name has at most {SUBSCRIPTION_NAME_BYTES_MAX} bytes"
    if len(command.consumer_name.encode()) > CONSUMER_NAME_BYTES_MAX:
        return f"a consumer's name has at most {CONSUMER_NAME_BYTES_MAX} bytes"
    properties = command.subscription_properties
    # Check the number first: empty properties have no bytes.
    if len(properties) > SUBSCRIPTION_PROPERTIES_MAX:
        return f"a subscription has at most {SUBSCRIPTION_PROPERTIES_MAX} properties"
    if sum(len(item.key.encode()) + len(item.value.encode()) for item in properties) > (
        SUBSCRIPTION_PROPERTIES_BYTES_MAX
    ):
        return f"a subscription's properties have at most {SUBSCRIPTION_PROPERTIES_BYTES_MAX} bytes"
    return _key_shared_problem(command.keySharedMeta)


def _key_shared_problem(meta: pulsar.KeySharedMeta) -> str | None:
    if len(meta.hashRanges) > STICKY_RANGES_MAX:
        return f"a consumer has at most {STICKY_RANGES_MAX} key ranges"
    if meta.entryBucketDispatch and meta.keySharedMode != pulsar.STICKY:
        return "entry buckets need the key shared mode STICKY"
    if meta.entryBucketDispatch and meta.allowOutOfOrderDelivery:
        return "entry buckets are dispatched in order only"
    return None


def _request(command: pulsar.CommandSubscribe) -> ConsumerRequest:
    key_shared = None
    if command.HasField("keySharedMeta"):
        meta = command.keySharedMeta
        key_shared = KeySharedRequest(
            is_sticky=meta.keySharedMode == pulsar.STICKY,
            ranges=tuple((given.start, given.end) for given in meta.hashRanges),
            uses_entry_buckets=meta.entryBucketDispatch,
            is_out_of_order_allowed=meta.allowOutOfOrderDelivery,
        )
    return ConsumerRequest(
        consumer_id=command.consumer_id,
        name=command.consumer_name,
        kind=SubscriptionKind(int(command.subType)),
        priority_level=command.priority_level,
        key_shared=key_shared,
        consumer_epoch=command.consumer_epoch if command.HasField("consumer_epoch") else NO_EPOCH,
        read_compacted=command.read_compacted,
        is_managed=is_managed(command.metadata),
    )


def _start(command: pulsar.CommandSubscribe) -> SubscriptionStart:
    has_position = command.HasField("start_message_id")
    return SubscriptionStart(
        is_durable=command.durable,
        position=position_of(command.start_message_id) if has_position else None,
        batch_index=command.start_message_id.batch_index if has_position else -1,
        is_earliest=command.initialPosition == pulsar.CommandSubscribe.Earliest,
        rollback_seconds=command.start_message_rollback_duration_sec,
        properties={item.key: item.value for item in command.subscription_properties},
    )
