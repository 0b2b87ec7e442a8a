"""Registered consumers of a process, against a real shard: joins, returns, leaves, lost leaders."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.client.scalable_topics import attached as module
from nextgen.client.scalable_topics.consumers import SharedConsumers
from nextgen.kernel.errors import MetadataError, Refused, StaleShardMap, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.scalable import (
    CONSUMERS_PER_ATTACH_MAX,
    SCALABLE_ATTACH_RENEWAL_MS,
    SCALABLE_CONSUMER_GRACE_MS,
    SCALABLE_NODE_SILENCE_MS,
)
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.pulsar.scalable_topics.ports import ConsumerAssignment, JoinRequest, KnownLayout
from nextgen.tasks.background import failures
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.layouts_pb2 import ScalableTopic
from shards.domain.scalable.commands import (
    CreateScalableTopic,
    DeleteScalableTopic,
    DeleteSubscription,
    RemoveConsumer,
    ScalableTopicCommand,
)
from shards.wire.scalable import pack_scalable_topic
from tests.support.processes.kept_tasks import break_kept
from tests.support.scenarios import run_by
from tests.support.shards.harness import SHARD, Harness, in_shard
from tests.support.shards.scalable import NAME, accepted

GRACE_S = SCALABLE_CONSUMER_GRACE_MS / 1_000
SILENCE_S = SCALABLE_NODE_SILENCE_MS / 1_000
RENEWAL_S = SCALABLE_ATTACH_RENEWAL_MS / 1_000
A_MOMENT_S = 0.5


class Place:
    """A place at the layout that the shard's leader has, a moment late."""

    def __init__(self, node: Node, name: TopicName) -> None:
        self._node = node
        self._name = name.text
        self._seen = ""
        self.error: MetadataError | None = None
        """Why the layout is followed no longer."""

    def layout(self) -> KnownLayout | None:
        topic = self._node.topic(self._name)
        self._seen = "" if topic is None else f"{topic.topic_id} {topic.version}"
        return None if topic is None else KnownLayout(topic, {})

    async def next_change(self) -> None:
        seen = self._seen
        while True:
            await asyncio.sleep(A_MOMENT_S / 10)
            if self.error is not None:
                raise self.error
            topic = self._node.topic(self._name)
            if seen != ("" if topic is None else f"{topic.topic_id} {topic.version}"):
                return

    def close(self) -> None:
        self._node.places -= 1


class Node:
    """A node: its layouts and its calls to the one shard."""

    def __init__(self, shard: Harness, node_id: str = "node-1") -> None:
        self._shard = shard
        self._topics: dict[str, ScalableTopic] = {}
        self._stored: dict[str, object] = {}
        """What the topics were packed from."""
        self.places = 0
        self.is_cut_off = False
        self.calls: list[pb.ShardRequest] = []
        self.consumers = SharedConsumers(self, self, node_id)

    def topic(self, name: str) -> ScalableTopic | None:
        """Return the topic as a shared layout has it: the same object until it changes."""
        try:
            stored = self._shard.leader.state.reads.load_scalable(name)
        except MetadataError:
            return self._topics.get(name)
        if stored is None:
            return self._topics.pop(name, None) and None
        if name not in self._topics or self._stored[name] != stored:
            self._stored[name] = stored
            self._topics[name] = ScalableTopic.FromString(pack_scalable_topic(stored))
        return self._topics[name]

    async def watch(self, name: TopicName, *, create: bool, may_be_absent: bool) -> Place:
        assert not create
        assert not may_be_absent
        if self.topic(name.text) is None:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")
        self.places += 1
        return Place(self, name)

    def shard_of_key(self, _key: str) -> int:
        return SHARD

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> pb.ShardResponse:
        assert idempotent
        if self.is_cut_off:
            await asyncio.sleep(0.1)
            raise Unavailable("the network is gone")
        self.calls.append(request)
        return await self._shard.others.call(shard_id, request, timeout_ms=timeout_ms)

    async def join(self, name: str = "a", subscription: str = "s", topic: str = NAME) -> Any:
        # Of a checkpoint group: it has no cursors, so no brokers are needed.
        request = JoinRequest(parse_topic(topic), subscription, name, "checkpoint", False)
        return await self.consumers.join(request)


