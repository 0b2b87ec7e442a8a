"""The leased watch from the hub to a cache of answers, as a discovery node carries it."""

from __future__ import annotations

import asyncio

import pytest

from discovery.adapters.shard_changes.leased_assignments import LeasedAssignments
from discovery.domain.answer_cache import AnswerCache
from discovery.domain.partition_counts import PartitionCounts
from discovery.wire import answer_facts, encoded_answer, encoded_answer_facts
from nextgen.client.changes.watch_places import WatchPlaces
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_CREATIONS_MS,
    ASSIGNMENT_TTL_MS,
    ASSIGNMENT_UPDATE_MS,
)
from nextgen.kernel.limits.discovery import LEASES_UNUSED_MS
from nextgen.kernel.limits.stream import ASSIGNMENT_REST_MS
from protos.nextgen.v1.events_pb2 import Event, SlotsReleased
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, LookupAnswer
from shards.watches import change_delivery
from tests.support.discovery.absent_names import absent_names
from tests.support.scenarios import run_by
from tests.support.shards.leased_subscriber import (
    LeasedSubscriber,
    LeaseWorld,
    assigned,
    created,
    in_lease_world,
)
from tests.unit.discovery.adapters.test_leased_assignments import FakeStream

SHARD = 1
TOPIC = "persistent://t/n/x"
TTL_S = ASSIGNMENT_TTL_MS / 1_000
LATENCY_S = 0.05


class Node:
    """A discovery node's cache behind a leased watch, over a network that takes its time."""

    def __init__(self, it: LeaseWorld) -> None:
        self._it = it
        self.lookups = 0
        self.cache = AnswerCache(encoded_answer_facts, answers_max=9, aliases_max=9, deltas_max=99)
        self.absent = absent_names()
        self._subscriber: LeasedSubscriber | None = None
        self._stream = FakeStream()
        self._stream.renew_lease = self._renew_if_connected  # type: ignore[method-assign]
        self._assignments = LeasedAssignments(
            self._stream,  # type: ignore[arg-type]
            self.cache,
            self.absent,
            PartitionCounts(counts_max=2),
            lambda: self.lookups,
        )
        self._places = WatchPlaces()
        self._watch_id = self._places.add(
            self._assignments,
            kinds=[KIND_ASSIGNMENT],
            prefix="",
            names=(),
            from_position=0,
            without_snapshot=True,
            leased=True,
            on_lease=self._assignments._renew,
            on_created=self._assignments._take_creations,
        )

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def has_answer(self) -> bool:
        return self.cache.has_answer(TOPIC, self.now)

    def connect(self) -> None:
        self._connect(names_creations=True)

    def connect_as_of_an_earlier_release(self) -> None:
        """Follow a leader that does not know what ``WatchAdd.creations`` asks for."""
        self._connect(names_creations=False)

    def _connect(self, *, names_creations: bool) -> None:
        add = self._places.request(self._watch_id)
        assert add.creations, "a discovery node always asks for it"
        self._subscriber = self._it.subscribe(
            from_position=add.from_position, creations=names_creations
        )
        self._renew()

    def disconnect(self) -> None:
        assert self._subscriber is not None, "connect first"
        self._subscriber.close()
        self._places.disconnected()

    async def step(self) -> None:
        """Take one update in and acknowledge it."""
        assert self._subscriber is not None, "connect first"
        await asyncio.sleep(LATENCY_S)
        self._places.take(await self._subscriber.take(), self.now)
        self._renew()

    async def steps_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            await self.step()

    def _renew_if_connected(self) -> None:
        if self._subscriber is not None:
            self._renew()

    def _renew(self) -> None:
        assert self._subscriber is not None, "connect first"
        self._stream.rests = self._stream.may_rest()
        self._subscriber.acknowledge(
            self._places.leased_position or 0,
            asked_at_ms=int(self.now * 1_000),
            creations_may_wait=self._stream.may_creations_wait(),
            may_rest=self._stream.rests,
        )

    def look_up(self) -> bool:
        """Look the topic up; return whether the cache had the answer. Else its shard is asked."""
        self.lookups += 1
        if not self.has_answer:
            self._assignments.wake()
        return self.has_answer


