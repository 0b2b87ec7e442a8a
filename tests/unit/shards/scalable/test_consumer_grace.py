"""Registered consumers whose clients are gone are removed after a grace, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.errors import InvalidRequest, Overloaded, StaleShardMap
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    ATTACHED_CONSUMERS_MAX,
    CONSUMERS_PER_ATTACH_MAX,
    SCALABLE_ATTACH_RENEWAL_MS,
    SCALABLE_CONSUMER_GRACE_MS,
    SCALABLE_CONSUMER_NAME_BYTES_MAX,
    SCALABLE_NODE_SILENCE_MS,
)
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable.commands import CreateScalableTopic, RegisterConsumer
from shards.scalable.consumer_grace import ConsumerGrace
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.scalable import NAME, STREAM, accepted

GRACE_S = SCALABLE_CONSUMER_GRACE_MS / 1_000
SILENCE_S = SCALABLE_NODE_SILENCE_MS / 1_000
RENEWAL_S = SCALABLE_ATTACH_RENEWAL_MS / 1_000
A_MOMENT_S = 0.5


def consumers(*names: str, attachment: int = 0, topic: str = NAME) -> list[pb.AttachedConsumer]:
    return [
        pb.AttachedConsumer(
            topic=topic, subscription="s", consumer_name=each, attachment=attachment
        )
        for each in names
    ]


class Node:
    """A node that renews, as long as it lives, through the shard's dispatcher."""

    def __init__(self, shard: Harness, node_id: str = "node-1", incarnation: str = "1") -> None:
        self._shard = shard
        self._identity = {"node_id": node_id, "incarnation": incarnation}
        self._task: asyncio.Task[None] | None = None

    async def attach(self, *names: str, attachment: int = 0) -> pb.AttachConsumersResponse:
        wanted = consumers(*names, attachment=attachment)
        request = pb.AttachConsumersRequest(**self._identity, consumers=wanted)
        return (await self._shard.ask(attach_consumers=request)).attach_consumers

    async def detach(self, name: str, attachment: int, **more: Any) -> None:
        wanted = consumers(name, attachment=attachment)
        request = pb.DetachConsumersRequest(**self._identity, consumers=wanted, **more)
        await self._shard.ask(detach_consumers=request)

    def live(self) -> None:
        self._task = asyncio.create_task(self._renew())

    async def die(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_S)
            await self.attach()


async def registered(shard: Harness, *names: str, topic: str = NAME) -> None:
    """Have consumers of the stream ``s`` registered; create the topic if it is not there."""
    state = shard.leader.state
    if state.reads.load_scalable(topic) is None:
        create = CreateScalableTopic(topic, f"id of {topic}", 4, 1_000)
        await state.proposer.propose(accepted(None, create))
    for name in names:
        command = RegisterConsumer("s", name, STREAM, True, 1_000)
        await state.proposer.propose(accepted(state.reads.load_scalable(topic), command))


def left_of(shard: Harness, topic: str = NAME) -> list[str]:
    found = shard.leader.state.reads.load_scalable(topic)
    assert found is not None
    return list(found.subscriptions["s"].consumers)


@run_by(in_shard)
async def test_consumers_of_a_node_that_renews_stay(shard: Harness) -> None:
    node = Node(shard)
    await node.attach("a", "b")
    await registered(shard, "a", "b")
    node.live()

    await asyncio.sleep(5 * GRACE_S)

    assert left_of(shard) == ["a", "b"]
    await node.die()


@run_by(in_shard)
async def test_a_consumer_whose_connection_ended_is_removed_after_the_grace(
    shard: Harness,
) -> None:
    node = Node(shard)
    numbers = (await node.attach("a", "b")).attachments
    await registered(shard, "a", "b")
    node.live()
    await asyncio.sleep(10)

    await node.detach("a", numbers[0])

    await asyncio.sleep(GRACE_S - A_MOMENT_S)
    assert left_of(shard) == ["a", "b"]
    await asyncio.sleep(2 * A_MOMENT_S)
    assert left_of(shard) == ["b"]
    (event,) = await shard.events("scalable_consumer_left")
    assert event.scalable_consumer_left.reason == "expired"
    (assigned,) = shard.leader.state.reads.load_scalable(NAME).subscriptions["s"].assigned  # type: ignore[union-attr]
    assert assigned.segments == (0, 1, 2, 3)
    await node.die()


@run_by(in_shard)
async def test_one_that_comes_back_within_the_grace_stays(shard: Harness) -> None:
    node, other = Node(shard), Node(shard, "node-2")
    (number,) = (await node.attach("a")).attachments
    await registered(shard, "a")
    await node.detach("a", number)
    await asyncio.sleep(GRACE_S - A_MOMENT_S)

    await other.attach("a")
    other.live()

    await asyncio.sleep(2 * GRACE_S)
    assert left_of(shard) == ["a"]
    assert await shard.events("scalable_consumer_left") == []
    await other.die()


