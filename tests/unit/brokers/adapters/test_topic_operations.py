"""Operations on cursors and messages, as discovery calls them: skip, expire, reset, peek ..."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.adapters.broker_service import topic_admin, topic_statistics
from brokers.ports.ledger import StorageFailed
from nextgen.kernel.errors import InvalidRequest, MetadataError, ProposalLost, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.pulsar.payload import open_payload
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle, until

MESSAGE = pulsar.BaseCommand.MESSAGE
MESSAGES = 6
MAX = 2**64 - 1

Positions = list[tuple[int, int]]


class World(BrokerWorld):
    """A topic with six messages, a second apart, that the subscription ``sub`` has before it."""

    positions: Positions

    async def fill(self) -> World:
        self.admin = Admin(self)
        await self.admin.create(start=EARLIEST)
        client = self.broker().client()
        await client.producer()
        for number in range(MESSAGES):
            self.wall_clock_ms += 1_000
            client.send(number, b"body %d" % number)
            await client.receipts(number + 1)
        self.positions = [(ledger, entry) for _, ledger, entry in await client.receipts(MESSAGES)]
        client.leave()
        return self

    async def backlog(self, name: str = "sub") -> int:
        stats = await self.admin.stats()
        (backlog,) = (each.backlog_entries for each in stats.subscriptions if each.name == name)
        assert isinstance(backlog, int)
        return backlog

    async def move(self) -> None:  # type: ignore[override]
        """Move the topic to another broker, which reads what is stored."""
        self.broker("b")
        super().move(TOPIC, "b")

    async def subscribed(self, **fields: Any) -> FakeClient:
        client = self.broker(self.directory.owners[TOPIC][0]).client()
        await client.subscribe(kind=pulsar.CommandSubscribe.Shared, **fields)
        return client


EARLIEST = wire.TopicPlace(earliest=wire.Earliest())
LATEST = wire.TopicPlace(latest=wire.Latest())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().fill()
    yield world
    await world.stop()


@pytest.fixture
def admin(world: World) -> Admin:
    return world.admin


def position(given: tuple[int, int]) -> MessagePosition:
    return MessagePosition(ledger_id=given[0], entry_id=given[1])


async def received(client: FakeClient, count: int) -> Positions:
    messages = await client.until_got(MESSAGE, count)
    assert len(messages) == count
    return [(each.message_id.ledgerId, each.message_id.entryId) for each in messages]


def body_of(entry: wire.StoredEntry) -> bytes:
    return entry.payload[open_payload(entry.payload).metadata_end :]


def code_of(error: MetadataError) -> str:
    assert isinstance(error, Refused), error
    return error.code


# Skip -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"entries": 1}, 5),
        ({"entries": MESSAGES}, 0),
        ({"entries": MESSAGES + 1}, 0),
        ({"entries": MAX}, 0),
        ({"is_all": True}, 0),
    ],
)
async def test_the_oldest_messages_are_skipped_durably(
    world: World, admin: Admin, fields: dict[str, Any], left: int
):
    await admin.call("SkipMessages", wire.SkipMessagesRequest(subscription="sub", **fields))

    await world.move()
    assert await world.backlog() == left
    client = await world.subscribed()
    assert await received(client, left) == world.positions[MESSAGES - left :]


async def test_skipping_counts_only_what_is_not_acknowledged(world: World, admin: Admin):
    client = await world.subscribed()
    messages = await client.until_got(MESSAGE, MESSAGES)
    for number in (1, 2, 4):
        await client.answer(client.ack(messages[number]))

    await admin.call("SkipMessages", wire.SkipMessagesRequest(subscription="sub", entries=2))

    assert await world.backlog() == 1
    client.leave()
    assert await received(await world.subscribed(), 1) == [world.positions[5]]


async def test_nothing_is_no_number_of_messages_to_skip(admin: Admin):
    request = wire.SkipMessagesRequest(subscription="sub")

    assert isinstance(await admin.refusal("SkipMessages", request), InvalidRequest)


async def test_a_skip_that_storage_loses_may_have_happened(world: World, admin: Admin):
    world.broker().ledger().failure = StorageFailed("I/O error")

    request = wire.SkipMessagesRequest(subscription="sub", entries=1)

    assert isinstance(await admin.refusal("SkipMessages", request), ProposalLost)


async def test_a_skip_that_a_move_interrupts_may_have_happened(world: World, admin: Admin):
    topic = world.broker().topics.get(TOPIC)
    assert topic is not None
    world.broker().ledger().hold_facts()
    skipping = []
    for _ in range(2):
        request = wire.SkipMessagesRequest(subscription="sub", entries=1)
        skipping.append(asyncio.create_task(admin.refusal("SkipMessages", request)))
        await settle()

    await topic.close()
    world.broker().ledger().release_facts()

    for error in await asyncio.gather(*skipping):
        assert isinstance(error, ProposalLost)


# Reset ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "left"),
    [
        (lambda _: EARLIEST, 6),
        (lambda _: LATEST, 0),
        (lambda world: wire.TopicPlace(position=position(world.positions[2])), 4),
        (lambda world: wire.TopicPlace(position=position(world.positions[2]), is_excluded=True), 3),
        (lambda world: wire.TopicPlace(publish_time_ms=world.wall_clock_ms - 1_000), 2),
        (lambda _: wire.TopicPlace(position=position((2**62, 7))), 0),
    ],
)
async def test_a_reset_closes_consumers_and_holds_when_the_topic_moves(
    world: World, admin: Admin, place: Any, left: int
):
    client = await world.subscribed()
    messages = await client.until_got(MESSAGE, MESSAGES)
    for message in messages[:5]:
        await client.answer(client.ack(message))

    request = wire.ResetCursorRequest(subscription="sub", place=place(world))
    await admin.call("ResetCursor", request)

    await client.until_got(pulsar.BaseCommand.CLOSE_CONSUMER)
    await world.move()
    assert await world.backlog() == left
    assert await received(await world.subscribed(), left) == world.positions[MESSAGES - left :]


async def test_a_reset_meanwhile_is_trouble_that_passes(world: World, admin: Admin):
    topic = world.broker().topics.get(TOPIC)
    assert topic is not None
    topic.subscriptions["sub"]._is_seeking = True

    for method, request in (
        ("ResetCursor", wire.ResetCursorRequest(subscription="sub", place=EARLIEST)),
        ("SkipMessages", wire.SkipMessagesRequest(subscription="sub", entries=1)),
        ("ExpireMessages", wire.ExpireMessagesRequest(older_than_s=0)),
        ("Truncate", wire.TruncateRequest()),
        ("UpdateSubscription", wire.UpdateSubscriptionRequest(subscription="sub")),
        ("DeleteSubscription", wire.DeleteSubscriptionRequest(subscription="sub")),
    ):
        assert isinstance(await admin.refusal(method, request), Unavailable), method
    topic.subscriptions["sub"]._is_seeking = False


# Expire -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (lambda _: {"older_than_s": 0}, 1),
        (lambda _: {"older_than_s": 3}, 4),
        (lambda _: {"older_than_s": MAX}, 6),
        (lambda world: {"up_to": position(world.positions[2])}, 3),
        (lambda world: {"up_to": position(world.positions[2]), "is_excluded": True}, 4),
        (lambda _: {"up_to": position((2**62, 0))}, 0),
        (lambda _: {"up_to": position((-1, -1))}, 6),
    ],
)
async def test_old_messages_expire_durably_in_one_or_all_subscriptions(
    world: World, admin: Admin, limit: Any, left: int
):
    await admin.create("other", start=EARLIEST)

    request = wire.ExpireMessagesRequest(subscription="sub", **limit(world))
    await admin.call("ExpireMessages", request)
    assert (await world.backlog(), await world.backlog("other")) == (left, MESSAGES)
    request = wire.ExpireMessagesRequest(**limit(world))
    await admin.call("ExpireMessages", request)

    await world.move()
    assert (await world.backlog(), await world.backlog("other")) == (left, left)


async def test_an_expiry_goes_only_forwards(world: World, admin: Admin):
    await admin.call("SkipMessages", wire.SkipMessagesRequest(subscription="sub", entries=5))

    request = wire.ExpireMessagesRequest(up_to=position(world.positions[0]))
    await admin.call("ExpireMessages", request)

    assert await world.backlog() == 1


@pytest.mark.parametrize("limit", [{}, {"up_to": position((-2, 0))}, {"up_to": position((3, -1))}])
async def test_an_expiry_without_a_limit_that_can_be_is_invalid(admin: Admin, limit: Any):
    request = wire.ExpireMessagesRequest(**limit)

    assert isinstance(await admin.refusal("ExpireMessages", request), InvalidRequest)


# Messages ---------------------------------------------------------------------------------------


async def test_the_nth_message_that_is_not_acknowledged_is_peeked(world: World, admin: Admin):
    client = await world.subscribed()
    messages = await client.until_got(MESSAGE, MESSAGES)
    for number in (0, 2, 3):
        await client.answer(client.ack(messages[number]))

    found = [
        await admin.call("PeekMessage", wire.PeekMessageRequest(subscription="sub", number=number))
        for number in (1, 2, 3)
    ]

    assert [(each.position.ledger_id, each.position.entry_id) for each in found] == [
        world.positions[number] for number in (1, 4, 5)
    ]
    assert body_of(found[0]) == b"body 1"
    assert (found[0].message_count, found[0].payload_bytes) == (1, len(found[0].payload))
    assert await world.backlog() == 3, "peeking acknowledges nothing"
    for number in (4, 2**32 - 1):
        more = wire.PeekMessageRequest(subscription="sub", number=number)
        assert code_of(await admin.refusal("PeekMessage", more)) == RejectionCode.NOT_FOUND


@pytest.mark.parametrize(
    ("is_from_latest", "number", "index"),
    [(False, 1, 0), (False, 6, 5), (True, 1, 5), (True, 6, 0), (True, 3, 3)],
)
async def test_messages_are_examined_from_both_ends(
    world: World, admin: Admin, is_from_latest: bool, number: int, index: int
):
    request = wire.ExamineMessageRequest(from_latest=is_from_latest, number=number)

    entry = await admin.call("ExamineMessage", request)

    assert (entry.position.ledger_id, entry.position.entry_id) == world.positions[index]


@pytest.mark.parametrize("is_from_latest", [False, True])
@pytest.mark.parametrize("number", [MESSAGES + 1, MAX])
async def test_a_message_beyond_the_ends_is_not_found(
    admin: Admin, is_from_latest: bool, number: int
):
    request = wire.ExamineMessageRequest(from_latest=is_from_latest, number=number)

    assert code_of(await admin.refusal("ExamineMessage", request)) == RejectionCode.NOT_FOUND


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        ("PeekMessage", wire.PeekMessageRequest(subscription="sub")),
        ("ExamineMessage", wire.ExamineMessageRequest()),
        ("GetMessage", wire.GetMessageRequest(position=position((-5, 0)))),
    ],
)
async def test_a_number_that_names_no_message_is_invalid(
    admin: Admin, method: str, request_message: Any
):
    assert isinstance(await admin.refusal(method, request_message), InvalidRequest)


async def test_a_message_is_read_by_its_position(world: World, admin: Admin):
    request = wire.GetMessageRequest(position=position(world.positions[4]))

    entry = await admin.call("GetMessage", request)

    assert body_of(entry) == b"body 4"
    assert entry.publish_time_ms == world.wall_clock_ms - 1_000


@pytest.mark.parametrize("given", [(0, 0), (-1, -1), (2**62, 0), (2**63 - 1, 2**63 - 1)])
async def test_a_position_without_a_message_is_not_found(admin: Admin, given: tuple[int, int]):
    request = wire.GetMessageRequest(position=position(given))

    assert code_of(await admin.refusal("GetMessage", request)) == RejectionCode.NOT_FOUND


async def test_topic_admin_payload_bytes_max_are_in_an_answer_and_one_more_in_the_next(
    world: World, admin: Admin, monkeypatch: pytest.MonkeyPatch
):
    request = wire.GetMessageRequest(position=position(world.positions[0]))
    whole = (await admin.call("GetMessage", request)).payload
    monkeypatch.setattr(topic_admin, "TOPIC_ADMIN_PAYLOAD_BYTES_MAX", len(whole))
    assert (await admin.call("GetMessage", request)).payload == whole

    monkeypatch.setattr(topic_admin, "TOPIC_ADMIN_PAYLOAD_BYTES_MAX", len(whole) - 1)
    first = await admin.call("GetMessage", request)
    request.offset = len(first.payload)
    rest = await admin.call("GetMessage", request)

    assert (first.payload, rest.payload) == (whole[:-1], whole[-1:])
    assert first.payload_bytes == rest.payload_bytes == len(whole)


async def test_the_last_message_id_has_the_last_of_a_batch(world: World, admin: Admin):
    client = world.broker().client()
    await client.producer()
    client.send(100, with_num_messages_in_batch=3)
    ((_, *last),) = await client.receipts(1)

    found = await admin.call("GetLastMessageId", wire.GetLastMessageIdRequest())

    assert ([found.position.ledger_id, found.position.entry_id], found.batch_index) == (last, 2)


async def test_an_empty_topic_has_no_last_message_id():
    world = BrokerWorld()

    found = await Admin(world).call("GetLastMessageId", wire.GetLastMessageIdRequest())

    assert (found.position, found.batch_index) == (position((-1, -1)), -1)
    await world.stop()


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        ("SkipMessages", wire.SkipMessagesRequest(subscription="no", entries=1)),
        ("ResetCursor", wire.ResetCursorRequest(subscription="no", place=EARLIEST)),
        ("ExpireMessages", wire.ExpireMessagesRequest(subscription="no", older_than_s=1)),
        ("PeekMessage", wire.PeekMessageRequest(subscription="no", number=1)),
    ],
)
async def test_an_unknown_subscription_is_not_found(
    admin: Admin, method: str, request_message: Any
):
    assert code_of(await admin.refusal(method, request_message)) == RejectionCode.NOT_FOUND


# Truncation and internal statistics ---------------------------------------------------------------


async def test_a_truncated_topic_keeps_its_last_ledger_and_no_backlog(world: World, admin: Admin):
    await admin.create("other", start=EARLIEST)
    await world.move()
    client = world.broker("b").client()
    await client.producer()
    client.send(100)
    ((_, *last),) = await client.receipts(1)
    before = await admin.call("GetInternalStats", wire.GetInternalStatsRequest())

    await admin.call("Truncate", wire.TruncateRequest())

    after = await admin.call("GetInternalStats", wire.GetInternalStatsRequest())
    assert [each.entries for each in before.ledgers] == [MESSAGES, 1]
    assert [(each.ledger_id, each.entries) for each in after.ledgers] == [(last[0], 1)]
    assert (await world.backlog(), await world.backlog("other")) == (0, 0)
    gone = wire.GetMessageRequest(position=position(world.positions[0]))
    assert code_of(await admin.refusal("GetMessage", gone)) == RejectionCode.NOT_FOUND


async def test_internal_statistics_have_ledgers_and_cursors(world: World, admin: Admin):
    client = await world.subscribed()
    messages = await client.until_got(MESSAGE, MESSAGES)
    for number in (0, 2, 3, 5):
        await client.answer(client.ack(messages[number]))

    stats = await admin.call("GetInternalStats", wire.GetInternalStatsRequest())

    ledger_id, _ = world.positions[0]
    assert (stats.entries, stats.entries_added, stats.pending_entries) == (MESSAGES, MESSAGES, 0)
    assert stats.last == position(world.positions[-1])
    assert [(each.ledger_id, each.entries, each.bytes) for each in stats.ledgers] == [
        (ledger_id, MESSAGES, stats.bytes)
    ]
    (cursor,) = stats.cursors
    assert (cursor.subscription, cursor.mark_delete) == ("sub", position(world.positions[0]))
    assert cursor.read == position(world.positions[1])
    assert (cursor.acked_entries, cursor.acked_ranges, cursor.backlog_entries) == (3, 2, 2)
    assert [(each.ledger_id, each.first_entry, each.last_entry) for each in cursor.acked] == [
        (ledger_id, 2, 3),
        (ledger_id, 5, 5),
    ]
    assert cursor.is_active


@pytest.mark.parametrize(("most", "shown"), [(2, 2), (1, 1)])
async def test_topic_admin_ranges_max_are_shown_and_one_more_is_only_counted(
    world: World, admin: Admin, monkeypatch: pytest.MonkeyPatch, most: int, shown: int
):
    monkeypatch.setattr(topic_statistics, "TOPIC_ADMIN_RANGES_MAX", most)
    client = await world.subscribed()
    messages = await client.until_got(MESSAGE, MESSAGES)
    for number in (2, 4):
        await client.answer(client.ack(messages[number]))

    stats = await admin.call("GetInternalStats", wire.GetInternalStatsRequest())

    (cursor,) = stats.cursors
    assert (len(cursor.acked), cursor.acked_ranges) == (shown, 2)


@pytest.mark.parametrize(("most", "shown"), [(4, 2), (3, 1)])
async def test_topic_admin_all_ranges_max_are_shared_by_cursors_and_with_one_more_each_has_fewer(
    world: World, admin: Admin, monkeypatch: pytest.MonkeyPatch, most: int, shown: int
):
    monkeypatch.setattr(topic_statistics, "TOPIC_ADMIN_ALL_RANGES_MAX", most)
    await admin.create("other", start=EARLIEST)
    for subscription in ("sub", "other"):
        client = await world.subscribed(subscription=subscription)
        messages = await client.until_got(MESSAGE, MESSAGES)
        for number in (2, 4):
            await client.answer(client.ack(messages[number]))

    stats = await admin.call("GetInternalStats", wire.GetInternalStatsRequest())

    assert [(len(each.acked), each.acked_ranges) for each in stats.cursors] == [(shown, 2)] * 2


async def test_a_non_persistent_topic_has_no_messages_to_operate_on():
    world = BrokerWorld()
    admin = Admin(world, TOPIC.replace("persistent", "non-persistent"))
    client = world.broker().client()
    await client.subscribe(topic=admin.name)
    await until(lambda: world.broker().topics.get(admin.name))

    for method, request in (
        ("GetMessage", wire.GetMessageRequest(position=position((0, 0)))),
        ("ExamineMessage", wire.ExamineMessageRequest(number=1)),
        ("Truncate", wire.TruncateRequest()),
    ):
        assert code_of(await admin.refusal(method, request)) == RejectionCode.NOT_ALLOWED, method
    await world.stop()
