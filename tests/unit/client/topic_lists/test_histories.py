"""Random histories of topics, broken streams, lost leaders, cut logs and lists that end: watchers
miss nothing, and a stock client has the topics that there are, by updates alone."""

from __future__ import annotations

import asyncio
import random

import pytest

from nextgen.client.topic_lists import place as place_module
from nextgen.client.topic_lists import shared_list, turns
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.routing.property_filter import parse_filter
from nextgen.pulsar.scalable_topics import namespace_session
from nextgen.pulsar.topic_lists import session
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from tests.support.discovery.namespace_watcher import NamespaceWatcher
from tests.support.discovery.topic_list_world import (
    PREFIX,
    SCALABLE_PREFIX,
    ClientWatcher,
    LoggedShards,
    Node,
    Watcher,
)

PATTERNS = (".*", "t/n/a.*", "t/n/.*[02468]", "t/n/b-1", "t/n/none")
FILTERS = tuple(map(parse_filter, ((), ("a=1",), ("a=1", "b=2"), ("c=3",))))
OTHER_PREFIX = "persistent://t/other/"
LOCALS = [*(f"{letter}-{number}" for letter in "ab" for number in range(12)), "__change_events"]


AnyWatcher = Watcher | ClientWatcher | NamespaceWatcher


class History:
    """Two nodes with watchers, and everything that may happen to them."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.shards = LoggedShards(chance.randint(1, 4), chance)
        self.nodes = [Node(self.shards), Node(self.shards)]
        self.watchers: list[AnyWatcher] = [
            kind(chance.choice(PATTERNS)) for kind in (Watcher, ClientWatcher) * 4
        ]
        self.watchers += [NamespaceWatcher(chance.choice(FILTERS)) for _ in range(4)]

    def change(self) -> None:
        """Let something happen to a topic."""
        name = self.chance.choice((PREFIX, PREFIX, OTHER_PREFIX, SCALABLE_PREFIX))
        name += self.chance.choice(LOCALS)
        if name.startswith(SCALABLE_PREFIX):
            self._change_scalable(name)
            return
        shard = self.shards.home_of(name)
        partitions = shard.topics[-1].get(name)
        new_name = self.chance.choice((PREFIX, OTHER_PREFIX)) + self.chance.choice(LOCALS[:-1])
        if partitions is None:
            shard.create(name, self.chance.choice((0, 0, 2)))
        elif self.chance.random() < 0.3 and not self._is_taken(new_name):
            shard.rename(name, new_name)
        elif partitions and self.chance.random() < 0.4:
            shard.grow(name, partitions + self.chance.randint(1, 3))
        elif self.chance.random() < 0.3:
            shard.touch(name)
        else:
            shard.delete(name)

    def _is_taken(self, name: str) -> bool:
        return name in self.shards.home_of(name).topics[-1]

    def _change_scalable(self, name: str) -> None:
        shard = self.shards.of_topic(name)
        properties = {key: self.chance.choice("123") for key in "abc" if self.chance.random() < 0.7}
        if name not in shard.topics[-1]:
            shard.create(name, **properties)
        elif self.chance.random() < 0.7:
            shard.set_properties(name, **properties)
        else:
            shard.delete(name)

    def disturb(self) -> None:
        """Break a stream, lose a leader, cut a log, end a list, or mend one of these."""
        node = self.chance.choice(self.nodes)
        watcher = self.chance.choice(self.watchers)
        match self.chance.randrange(7):
            case 0:
                node.streams.is_connected = not node.streams.is_connected
            case 1:
                self.shards.failures = self.chance.choice((0.0, 0.3, 0.8))
            case 2:
                for stream in node.streams.streams():
                    if self.chance.random() < 0.5 and stream.position is not None:
                        stream.cut()
            case 3:
                watcher.is_paused = not watcher.is_paused
            case 4 if isinstance(watcher, ClientWatcher):
                watcher.reconcile()
            case 5:
                node.streams.fail(Unavailable("the shard is gone"))

    async def move(self) -> None:
        """Let a watcher come back at either node, as after a lost connection."""
        watcher = self.chance.choice(self.watchers)
        await self._begin(watcher)

    async def begin(self) -> None:
        for watcher in self.watchers:
            await self._begin(watcher)

    async def _begin(self, watcher: AnyWatcher) -> None:
        await watcher.leave()
        watcher.is_paused = False
        node = self.chance.choice(self.nodes)
        beginning = asyncio.ensure_future(watcher.begin(node))
        while not beginning.done():
            if self.chance.random() < 0.3:
                self.change()
            self.step()
            node.streams.is_connected |= self.chance.random() < 0.2
            if self.chance.random() < 0.1:
                self.shards.failures = 0.0
            await asyncio.sleep(0)
        beginning.result()

    def step(self) -> None:
        for node in self.nodes:
            if self.chance.random() < 0.7:
                node.streams.advance(self.chance.randint(1, 4))

    async def settle(self) -> None:
        """Mend everything, and wait until nothing happens any more."""
        self.shards.failures = 0.0
        for watcher in self.watchers:
            watcher.is_paused = False
        async with timeout(30):
            for node in self.nodes:
                node.streams.is_connected = True
            while not all(map(self._is_settled, self.watchers)):
                for node in self.nodes:
                    node.streams.advance()
                await asyncio.sleep(0)

    def _is_settled(self, watcher: AnyWatcher) -> bool:
        if watcher.failure is not None:
            raise watcher.failure
        return watcher.names == watcher.truth(self.shards)

    def check(self) -> None:
        for watcher in self.watchers:
            names = watcher.truth(self.shards)
            assert watcher.names == names
            assert watcher.hash == topics_hash(names)

    async def stop(self) -> None:
        for watcher in self.watchers:
            await watcher.leave()
        for node in self.nodes:
            await node.lists.stop()
            assert node.lists.gauges()["topic_list_watchers"] == 0
            assert node.lists.gauges()["topic_list_bytes"] == 0
            assert not node.streams.watches


async def replay(seed: int, rounds: int) -> History:
    history = History(seed)
    for _ in range(history.chance.randint(0, 40)):
        history.change()
    await history.begin()
    for _ in range(rounds):
        for _ in range(history.chance.randint(1, 30)):
            history.change()
            history.step()
            await asyncio.sleep(0)
            if history.chance.random() < 0.2:
                history.disturb()
        if history.chance.random() < 0.5:
            await history.move()
        await history.settle()
        history.check()
    await history.stop()
    return history


@pytest.fixture
def quick(monkeypatch):
    """No pause before a shard is read again, few names wait for a watcher, short turns."""
    monkeypatch.setattr(turns, "PATTERN_MATCHING_TURN_MS", 0)
    monkeypatch.setattr(shared_list, "TOPIC_LIST_CHANGE_NAMES_MAX", 4)
    monkeypatch.setattr(shared_list, "_PAUSE_MS_MIN", 0)
    monkeypatch.setattr(shared_list, "_PAUSE_MS_MAX", 0)
    monkeypatch.setattr(place_module, "TOPIC_LIST_PENDING_NAMES_MAX", 10)
    monkeypatch.setattr(shared_list, "TOPIC_LIST_PENDING_NAMES_MAX", 10)
    monkeypatch.setattr(session, "TOPIC_WATCH_RETRY_MS", 0)
    monkeypatch.setattr(session, "TOPIC_LIST_FREE_BYTES", 150)
    monkeypatch.setattr(namespace_session, "TOPIC_WATCH_RETRY_MS", 0)
    monkeypatch.setattr(namespace_session, "TOPIC_LIST_FREE_BYTES", 150)
    monkeypatch.setattr(namespace_session, "NAMESPACE_CHANGES_GATHERED_MS", 0)
    monkeypatch.setattr(namespace_session, "TOPIC_LIST_BYTES_MAX", 150)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", range(40))
async def test_every_watcher_has_the_truth_after_each_quiet_moment(seed):
    history = await replay(seed, rounds=6)
    assert sum(watcher.changes for watcher in history.watchers) > 10
