"""Whatever happens, whoever watches, resumes, lags or is cut off: a watch is told exactly the log,
filtered, in order, or a snapshot of one position and the log behind it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.client.changes.index import ChangeIndex, change_of
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT, KIND_TOPIC, Item
from shards.domain import tenant, topic
from shards.watches import change_delivery, change_hub, change_joining, change_snapshot
from shards.wire.event import DomainEvent
from tests.support.shards.events import TIME_MS
from tests.support.shards.watch_world import Recorder, WatchWorld, concerning, in_watch_world

NAMES = ["a", "ab", "abc", "b", "ba", "c"]
KINDS = [[KIND_TENANT], [KIND_TOPIC], [KIND_TENANT, KIND_TOPIC]]

STEPS = st.one_of(
    st.tuples(st.just("change"), st.sampled_from(NAMES), st.sampled_from(KINDS[:2])),
    st.tuples(st.just("change"), st.sampled_from(NAMES), st.sampled_from(KINDS[:2])),
    st.tuples(st.just("burst"), st.integers(2, 9), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.sampled_from(KINDS[:2])),
    st.tuples(st.just("watch"), st.integers(0, 1), st.sampled_from(KINDS), st.integers(0, 7)),
    st.tuples(st.just("resume"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("read"), st.integers(0, 1), st.integers(1, 4)),
    st.tuples(st.just("cut")),
    st.tuples(st.just("turn")),
)
WANTED: list[dict[str, object]] = [
    {"prefix": ""},
    {"prefix": "a"},
    {"prefix": "ab"},
    {"names": ["a", "ba"]},
    {"names": ["abc"]},
    {"prefix": "zebra"},
    {"prefix": "", "without_snapshot": True},
    {"prefix": "b", "from_position": 1},
]


class Objects:
    """What exists, and the events that change it, as the shard's commands would make them."""

    def __init__(self) -> None:
        self.versions: dict[tuple[int, str], int] = {}
        self._births = 0

    def change(self, kind: int, name: str) -> DomainEvent:
        version = self.versions.get((kind, name), 0)
        self.versions[kind, name] = version + 1
        if version:
            properties = (("version", str(version + 1)),)
            if kind == KIND_TENANT:
                return tenant.TenantPropertiesSet(name, properties)
            return topic.TopicPropertiesSet(name, properties)
        self._births += 1
        if kind == KIND_TENANT:
            return tenant.TenantCreated(f"id-{self._births}", name)
        return topic.TopicCreated(f"id-{self._births}", name, 0, "ns-1", TIME_MS)

    def delete(self, kind: int, name: str) -> DomainEvent | None:
        if not self.versions.pop((kind, name), 0):
            return None
        if kind == KIND_TENANT:
            return tenant.TenantDeleted(name, "id")
        return topic.TopicDeleted(name, "id")


class Watched(Recorder):
    """A recorder that knows what it should have received."""

    def __init__(self, kinds: list[int], wanted: dict[str, object], since: int) -> None:
        super().__init__()
        self.kinds = kinds
        self.wanted = wanted
        self.since = since
        """Every event behind it must be received, until a reset."""

    def on_reset(self) -> None:
        super().on_reset()
        self.since = -1

    def on_events(self, events: Sequence[Event]) -> None:
        super().on_events(events)
        if self.since < 0 and self.snapshot_position is None:
            # The present, as of when the shard read of the watch: nothing is missing behind it.
            self.since = events[0].position - 1

    def on_position(self, position: int) -> None:
        super().on_position(position)
        if self.since < 0:
            # A beginning: with a snapshot as of it, or with the present.
            self.since = position if self.snapshot_position is None else self.snapshot_position

    def wants(self, name: str) -> bool:
        named = self.wanted.get("names")
        if isinstance(named, list):
            return name in named
        return name.startswith(str(self.wanted["prefix"]))


class Play:
    """One run: a shard, two subscribers, and what happens to them."""

    def __init__(self, world: WatchWorld) -> None:
        self.world = world
        self.objects = Objects()
        self.subscribers = [world.subscriber(f"subscriber-{number}") for number in range(2)]
        self.watched: list[Watched] = []
        self.history: list[Event] = []
        self.snapshots: dict[int, dict[tuple[int, str], int]] = {0: {}}
        for subscriber in self.subscribers:
            leased = Watched([KIND_TENANT, KIND_TOPIC], {"prefix": "a"}, -1)
            subscriber.watch(
                leased,
                kinds=leased.kinds,
                prefix="a",
                without_snapshot=True,
                leased=True,
                on_lease=lambda _confirmed_at_ms, _ttl_ms: None,
            )
            self.watched.append(leased)

    async def run(self, steps: list[tuple[Any, ...]]) -> None:
        for name, *arguments in steps:
            await getattr(self, name)(*arguments)
        for subscriber in self.subscribers:
            await subscriber.until_position(self.world.log.commit_position)
        for seen in self.watched:
            _check(seen, self.history, self.snapshots)

    async def commit(self, event: DomainEvent) -> None:
        last = await self.world.commit(event)
        self.history.append(self.world.history()[-1])
        self.snapshots[last] = dict(self.objects.versions)

    async def change(self, name: str, kinds: list[int]) -> None:
        await self.commit(self.objects.change(kinds[0], name))

    async def burst(self, count: int, name: str) -> None:
        for _ in range(count):
            await self.commit(self.objects.change(KIND_TOPIC, name))

    async def delete(self, name: str, kinds: list[int]) -> None:
        event = self.objects.delete(kinds[0], name)
        if event is not None:
            await self.commit(event)

    async def watch(self, which: int, kinds: list[int], choice: int) -> None:
        wanted = dict(WANTED[choice])
        since = min(int(str(wanted.get("from_position", 0))), self.world.log.commit_position)
        wanted["from_position"] = since
        seen = Watched(kinds, wanted, since or -1)
        self.subscribers[which].watch(seen, kinds=kinds, **wanted)
        self.watched.append(seen)

    async def resume(self, which: int, is_late: bool) -> None:
        self.subscribers[which].disconnect()
        if is_late:
            await self.commit(self.objects.change(KIND_TOPIC, "abc"))
        self.subscribers[which].connect()

    async def read(self, which: int, count: int) -> None:
        for _ in range(count):
            await self.subscribers[which].step()

    async def cut(self) -> None:
        await self.world.log.compact()

    async def turn(self) -> None:
        await asyncio.sleep(0)


