"""Commands that the broker sends: as messages, or as bytes for the frequent ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import cast

from brokers.domain.position import Position
from brokers.ports.consumer import Dispatch
from nextgen.pulsar.frames import FIELD_OF_TYPE, encode_command
from nextgen.pulsar.greeting import NO_REQUEST_ID
from nextgen.pulsar.service_urls import ServiceUrls, has_listeners, split_urls
from protos.pulsar import PulsarApi_pb2 as pulsar

_UINT64 = 2**64
_SIZES = struct.Struct(">II")
_NO_EPOCH = -1

_WITH_REQUEST_ID = {
    pulsar.BaseCommand.NEW_TXN: pulsar.BaseCommand.NEW_TXN_RESPONSE,
    pulsar.BaseCommand.ADD_PARTITION_TO_TXN: pulsar.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
    pulsar.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: (
        pulsar.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE
    ),
    pulsar.BaseCommand.END_TXN: pulsar.BaseCommand.END_TXN_RESPONSE,
    pulsar.BaseCommand.END_TXN_ON_PARTITION: pulsar.BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
    pulsar.BaseCommand.END_TXN_ON_SUBSCRIPTION: (
        pulsar.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE
    ),
    pulsar.BaseCommand.TC_CLIENT_CONNECT_REQUEST: pulsar.BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
}
"""Commands of transactions, each with the type of its answer."""

TRANSACTIONS = frozenset(_WITH_REQUEST_ID)


def error_code(code: int) -> pulsar.ServerError:
    """Return a code as a value of the protocol's enumeration."""
    return cast("pulsar.ServerError", code)


def message_id(
    position: Position, *, partition: int = -1, batch_index: int = -1
) -> pulsar.MessageIdData:
    """Return a position as a message id for clients."""
    return pulsar.MessageIdData(
        ledgerId=position.ledger_id % _UINT64,
        entryId=position.entry_id % _UINT64,
        partition=partition,
        batch_index=batch_index,
    )


def success(request_id: int) -> bytes:
    return encode_command(
        pulsar.BaseCommand(
            type=pulsar.BaseCommand.SUCCESS, success=pulsar.CommandSuccess(request_id=request_id)
        )
    )


def send_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, position: Position
) -> bytes:
    """Return the frame that acknowledges a SEND."""
    return encode_command(
        pulsar.BaseCommand(
            type=pulsar.BaseCommand.SEND_RECEIPT,
            send_receipt=pulsar.CommandSendReceipt(
                producer_id=producer_id,
                sequence_id=sequence_id,
                highest_sequence_id=highest_sequence_id,
                message_id=pulsar.MessageIdData(
                    ledgerId=position.ledger_id % _UINT64, entryId=position.entry_id % _UINT64
                ),
            ),
        )
    )


def send_error(
    producer_id: int, sequence_id: int, code: pulsar.ServerError, message: str
) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.SEND_ERROR,
        send_error=pulsar.CommandSendError(
            producer_id=producer_id, sequence_id=sequence_id, error=code, message=message
        ),
    )


def _redirect(broker_url: str) -> ServiceUrls:
    # Which listener a client has named only its lookups say, so it is sent to look up again.
    return ServiceUrls("", "") if has_listeners(broker_url) else split_urls(broker_url)


def close_producer(producer_id: int, broker_url: str) -> pulsar.BaseCommand:
    """Return CLOSE_PRODUCER, which redirects a producer; without a URL it looks its topic up."""
    urls = _redirect(broker_url)
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.CLOSE_PRODUCER,
        close_producer=pulsar.CommandCloseProducer(
            producer_id=producer_id,
            request_id=NO_REQUEST_ID,
            assignedBrokerServiceUrl=urls.plain or None,
            assignedBrokerServiceUrlTls=urls.tls or None,
        ),
    )


def close_consumer(consumer_id: int, broker_url: str) -> pulsar.BaseCommand:
    """Return CLOSE_CONSUMER, which redirects a consumer; without a URL it looks its topic up."""
    urls = _redirect(broker_url)
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.CLOSE_CONSUMER,
        close_consumer=pulsar.CommandCloseConsumer(
            consumer_id=consumer_id,
            request_id=NO_REQUEST_ID,
            assignedBrokerServiceUrl=urls.plain or None,
            assignedBrokerServiceUrlTls=urls.tls or None,
        ),
    )


def reached_end_of_topic(consumer_id: int) -> pulsar.BaseCommand:
    """Return REACHED_END_OF_TOPIC: the topic is terminated, and the consumer has had all of it."""
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.REACHED_END_OF_TOPIC,
        reachedEndOfTopic=pulsar.CommandReachedEndOfTopic(consumer_id=consumer_id),
    )


def no_transactions(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    """Return the answer to one of ``TRANSACTIONS``: there is no coordinator."""
    answer = pulsar.BaseCommand(type=_WITH_REQUEST_ID[command.type])
    inner = getattr(answer, FIELD_OF_TYPE[answer.type])
    inner.request_id = getattr(command, FIELD_OF_TYPE[command.type]).request_id
    inner.error = pulsar.TransactionCoordinatorNotFound
    inner.message = "transactions are not supported"
    return answer


class MessageHeads:
    """Encodes the part of MESSAGE frames before the payload, for one consumer.

    It is encoded by hand, because there is one per entry and consumer, and only few bytes differ.
    """

    __slots__ = ("_consumer", "_ledger", "_ledger_id", "_partition")

    def __init__(self, consumer_id: int, partition: int) -> None:
        self._consumer = b"\x08" + varint(consumer_id)
        self._partition = b"" if partition < 0 else b"\x18" + varint(partition)
        self._ledger_id = -1
        self._ledger = b""

    def head(self, dispatch: Dispatch) -> bytes:
        """Return sizes and command for a dispatch."""
        ledger_id, entry_id = dispatch.entry.position
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._ledger = b"\x08" + varint(ledger_id) + b"\x10"
        place = self._ledger + varint(entry_id) + self._partition
        message = self._consumer + b"\x12" + varint(len(place)) + place
        if dispatch.redelivery_count:
            message += b"\x18" + varint(dispatch.redelivery_count)
        if dispatch.ack_set:
            message += _ack_set(dispatch.ack_set)
        if dispatch.consumer_epoch != _NO_EPOCH:
            message += b"\x28" + varint(dispatch.consumer_epoch)
        command = b"\x08\x09\x4a" + varint(len(message)) + message
        size = len(command)
        return _SIZES.pack(4 + size + len(dispatch.entry.payload), size) + command


def varint(number: int) -> bytes:
    """Return the protobuf encoding of a non-negative integer."""
    if number < 0x80:
        return _ONE_BYTE[number]
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def _ack_set(words: Sequence[int]) -> bytes:
    return b"".join(b"\x20" + varint(word % _UINT64) for word in words)
