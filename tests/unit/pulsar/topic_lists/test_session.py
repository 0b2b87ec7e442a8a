"""Watchers of one connection: answers, updates in order, reconciling, bounds, and bad input."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Overloaded, Refused, Unavailable
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.listing import (
    TOPIC_WATCHER_BYTES,
    TOPIC_WATCHER_REQUESTS_MAX,
    TOPIC_WATCHERS_BYTES_MAX,
)
from nextgen.pulsar.topic_lists import session as module
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.permits import MemoryPermits
from nextgen.pulsar.topic_lists.ports import TopicListChange
from nextgen.pulsar.topic_lists.session import TopicListSession, TopicWatches, updates_of
from nextgen.pulsar.topic_lists.settings import TopicListSettings
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.pulsar.fake_topic_lists import FakeListClient, FakeTopicLists

A1, A2, A3, B1 = (f"persistent://acme/orders/{name}" for name in ("a1", "a2", "a3", "b1"))
PATTERN = "persistent://acme/orders/a.*"


class World:
    """A session, its client and its lists."""

    def __init__(self, settings: TopicListSettings | None = None) -> None:
        self.lists = FakeTopicLists([A1, A2, B1])
        self.shared = TopicWatches(self.lists, settings or TopicListSettings())
        self.client = FakeListClient()
        self.session = TopicListSession(self.client, self.shared)
        self.requests = 0

    def watch(
        self,
        watcher_id: int = 5,
        pattern: str = PATTERN,
        *,
        namespace: str = "acme/orders",
        known: str = "",
    ) -> int:
        self.requests += 1
        asked = pulsar.CommandWatchTopicList(
            request_id=self.requests,
            watcher_id=watcher_id,
            namespace=namespace,
            topics_pattern=pattern,
            topics_hash=known,
        )
        self.session.handle(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=asked))
        return self.requests

    def close(self, watcher_id: int = 5) -> int:
        self.requests += 1
        asked = pulsar.CommandWatchTopicListClose(request_id=self.requests, watcher_id=watcher_id)
        self.session.handle(
            BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=asked)
        )
        return self.requests

    async def sent(self) -> list[BaseCommand]:
        """Return what the client got since the last call, once nothing more is coming."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.client.take()


@pytest.fixture
async def world():
    world = World()
    yield world
    world.session.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.shared.watchers == 0
    assert all(place.is_closed for place in world.lists.places)
    assert world.shared.permits.bytes_held == 0


def success(command: BaseCommand) -> tuple[int, int, list[str], str]:
    assert command.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
    answer = command.watchTopicListSuccess
    return answer.request_id, answer.watcher_id, list(answer.topic), answer.topics_hash


def update(command: BaseCommand) -> tuple[int, list[str], list[str], str]:
    assert command.type == BaseCommand.WATCH_TOPIC_UPDATE
    sent = command.watchTopicUpdate
    return sent.watcher_id, list(sent.new_topics), list(sent.deleted_topics), sent.topics_hash


def error(command: BaseCommand) -> tuple[int, int]:
    assert command.type == BaseCommand.ERROR
    return command.error.request_id, command.error.error


async def test_a_watcher_gets_the_list_and_then_each_change_with_the_hash_behind_it(world):
    request_id = world.watch()
    (first,) = await world.sent()
    assert success(first) == (request_id, 5, [A1, A2], topics_hash([A1, A2]))

    world.lists.create(A3)
    world.lists.create(B1 + "x")
    world.lists.delete(A1)

    assert [update(each) for each in await world.sent()] == [
        (5, [A3], [], topics_hash([A1, A2, A3])),
        (5, [], [A1], topics_hash([A2, A3])),
    ]


async def test_a_client_that_has_the_list_gets_its_hash_alone(world):
    known = topics_hash([A1, A2])

    request_id = world.watch(known=known)

    assert [success(each) for each in await world.sent()] == [(request_id, 5, [], known)]


async def test_a_watcher_resumes_by_hash_on_another_node():
    one, other = World(), World()
    other.lists = other.shared.lists = one.lists
    one.watch()
    await one.sent()
    one.session.close()
    one.lists.create(A3)

    unchanged = other.watch(6, known=topics_hash([A1, A2, A3]))
    changed = other.watch(7, known=topics_hash([A1, A2]))

    answers = {each[0]: each for each in map(success, await other.sent())}
    assert answers[unchanged][2] == []
    assert answers[changed][2] == [A1, A2, A3]
    other.session.close()


