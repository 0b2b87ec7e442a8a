"""Histories of the whole cluster that are told step by step, in virtual time.

What random faults meet only by chance, at lengths that a test on a real clock cannot wait for.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from nextgen.cli.calls.settings_state import apply_changes
from nextgen.client import Client, TopicLocation
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.service_settings import NODE_LOST_AFTER
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_TTL_MS,
    CAPACITY_LEASE_TTL_MS,
    COMMAND_ID_BYTES,
    SESSION_RETURN_MS,
    SESSION_TTL_MS,
)
from nextgen.kernel.limits.placement import EFFECTIVE_MANAGER_MS
from nextgen.replication.ports import Role
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_EFFECTIVE, TopicMove
from tests.support.cluster_simulation.components import ClusterPlan
from tests.support.cluster_simulation.faults.injection import Faults
from tests.support.cluster_simulation.faults.ledgers import LedgerFaults
from tests.support.cluster_simulation.judges.in_touch import BACK_S
from tests.support.cluster_simulation.judges.ledgers import LEDGERS
from tests.support.cluster_simulation.network import pair_of
from tests.support.cluster_simulation.run import ClusterRun
from tests.support.cluster_simulation.simulation import ClusterSimulation

NAMESPACE = "acme/told"
MANAGERS_GROUP = 0
ELECTION_S = 1.0
"""More than an election takes, and telling every node of it."""

Story = Callable[["Told", Client], Awaitable[None]]


class Told(ClusterRun):
    """A run without random faults: only ``story`` acts."""

    def __init__(self, plan: ClusterPlan, story: Story) -> None:
        super().__init__(1, plan=plan)
        self._story = story
        self.cluster: ClusterSimulation

    async def _live(self, simulation: ClusterSimulation, faults: Faults) -> None:
        self.cluster = simulation
        simulation.start_all()
        looking = asyncio.ensure_future(self._look(simulation))
        await self._wait_ready(simulation)
        endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
        process = simulation.client("reader")

        async def tell() -> None:
            async with Client(endpoints, timeout_ms=5_000) as client:
                await client.create_tenant("acme")
                await client.create_namespace(NAMESPACE)
                await self._story(self, client)

        await process.run(self._loop.create_task, tell())
        looking.cancel()
        for lost in simulation.storage.lost():
            simulation.violate(lost)

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        async with timeout(seconds):
            while not condition():
                await asyncio.sleep(0.1)


def tell(plan: ClusterPlan, story: Story) -> None:
    report = Told(plan, story).run()
    assert report.failure is None, report.failure


def names(first: int, count: int) -> list[str]:
    return [f"persistent://{NAMESPACE}/topic-{number}" for number in range(first, first + count)]


def places(locations: list[TopicLocation]) -> list[tuple[str, int]]:
    assert all(location.is_found for location in locations), locations
    return [(location.broker_id, location.epoch) for location in locations]


@pytest.mark.timeout(300)
def test_without_cluster_managers_topics_stay_and_leases_are_used_up():
    """1. Topics are assigned, and every cluster manager dies. 2. For half a minute lookups of them
    are answered as before, and new topics are assigned. 3. The leases end: new topics are refused
    with the reason, the others stay. 4. The managers come back, and new topics are assigned."""

    async def story(told: Told, client: Client) -> None:
        cluster = told.cluster
        await client.create_topics(names(0, 60))
        before = places(await client.lookup(names(0, 10)))
        managers = [cluster.nodes[name] for name in cluster.plan.manager_names]
        for node in managers:
            node.crash(power_cut=True)

        for second in range(0, 30, 2):
            assert places(await client.lookup(names(0, 10))) == before
            places(await client.lookup(names(10 + second // 2, 1)))
            await asyncio.sleep(2)

        await asyncio.sleep(CAPACITY_LEASE_TTL_MS / 1_000)
        (refused,) = await client.lookup(names(50, 1))
        assert refused.rejection_code == "NO_CAPACITY", refused
        assert refused.message
        assert places(await client.lookup(names(0, 10))) == before

        for node in managers:
            node.start()
        async with timeout(60):
            while not (await client.lookup(names(50, 1)))[0].is_found:
                await asyncio.sleep(0.5)
        assert places(await client.lookup(names(0, 10))) == before

    tell(ClusterPlan(brokers=2, broker_units=200), story)


@pytest.mark.timeout(300)
def test_a_broker_manager_shard_without_quorum_stops_no_topic():
    """1. A broker serves topics of a shard that is not its manager's. 2. Two of three replicas of
    its manager's shard die, for 16 seconds. 3. Its topics take messages all the time, and are
    told to be where they are. 4. The shard is back, the session goes on, and so do its topics."""

    async def story(told: Told, client: Client) -> None:
        cluster, invariants = told.cluster, told.cluster.invariants
        await client.create_topics(names(0, 40))
        await client.lookup(names(0, 40))
        session_id, session = next(iter(invariants.sessions.items()))
        manager, (other,) = session.shard_id, {1, 2} - {session.shard_id}
        replicas = {
            shard_id: set(placement.replicas)
            for shard_id, placement in invariants.placements.items()
        }
        lost = sorted(replicas[manager] - replicas[other])[:2]
        assert len(lost) == 2, f"the shards share their nodes: {replicas}"
        kept = [
            name
            for name, location in zip(names(0, 40), await client.lookup(names(0, 40)), strict=True)
            if location.session_id == session_id
            and invariants.units[(location.topic_id, "")].shard_id == other
        ]
        assert kept, "no topic is of this broker and of the other shard"
        before = places(await client.lookup(kept))

        for name in lost:
            cluster.nodes[name].crash(power_cut=True)
        for turn in range(8):
            await asyncio.sleep(2)
            assert places(await client.lookup(kept)) == before
            assert await cluster.prove_served(kept[turn % len(kept)], session.broker_id)

        for name in lost:
            cluster.nodes[name].start()
        await told.until(lambda: all(cluster.nodes[name].is_running for name in lost), 10)
        async with timeout(40):
            while True:
                try:
                    await client.create_topics(names(90, 1))
                    await client.set_tenant_properties("acme", {"a": "b"})
                    break
                except MetadataError:
                    await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        assert invariants.goes_on(session_id)
        assert places(await client.lookup(kept)) == before
        assert await cluster.prove_served(kept[0], session.broker_id)

    tell(ClusterPlan(shard_nodes=6, brokers=2), story)


def leader_of(cluster: ClusterSimulation, group: int) -> str:
    """Return the node that leads a shard, or the cluster managers."""
    roles = cluster.invariants.roles.items()
    (leader,) = (name for (name, each), role in roles if each == group and role is Role.LEADER)
    return leader


@pytest.mark.timeout(300)
@pytest.mark.parametrize("earlier_s", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_broker_that_dies_with_its_managers_leader_is_not_believed_in_for_a_time_to_live(
    earlier_s: float,
):
    """1. A broker dies, and with it, or before it ended the session, the leader of its manager's
    shard. 2. The next leader has seen no stream of it. 3. Its topic is looked up elsewhere an
    election and the time to return later: before stock clients, which double their pauses, would
    wait for twice the time-to-live."""

    async def story(told: Told, client: Client) -> None:
        cluster = told.cluster
        await client.create_topics(names(0, 1))
        (before,) = await client.lookup(names(0, 1))
        leader = leader_of(cluster, cluster.invariants.sessions[before.session_id].shard_id)
        died_at_s = cluster.loop.now_s
        cluster.nodes[before.broker_id].crash(power_cut=False)
        await asyncio.sleep(earlier_s)
        cluster.nodes[leader].crash(power_cut=False)

        async with timeout(60):
            while (await client.lookup(names(0, 1)))[0].broker_id in ("", before.broker_id):
                await asyncio.sleep(0.02)
        elapsed_s = cluster.loop.now_s - died_at_s
        assert (
            elapsed_s < earlier_s + ELECTION_S + SESSION_RETURN_MS / 1_000 < SESSION_TTL_MS / 1_000
        )

    tell(ClusterPlan(), story)


@pytest.mark.timeout(300)
def test_a_live_broker_keeps_its_session_when_its_managers_leader_dies():
    """1. The leader of a broker's manager dies, and the cluster managers' with it, who would have
    told of the next. 2. They come back, so that others can die. 3. Again, without an end. 4. No
    session has ended."""

    async def story(told: Told, client: Client) -> None:
        cluster, invariants = told.cluster, told.cluster.invariants
        before = set(invariants.sessions)
        for _ in range(2):
            for shard_id in (1, 2):
                dying = [
                    cluster.nodes[leader_of(cluster, group)] for group in (shard_id, MANAGERS_GROUP)
                ]
                for node in dying:
                    node.crash(power_cut=False)
                await asyncio.sleep(2 * SESSION_TTL_MS / 1_000)
                for node in dying:
                    node.start()
                await asyncio.sleep(2 * SESSION_TTL_MS / 1_000)
        assert set(invariants.sessions) == before
        assert all(invariants.goes_on(session_id) for session_id in before)

    tell(ClusterPlan(), story)


async def write_effectively(told: Told, name: str, ttl_ms: int) -> pb.WriteResponse:
    """Set a policy; return once it is answered as effective, and look at every broker then."""
    nodes = DiscoveryNodes([f"{each}:7000" for each in told.cluster.plan.discovery_names])
    request = pb.SetPoliciesRequest(
        command_id=ttl_ms.to_bytes(COMMAND_ID_BYTES, "big"),
        name=name,
        policies=Policies(message_ttl_ms=ttl_ms),
        consistency=CONSISTENCY_EFFECTIVE,
    )
    try:
        written = await nodes.call("SetPolicies", request, pb.WriteResponse, timeout_ms=30_000)
    finally:
        await nodes.close()
    told.cluster.check_effective(name, written.id, written.version)
    return written


async def managed_elsewhere(told: Told, client: Client) -> tuple[str, int]:
    """Return a topic that a broker holds whose manager is in another shard, and that shard."""
    await client.create_topics(names(0, 40))
    for location in await client.lookup(names(0, 40)):
        manager = told.cluster.invariants.sessions[location.session_id].shard_id
        if told.cluster.home_of(location.topic) != manager:
            # Long enough for the check of effective writes to wait for that manager as well.
            await asyncio.sleep(2 * BACK_S)
            return location.topic, manager
    raise AssertionError("every broker's manager is in the home of its topics")


@pytest.mark.timeout(300)
def test_a_new_home_leader_waits_for_a_manager_that_comes_late():
    """1. A broker holds a topic; its manager follows the topic at its home shard's leader. 2. That
    leader dies, and its replicas are cut off from the manager's for 3.5 s. 3. An effective
    write is answered when the manager is back and the broker acts on it: no earlier, and without
    waiting for the time that a manager counts."""

    async def story(told: Told, client: Client) -> None:
        cluster, invariants = told.cluster, told.cluster.invariants
        topic, manager = await managed_elsewhere(told, client)
        home = cluster.home_of(topic)
        leader = invariants.leader_of(home)
        assert leader is not None
        leading = invariants.placements[home].replicas
        managing = invariants.placements[manager].replicas
        assert not {*leading} & {*managing}, invariants.placements
        for one, other in product(leading, managing):
            cluster.network.cut(pair_of(one, other))
        cluster.nodes[leader].crash(power_cut=False)
        await told.until(lambda: invariants.leader_of(home) not in (None, leader), 5)
        elected_at_s = cluster.loop.now_s
        cluster.loop.call_later(3.5, cluster.network.heal)

        await write_effectively(told, topic, 60_000)

        assert 3.5 < cluster.loop.now_s - elected_at_s < EFFECTIVE_MANAGER_MS / 1_000

    tell(ClusterPlan(shard_nodes=6), story)


@pytest.mark.timeout(300)
def test_an_effective_write_behind_a_leader_change_needs_no_cluster_manager():
    """1. All cluster managers are down, so no push says who leads. 2. The leader of a topic's home
    shard dies. 3. Broker managers find the next one by themselves, and an effective write is at
    every broker after the time-to-live of what discovery nodes cache."""

    async def story(told: Told, client: Client) -> None:
        cluster, invariants = told.cluster, told.cluster.invariants
        topic, _ = await managed_elsewhere(told, client)
        home = cluster.home_of(topic)
        leader = invariants.leader_of(home)
        assert leader is not None
        for name in cluster.plan.manager_names:
            cluster.nodes[name].crash(power_cut=True)
        cluster.nodes[leader].crash(power_cut=False)
        await told.until(lambda: invariants.leader_of(home) not in (None, leader), 5)
        elected_at_s = cluster.loop.now_s

        await write_effectively(told, topic, 60_000)

        assert cluster.loop.now_s - elected_at_s < ASSIGNMENT_TTL_MS / 1_000 + ELECTION_S

    tell(ClusterPlan(), story)


@pytest.mark.timeout(300)
def test_a_topic_whose_ledger_is_ahead_of_the_shard_is_served_again():
    """1. The ledger of a topic was claimed up to epoch 7, by owners that the shard has forgotten,
    as after a backup was restored. 2. The shard gives epoch 1, whose owner is fenced. 3. It is
    given epoch 8, serves, and what was stored before is there."""

    async def story(told: Told, client: Client) -> None:
        cluster = told.cluster
        (topic,) = names(0, 1)
        await client.create_topics([topic])
        created = await client.get_topic(topic)
        assert created is not None
        forgotten = cluster.storage.store(LEDGERS, broker_id="forgotten")
        for epoch in (3, 7):
            await forgotten.open(created.topic_id, "", epoch, topic_name=topic)
        [(broker_id, epoch)] = places(await client.lookup([topic]))
        assert epoch == 1

        async with timeout(10):
            while not await cluster.prove_served(topic, broker_id):
                await asyncio.sleep(0.1)

        assert places(await client.lookup([topic])) == [(broker_id, 8)]

    tell(ClusterPlan(), story)


@pytest.mark.timeout(300)
def test_topics_are_served_and_read_again_behind_every_fault_of_their_disk():
    """1. Brokers have topics that take messages all the time. 2. Their disk breaks in one way
    after another. 3. Behind each, every topic takes messages that was not damaged, and what was
    acknowledged is there."""

    async def story(told: Told, client: Client) -> None:
        cluster, storage = told.cluster, told.cluster.storage
        topics = names(0, 16)
        await client.create_topics(topics)
        faults = LedgerFaults(cluster, random.Random("every fault"), Counter())

        async def serve(topic: str) -> None:
            while True:
                (found,) = await client.lookup([topic])
                if storage.is_damaged(found.topic_id):
                    return
                if found.is_found and await cluster.prove_served(topic, found.broker_id):
                    return
                await asyncio.sleep(0.2)

        for kind in faults.kinds:
            async with timeout(60):
                await asyncio.gather(*map(serve, topics))
            before = storage.answers
            await asyncio.sleep(2)
            assert storage.answers > before + 20, kind
            await faults.begin(kind)
            faults.take_all_back()
            assert list(storage.lost()) == [], kind
        assert storage.read_again > 100

    tell(ClusterPlan(brokers=2), story)


class Asked:
    """Lookups of a few topics at one discovery node or the other, each of them judged."""

    def __init__(self, cluster: ClusterSimulation, topics: list[str]) -> None:
        self.near, self.far = (f"{name}:7000" for name in cluster.plan.discovery_names)
        self.nodes = DiscoveryNodes([self.near, self.far])
        self._freshness = cluster.invariants.freshness
        self._topics = topics

    async def ask(self, node: str, *, fresh: bool = False) -> int:
        """Return how many of the topics have an answer."""
        request = pb.LookupRequest(topics=self._topics, fresh=fresh)
        began_at = self._freshness.now()
        try:
            response = await self.nodes.call_at(
                node, "Lookup", request, pb.LookupResponse, timeout_ms=300
            )
        except MetadataError:
            return 0
        found = [each for each in response.answers if not each.rejection_code]
        for answer in found:
            self._freshness.judge(answer, began_at, node=node, is_fresh=fresh)
        return len(found)

    async def until_answered(self, node: str) -> None:
        async with timeout(30):
            while await self.ask(node) < len(self._topics):
                await asyncio.sleep(0.02)

    async def ask_for(self, seconds: float) -> int:
        """Ask all the time; return how often the far node gave an answer."""
        given = 0
        for _ in range(round(seconds / 0.1)):
            given += await self.ask(self.far)
            await self.ask(self.far, fresh=True)
            await self.ask(self.near)
            await asyncio.sleep(0.1)
        return given

    async def move_all(self) -> None:
        request = pb.MoveTopicsRequest(moves=[TopicMove(topic=name) for name in self._topics])
        response = await self.nodes.call_at(
            self.near, "MoveTopics", request, pb.MoveTopicsResponse, timeout_ms=10_000
        )
        assert all(not answer.rejection_code for answer in response.answers), response


@pytest.mark.timeout(300)
def test_a_node_that_is_cut_off_from_the_shards_gives_nothing_that_is_too_old():
    """1. Two discovery nodes know where topics are. 2. One is cut off from the shards, clients
    reach it. 3. The topics move, and much else happens. 4. It is asked all the time: what it gives
    is no older than is promised, then it gives nothing. 5. The links are slow when they are back,
    and it catches up page by page: it gives nothing from before the moves, which are effective."""

    async def story(told: Told, client: Client) -> None:
        cluster = told.cluster
        pairs = [pair_of("discovery-2", name) for name in cluster.plan.shard_node_names]
        await client.create_topics(names(0, 100))
        asked = Asked(cluster, names(0, 4))
        for node in (asked.near, asked.far):
            await asked.until_answered(node)
        # The answers are cached at both, and the watch has been confirmed since.
        await asyncio.sleep(2)

        for pair in pairs:
            cluster.network.cut(pair)
        moving = asyncio.ensure_future(asked.move_all())
        assert await asked.ask_for(1.2), "what is cached is given for a while"
        assert cluster.invariants.freshness.old, "and is not what the shard says by then"
        await moving
        await client.lookup(names(10, 80))
        assert not await asked.ask_for(4), "what is cached may not be given any more"

        for pair in pairs:
            cluster.network.slow_pairs[pair] = 60.0
            cluster.network.mend(pair)
        await asked.until_answered(asked.far)
        await asked.ask_for(2)
        await asked.nodes.close()

    tell(ClusterPlan(watch_page_events=2), story)


@pytest.mark.timeout(300)
def test_a_shard_node_that_is_gone_for_good_is_replaced_in_every_shard():
    """1. One of four shard nodes dies for ever. 2. When it was silent for as long as the setting
    says, and not before, each of its shards gets a replica on the node that had none. 3. The
    leader of the cluster managers dies in the middle, and the next one goes on."""

    async def story(told: Told, client: Client) -> None:
        cluster, invariants = told.cluster, told.cluster.invariants
        endpoints = [f"{name}:7000" for name in cluster.plan.discovery_names]
        operator = cluster.operator("operator-1")
        setting = apply_changes(endpoints, {NODE_LOST_AFTER: "20"})
        await operator.run(cluster.loop.create_task, setting)
        victim = next(iter(invariants.placements.values())).replicas[0]
        held = [each for each, at in invariants.placements.items() if victim in at.replicas]
        cluster.nodes[victim].crash(power_cut=True)
        await asyncio.sleep(18)
        assert [s for s in held if victim in invariants.placements[s].replicas] == held

        await told.until(lambda: any(at.joining for at in invariants.placements.values()), 20)
        cluster.nodes[leader_of(cluster, MANAGERS_GROUP)].crash(power_cut=True)
        await told.until(lambda: replaced(cluster, victim), 60)

        assert all(len(at.replicas) == 3 for at in invariants.placements.values())
        await client.create_topics(names(90, 3))

    tell(ClusterPlan(shard_nodes=4), story)


def replaced(cluster: ClusterSimulation, node_id: str) -> bool:
    """Return whether no shard has a replica of the node, and nothing is under way."""
    return all(
        node_id not in at.replicas and not at.joining and not at.leaving
        for at in cluster.invariants.placements.values()
    )