async def decided(shard: Harness, command: ScalableTopicCommand, name: str = NAME) -> None:
    state = shard.leader.state
    await state.proposer.propose(accepted(state.reads.load_scalable(name), command))


async def new_topic(
    shard: Harness, segments: int = 2, topic_id: str = "t", name: str = NAME
) -> None:
    await decided(shard, CreateScalableTopic(name, topic_id, segments, 1_000), name)


def members(shard: Harness, subscription: str = "s") -> list[str]:
    topic = shard.leader.state.reads.load_scalable(NAME)
    assert topic is not None
    return list(topic.subscriptions[subscription].consumers)


def ids(assignment: ConsumerAssignment) -> list[int]:
    return [segment.segment_id for segment, _ in assignment.segments]


@run_by(in_shard)
async def test_assignments_follow_joins_and_leaves(shard: Harness) -> None:
    await new_topic(shard)
    node, other = Node(shard), Node(shard, "node-2")

    first = await node.join("a")
    assert ids(await first.next_assignment()) == [0, 1]
    second = await other.join("b")
    assert ids(await second.next_assignment()) == [1]
    assert ids(await first.next_assignment()) == [0]

    await second.leave()

    assert ids(await first.next_assignment()) == [0, 1]
    assert members(shard) == ["a"]
    assert (node.places, other.places) == (1, 0)
    first.close()
    first.close()
    assert node.places == 0
    await node.consumers.stop()
    await other.consumers.stop()


@run_by(in_shard)
async def test_a_consumer_is_attached_before_it_is_registered(shard: Harness) -> None:
    await new_topic(shard)
    node = Node(shard)

    joined = await node.join()

    assert [each.WhichOneof("body") for each in node.calls[:2]] == ["attach_consumers", "execute"]
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_an_absent_topic_and_a_refusal_leave_nothing_behind(shard: Harness) -> None:
    node = Node(shard)
    with pytest.raises(Refused, match="does not exist"):
        await node.join()
    await new_topic(shard)
    joined = await node.join()

    with pytest.raises(Refused, match="cannot be of a stream"):
        await node.consumers.join(JoinRequest(parse_topic(NAME), "s", "b", "stream", True))

    await asyncio.sleep(A_MOMENT_S)
    assert (node.places, node.consumers.gauges()) == (1, {"consumers_attached": 1})
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_the_index_of_a_topic_goes_with_its_last_consumer(shard: Harness) -> None:
    other = f"{NAME}-other"
    await new_topic(shard)
    await new_topic(shard, topic_id="u", name=other)
    node = Node(shard)
    joined = [await node.join("a"), await node.join("b"), await node.join("c", topic=other)]
    for each in joined:
        await each.next_assignment()

    joined[0].close()
    assert set(node.consumers._indexes) == {NAME, other}
    joined[1].close()
    assert set(node.consumers._indexes) == {other}
    joined[2].close()

    assert node.consumers._indexes == {}
    await node.consumers.stop()


@run_by(in_shard)
async def test_a_consumer_stays_as_long_as_its_node_lives_over_changes_of_the_leader(
    shard: Harness,
) -> None:
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    await joined.next_assignment()
    more = asyncio.ensure_future(joined.next_assignment())

    for _ in range(3):
        await asyncio.sleep(1.5 * GRACE_S)
        shard.next_term()
    await asyncio.sleep(1.5 * GRACE_S)

    assert members(shard) == ["a"]
    assert not more.done(), "its client notices nothing"
    assert await shard.events("scalable_consumer_left") == []
    more.cancel()
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_a_consumer_whose_connection_ended_is_removed_after_the_grace(
    shard: Harness,
) -> None:
    await new_topic(shard)
    node = Node(shard)
    stays = await node.join("stays")
    joined = await node.join("goes")
    await asyncio.sleep(10)
    node.is_cut_off = True

    joined.close()

    await asyncio.sleep(3)
    node.is_cut_off = False
    await asyncio.sleep(GRACE_S - A_MOMENT_S)
    assert members(shard) == ["goes", "stays"]
    await asyncio.sleep(2)
    assert members(shard) == ["stays"]
    stays.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_consumers_of_a_node_that_died_are_removed(shard: Harness) -> None:
    await new_topic(shard)
    node, other = Node(shard), Node(shard, "node-2")
    lost = await node.join("a")
    stays = await other.join("b")

    node.is_cut_off = True

    await asyncio.sleep(SILENCE_S + GRACE_S + RENEWAL_S)
    assert members(shard) == ["b"]
    node.is_cut_off = False
    await lost.next_assignment()
    assert members(shard) == ["a", "b"], "its client is there still, so it is registered again"
    for each in (lost, stays):
        each.close()
    await node.consumers.stop()
    await other.consumers.stop()


