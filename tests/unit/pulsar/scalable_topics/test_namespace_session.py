"""Namespace watches of one connection: answers, changes, ends, bounds, and bad input."""

from __future__ import annotations

import asyncio
import random

import pytest

from nextgen.client.topic_lists.shared_lists import SharedTopicLists
from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.cluster import PROPERTIES_MAX
from nextgen.kernel.limits.scalable import (
    NAMESPACE_WATCH_ATTEMPTS_MAX,
    NAMESPACE_WATCH_BYTES,
    NAMESPACE_WATCHES_BYTES_MAX,
    NAMESPACE_WATCHES_PER_CONNECTION_MAX,
)
from nextgen.kernel.routing.property_filter import EVERY_TOPIC, parse_filter
from nextgen.pulsar.scalable_topics import namespace_session as module
from nextgen.pulsar.scalable_topics.namespace_session import NamespaceSession, NamespaceWatches
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.permits import MemoryPermits
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.discovery.namespace_watcher import watch_command
from tests.support.discovery.topic_list_world import (
    NAMESPACE,
    SCALABLE_PREFIX,
    LoggedShards,
    Node,
)
from tests.support.pulsar.fake_topic_lists import FakeListClient

A, B, C = (SCALABLE_PREFIX + local for local in "abc")


class World:
    """A session, its client, and lists over three shards."""

    def __init__(self) -> None:
        self.shards = LoggedShards(3, random.Random(1), page_items=1_000)
        self.node = Node(self.shards)
        self.shared = NamespaceWatches(self.node.lists)
        self.client = FakeListClient()
        self.session = NamespaceSession(self.client, self.shared)

    def create(self, name: str, **properties: str) -> None:
        self.shards.of_topic(name).create(name, **properties)

    def set_properties(self, name: str, **properties: str) -> None:
        self.shards.of_topic(name).set_properties(name, **properties)

    def delete(self, name: str) -> None:
        self.shards.of_topic(name).delete(name)

    def watch(
        self, *filters: str, watch_id: int = 7, known: str | None = None, namespace: str = ""
    ) -> None:
        properties = parse_filter(filters)
        self.session.handle(watch_command(watch_id, namespace or NAMESPACE.text, properties, known))

    def give_up(self, watch_id: int = 7) -> None:
        close = pulsar.CommandWatchScalableTopicsClose(watch_id=watch_id)
        self.session.handle(
            BaseCommand(
                type=BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE, watchScalableTopicsClose=close
            )
        )

    async def sent(self) -> list[pulsar.CommandWatchScalableTopicsUpdate]:
        """Return the updates since the last call, once nothing more is coming."""
        for _ in range(60):
            self.node.streams.advance()
            await asyncio.sleep(0)
        commands = self.client.take()
        assert all(each.type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE for each in commands)
        return [each.watchScalableTopicsUpdate for each in commands]

    async def diffs(self) -> list[tuple[list[str], list[str]]]:
        """Return what was added and removed since the last call."""
        return [(sorted(each.diff.added), sorted(each.diff.removed)) for each in await self.sent()]

    async def watched(self, *filters: str) -> list[str]:
        """Watch, and return the first answer."""
        self.watch(*filters)
        (first,) = await self.sent()
        assert first.HasField("snapshot")
        return list(first.snapshot.topics)


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(module, "TOPIC_WATCH_RETRY_MS", 0)
    monkeypatch.setattr(module, "NAMESPACE_CHANGES_GATHERED_MS", 0)
    world = World()
    yield world
    world.client.read()
    world.session.close()
    await world.sent()
    assert (world.shared.watches, world.shared.used_bytes) == (0, 0)
    assert world.node.lists.gauges()["topic_list_watchers"] == 0
    await world.node.lists.stop()


async def test_a_client_gets_the_topics_and_then_those_that_come_and_go(world):
    world.create(B)
    world.create("persistent://t/n/classic")
    world.create("topic://t/other/x")
    assert await world.watched() == [B]

    world.create(A)
    assert await world.diffs() == [([A], [])]
    world.delete(B)
    assert await world.diffs() == [([], [B])]
    world.set_properties(A, a="1")
    assert await world.diffs() == []


async def test_a_namespace_without_topics_is_answered_with_none(world):
    assert await world.watched() == []
    world.create(A)
    assert await world.diffs() == [([A], [])]


async def test_a_watch_has_the_topics_with_all_its_properties_and_follows_their_changes(world):
    world.create(A, a="1", b="2", c="3")
    world.create(B, a="1")
    assert await world.watched("a=1", "b=2") == [A]

    world.set_properties(B, a="1", b="2")
    assert await world.diffs() == [([B], [])]
    world.set_properties(A, a="1", b="3")
    assert await world.diffs() == [([], [A])]
    world.set_properties(A)
    world.delete(A)
    world.create(C, b="2")
    assert await world.diffs() == []


