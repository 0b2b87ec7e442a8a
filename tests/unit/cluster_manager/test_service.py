"""One replica: joining, pushing, reports, loss of leadership."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_manager.domain.membership import Node, NodeRegistered
from cluster_manager.service import leader_term
from cluster_manager.service.spreader import LOOK_PAUSE_MS, LeaderSpreader, Situation
from nextgen.kernel.errors import (
    InvalidRequest,
    NotLeader,
    Overloaded,
    ProposalLost,
    Refused,
    WrongCluster,
)
from nextgen.kernel.limits.cluster import (
    JOIN_OUTBOX_UPDATES_MAX,
    JOIN_SILENCE_MS,
    SLOT_COUNT,
)
from nextgen.kernel.limits.placement import LEADERS_GATHERED_MS
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from tests.unit.cluster_manager.fakes import (
    ENDPOINTS,
    FakeClock,
    ManagerUnderTest,
    broker,
    heartbeat,
    hello,
    leader,
    settle,
    taken,
)


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    manager = ManagerUnderTest(tmp_path)
    yield manager
    manager.manager.stop()
    await manager.log.stop()


async def test_the_first_update_is_full_and_names_all_managers(one: ManagerUnderTest) -> None:
    connection = await one.manager.join(hello("a"))

    first, *_ = await taken(connection)

    assert first.full
    assert not first.HasField("shard_map")
    assert list(first.manager_endpoints) == list(ENDPOINTS.values())


async def test_the_last_of_the_initial_shard_nodes_brings_the_first_map_to_all(
    one: ManagerUnderTest,
) -> None:
    first, second = await one.join_shard_nodes()

    for connection in (first, second):
        updates = await taken(connection)
        (shard_map,) = [update.shard_map for update in updates if update.HasField("shard_map")]
        assert shard_map.version == 1
        assert len(shard_map.slot_owners) == 2 * SLOT_COUNT
        assert [shard.shard_id for shard in shard_map.shards] == [1, 2]


async def test_other_kinds_of_nodes_do_not_count_for_the_first_map(one: ManagerUnderTest) -> None:
    await one.manager.join(hello("a"))
    for node_id, kind in (("d", "discovery"), ("x", "broker"), ("y", "client")):
        await one.manager.join(hello(node_id, kind))
    await settle()

    state = await one.manager.cluster_state()

    assert not state.HasField("shard_map")
    assert sorted(node.node_id for node in state.nodes) == ["a", "d"]


async def test_join_streams_max_nodes_are_connected_and_one_more_is_refused(
    one: ManagerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_term, "JOIN_STREAMS_MAX", 2)
    for node_id in ("d", "x"):
        await one.manager.join(hello(node_id, "discovery"))

    with pytest.raises(Overloaded):
        await one.manager.join(hello("y", "discovery"))

    # One that is connected already takes the place of its own connection.
    await one.manager.join(hello("x", "discovery"))


async def test_a_node_that_joins_later_gets_everything_in_its_full_update(
    one: ManagerUnderTest,
) -> None:
    first, _ = await one.join_shard_nodes()
    one.manager.receive(first, leader(1, 3, "a"))
    one.manager.receive(first, broker())
    await settle()

    update, *_ = await taken(await one.manager.join(hello("d", "discovery")))

    assert update.full
    assert update.shard_map.version == 1
    assert [(report.shard_id, report.node_id) for report in update.leaders] == [(1, "a")]
    assert [recorded.broker_id for recorded in update.brokers] == ["broker-1"]
    assert sorted(node.node_id for node in update.nodes) == ["a", "b"]


async def test_a_node_of_another_cluster_is_refused(one: ManagerUnderTest) -> None:
    with pytest.raises(WrongCluster, match="belongs to cluster 'other'"):
        await one.manager.join(hello("a", cluster_id="other"))


async def test_a_node_that_changes_its_kind_is_refused(one: ManagerUnderTest) -> None:
    await one.manager.join(hello("a"))

    with pytest.raises(Refused):
        await one.manager.join(hello("a", "discovery"))


async def test_a_leader_report_is_pushed_to_every_node_at_once(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    await taken(first)
    await taken(second)

    one.manager.receive(first, leader(2, 5, "a"))

    for connection in (first, second):
        (update,) = await taken(connection)
        assert [(report.shard_id, report.term) for report in update.leaders] == [(2, 5)]


async def test_a_report_of_a_lower_term_or_once_more_is_not_pushed(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    one.manager.receive(first, leader(2, 5, "a"))
    await taken(second)

    one.manager.receive(first, leader(2, 5, "a"))
    one.manager.receive(second, leader(2, 4, "b"))

    assert await taken(second) == []


@pytest.mark.parametrize(
    "message",
    [
        leader(9, 1, "a"),
        leader(1, 1, "b"),
        cluster_pb.NodeMessage(hello=hello("a")),
        cluster_pb.NodeMessage(),
    ],
    ids=["no such shard", "for somebody else", "second hello", "empty"],
)
async def test_what_a_shard_node_may_not_say_is_an_error(
    one: ManagerUnderTest, message: cluster_pb.NodeMessage
) -> None:
    first, _ = await one.join_shard_nodes()

    with pytest.raises(InvalidRequest):
        one.manager.receive(first, message)


@pytest.mark.parametrize("message", [leader(1, 1, "d"), broker()])
async def test_only_shard_nodes_report_leaders_and_brokers(
    one: ManagerUnderTest, message: cluster_pb.NodeMessage
) -> None:
    await one.join_shard_nodes()
    discovery = await one.manager.join(hello("d", "discovery"))

    with pytest.raises(InvalidRequest, match="cannot report"):
        one.manager.receive(discovery, message)


async def test_a_broker_is_pushed_when_its_record_is_committed_and_not_before(
    one: ManagerUnderTest,
) -> None:
    first, second = await one.join_shard_nodes()
    await taken(second)
    one.log.hold_commits()

    one.manager.receive(first, broker())
    await settle()
    assert await taken(second) == []

    one.log.release_commits()
    (update,) = await taken(second)
    assert [recorded.session_id for recorded in update.brokers] == ["s-1"]


async def test_a_broker_report_that_changes_nothing_writes_nothing(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    one.manager.receive(first, broker())
    await settle()
    position = one.log.status.commit_position

    one.manager.receive(second, broker())
    one.manager.receive(second, broker(session_id="s-0", epoch=0))
    await settle()

    assert one.log.status.commit_position == position


async def test_a_heartbeat_is_echoed(one: ManagerUnderTest) -> None:
    first, _ = await one.join_shard_nodes()
    await taken(first)

    one.manager.receive(first, heartbeat(7))

    assert await taken(first) == [cluster_pb.ClusterUpdate(heartbeat_sequence=7)]


async def test_a_node_that_is_silent_for_too_long_is_disconnected(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    one.clock.advance(JOIN_SILENCE_MS - 1)
    one.manager.receive(first, heartbeat(1))

    one.clock.advance(1)

    assert second.has_ended
    assert not first.has_ended
    one.clock.advance(JOIN_SILENCE_MS)
    assert first.has_ended


async def test_a_node_that_joins_again_replaces_its_older_connection(
    one: ManagerUnderTest,
) -> None:
    older = await one.manager.join(hello("a"))
    newer = await one.manager.join(hello("a"))

    one.manager.leave(older)
    one.manager.receive(newer, heartbeat(1))

    assert older.has_ended
    assert not newer.has_ended
    assert one.manager.leader_term is not None
    assert one.manager.leader_term.connections == {"a": newer}


async def test_a_slow_node_is_dropped_and_disturbs_nobody(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    await taken(first)
    await taken(second)

    for term in range(1, JOIN_OUTBOX_UPDATES_MAX + 2):
        one.manager.receive(first, heartbeat(term))
        one.manager.receive(second, heartbeat(term))
        assert len(await taken(first)) == 1

    assert not first.has_ended
    assert second.has_ended
    assert isinstance(second.error, Overloaded)


async def test_leaders_that_are_reported_at_once_are_pushed_together(
    one: ManagerUnderTest,
) -> None:
    """More of them than fit into the outbox of a node that reads nothing meanwhile."""
    first, second = await one.join_shard_nodes()
    await taken(first)
    await taken(second)
    count = JOIN_OUTBOX_UPDATES_MAX + 2

    for term in range(1, count):
        one.manager.receive(first, leader(1, term, "a"))
    one.manager.receive(first, leader(2, 5, "a"))

    (at_once,) = await taken(second)
    assert [(each.shard_id, each.term) for each in at_once.leaders] == [(1, 1)]
    one.clock.advance(LEADERS_GATHERED_MS)
    (together,) = [update for update in await taken(second) if update.leaders]
    assert [(each.shard_id, each.term) for each in together.leaders] == [(1, count - 1), (2, 5)]
    one.clock.advance(LEADERS_GATHERED_MS)
    one.manager.receive(first, leader(2, 6, "a"))
    (alone,) = [update for update in await taken(second) if update.leaders]
    assert [(each.shard_id, each.term) for each in alone.leaders] == [(2, 6)]


def test_a_crowd_of_changes_is_decided_on_once_and_the_last_of_it_is_seen() -> None:
    clock, seen, situation = FakeClock(), [], [0]

    def look() -> Situation:
        seen.append(situation[0])
        return (), {}, set()

    spreader = LeaderSpreader(clock, look, lambda _transfer: None)
    for number in range(1_000):
        situation[0] = number
        spreader.look()
    assert seen == [0]

    clock.advance(LOOK_PAUSE_MS)

    assert seen == [0, 999]
    clock.advance(10 * LOOK_PAUSE_MS)
    assert seen == [0, 999]


async def test_losing_leadership_ends_every_stream_with_a_hint(one: ManagerUnderTest) -> None:
    first, _ = await one.join_shard_nodes()

    one.log.lose_leadership(NodeId("cm-3"))

    assert first.has_ended
    assert isinstance(first.error, NotLeader)
    assert first.error.leader_hint == ENDPOINTS["cm-3"]
    with pytest.raises(NotLeader) as refusal:
        await one.manager.join(hello("a"))
    assert refusal.value.leader_hint == ENDPOINTS["cm-3"]
    with pytest.raises(NotLeader):
        await one.manager.cluster_state()


async def test_a_leader_that_lost_its_majority_takes_no_node(one: ManagerUnderTest) -> None:
    one.log.lose_quorum()

    with pytest.raises(NotLeader):
        await one.manager.join(hello("a"))


async def test_a_new_term_starts_from_what_was_committed_with_soft_state_empty(
    one: ManagerUnderTest,
) -> None:
    first, _ = await one.join_shard_nodes()
    one.manager.receive(first, leader(1, 3, "a"))
    one.manager.receive(first, broker())
    await settle()
    before = await one.manager.cluster_state()

    one.log.lose_leadership(NodeId("cm-2"))
    one.log.become_leader()

    after = await one.manager.cluster_state()
    assert after.shard_map == before.shard_map
    assert list(after.brokers) == list(before.brokers)
    assert list(after.nodes) == list(before.nodes)
    assert list(after.leaders) == []
    assert one.updates[-1].full


async def test_what_was_pending_when_leadership_moved_is_forgotten(one: ManagerUnderTest) -> None:
    first, _ = await one.join_shard_nodes()
    one.log.hold_commits()
    one.manager.receive(first, broker())

    one.log.lose_leadership(NodeId("cm-2"))
    one.log.release_commits()
    one.log.become_leader()

    assert list((await one.manager.cluster_state()).brokers) == []


async def test_a_term_that_is_over_proposes_nothing_even_if_this_replica_leads_again(
    one: ManagerUnderTest,
) -> None:
    """1. A decision is made in one term. 2. Leadership goes and comes back. 3. Proposing it
    on the old term's state would overwrite what happened in between."""
    await one.join_shard_nodes()
    old_term = one.manager.leader_term
    assert old_term is not None

    one.log.lose_leadership(NodeId("cm-2"))
    one.log.become_leader()

    with pytest.raises(NotLeader):
        old_term.propose(())


