"""Snapshots, lost journals and crashes in between do not change who counts in a group."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.replication.ports import (
    AppliedPoint,
    Configuration,
    Entry,
    NodeId,
    Record,
    Role,
)
from nextgen.replication.protocol.entry_codec import NO_RECORDS
from tests.support.scenarios import run_by
from tests.support.simulated.membership import (
    ADD,
    REMOVE,
    MembershipSimulation,
    ask,
    engine_of,
    log_of,
    members,
    membership,
    until,
)
from tests.support.simulated.raft import DATA, GROUP, SimNode


async def cut_the_log(simulation: MembershipSimulation, *nodes: SimNode) -> None:
    """Write until the beginning of the logs is gone behind a snapshot."""
    while min(engine_of(node).journal.base_index for node in nodes) == 0:
        for number in range(100):
            await simulation.write(str(number) + "." * 400)
        for node in nodes:
            await log_of(node).compact()


@run_by(membership, extra=2)
async def test_a_snapshot_brings_the_configuration_along(simulation: MembershipSimulation) -> None:
    newcomer, late = simulation.node(4), simulation.node(5)
    await simulation.add_voter(newcomer)
    made = await simulation.change(ADD, late)
    await cut_the_log(simulation, *simulation.nodes[:4])
    assert engine_of(await simulation.leader()).journal.base_index > made.index
    # Nothing that a leader says of its configuration later reaches it.
    simulation.network.tap = lambda _sender, _target, message: (
        simulation.cut_off(late) if message.get("installed") else None
    )

    await late.start(joining=True)
    await until(lambda: bool(simulation.network.cut), "it got a snapshot")

    assert log_of(late).engine.statistics.snapshots_installed == 1
    assert members(late) == ([1, 2, 3, 4], [5])
    assert log_of(late).status.configuration_index == made.index
    await simulation.restart(late)
    assert members(late) == ([1, 2, 3, 4], [5])


@run_by(membership)
async def test_a_replica_that_lost_its_journal_learns_who_counts_before_it_may_vote(
    simulation: MembershipSimulation,
) -> None:
    """Its view is ahead of its journal: the entry with the configuration never comes again."""
    unverified, newcomer = simulation.node(2), simulation.node(4)
    await simulation.lead(simulation.node(1))
    await simulation.add_voter(newcomer)
    made = await simulation.change(REMOVE, simulation.node(3))
    await simulation.write()
    await until(lambda: simulation.is_caught_up(unverified), "it has everything")
    await log_of(unverified).compact()
    unverified.kill()
    lose_journal(unverified)
    simulation.cut_off(unverified)

    await unverified.start()
    await asyncio.sleep(10)
    assert log_of(unverified).status.role is Role.NON_VOTER
    simulation.heal()
    await simulation.write()
    await until(lambda: not engine_of(unverified).journal.unverified_index, "it may vote again")
    await until(lambda: not engine_of(unverified).journal.pending_bytes, "and keeps that")

    assert members(unverified) == ([1, 2, 4], [])
    assert log_of(unverified).status.configuration_index == made.index
    await simulation.restart(unverified)
    assert members(unverified) == ([1, 2, 4], [])


@run_by(membership)
async def test_a_snapshots_configuration_is_on_disk_before_its_view_is(
    simulation: MembershipSimulation,
) -> None:
    receiver = simulation.node(4)
    await receiver.start(joining=True)
    simulation.cut_off(receiver)
    held = Configuration((NodeId("node-1"), NodeId("node-2")), (NodeId("node-4"),), 40)

    receiver.disk_delay_ms = 500
    ready = engine_of(receiver).expect_snapshot(AppliedPoint(50, 5, 100), held)
    await asyncio.sleep(0.2)
    assert not ready.done()
    await ready
    receiver.crash(keep_some=False)
    receiver.disk_delay_ms = 1
    await receiver.start(joining=True)

    assert members(receiver) == ([1, 2], [4])


@run_by(membership, extra=0)
async def test_a_change_that_was_never_committed_is_not_taken_along_behind_a_snapshot(
    simulation: MembershipSimulation,
) -> None:
    deposed = await simulation.leader()
    simulation.cut_off(deposed)
    ask(deposed, REMOVE, deposed)
    await until(lambda: not log_of(deposed).is_leader, "it steps down")
    assert log_of(deposed).status.configuration_index > 0
    others = [node for node in simulation.nodes[:3] if node is not deposed]
    await until(lambda: any(log_of(node).is_leader for node in others), "a successor")
    await cut_the_log(simulation, *others)

    simulation.heal()
    await until(lambda: simulation.is_caught_up(deposed), "it got a snapshot")

    assert engine_of(deposed).statistics.snapshots_installed == 1
    assert members(deposed) == ([1, 2, 3], [])
    assert log_of(deposed).status.configuration_index == 0
    assert log_of(deposed).status.role is Role.FOLLOWER


@pytest.mark.parametrize("entries", [0, 30, 80])
@run_by(membership)
async def test_a_crash_between_a_view_that_got_a_snapshot_and_its_log_is_mended(
    simulation: MembershipSimulation, *, entries: int
) -> None:
    """Whether the log ends before the snapshot or has other entries beyond: the view is right."""
    receiver = simulation.node(4)
    held = Configuration((NodeId("node-1"), NodeId("node-2")), (NodeId("node-4"),), 40)
    await receiver.start(joining=True)
    journal = engine_of(receiver).journal
    for _ in range(entries):
        journal.append(3, NO_RECORDS, 1)
    assert receiver.view is not None
    receiver.view.apply([Entry(n, 5, n, (Record(b"x", 1),)) for n in range(1, 51)])
    receiver.view.make_durable()
    await engine_of(receiver).expect_snapshot(AppliedPoint(50, 5, 50), held)
    receiver.crash(keep_some=False)
    simulation.cut_off(receiver)

    await receiver.start(joining=True)

    journal = engine_of(receiver).journal
    assert (journal.base_index, journal.base_term, journal.last_index) == (50, 5, 50)
    assert members(receiver) == ([1, 2], [4])
    assert log_of(receiver).status.configuration_index == 40


@run_by(membership)
async def test_a_candidate_that_gets_a_snapshot_gives_up(simulation: MembershipSimulation) -> None:
    """Its votes may have been counted by a configuration that does not hold any more."""
    lonely = (await simulation.followers_of_three())[0]
    simulation.cut_off(lonely)
    engine = engine_of(lonely)
    engine.core.campaign(transfer=False)
    assert engine.core.campaigns

    engine.adopt_snapshot(engine.applier.applied)

    assert not engine.core.campaigns


def lose_journal(node: SimNode) -> None:
    directory = DATA / f"group-{GROUP}" / "journal"
    for name in node.disk.list_names(directory):
        node.disk.unlink(directory / name)