async def test_a_client_with_this_very_list_gets_no_names_and_then_the_changes(world):
    world.create(A)
    world.watch(known=topics_hash([A]))
    assert await world.sent() == []

    world.create(B)
    assert await world.diffs() == [([B], [])]


@pytest.mark.parametrize("known", [topics_hash([B]), topics_hash([]), "", "x", "0123456789"])
async def test_a_client_with_another_list_or_none_gets_the_names(world, known):
    world.create(A)
    world.watch(known=known)
    (update,) = await world.sent()
    assert list(update.snapshot.topics) == [A]


async def test_watches_of_a_connection_are_closed_one_by_one(world):
    world.create(A, a="1")
    world.watch(watch_id=1)
    world.watch("a=1", watch_id=2)
    world.watch("a=2", watch_id=3)
    firsts = {each.watch_id: list(each.snapshot.topics) for each in await world.sent()}
    assert firsts == {1: [A], 2: [A], 3: []}

    world.give_up(2)
    world.give_up(9)
    world.set_properties(A, a="2")

    (update,) = await world.sent()
    assert (update.watch_id, list(update.diff.added)) == (3, [A])
    assert world.shared.gauges() == {"namespace_watches": 2}


async def test_a_client_that_uses_an_id_again_has_given_the_earlier_watch_up(world):
    world.create(A, a="1")
    assert await world.watched() == [A]
    assert await world.watched("a=2") == []

    world.create(B)
    assert await world.diffs() == []
    assert world.shared.watches == 1


async def test_changes_that_follow_one_another_come_as_one(world, monkeypatch):
    monkeypatch.setattr(module, "NAMESPACE_CHANGES_GATHERED_MS", 20)
    world.create(A)
    assert await world.watched() == [A]

    world.create(B)
    assert await world.sent() == []
    world.create(C)
    world.delete(C)
    world.delete(A)
    world.create(A)
    async with timeout(30):
        while not (diffs := await world.diffs()):
            await asyncio.sleep(0.001)
    assert diffs == [([A, B], [A])]


async def test_all_watches_of_a_client_that_reads_nothing_have_one_update_in_its_connection(world):
    world.client.stop_reading()
    for watch_id in range(10):
        world.watch(watch_id=watch_id)
    assert await world.sent() == []
    for number in range(100):
        world.create(f"{A}-{number}")
    assert await world.sent() == []

    world.client.read()
    updates = await world.sent()
    assert [len(each.snapshot.topics) for each in updates] == [100] * 10


async def test_one_watch_sends_at_a_time(world):
    class SlowClient(FakeListClient):
        def send_command(self, command):
            super().send_command(command)
            self.stop_reading()

    world.session._client = world.client = SlowClient()
    for watch_id in range(3):
        world.watch(watch_id=watch_id)
    for watch_id in range(3):
        assert [each.watch_id for each in await world.sent()] == [watch_id]
        assert await world.sent() == []
        world.client.read()


async def test_an_update_waits_for_memory_that_other_clients_have(world, monkeypatch):
    monkeypatch.setattr(module, "TOPIC_LIST_FREE_BYTES", 0)
    world.shared.permits = MemoryPermits(100, wait_ms_max=1)
    world.create(A)
    async with world.shared.permits.hold(100):
        world.watch()
        await asyncio.sleep(0.01)
        assert await world.sent() == []
    async with timeout(30):
        while not (updates := await world.sent()):
            await asyncio.sleep(0.001)
    assert updates[0].HasField("snapshot")


async def test_a_list_beyond_a_frame_comes_as_names_and_further_ones(world, monkeypatch):
    monkeypatch.setattr(module, "TOPIC_LIST_BYTES_MAX", 3 * (len(A) + 10))
    names = [f"{A}-{number:03}" for number in range(20)]
    for name in names:
        world.create(name)

    world.watch()
    first, *others = await world.sent()

    assert first.HasField("snapshot")
    assert len(others) > 3
    assert all(each.HasField("diff") and not each.diff.removed for each in others)
    found = [*first.snapshot.topics, *(name for each in others for name in each.diff.added)]
    assert found == names


async def test_a_list_that_ends_goes_on_with_what_changed_meanwhile(world):
    world.create(A)
    world.create(B)
    assert await world.watched() == [A, B]

    world.node.streams.fail(Unavailable("the shard is gone"))
    world.delete(A)
    world.create(C)
    assert await world.diffs() == [([C], [A])]


async def test_a_list_that_ends_while_it_is_sent_loses_no_change(world):
    world.create(A)
    world.client.stop_reading()
    world.watch()
    await world.sent()
    world.node.streams.fail(Unavailable("the shard is gone"))
    world.create(B)
    await world.sent()

    world.client.read()
    first, *others = await world.sent()
    assert {*first.snapshot.topics, *(n for each in others for n in each.diff.added)} == {A, B}


