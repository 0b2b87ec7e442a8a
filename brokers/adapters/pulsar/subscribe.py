"""What a SUBSCRIBE asks for, within its limits."""

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
from brokers.wire import stated_schema
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
    """All that is kept of a SUBSCRIBE. The client's ``metadata`` is not: nothing here reads it."""

    request_id: int
    topic: str
    creates_topic: bool
    subscription: str
    start: SubscriptionStart
    request: ConsumerRequest
    schema: Schema | None


def subscribing_of(asked: pulsar.CommandSubscribe) -> Subscribing:
    """Return what a SUBSCRIBE asks for.

    Raises:
        Refusal: It is more than a broker keeps of a consumer.
    """
    problem = _excess(asked)
    if problem is not None:
        raise Refusal(ServerError.NOT_ALLOWED, problem)
    return Subscribing(
        asked.request_id,
        asked.topic,
        asked.force_topic_creation,
        asked.subscription,
        _start(asked),
        _request(asked),
        stated_schema(asked.schema) if asked.HasField("schema") else None,
    )


def _excess(asked: pulsar.CommandSubscribe) -> str | None:
    if not asked.subscription:
        return "a subscription has a name"
    if len(asked.subscription.encode()) > SUBSCRIPTION_NAME_BYTES_MAX:
        return f"a subscription's name has at most {SUBSCRIPTION_NAME_BYTES_MAX} bytes"
    if len(asked.consumer_name.encode()) > CONSUMER_NAME_BYTES_MAX:
        return f"a consumer's name has at most {CONSUMER_NAME_BYTES_MAX} bytes"
    properties = asked.subscription_properties
    # Their number first: empty ones have no bytes.
    if len(properties) > SUBSCRIPTION_PROPERTIES_MAX:
        return f"a subscription has at most {SUBSCRIPTION_PROPERTIES_MAX} properties"
    if sum(len(item.key.encode()) + len(item.value.encode()) for item in properties) > (
        SUBSCRIPTION_PROPERTIES_BYTES_MAX
    ):
        return f"a subscription's properties have at most {SUBSCRIPTION_PROPERTIES_BYTES_MAX} bytes"
    if len(asked.keySharedMeta.hashRanges) > STICKY_RANGES_MAX:
        return f"a consumer has at most {STICKY_RANGES_MAX} key ranges"
    return None


def _request(asked: pulsar.CommandSubscribe) -> ConsumerRequest:
    key_shared = None
    if asked.HasField("keySharedMeta"):
        meta = asked.keySharedMeta
        key_shared = KeySharedRequest(
            is_sticky=meta.keySharedMode == pulsar.STICKY,
            ranges=tuple((given.start, given.end) for given in meta.hashRanges),
            is_out_of_order_allowed=meta.allowOutOfOrderDelivery,
        )
    return ConsumerRequest(
        consumer_id=asked.consumer_id,
        name=asked.consumer_name,
        kind=SubscriptionKind(int(asked.subType)),
        priority_level=asked.priority_level,
        key_shared=key_shared,
        consumer_epoch=asked.consumer_epoch if asked.HasField("consumer_epoch") else NO_EPOCH,
        read_compacted=asked.read_compacted,
    )


def _start(asked: pulsar.CommandSubscribe) -> SubscriptionStart:
    has_position = asked.HasField("start_message_id")
    return SubscriptionStart(
        is_durable=asked.durable,
        position=position_of(asked.start_message_id) if has_position else None,
        batch_index=asked.start_message_id.batch_index if has_position else -1,
        is_earliest=asked.initialPosition == pulsar.CommandSubscribe.Earliest,
        rollback_seconds=asked.start_message_rollback_duration_sec,
        properties={item.key: item.value for item in asked.subscription_properties},
    )