def test_a_node_that_catches_up_gives_nothing_from_before_an_effective_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. An answer is cached. 2. The node is cut off for longer than its lease, and a move is
    effective without it. 3. It returns, and catches up page by page."""
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_SLICE", 5)

    async def scenario(it: LeaseWorld) -> None:
        position = await it.commit(assigned(TOPIC))
        node = Node(it)
        node.connect()
        await node.steps_for(TTL_S)
        answer = LookupAnswer(topic=TOPIC, epoch=1, session_id="s", topic_id="i", position=position)
        assert node.cache.insert(SHARD, encoded_answer(answer), answer_facts(answer))
        assert node.has_answer, "the scenario needs a cached answer"

        node.disconnect()
        for number in range(200):
            await it.commit(created(f"t-{number}"))
        moved = await it.commit(assigned(TOPIC, 2, "broker-2"))
        await it.wait_moved(moved, TOPIC)
        assert not node.has_answer
        node.connect()
        while node.cache.position(SHARD) < moved:
            await node.step()
            assert not node.has_answer, f"a page up to {node.cache.position(SHARD)} renewed it"

        assert node.now > TTL_S, "the scenario needs several confirmations"
        await node.steps_for(1)
        moved_answer = LookupAnswer(topic=TOPIC, epoch=2, topic_id="i", position=moved)
        node.cache.insert(SHARD, encoded_answer(moved_answer), answer_facts(moved_answer))
        assert node.has_answer, "a node that has caught up answers again"
        node.disconnect()

    in_lease_world(scenario)


@pytest.mark.parametrize("is_resumed", [True, False])
@run_by(in_lease_world)
async def test_a_watch_that_does_not_resume_begins_with_a_reset_and_has_no_other(
    it: LeaseWorld, *, is_resumed: bool
) -> None:
    position = await it.commit(assigned("persistent://t/n/other"))
    subscriber = it.subscribe(from_position=position if is_resumed else 0)

    first = await subscriber.take()
    moved = await it.commit(assigned(TOPIC, 2))
    later = await subscriber.until(moved)

    assert first.reset is not is_resumed
    assert not any(update.reset for update in later)


@run_by(in_lease_world)
async def test_a_watch_has_an_update_when_one_is_due(it: LeaseWorld) -> None:
    subscriber = it.subscribe()
    assert await subscriber.drain() is not None
    began_at = asyncio.get_running_loop().time()

    await subscriber.take()

    passed_s = asyncio.get_running_loop().time() - began_at
    assert passed_s == pytest.approx(ASSIGNMENT_UPDATE_MS / 1_000, abs=0.001)
    assert not await subscriber.has_update()


# Rest ---------------------------------------------------------------------------------------------


@run_by(in_lease_world)
async def test_answers_end_while_nobody_asks_and_are_given_again_behind_the_first_that_does(
    it: LeaseWorld,
) -> None:
    position = await it.commit(assigned(TOPIC))
    node = Node(it)
    node.connect()
    await node.steps_for(TTL_S)
    answer = LookupAnswer(topic=TOPIC, epoch=1, session_id="s", topic_id="i", position=position)
    assert node.cache.insert(SHARD, encoded_answer(answer), answer_facts(answer))
    assert node.look_up()

    await node.steps_for((LEASES_UNUSED_MS + ASSIGNMENT_REST_MS) / 1_000)
    assert not node.look_up(), "an answer that nothing has confirmed since"

    asked_at = node.now
    await node.step()
    assert node.look_up(), "confirmed at once"
    assert node.now - asked_at <= 2 * LATENCY_S
    await node.steps_for(TTL_S)
    assert node.look_up(), "and regularly from here on"


@run_by(in_lease_world)
async def test_a_node_at_rest_takes_a_move_in_before_it_is_effective(it: LeaseWorld) -> None:
    position = await it.commit(assigned(TOPIC))
    node = Node(it)
    node.connect()
    await node.steps_for(TTL_S)
    answer = LookupAnswer(topic=TOPIC, epoch=1, session_id="s", topic_id="i", position=position)
    node.cache.insert(SHARD, encoded_answer(answer), answer_facts(answer))
    await node.steps_for((LEASES_UNUSED_MS + ASSIGNMENT_REST_MS) / 1_000)

    moved = await it.commit(assigned(TOPIC, 2, "broker-2"))
    moving = it.wait_moved(moved, TOPIC)
    await node.step()
    await asyncio.sleep(LATENCY_S)

    assert moving.done(), "its update came at once, and was acknowledged"
    assert not node.look_up()
    await node.step()
    assert not node.look_up(), "the answer is gone, not only unconfirmed"


# Absent names -------------------------------------------------------------------------------------


def remember_absence(node: Node, position: int) -> bool:
    return node.absent.put(SHARD, TOPIC, TOPIC, b"absent", position=position, now=node.now)


def is_absent(node: Node) -> bool:
    return node.absent.find(TOPIC, node.now) is not None


@run_by(in_lease_world)
async def test_a_creation_ends_the_absence_at_a_node_within_the_time_it_waits_for_others(
    it: LeaseWorld,
) -> None:
    position = await it.commit(created("persistent://t/n/other"))
    node = Node(it)
    node.connect()
    await node.step()
    await node.step()
    assert remember_absence(node, position)
    assert is_absent(node), "the scenario needs a remembered absence"

    created_at = node.now
    await it.commit(created(TOPIC))
    while is_absent(node):
        await node.step()

    assert node.now - created_at <= ASSIGNMENT_CREATIONS_MS / 1_000 + 2 * LATENCY_S
    assert node.cache.position(SHARD) == position + 1


@run_by(in_lease_world)
async def test_an_absence_ends_with_the_lease_of_a_node_that_is_cut_off(it: LeaseWorld) -> None:
    await it.commit(assigned("persistent://t/n/other"))
    node = Node(it)
    node.connect()
    await node.steps_for(1.0)
    node.disconnect()
    assert remember_absence(node, it.log.commit_position)

    await asyncio.sleep(TTL_S - 0.1)

    assert not is_absent(node)


@run_by(in_lease_world)
async def test_a_creation_that_a_node_missed_is_named_by_the_next_leader_before_its_lease(
    it: LeaseWorld,
) -> None:
    """1. An absence is remembered. 2. The node loses its stream, the topic is created, and another
    replica leads. 3. The node resumes there: nothing may be absent by the new leader's lease."""
    position = await it.commit(assigned("persistent://t/n/other"))
    node = Node(it)
    node.connect()
    await node.steps_for(1.0)
    node.disconnect()
    await it.commit(created(TOPIC))
    it.end_term()
    it.lead()
    assert remember_absence(node, position)

    node.connect()
    seen = []
    for _ in range(3):
        await node.step()
        seen.append(is_absent(node))

    assert seen == [False] * 3
    assert node.cache.position(SHARD) == position + 1