async def test_without_memory_for_a_list_that_grew_its_client_gets_the_names_again(world):
    world.create(A)
    assert await world.watched() == [A]

    (shared,) = world.node.lists._lists.values()
    world.node.lists._remove((NAMESPACE.text, shared.selection.key), Overloaded("too large"))
    world.create(B)

    (update,) = await world.sent()
    assert list(update.snapshot.topics) == [A, B]


# Refusals -----------------------------------------------------------------------------------------


class Failing:
    """Lists that fail a number of times."""

    def __init__(self, lists: SharedTopicLists, error: Exception, times: int) -> None:
        self.times = times
        self.asked = 0
        self._lists = lists
        self._error = error

    async def watch_scalable(self, *arguments):
        self.asked += 1
        if self.asked <= self.times:
            raise self._error
        return await self._lists.watch_scalable(*arguments)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable("no leader"), pulsar.ServiceNotReady),
        (Overloaded("no memory"), pulsar.TooManyRequests),
        (RuntimeError("a bug"), pulsar.UnknownError),
    ],
)
async def test_a_client_without_a_list_gets_the_error_after_some_attempts(world, error, code):
    failing = world.shared.lists = Failing(world.node.lists, error, 1_000)
    world.watch()
    (update,) = await world.sent()
    assert (update.watch_id, update.error) == (7, code)
    assert str(error) in update.message
    assert failing.asked == (1 if isinstance(error, RuntimeError) else NAMESPACE_WATCH_ATTEMPTS_MAX)
    assert world.shared.counts()["namespace_watches_refused"] == 1


async def test_namespace_watch_attempts_max_minus_one_failures_pass_unnoticed(world):
    times = NAMESPACE_WATCH_ATTEMPTS_MAX - 1
    world.shared.lists = Failing(world.node.lists, Unavailable("no leader"), times)
    assert await world.watched() == []


async def test_a_client_with_a_list_is_served_however_long_that_takes(world):
    times = 3 * NAMESPACE_WATCH_ATTEMPTS_MAX
    world.shared.lists = Failing(world.node.lists, Unavailable("no leader"), times)
    world.create(A)
    world.watch(known=topics_hash([B]))
    (update,) = await world.sent()
    assert list(update.snapshot.topics) == [A]


@pytest.mark.parametrize(
    "namespace", ["t", "t/n/x", "", "t/..", "t/ n", "topic://t/n", "x" * 3_000, "t/\0"]
)
async def test_a_bad_namespace_is_refused(world, namespace):
    command = watch_command(7, namespace, EVERY_TOPIC)
    world.session.handle(command)
    (update,) = await world.sent()
    assert (update.watch_id, update.error) == (7, pulsar.InvalidTopicName)
    assert len(update.message) < 500


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "1"), ("a", "2")],
        [(str(number), "") for number in range(PROPERTIES_MAX + 1)],
        [("a", "x" * 1_000_000)],
    ],
)
async def test_filters_that_no_topic_can_match_are_refused(world, pairs):
    command = watch_command(7, NAMESPACE.text, EVERY_TOPIC)
    for key, value in pairs:
        command.watchScalableTopics.property_filters.add(key=key, value=value)
    world.session.handle(command)
    (update,) = await world.sent()
    assert update.error == pulsar.NotAllowedError
    assert len(update.message) < 500
    assert not world.node.streams.watches


async def test_namespace_watches_per_connection_max_are_served_and_one_more_is_refused(world):
    for watch_id in range(NAMESPACE_WATCHES_PER_CONNECTION_MAX):
        world.watch(watch_id=watch_id)
    assert world.shared.watches == NAMESPACE_WATCHES_PER_CONNECTION_MAX
    world.watch(watch_id=NAMESPACE_WATCHES_PER_CONNECTION_MAX)

    updates = await world.sent()
    while len(updates) <= NAMESPACE_WATCHES_PER_CONNECTION_MAX:
        updates += await world.sent()
    (refused,) = (each for each in updates if each.HasField("error"))
    assert refused.watch_id == NAMESPACE_WATCHES_PER_CONNECTION_MAX
    assert refused.error == pulsar.TooManyRequests


async def test_namespace_watches_bytes_max_are_used_and_no_more(world):
    assert world.shared.bytes_max == NAMESPACE_WATCHES_BYTES_MAX
    world.shared.bytes_max = 2 * NAMESPACE_WATCH_BYTES + 2
    world.watch("a=1", watch_id=1)
    world.watch("a=", watch_id=2)
    world.watch(watch_id=2)
    world.watch(watch_id=3)
    assert [each.watch_id for each in await world.sent() if each.HasField("error")] == [2, 3]

    world.give_up(1)
    await world.sent()
    world.watch("a=1", watch_id=3)
    (served,) = await world.sent()
    assert served.HasField("snapshot")


async def test_a_watch_keeps_the_permission_to_list_until_it_ends(world):
    world.watch()
    await world.sent()
    need = (Action.LIST, Resource.namespace(NAMESPACE.text), "")
    assert world.client.access.kept == {need: 1}

    world.give_up()
    await world.sent()
    assert world.client.access.kept == {}
