"""One session's dense sequence: given out, sent, acknowledged, resumed."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import NotLeader, Overloaded, SessionExpired
from nextgen.kernel.limits.cluster import DELIVERIES_PER_MESSAGE_MAX
from protos.nextgen.v1.broker_service_pb2 import Delivery, HeartbeatAck, ManagerMessage
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import TopicRelease
from shards.sessions import session_soft_state
from shards.sessions.session_soft_state import BrokerConnection, SessionSoftState


def session() -> SessionSoftState:
    return SessionSoftState(BrokerRecorded(broker_id="broker-1", session_id="s", epoch=1), 0.0)


def attached(last_sequence: int = 0) -> tuple[SessionSoftState, BrokerConnection]:
    one = session()
    connection = BrokerConnection(one)
    one.attach(connection, last_sequence)
    return one, connection


def delivery(name: str = "t") -> Delivery:
    return Delivery(release=TopicRelease(name=name))


def sequences(connection: BrokerConnection) -> list[int]:
    return [
        each.sequence
        for message in connection.take_messages()
        for each in message.deliveries.deliveries
    ]


def test_the_sequence_is_dense_and_goes_on_behind_what_the_broker_has() -> None:
    one, connection = attached(last_sequence=41)

    assert [one.append(delivery()) for _ in range(3)] == [42, 43, 44]
    assert sequences(connection) == [42, 43, 44]
    assert sequences(connection) == []


def test_what_a_broker_synced_before_it_was_sent_here_is_not_sent() -> None:
    """It had got it on its earlier stream, and says so after it resumed."""
    one, connection = attached()
    for _ in range(3):
        one.append(delivery())

    one.acknowledge(2)

    assert sequences(connection) == [3]


def test_deliveries_applied_from_an_earlier_connection_leave_the_next_one_idle() -> None:
    # Given: the broker applied from its earlier connection what the next one was to send.
    one, _ = attached()
    following = BrokerConnection(one)
    one.attach(following, 0)
    sequences(following)
    one.append(delivery())
    one.acknowledge(1)

    # Then: there is nothing to send, and nothing that would wake the sender again and again.
    assert sequences(following) == []
    assert not following.changed.is_set()
    one.append(delivery())
    assert sequences(following) == [2]


def test_nothing_has_a_sequence_before_the_broker_came() -> None:
    with pytest.raises(AssertionError):
        session().append(delivery())


def test_answers_go_before_deliveries_in_the_order_they_were_given() -> None:
    one, connection = attached()
    one.append(delivery())
    connection.answer(ManagerMessage(heartbeat_ack=HeartbeatAck(sent_at_ms=7)))

    bodies = [message.WhichOneof("body") for message in connection.take_messages()]

    assert bodies == ["heartbeat_ack", "deliveries"]


def test_a_long_backlog_is_sent_in_messages_of_bounded_size() -> None:
    one, connection = attached()
    for _ in range(DELIVERIES_PER_MESSAGE_MAX + 1):
        one.append(delivery())

    first = sequences(connection)
    assert connection.changed.is_set()
    second = sequences(connection)

    assert len(first) == DELIVERIES_PER_MESSAGE_MAX
    assert second == [DELIVERIES_PER_MESSAGE_MAX + 1]
    assert not connection.changed.is_set()


@pytest.mark.parametrize(
    ("excess", "messages"), [(0, [[1, 2], [3], []]), (1, [[1], [2], [3]]), (200, [[1], [2], [3]])]
)
def test_deliveries_bytes_max_share_a_message_and_one_more_does_not(
    monkeypatch: pytest.MonkeyPatch, excess: int, messages: list[list[int]]
) -> None:
    one, connection = attached()
    for _ in range(3):
        one.append(delivery("x" * 100))
    size = delivery("x" * 100).ByteSize() + len(b"\x08\x01")  # With its sequence.
    monkeypatch.setattr(session_soft_state, "DELIVERIES_BYTES_MAX", 2 * size - excess)

    assert [sequences(connection) for _ in range(3)] == messages


def test_a_resumed_session_is_sent_what_was_not_applied() -> None:
    one, first = attached()
    for _ in range(4):
        one.append(delivery())
    sequences(first)
    one.acknowledge(1)

    second = BrokerConnection(one)
    one.attach(second, 2)

    assert sequences(second) == [3, 4]
    assert isinstance(first.error, SessionExpired)


@pytest.mark.parametrize(
    ("last_sequence", "can_resume"), [(0, False), (1, True), (3, True), (4, False)]
)
def test_a_broker_may_resume_between_what_it_synced_and_what_was_sent(
    last_sequence: int, can_resume: bool
) -> None:
    one, _ = attached()
    for _ in range(3):
        one.append(delivery())
    one.acknowledge(1)

    assert one.can_resume(last_sequence) is can_resume


def test_an_acknowledgement_of_what_was_never_sent_counts_as_of_all() -> None:
    one, _ = attached()
    one.append(delivery())

    one.acknowledge(1_000)
    one.acknowledge(0)

    assert one.acked == 1


async def test_those_who_wait_go_in_order_as_the_sync_position_advances() -> None:
    one, _ = attached()
    for _ in range(3):
        one.append(delivery())
    waiting = [asyncio.create_task(one.wait_synced(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)

    one.acknowledge(2)
    await asyncio.sleep(0)

    assert [task.done() for task in waiting] == [True, True, False]
    one.acknowledge(3)
    await waiting[2]
    await one.wait_synced(3)


async def test_the_end_of_a_session_fails_all_who_wait_and_all_who_come_later() -> None:
    one, connection = attached()
    one.append(delivery())
    waiting = asyncio.create_task(one.wait_synced(1))
    await asyncio.sleep(0)

    one.end(NotLeader(1))

    with pytest.raises(NotLeader):
        await waiting
    with pytest.raises(NotLeader):
        await one.wait_synced(1)
    assert isinstance(connection.error, NotLeader)


def test_deliveries_unacked_max_have_room_and_one_more_has_none_until_the_broker_syncs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_soft_state, "DELIVERIES_UNACKED_MAX", 3)
    one, _ = attached()
    one.append(delivery())

    one.check_room(2)
    with pytest.raises(Overloaded):
        one.check_room(3)
    one.acknowledge(1)
    one.check_room(3)