@run_by(in_shard)
async def test_consumers_of_a_node_that_died_are_removed(shard: Harness) -> None:
    node, other = Node(shard), Node(shard, "node-2")
    await node.attach("a", "b")
    await other.attach("c")
    await registered(shard, "a", "b", "c")
    node.live()
    other.live()
    await asyncio.sleep(20)

    await node.die()

    await asyncio.sleep(SILENCE_S + GRACE_S - RENEWAL_S - A_MOMENT_S)
    assert left_of(shard) == ["a", "b", "c"]
    await asyncio.sleep(RENEWAL_S + 2 * A_MOMENT_S)
    assert left_of(shard) == ["c"]
    await other.die()


@run_by(in_shard)
async def test_after_a_leader_change_everybody_is_in_grace_until_attached_again(
    shard: Harness,
) -> None:
    node = Node(shard)
    numbers = (await node.attach("a", "b")).attachments
    await registered(shard, "a", "b")
    await registered(shard, "d", topic=f"{NAME}-2")
    node.live()
    shard.next_term()
    await asyncio.sleep(RENEWAL_S + A_MOMENT_S)

    again = await node.attach("a", attachment=numbers[0])

    assert list(again.attachments) == [numbers[0]]
    await asyncio.sleep(GRACE_S - RENEWAL_S - 3 * A_MOMENT_S)
    assert left_of(shard) == ["a", "b"]
    await asyncio.sleep(3 * A_MOMENT_S)
    assert left_of(shard) == ["a"]
    assert left_of(shard, f"{NAME}-2") == []
    await node.die()


@run_by(in_shard)
async def test_after_a_leader_change_even_a_short_grace_lets_nodes_renew(shard: Harness) -> None:
    shard.leader.consumers.close()
    grace = ConsumerGrace(shard.leader.state, shard.clock, grace_ms=1)
    grace.start()
    await registered(shard, "a", "b")
    await asyncio.sleep(SILENCE_S - A_MOMENT_S)
    assert left_of(shard) == ["a", "b"]

    grace.attach(pb.AttachConsumersRequest(node_id="n", incarnation="1", consumers=consumers("a")))

    await asyncio.sleep(2 * A_MOMENT_S)
    assert left_of(shard) == ["a"]
    grace.close()


@run_by(in_shard)
async def test_a_grace_that_began_late_is_not_cut_short_by_the_look_for_others(
    shard: Harness,
) -> None:
    node = Node(shard)
    (number,) = (await node.attach("a")).attachments
    await registered(shard, "a")
    node.live()
    await asyncio.sleep(GRACE_S - 5)
    await node.detach("a", number)

    await asyncio.sleep(GRACE_S - A_MOMENT_S)
    assert left_of(shard) == ["a"]
    await asyncio.sleep(2 * A_MOMENT_S)
    assert left_of(shard) == []
    await node.die()


@run_by(in_shard)
async def test_one_that_comes_back_while_others_are_removed_stays(shard: Harness) -> None:
    """1. The grace of all ends at one time. 2. The first are removed, one a turn of the loop.
    3. The last one comes back before it is its turn."""
    names = [f"c{number:02}" for number in range(20)]
    await registered(shard, *names)
    loop, grace = asyncio.get_running_loop(), shard.leader.consumers
    left: list[int] = []

    def come_back(turns: int) -> None:
        if turns:
            loop.call_soon(come_back, turns - 1)
            return
        left.append(len(left_of(shard)))
        request = pb.AttachConsumersRequest(node_id="n", incarnation="1")
        request.consumers.extend(consumers(names[-1]))
        grace.attach(request)

    assert grace._looks_at is not None
    loop.call_at(grace._looks_at, come_back, 10)
    await asyncio.sleep(GRACE_S + 1)

    assert 0 < left[0] < len(names), "this was to be in the middle of it"
    assert left_of(shard) == names[-1:]


@run_by(in_shard)
async def test_one_that_has_left_is_forgotten_at_once(shard: Harness) -> None:
    node = Node(shard)
    (number,) = (await node.attach("a")).attachments

    await node.detach("a", number, have_left=True)

    assert repr(shard.leader.consumers) == "<ConsumerGrace shard=1 attached=0 in_grace=0>"


@run_by(in_shard)
async def test_removals_wait_for_a_restore_to_end(shard: Harness) -> None:
    """Nothing is changed while a backup is being restored, and nothing is forgotten."""
    await registered(shard, "a")
    restore = pb.MarkRestoreRequest(restore_id="r", phase="begun", least_epoch=1 << 40)
    await shard.ask(mark_restore=restore)
    await asyncio.sleep(2 * GRACE_S)
    assert left_of(shard) == ["a"]

    await shard.ask(mark_restore=pb.MarkRestoreRequest(restore_id="r", phase="ended"))

    await asyncio.sleep(2)
    assert left_of(shard) == []


# Bad input ---------------------------------------------------------------------------------------