@run_by(in_lease_world)
async def test_nothing_is_remembered_while_the_leader_names_no_creations(it: LeaseWorld) -> None:
    await it.commit(assigned("persistent://t/n/other"))
    node = Node(it)
    node.connect()
    await node.step()
    assert remember_absence(node, it.log.commit_position)
    node.disconnect()

    node.connect_as_of_an_earlier_release()
    await node.step()

    assert not is_absent(node)
    assert not remember_absence(node, it.log.commit_position)


@run_by(in_lease_world)
async def test_answers_of_a_shard_end_with_the_slots_that_it_releases(it: LeaseWorld) -> None:
    """Another shard decides from here on. What this one answers goes on behind the release."""
    position = await it.commit(assigned(TOPIC))
    node = Node(it)
    node.connect()
    await node.steps_for(1)
    answer = LookupAnswer(topic=TOPIC, epoch=1, session_id="s", topic_id="i", position=position)
    assert node.cache.insert(SHARD, encoded_answer(answer), answer_facts(answer))
    assert node.has_answer
    assert remember_absence(node, position)

    released = await it.commit(Event(slots_released=SlotsReleased(move_id=1, to_shard=2)))
    while node.cache.position(SHARD) < released:
        await node.step()
        assert node.cache.position(SHARD) < released or not node.has_answer

    assert not is_absent(node)
    assert not node.cache.insert(SHARD, encoded_answer(answer), answer_facts(answer))
    await node.steps_for(1)
    assert not node.has_answer
    later = LookupAnswer(topic=TOPIC, epoch=1, session_id="s", topic_id="i", position=released)
    assert node.cache.insert(SHARD, encoded_answer(later), answer_facts(later))
    assert node.has_answer
    node.disconnect()


@run_by(in_lease_world)
async def test_a_release_that_is_read_from_the_log_ends_answers_as_well(it: LeaseWorld) -> None:
    position = await it.commit(assigned(TOPIC))
    node = Node(it)
    node.connect()
    await node.steps_for(1)
    answer = LookupAnswer(topic=TOPIC, epoch=1, session_id="s", topic_id="i", position=position)
    node.cache.insert(SHARD, encoded_answer(answer), answer_facts(answer))
    assert node.has_answer

    node.disconnect()
    released = await it.commit(Event(slots_released=SlotsReleased(move_id=1, to_shard=2)))
    node.connect()
    while node.cache.position(SHARD) < released:
        await node.step()
    await node.steps_for(1)

    assert not node.has_answer
    node.disconnect()