async def test_nothing_is_sent_before_success(world):
    world.lists.opened.clear()
    world.watch()
    world.lists.create(A3)
    assert await world.sent() == []

    world.lists.opened.set()

    (first,) = await world.sent()
    assert success(first)[2] == [A1, A2, A3]


async def test_one_update_of_a_watcher_is_in_flight(world):
    world.watch()
    await world.sent()
    world.client.stop_reading()

    world.lists.create(A3)
    world.lists.delete(A1)
    assert await world.sent() == []
    world.client.read()

    assert [update(each)[1:3] for each in await world.sent()] == [([A3], []), ([], [A1])]


async def test_a_queue_that_overflows_becomes_the_net_difference(world):
    world.lists.queue_max = 1
    world.watch()
    await world.sent()
    world.client.stop_reading()
    world.lists.create(A3)
    await world.sent()

    names = [f"persistent://acme/orders/a{number}" for number in range(10, 20)]
    for name in names:
        world.lists.create(name)
    world.lists.delete(A1)
    world.lists.delete(names.pop())
    world.client.read()

    first, difference = await world.sent()
    assert update(first)[1] == [A3]
    assert update(difference) == (5, names, [A1], topics_hash([A2, A3, *names]))


async def test_the_same_id_reconciles(world):
    world.watch()
    await world.sent()
    world.lists.create(A3)
    await world.sent()

    same = world.watch(known=topics_hash([A1, A2, A3]))
    different = world.watch(known="00000000")

    whole = [A1, A2, A3]
    assert [success(each) for each in await world.sent()] == [
        (same, 5, [], topics_hash(whole)),
        (different, 5, whole, topics_hash(whole)),
    ]
    assert len(world.lists.places) == 1
    world.lists.delete(A1)
    assert [update(each)[2] for each in await world.sent()] == [[A1]]


async def test_what_a_reconciliation_brought_is_not_sent_again(world):
    world.watch()
    await world.sent()
    world.client.stop_reading()
    world.lists.create(A3)
    await world.sent()

    request_id = world.watch(known="00000000")
    (answer,) = await world.sent()
    world.client.read()

    assert success(answer) == (request_id, 5, [A1, A2, A3], topics_hash([A1, A2, A3]))
    assert await world.sent() == []


@pytest.mark.parametrize("pattern", ["acme/other/.*", "acme/.*/a.*"])
async def test_an_id_that_is_used_for_another_namespace_is_the_newest_request_s(world, pattern):
    world.lists.names.add("persistent://acme/other/a9")
    world.watch(pattern="acme/.*/a.*")
    await world.sent()

    world.watch(namespace="acme/other", pattern=pattern)

    (answer,) = await world.sent()
    assert success(answer)[2] == ["persistent://acme/other/a9"]
    assert [place.is_closed for place in world.lists.places] == [True, False]
    world.lists.create(A3)
    assert await world.sent() == []
    assert world.shared.watchers == 1


async def test_requests_that_wait_for_a_replaced_watcher_are_answered(world):
    world.lists.opened.clear()
    first = world.watch()
    await world.sent()

    second = world.watch(pattern="acme/orders/b.*")
    assert [error(each) for each in await world.sent()] == [(first, pulsar.MetadataError)]
    world.lists.opened.set()

    assert [success(each)[0] for each in await world.sent()] == [second]


async def test_close_is_answered_without_topics_and_ends_the_updates(world):
    world.watch()
    await world.sent()

    request_id = world.close()
    world.lists.create(A3)

    (answer,) = await world.sent()
    assert (answer.type, answer.success.request_id) == (BaseCommand.SUCCESS, request_id)
    assert world.lists.places[0].is_closed
    unknown = world.close(99)
    assert [each.success.request_id for each in await world.sent()] == [unknown]


async def test_a_watcher_that_is_closed_while_it_begins_is_refused(world):
    world.lists.opened.clear()
    first = world.watch()
    await world.sent()

    closing = world.close()

    refused, answer = await world.sent()
    assert error(refused) == (first, pulsar.MetadataError)
    assert answer.success.request_id == closing
    world.lists.opened.set()
    assert await world.sent() == []