@pytest.mark.parametrize("is_other_node", [False, True])
@run_by(in_shard)
async def test_a_client_that_comes_back_takes_its_consumer_along(
    shard: Harness, *, is_other_node: bool
) -> None:
    await new_topic(shard)
    node = Node(shard)
    second = Node(shard, "node-2") if is_other_node else node
    replaced: list[bool] = []
    old = await node.join()
    old.on_replaced(lambda: replaced.append(True))
    await old.next_assignment()

    new = await second.join()

    assert ids(await new.next_assignment()) == [0, 1]
    await asyncio.sleep(RENEWAL_S + A_MOMENT_S)
    assert replaced == [True]
    old.close()
    await asyncio.sleep(SILENCE_S + GRACE_S + 1)
    assert members(shard) == ["a"]
    assert len(await shard.events("scalable_consumer_registered")) == 1
    assert len(await shard.events("segments_assigned")) == 1
    new.close()
    await node.consumers.stop()
    await second.consumers.stop()


@run_by(in_shard)
async def test_one_that_came_back_elsewhere_and_left_is_not_registered_again(
    shard: Harness,
) -> None:
    """1. The client comes back by another node. 2. It leaves there. 3. The former node sees that
    its consumer is not registered, before it learns that it was replaced."""
    await new_topic(shard)
    node, second = Node(shard), Node(shard, "node-2")
    old = await node.join()
    await old.next_assignment()
    replaced: list[bool] = []
    old.on_replaced(lambda: replaced.append(True))
    following = asyncio.ensure_future(old.next_assignment())
    new = await second.join()

    await new.leave()

    with pytest.raises(Unavailable, match="came back"):
        await following
    assert replaced == [True]
    assert members(shard) == []
    await asyncio.sleep(1)
    assert members(shard) == []
    old.close()
    await node.consumers.stop()
    await second.consumers.stop()


@run_by(in_shard)
async def test_one_that_was_removed_although_it_is_here_is_registered_again(
    shard: Harness,
) -> None:
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    first = await joined.next_assignment()

    await decided(shard, RemoveConsumer("s", "a", "expired"))

    following = asyncio.ensure_future(joined.next_assignment())
    await asyncio.sleep(A_MOMENT_S)
    assert members(shard) == ["a"]
    assert not following.done(), "it has what it had"
    assert ids(first) == [0, 1]
    following.cancel()
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_one_that_cannot_be_registered_again_for_a_while_is_when_it_can(
    shard: Harness,
) -> None:
    """Its client stays connected, and has no way to ask again."""
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    assert ids(await joined.next_assignment()) == [0, 1]
    waiting = asyncio.create_task(joined.next_assignment())

    node.is_cut_off = True
    await decided(shard, RemoveConsumer("s", "a", "expired"))
    await asyncio.sleep(SILENCE_S + GRACE_S)
    assert not waiting.done()
    node.is_cut_off = False
    await asyncio.sleep(2 * RENEWAL_S)

    assert members(shard) == ["a"]
    await node.join("b")
    assert len(ids(await waiting)) == 1
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_assignments_go_on_when_the_watch_of_the_layout_ends(shard: Harness) -> None:
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    await joined.next_assignment()
    place = joined._place
    waiting = asyncio.create_task(joined.next_assignment())
    await asyncio.sleep(0.1)

    place.error = Unavailable("the watch ended")
    await asyncio.sleep(1)
    await node.join("b")

    assert len(ids(await waiting)) == 1
    joined.close()
    assert node.places == 1
    await node.consumers.stop()


