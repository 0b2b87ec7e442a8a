"""Reads message ids of clients' commands, after checking that each list is within its limits.

An id may have an ack set: a bit for each message of a batch. Only ACK and SEEK concern parts of
batches. For SUBSCRIBE and REDELIVER only the position is read, so an ack set there costs no more
than its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.service.subscriptions.subscription import Ack
from nextgen.kernel.limits.pulsar import (
    ACK_IDS_MAX,
    ACK_SET_WORDS_MAX,
    ACK_WORDS_MAX,
    REDELIVER_IDS_MAX,
)
from protos.pulsar import PulsarApi_pb2 as pulsar

_UINT64 = 2**64
_INT64_END = 2**63
_new = tuple.__new__


def position_of(message_id: pulsar.MessageIdData) -> Position:
    """Return the position in a message id; an unsigned -1 becomes -1."""
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    if ledger_id >= _INT64_END:
        ledger_id -= _UINT64
    if entry_id >= _INT64_END:
        entry_id -= _UINT64
    # Without the class's own constructor: this runs for each id of each acknowledgement.
    return _new(Position, (ledger_id, entry_id))


def acks_of(command: pulsar.CommandAck) -> list[Ack]:
    """Return the acknowledgements of an ACK.

    Raises:
        Refusal: It has more ids, or more words in its ack sets, than an ACK may have.
    """
    if len(command.message_id) > ACK_IDS_MAX:
        raise _too_many(f"an ACK has at most {ACK_IDS_MAX} message ids")
    acks = []
    words = 0
    for given in command.message_id:
        ack_set = given.ack_set
        if ack_set:
            words += len(ack_set)
            if words > ACK_WORDS_MAX:
                raise _too_many(f"the ack sets of an ACK have at most {ACK_WORDS_MAX} words")
            acks.append(Ack(position_of(given), _words_of(ack_set), given.batch_size))
        else:
            acks.append(Ack(position_of(given)))
    return acks


def sought(command: pulsar.CommandSeek) -> tuple[Position, Sequence[int]] | None:
    """Return the position and ack set that a SEEK names, None if it names a time.

    Raises:
        Refusal: The ack set has more words than one may have.
    """
    if not command.HasField("message_id"):
        return None
    return position_of(command.message_id), _words_of(command.message_id.ack_set)


def redelivered(
    command: pulsar.CommandRedeliverUnacknowledgedMessages,
) -> list[Position] | None:
    """Return the positions that a REDELIVER names, None if it names none, which means all.

    Raises:
        Refusal: They are more than one consumer can have.
    """
    if len(command.message_ids) > REDELIVER_IDS_MAX:
        raise _too_many(f"a REDELIVER has at most {REDELIVER_IDS_MAX} message ids")
    return [position_of(given) for given in command.message_ids] or None


def _words_of(ack_set: Sequence[int]) -> tuple[int, ...]:
    if len(ack_set) > ACK_SET_WORDS_MAX:
        raise _too_many(f"an ack set has at most {ACK_SET_WORDS_MAX} words")
    return tuple(ack_set)


def _too_many(message: str) -> Refusal:
    return Refusal(ServerError.NOT_ALLOWED, message)