def _check(
    seen: Watched, history: list[Event], snapshots: dict[int, dict[tuple[int, str], int]]
) -> None:
    behind = [event for event in history if event.position > max(0, seen.since)]
    matching = concerning(behind, seen.kinds, "")
    expected = [position for position in matching if seen.wants(_name(history[position - 1]))]
    assert seen.positions == expected
    assert seen.error is None
    assert all(event == history[event.position - 1] for event in seen.events)
    if seen.snapshot_position is not None:
        held = {
            key: version
            for key, version in snapshots[seen.snapshot_position].items()
            if key[0] in seen.kinds and seen.wants(key[1])
        }
        assert {(item.kind, item.name): _version(item) for item in seen.items} == held
        assert len(seen.items) == len(held)


def _name(event: Event) -> str:
    change = change_of(event)
    assert change is not None, "it was found to be watched"
    return change[1]


def _version(item: Item) -> int:
    return item.tenant.version or item.topic.version


@settings(max_examples=60)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_every_watch_gets_exactly_the_filtered_log(steps: list[tuple[Any, ...]]) -> None:
    async def scenario(world: WatchWorld) -> None:
        world.lead()
        await Play(world).run(steps)

    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(change_delivery, "_PROGRESS_SECONDS", 0.001),
        mock.patch.object(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", 3),
        mock.patch.object(change_delivery, "WATCH_EVENTS_PER_SLICE", 2),
        mock.patch.object(change_delivery, "WATCH_EVENTS_PER_UPDATE_MAX", 2),
        mock.patch.object(change_joining, "WATCH_EVENTS_PER_SLICE", 2),
        mock.patch.object(change_joining, "WATCH_JOINING_MAX", 2),
        mock.patch.object(change_hub, "WATCH_HUB_EVENTS_MAX", 6),
        mock.patch.object(change_hub, "WATCH_EVENTS_PER_SLICE", 2),
        mock.patch.object(change_snapshot, "WATCH_SNAPSHOT_ITEMS_PER_PAGE", 2),
    ):
        in_watch_world(Path(directory), scenario)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(KINDS),
            st.one_of(
                st.text("ab", max_size=3),
                st.lists(st.text("ab", min_size=1, max_size=3), min_size=1),
            ),
        ),
        max_size=12,
    ),
    st.data(),
)
def test_the_index_finds_what_a_look_at_every_watch_would_find(
    watches: list[tuple[int, list[int], str | list[str]]], data: st.DataObject
) -> None:
    index: ChangeIndex[int, int] = ChangeIndex()
    held = dict(enumerate(watches))
    for number, (owner, kinds, wanted) in held.items():
        prefix, names = (wanted, ()) if isinstance(wanted, str) else ("", tuple(set(wanted)))
        index.add(owner, number, kinds, prefix=prefix, names=names)  # type: ignore[arg-type]
    gone = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    for number in gone:
        owner, kinds, wanted = held.pop(number)
        prefix, names = (wanted, ()) if isinstance(wanted, str) else ("", tuple(set(wanted)))
        index.discard(owner, number, kinds, prefix=prefix, names=names)  # type: ignore[arg-type]
    kind = data.draw(st.sampled_from([KIND_TENANT, KIND_TOPIC]))
    name = data.draw(st.text("ab", min_size=1, max_size=4))

    expected = {
        number
        for number, (_, kinds, wanted) in held.items()
        if kind in kinds
        and (name.startswith(wanted) if isinstance(wanted, str) else name in wanted)
    }
    assert {
        watch for each in index.find((kind, name)) for found in each.values() for watch in found
    } == expected
    for owner in range(3):
        of_owner = list(index.find_of(owner, [(kind, name)]))
        assert len(of_owner) == len(set(of_owner))
        assert set(of_owner) == {number for number in expected if watches[number][0] == owner}
    assert bool(index) == bool(held)
    if len(gone) == len(watches):
        assert all(not of_kind.names and not of_kind.prefixes for of_kind in index._kinds.values())