async def test_watchers_end_with_the_connection(world):
    for watcher_id in range(3):
        world.watch(watcher_id)
    await world.sent()

    world.session.close()
    world.lists.create(A3)

    assert await world.sent() == []
    assert world.shared.watchers == 0


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("persistent://" + "a" * 50, None),
        ("^persistent://" + "a" * 49, None),
        ("persistent://" + "a" * 51, pulsar.NotAllowedError),
        ("a" * 5_000_000, pulsar.NotAllowedError),
        ("acme/orders/[a", pulsar.InvalidTopicName),
        ("topic://acme/orders/a", pulsar.InvalidTopicName),
        ("acme/orders/(?!a).*", pulsar.NotAllowedError),
        ("acme/orders/(a+)+$", None),
    ],
)
async def test_the_pattern_is_checked_without_its_scheme(world, pattern, code):
    request_id = world.watch(pattern=pattern)

    (answer,) = await world.sent()
    if code is None:
        assert success(answer)[0] == request_id
    else:
        assert error(answer) == (request_id, code)
        assert world.shared.watchers == 0


async def test_a_namespace_that_is_none_is_refused(world):
    request_id = world.watch(namespace="acme")

    assert [error(each) for each in await world.sent()] == [(request_id, pulsar.InvalidTopicName)]


@pytest.mark.parametrize(
    "settings", [TopicListSettings(False, True), TopicListSettings(True, False)]
)
async def test_where_watching_is_off_it_is_not_allowed(settings):
    world = World(settings)

    request_id = world.watch()

    assert [error(each) for each in await world.sent()] == [(request_id, pulsar.NotAllowedError)]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Unavailable("no shard map is known here yet"), pulsar.MetadataError),
        (Overloaded("no memory is left"), pulsar.TooManyRequests),
        (Refused("LIMIT_EXCEEDED", "too many names"), pulsar.NotAllowedError),
    ],
)
async def test_a_list_that_cannot_be_watched_leaves_no_watcher(world, failure, code):
    world.lists.error = failure

    request_id = world.watch()

    assert [error(each) for each in await world.sent()] == [(request_id, code)]
    assert world.shared.watchers == 0
    world.lists.error = None
    again = world.watch()
    assert [success(each)[0] for each in await world.sent()] == [again]


async def test_a_list_that_ends_is_watched_anew_and_its_difference_sent(world, monkeypatch):
    monkeypatch.setattr(module, "TOPIC_WATCH_RETRY_MS", 0)
    world.watch()
    await world.sent()

    world.lists.names ^= {A1, A3}
    world.lists.places[0].fail(Unavailable("the shard is gone"))

    (difference,) = await world.sent()
    assert update(difference) == (5, [A3], [A1], topics_hash([A2, A3]))
    assert world.lists.places[0].is_closed
    world.lists.places[1].fail(Unavailable("again"))
    assert await world.sent() == []


async def test_a_list_that_ends_for_want_of_memory_has_no_watchers_and_refuses_the_next(world):
    world.watch()
    await world.sent()

    world.lists.error = Overloaded("no memory is left")
    world.lists.places[0].fail(world.lists.error)

    assert await world.sent() == []
    assert (world.shared.watchers, world.lists.places[0].is_closed) == (0, True)
    again = world.watch(known=topics_hash([A1, A2]))
    assert [error(each) for each in await world.sent()] == [(again, pulsar.TooManyRequests)]


async def test_a_list_that_finds_no_memory_for_another_place_has_no_watchers(world, monkeypatch):
    monkeypatch.setattr(module, "TOPIC_WATCH_RETRY_MS", 0)
    world.watch()
    await world.sent()

    world.lists.error = Overloaded("no memory is left")
    world.lists.places[0].fail(Unavailable("the shard is gone"))

    assert await world.sent() == []
    assert (world.shared.watchers, world.lists.places[0].is_closed) == (0, True)


async def test_changes_up_to_topic_list_free_bytes_need_no_permit_and_larger_ones_wait(
    world, monkeypatch
):
    monkeypatch.setattr(module, "TOPIC_LIST_FREE_BYTES", len(A3) + 3)
    monkeypatch.setattr(module, "TOPIC_WATCH_RETRY_MS", 0)
    world.shared.permits = MemoryPermits(1_000, waiting_max=0)
    world.watch()
    await world.sent()
    async with world.shared.permits.hold(1_000):
        world.lists.create(A3)
        assert [update(each)[1] for each in await world.sent()] == [[A3]]
        world.lists.create(A3 + "x")
        assert await world.sent() == []
    assert [update(each)[1] for each in await world.sent()] == [[A3 + "x"]]