@run_by(in_shard)
async def test_a_deleted_subscription_leaves_its_consumers_without_segments(
    shard: Harness,
) -> None:
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    await joined.next_assignment()

    await decided(shard, DeleteSubscription("s"))

    assert ids(await joined.next_assignment()) == []
    joined.close()
    await node.consumers.stop()


@pytest.mark.parametrize("comes_again", [False, True])
@run_by(in_shard)
async def test_a_deleted_topic_ends_assignments(shard: Harness, *, comes_again: bool) -> None:
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    await joined.next_assignment()

    await decided(shard, DeleteScalableTopic(NAME, "t"))
    if comes_again:
        await new_topic(shard, topic_id="t-2")

    with pytest.raises(Refused, match="was deleted"):
        await joined.next_assignment()
    await joined.leave()
    await node.consumers.stop()


@run_by(in_shard)
async def test_more_consumers_than_one_request_takes_are_attached_anew(
    shard: Harness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CONSUMERS_PER_ATTACH_MAX > 2
    monkeypatch.setattr(module, "CONSUMERS_PER_ATTACH_MAX", 2)
    await new_topic(shard)
    node = Node(shard)
    joined = await asyncio.gather(*[node.join(f"c{number}") for number in range(5)])

    shard.next_term()
    await asyncio.sleep(RENEWAL_S + A_MOMENT_S)

    assert repr(shard.leader.consumers) == "<ConsumerGrace shard=1 attached=5 in_grace=0>"
    for each in joined:
        each.close()
    await asyncio.sleep(A_MOMENT_S)
    assert repr(shard.leader.consumers) == "<ConsumerGrace shard=1 attached=0 in_grace=5>"
    await node.consumers.stop()


@run_by(in_shard)
async def test_one_that_is_given_up_while_it_joins_is_detached(shard: Harness) -> None:
    await new_topic(shard)
    node = Node(shard)
    for turns in range(25):
        joining = asyncio.ensure_future(node.join())
        for _ in range(turns):
            await asyncio.sleep(0)
        joining.cancel()
        (joined,) = await asyncio.gather(joining, return_exceptions=True)
        if not isinstance(joined, BaseException):
            joined.close()

        await asyncio.sleep(A_MOMENT_S)

        assert node.places == 0
        assert repr(shard.leader.consumers).startswith("<ConsumerGrace shard=1 attached=0")
    await node.consumers.stop()


@run_by(in_shard)
async def test_consumers_stay_attached_after_the_task_that_renews_has_ended(
    shard: Harness,
) -> None:
    await new_topic(shard)
    node = Node(shard)
    joined = await node.join()
    await asyncio.sleep(1)

    break_kept("attached_consumers")

    await asyncio.sleep(SILENCE_S + GRACE_S + 1)
    assert members(shard) == ["a"]
    assert await shard.events("scalable_consumer_left") == []
    failures.clear()  # It was made here.
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_consumers_follow_their_topic_to_another_shard(shard: Harness) -> None:
    """A map that is out of date is answered by a shard; the consumers go where their topic is."""
    node = Node(shard)
    home = {"is": 7}
    asked: list[int] = []

    async def call(shard_id: int, request: pb.ShardRequest, **_: Any) -> pb.ShardResponse:
        asked.append(shard_id)
        if shard_id == 7:
            home["is"] = SHARD
            raise StaleShardMap("it has moved", 2)
        return await shard.others.call(shard_id, request, timeout_ms=1_000)

    node.call = call  # type: ignore[method-assign]
    node.shard_of_key = lambda _key: home["is"]  # type: ignore[method-assign]
    await new_topic(shard)

    joined = await node.join()

    assert asked[:2] == [7, SHARD]
    assert members(shard) == ["a"]
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_an_end_that_a_former_shard_refuses_holds_up_nobody(shard: Harness) -> None:
    """A connection ended while its topic's slot moved: the former shard has nothing to end any
    more, and the consumers that it still has are renewed and attached as before."""
    node = Node(shard)
    gone = "topic://acme/orders/gone"
    await new_topic(shard)
    await new_topic(shard, topic_id="u", name=gone)
    joined, ending = await node.join(), await node.join(topic=gone)
    answer = node.call

    async def call(shard_id: int, request: pb.ShardRequest, **limits: Any) -> pb.ShardResponse:
        sent = request.attach_consumers.consumers or request.detach_consumers.consumers
        if any(each.topic == gone for each in sent):
            raise StaleShardMap("it has moved", 2)
        return await answer(shard_id, request, **limits)

    node.call = call  # type: ignore[method-assign]

    ending.close()
    await asyncio.sleep(SILENCE_S + GRACE_S + 1)

    assert members(shard) == ["a"]
    assert await shard.events("scalable_consumer_left") == []
    await node.join("b")
    assert members(shard) == ["a", "b"]
    joined.close()
    await node.consumers.stop()


class TwoShards:
    """The one shard under two numbers, and which of them has the topics by the present map."""

    def __init__(self, shard: Harness, node: Node) -> None:
        self.home = 7
        self.asked: list[tuple[int, pb.ShardRequest]] = []
        answer = node.call

        async def call(shard_id: int, request: pb.ShardRequest, **limits: Any) -> pb.ShardResponse:
            self.asked.append((shard_id, request))
            return await answer(SHARD, request, **limits)

        node.call = call  # type: ignore[method-assign]
        node.shard_of_key = lambda _key: self.home  # type: ignore[method-assign]

    def claims(self, shard_id: int) -> list[pb.AttachedConsumer]:
        """Return what was attached at a shard, in order."""
        return [
            each
            for asked, request in self.asked
            for each in request.attach_consumers.consumers
            if asked == shard_id
        ]


@run_by(in_shard)
async def test_a_new_map_is_enough_for_consumers_to_follow_their_topics(shard: Harness) -> None:
    """The former shard gets empty renewals only, which name no consumer that it could refuse."""
    node = Node(shard)
    shards = TwoShards(shard, node)
    await new_topic(shard)
    joined = await node.join()
    await asyncio.sleep(1)

    shards.home = 9
    node.consumers.cluster_changed(2)
    await asyncio.sleep(0.1)

    (before,), (after,) = shards.claims(7), shards.claims(9)
    assert (before.attachment, before.moved_attachment) == (0, 0)
    assert (after.attachment, after.moved_attachment) == (0, (1 << 32) + 1)
    shards.asked.clear()
    await asyncio.sleep(2 * RENEWAL_S)
    assert {asked for asked, _ in shards.asked} == {9}
    node.consumers.cluster_changed(2)
    joined.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_the_later_connection_holds_when_a_topic_moves_between_them(shard: Harness) -> None:
    """A client came back to this process when its topic's slot had moved."""
    node = Node(shard)
    shards = TwoShards(shard, node)
    await new_topic(shard)
    former = await node.join()
    replaced: list[str] = []
    former.on_replaced(lambda: replaced.append("former"))

    shards.home = 9
    latter = await node.join()
    latter.on_replaced(lambda: replaced.append("latter"))
    node.consumers.cluster_changed(2)
    await asyncio.sleep(1)

    assert replaced == ["former"]
    former.close()
    latter.close()
    await node.consumers.stop()


@run_by(in_shard)
async def test_a_claim_that_is_refused_holds_up_no_renewal(shard: Harness) -> None:
    node = Node(shard)
    gone = "topic://acme/orders/gone"
    await new_topic(shard)
    await new_topic(shard, topic_id="u", name=gone)
    joined = await node.join()
    answer = node.call

    async def call(shard_id: int, request: pb.ShardRequest, **limits: Any) -> pb.ShardResponse:
        if any(each.topic == gone for each in request.attach_consumers.consumers):
            raise StaleShardMap("it has moved", 2)
        return await answer(shard_id, request, **limits)

    node.call = call  # type: ignore[method-assign]
    joining = asyncio.create_task(node.join(topic=gone))

    await asyncio.sleep(SILENCE_S + GRACE_S + 1)

    assert members(shard) == ["a"]
    assert await shard.events("scalable_consumer_left") == []
    with pytest.raises(Unavailable):
        await joining
    joined.close()
    await node.consumers.stop()