async def test_spreading_asks_the_present_leader_once_leadership_is_stable(
    one: ManagerUnderTest,
) -> None:
    first, second = await one.join_shard_nodes()
    nodes = {"a": first, "b": second}
    shard_map = (await one.manager.cluster_state()).shard_map
    preferred = shard_map.shards[0].replicas[0]
    other = shard_map.shards[0].replicas[1]
    one.manager.receive(nodes[other], leader(1, 1, other))
    await taken(first)
    await taken(second)

    one.clock.advance(1_999)
    assert await taken(nodes[other]) == []
    one.clock.advance(1)

    (update,) = await taken(nodes[other])
    assert [(t.shard_id, t.target) for t in update.transfers] == [(1, preferred)]
    assert await taken(nodes[preferred]) == []


async def test_a_preferred_node_that_comes_back_gets_its_leadership(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    nodes = {"a": first, "b": second}
    placement = (await one.manager.cluster_state()).shard_map.shards[0]
    preferred, other = placement.replicas
    one.manager.leave(nodes[preferred])
    one.manager.receive(nodes[other], leader(1, 1, other))
    one.clock.advance(2_500)
    one.manager.receive(nodes[other], heartbeat(1))
    await taken(nodes[other])

    await one.manager.join(hello(preferred))

    updates = await taken(nodes[other])
    assert [t.target for update in updates for t in update.transfers] == [preferred]


async def test_handing_over_gives_leadership_to_the_next_replica(one: ManagerUnderTest) -> None:
    await one.manager.hand_over()

    assert one.log.status.leader_id == "cm-2"
    assert one.manager.leader_term is None


async def test_a_follower_answers_status_only(tmp_path: Path) -> None:
    follower = ManagerUnderTest(tmp_path, leads=False)

    assert follower.manager.status().role.value == "follower"
    with pytest.raises(NotLeader):
        await follower.manager.join(hello("a"))
    with pytest.raises(NotLeader):
        await follower.manager.lease_capacity(cluster_pb.LeaseCapacityRequest(shard_id=1))
    await follower.manager.hand_over()
    follower.manager.stop()
    await follower.log.stop()


async def test_a_lost_proposal_is_an_error_for_its_waiter_only(
    one: ManagerUnderTest,
) -> None:
    """An exception that is never retrieved would be a warning, and warnings are errors."""
    first, _ = await one.join_shard_nodes()
    one.log.hold_commits()
    one.manager.receive(first, broker())
    assert one.manager.leader_term is not None
    waited_for = one.manager.leader_term.propose([NodeRegistered(Node("d", "discovery", "d:1"))])

    one.log.lose_leadership()

    with pytest.raises(ProposalLost):
        await waited_for
    gc.collect()


async def test_the_map_says_that_every_shard_has_been_led(one: ManagerUnderTest) -> None:
    first, second = await one.join_shard_nodes()
    one.manager.receive(first, leader(1, 1, "a"))
    await settle()
    assert not [update for update in await taken(second) if update.shard_map.version == 2]

    one.manager.receive(second, leader(2, 1, "b"))
    await settle()

    (changed,) = [update for update in await taken(second) if update.HasField("shard_map")]
    assert changed.shard_map.version == 2
    assert all(placement.has_led for placement in changed.shard_map.shards)
