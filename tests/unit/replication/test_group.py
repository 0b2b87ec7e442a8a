"""One group of the real adapter in virtual time: elections, durability, reads, snapshots.

Disks are slow or fast and cables are cut on purpose, so that each promise is tested at the
moment at which it could break.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from nextgen.kernel.errors import JournalCorrupted, NotLeader, TransferFailed
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.worker import InlineRunner
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Commit, NodeId, Record, Role, RoleChange
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.raft import DATA, GROUP, RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual

Scenario = Callable[[RaftSimulation], Coroutine[Any, Any, None]]


def simulated(scenario: Scenario, *, size: int = 3, seed: int = 1) -> None:
    async def main() -> None:
        simulation = RaftSimulation(seed, size)
        await simulation.start()
        await scenario(simulation)
        await asyncio.gather(*(node.stop() for node in simulation.nodes if node.is_up))

    run_virtual(main)


def log_of(node: SimNode) -> PySyncObjGroup:
    assert node.log is not None
    return node.log


def propose(node: SimNode, text: str = "x", events: int = 1) -> asyncio.Future[Commit]:
    return log_of(node).propose(Record(text.encode(), events))


def others_than(simulation: RaftSimulation, *nodes: SimNode) -> list[SimNode]:
    return [node for node in simulation.nodes if node not in nodes]


def cut(simulation: RaftSimulation, one: SimNode, *others: SimNode) -> None:
    simulation.network.cut |= {frozenset((one.node_id, other.node_id)) for other in others}


def now() -> float:
    return asyncio.get_running_loop().time()


async def elapsed_ms(wait: Awaitable[object]) -> float:
    began = now()
    await wait
    return (now() - began) * 1000


# Elections -------------------------------------------------------------------------------------


@run_by(simulated, size=1)
async def test_a_group_of_one_leads_at_once(simulation: RaftSimulation) -> None:
    assert await elapsed_ms(simulation.leader()) < 50


def test_a_dead_leader_whose_port_refuses_is_replaced_within_300_ms() -> None:
    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)

        leader.crash()

        assert await elapsed_ms(simulation.leader()) < 300

    for seed in range(10):
        simulated(scenario, seed=seed)


@run_by(simulated)
async def test_a_silent_leader_is_replaced_after_the_election_silence(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    cut(simulation, leader, *others_than(simulation, leader))

    await asyncio.sleep(2.5)

    assert (await simulation.leader()) is not leader


@run_by(simulated)
async def test_a_leader_that_hears_no_majority_steps_down_by_itself(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    changes: list[RoleChange] = []
    log_of(leader).on_role_change(changes.append)
    cut(simulation, leader, *others_than(simulation, leader))

    await asyncio.sleep(1.3)

    assert not log_of(leader).is_leader
    assert changes[-1].role is not Role.LEADER


@run_by(simulated)
async def test_a_node_that_returns_from_isolation_does_not_depose_the_leader(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    lonely = others_than(simulation, leader)[0]
    term = log_of(leader).status.term
    cut(simulation, lonely, *others_than(simulation, lonely))
    await asyncio.sleep(30)

    simulation.network.cut.clear()
    await asyncio.sleep(5)

    assert log_of(leader).is_leader
    assert log_of(lonely).status.term == term


@run_by(simulated)
async def test_a_leader_whose_disk_stands_still_hands_over(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    leader.disk_delay_ms = 5_000
    await propose(leader)  # The followers' disks are a majority.

    await asyncio.sleep(1.8)

    assert (await simulation.leader()) is not leader


@run_by(simulated)
async def test_a_vote_is_on_disk_before_it_leaves(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    votes: list[tuple[NodeId, NodeId, int]] = []

    def tap(sender: NodeId, target: NodeId, message: Message) -> None:
        if message["type"] != "response_vote" or votes:
            return
        votes.append((sender, target, message["term"]))
        voter = next(node for node in simulation.nodes if node.node_id == sender)
        voter.crash(keep_some=False)

    simulation.network.tap = tap
    for node in simulation.nodes:
        node.disk_delay_ms = 50
    leader.crash()
    while not votes:
        await asyncio.sleep(0.01)

    voter_id, candidate, term = votes[0]
    voter = next(node for node in simulation.nodes if node.node_id == voter_id)
    journal = Journal.open(
        voter.disk,
        DATA / f"group-{GROUP}" / "journal",
        cluster_id="simulation",
        group_id=GROUP,
        node_id=voter_id,
        runner=InlineRunner(),
    )
    assert journal.hard_state == (term, candidate)
    journal.close()


# Durability ------------------------------------------------------------------------------------


@run_by(simulated)
async def test_an_acknowledgement_waits_for_the_disk_of_a_follower(
    simulation: RaftSimulation,
) -> None:
    """1. The leader's disk is fast, the followers' are slow. 2. The answer comes. 3. The power
    goes, and only the followers come back: what was acknowledged is there."""
    leader = await simulation.leader()
    followers = others_than(simulation, leader)
    await asyncio.sleep(1)
    for follower in followers:
        follower.disk_delay_ms = 200

    commit = await propose(leader, "kept")
    for node in simulation.nodes:
        node.crash(keep_some=False)
    for follower in followers:
        follower.disk_delay_ms = 1
        await follower.start()

    successor = await simulation.leader()
    await log_of(successor).wait_applied(commit.index)
    assert successor.view is not None
    assert successor.view.payloads == ["kept"]


@run_by(simulated)
async def test_a_leader_does_not_count_its_own_copy_before_it_is_on_disk(
    simulation: RaftSimulation,
) -> None:
    """1. One follower is cut off, the other answers fast, the leader's disk is slow. 2. The
    answer comes. 3. The power goes; the leader and the one that was cut off come back."""
    leader = await simulation.leader()
    near, far = others_than(simulation, leader)
    await asyncio.sleep(1)
    cut(simulation, far, leader, near)
    leader.disk_delay_ms = 200

    commit = await propose(leader, "kept")
    for node in simulation.nodes:
        node.crash(keep_some=False)
    simulation.network.cut.clear()
    leader.disk_delay_ms = 1
    await leader.start()
    await far.start()

    successor = await simulation.leader()
    await log_of(successor).wait_applied(commit.index)
    assert successor.view is not None
    assert successor.view.payloads == ["kept"]


@run_by(simulated)
async def test_an_acknowledgement_does_not_wait_for_any_view(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    for node in simulation.nodes:
        node.view_delay_ms = 5_000

    assert await elapsed_ms(propose(leader)) < 50
    assert log_of(leader).status.applied.position == 0


@run_by(simulated)
async def test_a_leader_slows_down_while_a_majority_of_views_lags(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    followers = others_than(simulation, leader)
    await asyncio.sleep(1)
    for follower in followers:
        follower.view_delay_ms = 1_600
    await propose(leader, "first")
    await asyncio.sleep(0.6)

    waited_ms = await elapsed_ms(propose(leader, "second"))

    assert 200 < waited_ms < 2_500
    assert log_of(leader).is_leader


@run_by(simulated)
async def test_one_lagging_view_of_three_slows_nobody_down(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    others_than(simulation, leader)[0].view_delay_ms = 1_600
    await propose(leader, "first")
    await asyncio.sleep(0.6)

    assert await elapsed_ms(propose(leader, "second")) < 50


@run_by(simulated)
async def test_a_whole_group_restarts_with_everything_it_acknowledged(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    for number in range(20):
        await propose(leader, f"{number}")
    for node in simulation.nodes:
        node.crash()

    for node in simulation.nodes:
        await node.start()

    leader = await simulation.leader()
    assert leader.view is not None
    assert leader.view.payloads == [f"{number}" for number in range(20)]


# Views that fail -------------------------------------------------------------------------------


@run_by(simulated)
async def test_a_view_whose_disk_is_full_is_tried_again(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    assert leader.view is not None
    leader.view.full = True
    commit = await propose(leader)
    await asyncio.sleep(3)
    assert log_of(leader).status.applied.index < commit.index

    leader.view.full = False

    await log_of(leader).wait_applied(commit.index)


@run_by(simulated)
async def test_a_view_that_cannot_follow_its_log_stops_its_replica_and_no_other(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    victim = others_than(simulation, leader)[0]
    assert victim.view is not None
    victim.view.broken = True
    log = log_of(victim)

    await propose(leader)
    await asyncio.sleep(1)

    assert log.status.role is Role.STOPPED
    await propose(leader, "goes on")


# Reads -----------------------------------------------------------------------------------------


@run_by(simulated)
async def test_a_leader_that_was_replaced_unknowingly_answers_no_read(
    simulation: RaftSimulation,
) -> None:
    """1. The leader is cut off and the others take it for dead. 2. They elect and commit.
    3. The old leader still believes in itself, and must not answer from the past."""
    old = await simulation.leader()
    await asyncio.sleep(1)
    simulation.network.unplug(old.node_id)
    async with timeout(1):
        while not any(log_of(n).is_leader for n in others_than(simulation, old)):
            await asyncio.sleep(0.001)
    new = next(n for n in others_than(simulation, old) if log_of(n).is_leader)
    await propose(new, "news")
    assert log_of(old).is_leader, "the scenario needs a leader that does not know yet"

    asked_at = asyncio.get_running_loop().time()
    await asyncio.sleep(0.2)
    assert log_of(old).is_leader, "it has sent heartbeats since then"
    with pytest.raises(NotLeader):
        await log_of(old).read_index(asked_at=asked_at)


@run_by(simulated)
async def test_what_was_asked_before_a_heartbeat_needs_no_round(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    asked_at = loop.time()
    await asyncio.sleep(0.3)
    index = await propose(leader, "news")
    sent: list[Message] = []
    simulation.network.tap = lambda _s, _t, m: sent.append(m) if m["type"] == "append" else None

    began_at = loop.time()
    assert await log_of(leader).read_index(asked_at=asked_at) >= index.index
    assert (loop.time(), sent) == (began_at, [])

    await log_of(leader).read_index(asked_at=loop.time())
    assert sent, "no heartbeat has left since this question"


@run_by(simulated)
async def test_reads_that_come_together_share_a_round_and_write_nothing(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    last_index = log_of(leader).status.last_index
    sent: list[Message] = []
    simulation.network.tap = lambda _s, _t, m: sent.append(m) if m["type"] == "append" else None

    await asyncio.gather(*(log_of(leader).read_index() for _ in range(100)))

    assert len(sent) <= 6
    assert log_of(leader).status.last_index == last_index


# Handing over ----------------------------------------------------------------------------------


@run_by(simulated)
async def test_a_leader_that_stops_hands_over_first(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)

    await leader.stop()

    assert await elapsed_ms(simulation.leader()) < 100


@run_by(simulated)
async def test_leadership_stays_when_the_successor_does_not_take_over(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    successor = others_than(simulation, leader)[0]
    cut(simulation, successor, *others_than(simulation, successor))

    with pytest.raises(TransferFailed):
        await log_of(leader).transfer_leadership(successor.node_id)

    assert log_of(leader).is_leader
    await propose(leader, "goes on")


# Catching up -----------------------------------------------------------------------------------


@run_by(simulated)
async def test_a_follower_that_was_away_gets_the_entries_it_missed(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    away = others_than(simulation, leader)[0]
    await away.stop()
    for number in range(50):
        commit = await propose(leader, f"{number}")

    await away.start()

    await log_of(away).wait_applied(commit.index)
    assert log_of(away).statistics.snapshots_installed == 0


@run_by(simulated)
async def test_a_follower_behind_the_cut_gets_a_snapshot_and_goes_on(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    away = others_than(simulation, leader)[0]
    await away.stop()
    for number in range(200):
        commit = await propose(leader, f"{number}" + "." * 500)
    await log_of(leader).wait_applied(commit.index)
    await log_of(leader).compact()
    assert log_of(leader).status.first_position > 1

    await away.start()
    await log_of(away).wait_applied(commit.index)
    last = await propose(leader, "after")
    await log_of(away).wait_applied(last.index)
    await log_of(leader).wait_applied(last.index)
    await log_of(leader).wait_applied(last.index)

    assert log_of(away).statistics.snapshots_installed == 1
    assert away.view is not None
    assert leader.view is not None
    assert away.view.payloads == leader.view.payloads


@pytest.mark.parametrize("is_cut_at_the_others", [True, False])
@run_by(simulated)
async def test_a_replica_whose_view_is_gone_keeps_its_log_and_gets_a_snapshot(
    simulation: RaftSimulation, *, is_cut_at_the_others: bool
) -> None:
    """It votes meanwhile, for its log is whole, and leads only with a view."""
    leader = await simulation.leader()
    for number in range(200):
        commit = await propose(leader, f"{number}" + "." * 500)
    for node in simulation.nodes:
        await log_of(node).wait_applied(commit.index)
        if node is leader or is_cut_at_the_others:
            await log_of(node).compact()
    last = await propose(leader, "behind the cut")
    for node in simulation.nodes:
        await log_of(node).wait_applied(last.index)
    other, lost = others_than(simulation, leader)
    for node in simulation.nodes:
        node.crash()
    leader.disk.unlink(DATA / "view")

    await leader.start()
    await other.start()

    assert (await simulation.leader()) is other
    assert log_of(leader).status.last_index >= last.index, "nothing of its log is gone"
    await log_of(leader).wait_applied(last.index)
    assert leader.view is not None
    assert len(leader.view.payloads) == 201
    assert log_of(leader).statistics.snapshots_installed == 1
    await propose(other, "and it acknowledges again")
    await lost.start()


@run_by(simulated, size=1)
async def test_a_replica_alone_whose_view_is_gone_refuses_to_start(
    simulation: RaftSimulation,
) -> None:
    (node,) = simulation.nodes
    leader = await simulation.leader()
    for number in range(200):
        commit = await propose(leader, f"{number}" + "." * 500)
    await log_of(leader).wait_applied(commit.index)
    await log_of(leader).compact()
    node.crash()
    node.disk.unlink(DATA / "view")

    with pytest.raises(JournalCorrupted, match="no other replica"):
        await node.start()


@run_by(simulated)
async def test_a_replica_that_lost_its_disk_votes_only_after_a_leader_has_covered_it(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    victim, other = others_than(simulation, leader)
    commit = await propose(leader)
    victim.crash()
    victim.lose_disk()
    cut(simulation, victim, leader, other)

    await victim.start(may_be_lost=True)
    assert log_of(victim).status.role is Role.NON_VOTER
    await asyncio.sleep(5)
    assert log_of(victim).status.role is Role.NON_VOTER, "it does not campaign either"

    simulation.network.cut.clear()
    await log_of(victim).wait_applied(commit.index)
    await asyncio.sleep(1)
    assert log_of(victim).status.role is Role.FOLLOWER


@run_by(simulated)
async def test_an_unverified_replica_does_not_vote(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    victim, other = others_than(simulation, leader)
    victim.crash()
    victim.lose_disk()
    leader.crash()

    await victim.start(may_be_lost=True)
    await asyncio.sleep(10)

    assert not log_of(other).is_leader
    await leader.start()
    await simulation.leader()


# Idleness --------------------------------------------------------------------------------------


@run_by(simulated)
async def test_an_idle_group_sends_heartbeats_and_nothing_else(simulation: RaftSimulation) -> None:
    await simulation.leader()
    await asyncio.sleep(1)
    sent: list[str] = []
    simulation.network.tap = lambda _s, _t, message: sent.append(message["type"])

    await asyncio.sleep(15)

    assert set(sent) == {"append", "append_answer"}
    assert len(sent) == pytest.approx(15 / 0.15 * 4, rel=0.05)


@run_by(simulated)
async def test_followers_hear_of_a_commit_that_no_entry_follows(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    commit = await propose(leader)
    began = now()

    for node in simulation.nodes:
        await log_of(node).wait_applied(commit.index)

    assert (now() - began) * 1000 < 50


@run_by(simulated)
async def test_consecutive_commits_are_announced_by_entries_alone(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    empty: list[Message] = []

    def tap(_sender: NodeId, _target: NodeId, message: Message) -> None:
        if message["type"] == "append" and not message["entries"]:
            empty.append(message)

    simulation.network.tap = tap
    began = now()
    while now() - began < 3:
        await propose(leader)
    heartbeats = 2 * 3 / 0.15

    assert len(empty) <= heartbeats + 4


@run_by(simulated)
async def test_a_read_does_not_wait_for_the_view_to_be_due(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    commit = await propose(leader)
    assert log_of(leader).status.applied.index < commit.index

    took_ms = await elapsed_ms(log_of(leader).wait_applied(commit.index))

    assert took_ms < log_of(leader).engine.config.apply_delay_ms / 2