async def test_the_rest_of_a_change_in_parts_is_not_sent_behind_a_reconciliation(
    world, monkeypatch
):
    monkeypatch.setattr(module, "TOPIC_LIST_BYTES_MAX", 2 * (len(A1) + 3))
    monkeypatch.setattr(module, "TOPIC_LIST_FREE_BYTES", 0)
    world.watch()
    await world.sent()
    a8, a9 = "persistent://acme/orders/a8", "persistent://acme/orders/a9"
    world.client.stops_behind_updates = True
    world.lists.names ^= {A1, A2, a8, a9}
    world.lists.places[0].put(TopicListChange(topics_hash([a8, a9]), [a8, a9], [A1, A2]))
    assert [update(each) for each in await world.sent()] == [(5, [], [A1, A2], "")]

    request_id = world.watch(known="00000000")
    (answer,) = await world.sent()
    world.client.read()

    assert success(answer) == (request_id, 5, [a8, a9], topics_hash([a8, a9]))
    assert await world.sent() == []


async def test_watchers_are_bounded_by_memory_not_by_count(world):
    world.shared.bytes_max = 3 * TOPIC_WATCHER_BYTES
    for watcher_id in range(3):
        assert world.shared.has_room
        world.watch(watcher_id)
    assert not world.shared.has_room

    one_more = world.watch(3)

    assert error((await world.sent())[0]) == (one_more, pulsar.TooManyRequests)
    world.close(0)
    assert world.shared.has_room
    world.lists.has_room = False
    assert not world.shared.has_room


def test_a_process_has_as_many_watchers_as_fit_into_topic_watchers_bytes_max() -> None:
    shared = TopicWatches(FakeTopicLists())
    most = TOPIC_WATCHERS_BYTES_MAX // TOPIC_WATCHER_BYTES

    shared.watchers = most - 1
    assert shared.has_room
    shared.watchers = most - 1 + 1
    assert not shared.has_room


async def test_requests_of_one_watcher_wait_up_to_topic_watcher_requests_max(world):
    world.lists.opened.clear()
    ids = [world.watch() for _ in range(TOPIC_WATCHER_REQUESTS_MAX + 1)]

    assert [error(each) for each in await world.sent()] == [(ids[-1], pulsar.TooManyRequests)]
    world.lists.opened.set()
    assert [success(each)[0] for each in await world.sent()] == ids[:-1]


async def test_a_list_waits_for_memory_and_is_refused_if_there_is_none():
    world = World()
    world.shared.permits = MemoryPermits(1_000, waiting_max=1, wait_ms_max=60_000)
    async with world.shared.permits.hold(1_000):
        waits = world.watch(1)
        refused = world.watch(2)
        assert [error(each) for each in await world.sent()] == [(refused, pulsar.TooManyRequests)]
    assert [success(each)[0] for each in await world.sent()] == [waits]
    assert world.shared.watchers == 1
    world.session.close()


async def test_a_list_larger_than_one_answer_is_refused(world, monkeypatch):
    monkeypatch.setattr(module, "TOPIC_LIST_BYTES_MAX", 2 * (len(A1) + 3))
    fits = world.watch(1)
    assert [success(each)[0] for each in await world.sent()] == [fits]
    world.lists.create(A3)
    await world.sent()

    one_more = world.watch(2)

    assert [error(each) for each in await world.sent()] == [(one_more, pulsar.NotAllowedError)]
    assert world.shared.watchers == 1


def test_a_change_larger_than_a_frame_is_sent_in_parts(monkeypatch):
    monkeypatch.setattr(module, "TOPIC_LIST_BYTES_MAX", 2 * (len(A1) + 3))
    change = TopicListChange("12345678", created=[A1, A2, A3], deleted=[B1])

    parts = list(updates_of(5, change))

    assert [list(part.deleted_topics) for part in parts] == [[B1], [], []]
    assert [list(part.new_topics) for part in parts] == [[], [A1, A2], [A3]]
    assert [part.topics_hash for part in parts] == ["", "", "12345678"]


async def test_a_watcher_keeps_the_permission_to_list_until_it_is_closed(world):
    need = (Action.LIST, Resource.namespace("acme/orders"), "")
    world.watch()
    await world.sent()
    assert world.client.access.kept == {need: 1}

    world.close()
    assert world.client.access.kept == {}
