import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.adapters.pulsar.answers import MessageHeads, message_id, varint
from brokers.adapters.pulsar.handles import ClosedIds
from brokers.adapters.pulsar.message_ids import position_of
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.consumer import Dispatch
from brokers.ports.ledger import Entry
from nextgen.kernel.limits.pulsar import CLOSED_HANDLE_MS, HANDLES_PER_CONNECTION_MAX
from nextgen.pulsar.frames import encode_frame
from protos.pulsar import PulsarApi_pb2 as pulsar

_SIGNED = st.integers(-(2**63), 2**63 - 1)
_UNSIGNED = st.integers(0, 2**63 - 1)


@given(
    consumer_id=st.integers(0, 2**64 - 1),
    partition=st.integers(-1, 10_000),
    places=st.lists(st.tuples(_UNSIGNED, _UNSIGNED), min_size=1, max_size=4),
    redelivery_count=st.integers(0, 2**32 - 1),
    ack_set=st.lists(_SIGNED, max_size=3),
    epoch=st.integers(-1, 2**40),
    payload=st.binary(max_size=300),
)
def test_messages_written_by_hand_are_those_of_protobuf(
    consumer_id, partition, places, redelivery_count, ack_set, epoch, payload
):
    heads = MessageHeads(consumer_id, partition)
    for ledger_id, entry_id in places:
        entry = Entry(Position(ledger_id, entry_id), payload, 1, 0, "p", 0)
        expected = pulsar.CommandMessage(
            consumer_id=consumer_id,
            message_id=pulsar.MessageIdData(ledgerId=ledger_id, entryId=entry_id),
            ack_set=ack_set,
        )
        if partition >= 0:
            expected.message_id.partition = partition
        if redelivery_count:
            expected.redelivery_count = redelivery_count
        if epoch >= 0:
            expected.consumer_epoch = epoch

        head = heads.head(Dispatch(entry, redelivery_count, tuple(ack_set), epoch))

        command = pulsar.BaseCommand(type=pulsar.BaseCommand.MESSAGE, message=expected)
        assert head + payload == encode_frame(command, payload)


@pytest.mark.parametrize("position", [BEFORE_ALL, Position(7, -1), Position(2**62, 2**62)])
def test_positions_travel_as_unsigned_numbers(position):
    given_id = message_id(position, partition=3, batch_index=2)

    assert position_of(given_id) == position
    assert (given_id.partition, given_id.batch_index) == (3, 2)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (2**64 - 1, b"\xff" * 9 + b"\x01")],
)
def test_a_varint_is_as_long_as_it_must_be(number, encoded):
    assert varint(number) == encoded


def test_a_closed_id_is_remembered_for_a_while():
    now = [0.0]
    closed = ClosedIds(lambda: now[0])

    closed.add(1)
    closed.add(2)
    closed.discard(2)

    assert 1 in closed
    assert 2 not in closed
    now[0] = CLOSED_HANDLE_MS / 1000 - 1
    assert 1 in closed
    now[0] += 1
    assert 1 not in closed


def test_closed_ids_are_forgotten_when_there_are_too_many():
    closed = ClosedIds(lambda: 0.0)

    for number in range(HANDLES_PER_CONNECTION_MAX + 1):
        closed.add(number)

    assert 0 not in closed
    assert HANDLES_PER_CONNECTION_MAX in closed
