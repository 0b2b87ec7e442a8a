"""What operators read of a topic's entries: by time, what is not acknowledged, and trimming."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from brokers.service.topics import operations
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import BACKLOG_ANALYSIS_ENTRIES_MAX, BACKLOG_ANALYSIS_MS_MAX
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin
from tests.support.brokers.world import TOPIC, BrokerWorld

NON_PERSISTENT = TOPIC.replace("persistent", "non-persistent")
START_MS = 1_000_000


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


@pytest.fixture
def admin(world: BrokerWorld) -> Admin:
    return Admin(world)


async def published(world: BrokerWorld, count: int) -> list[tuple[int, int]]:
    """Publish messages, one second apart from ``START_MS`` on; return their positions."""
    client = world.broker(world.directory.owners[TOPIC][0]).client()
    await client.producer()
    for number in range(count):
        world.wall_clock_ms = START_MS + 1_000 * number
        client.send(number)
        await client.receipts(number + 1)
    receipts = await client.receipts(count)
    client.leave()
    return [(ledger, entry) for _, ledger, entry in receipts]


async def found(admin: Admin, time_ms: int) -> tuple[int, int]:
    answer = await admin.call("FindByTime", wire.FindByTimeRequest(publish_time_ms=time_ms))
    return answer.position.ledger_id, answer.position.entry_id


async def analysis(admin: Admin, **fields: object) -> wire.BacklogAnalysis:
    request = wire.AnalyzeBacklogRequest(subscription="sub", **fields)
    answer = await admin.call("AnalyzeBacklog", request)
    assert isinstance(answer, wire.BacklogAnalysis)
    return answer


def at(position: tuple[int, int]) -> MessagePosition:
    return MessagePosition(ledger_id=position[0], entry_id=position[1])


async def test_the_first_message_since_a_time_is_found(world: BrokerWorld, admin: Admin):
    positions = await published(world, 4)
    ledger, last = positions[-1]

    assert await found(admin, 0) == positions[0]
    assert await found(admin, START_MS + 1_000) == positions[1]
    assert await found(admin, START_MS + 1_001) == positions[2]
    assert await found(admin, START_MS + 3_000) == positions[3]
    assert await found(admin, START_MS + 3_001) == (ledger, last + 1), "where the next will be"


async def test_a_topic_without_messages_answers_its_beginning(admin: Admin):
    assert await found(admin, 5) == (-1, -1)


async def test_a_time_beyond_javas_numbers_is_an_invalid_request(admin: Admin):
    request = wire.FindByTimeRequest(publish_time_ms=2**63)

    assert isinstance(await admin.refusal("FindByTime", request), InvalidRequest)


async def test_an_analysis_counts_what_is_not_acknowledged(world: BrokerWorld, admin: Admin):
    await admin.create(start=wire.TopicPlace(earliest=wire.Earliest()))
    positions = await published(world, 6)
    client = world.broker().client()
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared)
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 6)
    for number in (0, 2, 3):
        await client.answer(client.ack(messages[number]))

    whole = await analysis(admin)
    rest = await analysis(admin, start=at(positions[2]))
    from_the_past = await analysis(admin, start=at((0, 0)))

    assert (whole.entries, whole.messages, whole.is_aborted) == (3, 3, False)
    assert (whole.first, whole.last) == (at(positions[1]), at(positions[5]))
    assert (rest.entries, rest.first) == (2, at(positions[4]))
    assert from_the_past == whole


async def test_an_analysis_without_a_backlog_names_no_messages(world: BrokerWorld, admin: Admin):
    await published(world, 2)
    await admin.create()

    empty = await analysis(admin)

    assert (empty.entries, empty.HasField("first"), empty.HasField("last")) == (0, False, False)


@pytest.mark.parametrize("excess", [0, 1])
async def test_an_analysis_reads_backlog_analysis_entries_max_and_is_aborted_beyond(
    world: BrokerWorld, admin: Admin, monkeypatch: pytest.MonkeyPatch, excess: int
):
    assert BACKLOG_ANALYSIS_ENTRIES_MAX == 10_000
    monkeypatch.setattr(operations, "BACKLOG_ANALYSIS_ENTRIES_MAX", 5)
    monkeypatch.setattr(operations, "BACKLOG_ANALYSIS_CHUNK_ENTRIES", 2)
    await admin.create(start=wire.TopicPlace(earliest=wire.Earliest()))
    await published(world, 5 + excess)

    found = await analysis(admin)

    assert (found.entries, found.is_aborted) == (5, bool(excess))


@pytest.mark.parametrize("excess_ms", [-1, 0])
async def test_an_analysis_ends_at_backlog_analysis_ms_max(
    world: BrokerWorld, admin: Admin, monkeypatch: pytest.MonkeyPatch, excess_ms: int
):
    monkeypatch.setattr(operations, "BACKLOG_ANALYSIS_CHUNK_ENTRIES", 1)
    await admin.create(start=wire.TopicPlace(earliest=wire.Earliest()))
    await published(world, 3)
    ledger = world.broker().ledger()
    read = ledger.read

    async def slow(*args: object, **kwargs: object) -> object:
        world.wall_clock_ms += BACKLOG_ANALYSIS_MS_MAX + excess_ms
        return await read(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "read", slow)

    found = await analysis(admin)

    assert (found.entries, found.is_aborted) == ((1, True) if excess_ms == 0 else (2, True))


async def test_trimming_drops_what_nothing_keeps(world: BrokerWorld, admin: Admin):
    await admin.create(start=wire.TopicPlace(earliest=wire.Earliest()))
    await published(world, 3)
    world.broker("b")
    world.move(TOPIC, "b")  # Its entries are in a ledger that does not grow.
    await published(world, 1)
    world.wall_clock_ms += 10 * 24 * 3_600_000

    await admin.call("Trim", wire.TrimRequest())
    with_subscription = (await admin.stats()).entries
    await admin.call("SkipMessages", wire.SkipMessagesRequest(subscription="sub", is_all=True))
    await admin.call("Trim", wire.TrimRequest())

    assert (with_subscription, (await admin.stats()).entries) == (4, 1)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("FindByTime", wire.FindByTimeRequest()),
        ("AnalyzeBacklog", wire.AnalyzeBacklogRequest(subscription="sub")),
        ("Trim", wire.TrimRequest()),
    ],
)
async def test_a_topic_that_keeps_nothing_refuses(world: BrokerWorld, method: str, request_):
    refused = await Admin(world, NON_PERSISTENT).refusal(method, request_)

    assert isinstance(refused, Refused)
    assert refused.code == RejectionCode.NOT_ALLOWED


async def test_an_analysis_of_no_subscription_is_refused(admin: Admin):
    request = wire.AnalyzeBacklogRequest(subscription="none")

    refused = await admin.refusal("AnalyzeBacklog", request)

    assert isinstance(refused, Refused)
    assert refused.code == RejectionCode.NOT_FOUND