@run_by(in_shard)
async def test_bad_names_and_sizes_are_refused_and_change_nothing(shard: Harness) -> None:
    grace = shard.leader.consumers
    good = consumers("a")[0]

    def request(
        *wanted: pb.AttachedConsumer, node: str = "n", incarnation: str = "1"
    ) -> pb.AttachConsumersRequest:
        return pb.AttachConsumersRequest(
            node_id=node, incarnation=incarnation, consumers=[good, *wanted]
        )

    def named(**names: str) -> pb.AttachedConsumer:
        return pb.AttachedConsumer(
            **{"topic": NAME, "subscription": "s", "consumer_name": "c", **names}
        )

    for bad in (
        request(named(topic="persistent://acme/orders/paid")),
        request(named(topic="topic://acme")),
        request(named(topic="")),
        request(named(subscription="")),
        request(named(subscription="s" * (SUBSCRIPTION_NAME_BYTES_MAX + 1))),
        request(named(consumer_name="")),
        request(named(consumer_name="c" * (SCALABLE_CONSUMER_NAME_BYTES_MAX + 1))),
        request(node=""),
        request(node="n" * (NODE_ID_BYTES_MAX + 1)),
        request(incarnation=""),
    ):
        with pytest.raises(InvalidRequest):
            grace.attach(bad)
        detach = pb.DetachConsumersRequest.FromString(bad.SerializeToString())
        with pytest.raises(InvalidRequest):
            grace.detach(detach)
    assert repr(grace) == "<ConsumerGrace shard=1 attached=0 in_grace=0>"

    fitting = named(
        subscription="s" * SUBSCRIPTION_NAME_BYTES_MAX,
        consumer_name="c" * SCALABLE_CONSUMER_NAME_BYTES_MAX,
    )
    assert all(grace.attach(request(fitting, node="n" * NODE_ID_BYTES_MAX)).attachments)


@run_by(in_shard)
async def test_consumers_per_attach_max_are_attached_together_and_one_more_is_refused(
    shard: Harness,
) -> None:
    def request(count: int) -> pb.AttachConsumersRequest:
        names = [f"c{number}" for number in range(count)]
        return pb.AttachConsumersRequest(node_id="n", incarnation="1", consumers=consumers(*names))

    grace = shard.leader.consumers
    with pytest.raises(InvalidRequest):
        grace.attach(request(CONSUMERS_PER_ATTACH_MAX + 1))
    assert len(grace.attach(request(CONSUMERS_PER_ATTACH_MAX)).attachments) == (
        CONSUMERS_PER_ATTACH_MAX
    )


@run_by(in_shard)
async def test_nodes_attach_anew_what_comes_back_to_a_shard(shard: Harness) -> None:
    """The topic was in another shard for a while, where the connection of ``b`` ended. Nobody said
    so here, where it was attached before."""
    node = Node(shard)
    numbers = (await node.attach("a", "b")).attachments
    await registered(shard, "a", "b")
    node.live()
    await asyncio.sleep(1)

    shard.leader.consumers.slots_coming(lambda key: key == NAME.partition("://")[2])
    shard.leader.consumers.look_again()

    assert not (await node.attach()).is_known
    await node.attach("a", attachment=numbers[0])
    await asyncio.sleep(GRACE_S + 1)
    assert left_of(shard) == ["a"]
    await node.die()


@run_by(in_shard, shards=2)
async def test_consumers_of_another_shards_topics_are_sent_away(shard: Harness) -> None:
    slots = shard.leader.state.slots
    names = [f"topic://acme/orders/paid-{number}" for number in range(100)]
    topic = next(each for each in names if not slots.has(slot_of(parse_topic(each).routing_key)))

    with pytest.raises(StaleShardMap):
        shard.leader.consumers.attach(
            pb.AttachConsumersRequest(
                node_id="n", incarnation="1", consumers=consumers("a", topic=topic)
            )
        )


@run_by(in_shard, shards=2)
async def test_an_end_is_heard_although_the_topic_is_in_another_shard(shard: Harness) -> None:
    """One request may name a consumer whose topic went away, and one whose topic is here."""
    slots = shard.leader.state.slots
    names = [f"topic://acme/orders/paid-{number}" for number in range(100)]
    away = next(each for each in names if not slots.has(slot_of(parse_topic(each).routing_key)))
    here = next(each for each in names if slots.has(slot_of(parse_topic(each).routing_key)))
    node = pb.AttachConsumersRequest(
        node_id="n", incarnation="1", consumers=consumers("a", topic=here)
    )
    (number,) = shard.leader.consumers.attach(node).attachments
    ended = [
        *consumers("a", attachment=7, topic=away),
        *consumers("a", attachment=number, topic=here),
    ]

    shard.leader.consumers.detach(
        pb.DetachConsumersRequest(node_id="n", incarnation="1", consumers=ended)
    )

    assert repr(shard.leader.consumers) == "<ConsumerGrace shard=1 attached=0 in_grace=1>"


@run_by(in_shard)
async def test_attached_consumers_max_are_attached_and_one_more_is_refused(
    shard: Harness,
) -> None:
    state = shard.leader.state
    grace = ConsumerGrace(state, shard.clock, attached_max=2)
    assert ATTACHED_CONSUMERS_MAX > CONSUMERS_PER_ATTACH_MAX

    def attach(*names: str) -> None:
        grace.attach(
            pb.AttachConsumersRequest(node_id="n", incarnation="1", consumers=consumers(*names))
        )

    attach("a", "b")
    with pytest.raises(Overloaded):
        attach("c")
    attach("a")
