"""Members of a real group change, in virtual time, while disks are slow and cables are cut.

What a configuration does from its append on, and what it must not do before it is committed
(Raft thesis, chapter 4; H12).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from nextgen.kernel.errors import MetadataError, NotLeader, ProposalLost, Refused
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import (
    MemberChange,
    NodeId,
    Record,
    Role,
)
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.membership import (
    ADD,
    PROMOTE,
    REMOVE,
    MembershipSimulation,
    ask,
    engine_of,
    log_of,
    members,
    membership,
    until,
)
from tests.support.simulated.raft import SimNode

# In and out ------------------------------------------------------------------------------------


@run_by(membership)
async def test_a_node_comes_in_as_a_learner_and_becomes_a_voter(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await simulation.write("before")

    await simulation.add_learner(newcomer)
    assert log_of(newcomer).status.role is Role.LEARNER
    assert members(newcomer) == ([1, 2, 3], [4])
    made = await simulation.change(PROMOTE, newcomer)
    await simulation.write("after")

    await until(lambda: all(map(simulation.is_caught_up, simulation.nodes)), "all have all")
    for node in simulation.nodes:
        assert members(node) == ([1, 2, 3, 4], [])
        assert log_of(node).status.configuration_index == made.index
    assert log_of(newcomer).status.role is Role.FOLLOWER
    assert newcomer.view is not None
    assert newcomer.view.payloads == ["before", "after"]


@run_by(membership)
async def test_a_newcomer_knows_nobody_and_campaigns_and_votes_for_nobody_until_it_is_named(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await newcomer.start(joining=True)
    asked: list[str] = []
    simulation.network.tap = lambda sender, target, message: asked.append(
        f"{message['type']} {sender}" if "node-4" in (sender, target) else ""
    )

    engine_of(newcomer).on_message(
        NodeId("node-1"),
        {
            "type": "request_vote",
            "term": 99,
            "last_log_index": 999,
            "last_log_term": 98,
            "transfer": True,
        },
    )
    await asyncio.sleep(30)

    assert members(newcomer) == ([], [])
    assert log_of(newcomer).status.role is Role.LEARNER
    assert not [what for what in asked if what.endswith("node-4")]
    assert log_of(newcomer).status.term == 0


@run_by(membership, size=1, extra=2)
async def test_a_group_grows_from_one_to_three_and_shrinks_again(
    simulation: MembershipSimulation,
) -> None:
    for number in (2, 3):
        await simulation.add_voter(simulation.node(number))
        await simulation.write(f"{number} came")
    assert members(simulation.node(1)) == ([1, 2, 3], [])

    for number in (3, 2):
        await simulation.change(REMOVE, simulation.node(number))
        await simulation.write(f"{number} went")

    assert members(simulation.node(1)) == ([1], [])
    assert log_of(simulation.node(1)).is_leader


def test_every_member_is_replaced_and_nothing_is_lost() -> None:
    async def scenario(simulation: MembershipSimulation) -> None:
        for number in (1, 2, 3):
            newcomer, old = simulation.node(number + 3), simulation.node(number)
            await simulation.add_voter(newcomer)
            await simulation.write(f"{number} doubled")
            await simulation.change(REMOVE, old)
            await simulation.write(f"{number} replaced")

        await until(lambda: all(map(simulation.is_caught_up, simulation.nodes[3:])), "agreement")
        views = [node.view.payloads for node in simulation.nodes[3:] if node.view is not None]
        assert views == [[f"{n} {what}" for n in (1, 2, 3) for what in ("doubled", "replaced")]] * 3

    for seed in range(3):
        membership(scenario, extra=3, seed=seed)


@run_by(membership)
async def test_a_step_that_was_made_already_is_answered_with_what_is(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await simulation.add_voter(newcomer)
    leader = await simulation.leader()
    before = log_of(leader).status

    again = await simulation.change(PROMOTE, newcomer)

    assert again.index == before.configuration_index
    assert log_of(leader).status.last_index == before.last_index


def test_the_members_survive_a_restart_after_each_step() -> None:
    async def scenario(simulation: MembershipSimulation) -> None:
        newcomer, leaving = simulation.node(4), simulation.node(3)
        await simulation.add_learner(newcomer)
        await simulation.restart(*simulation.nodes)
        assert members(newcomer) == ([1, 2, 3], [4])
        assert log_of(newcomer).status.role is Role.LEARNER

        await simulation.write()
        await simulation.leader_knows(newcomer)
        await simulation.change(PROMOTE, newcomer)
        await simulation.restart(*simulation.nodes)
        await simulation.write()
        assert members(newcomer) == ([1, 2, 3, 4], [])

        await simulation.change(REMOVE, leaving)
        await until(lambda: members(leaving) == ([1, 2, 4], []), "it hears of its removal")
        await until(lambda: not engine_of(leaving).journal.pending_bytes, "and keeps that")
        await simulation.restart(*simulation.nodes)
        await simulation.write()
        assert [members(node) for node in simulation.nodes] == [([1, 2, 4], [])] * 4
        assert log_of(leaving).status.role is Role.LEARNER

    for seed in range(3):
        membership(scenario, seed=seed)


# From the append on ----------------------------------------------------------------------------


@run_by(membership)
async def test_a_configuration_counts_from_its_append_on(simulation: MembershipSimulation) -> None:
    """Two of the old three have it, but of the new four that is no majority."""
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    leader = await simulation.leader()
    away = (await simulation.followers_of_three())[0]
    simulation.cut_off(newcomer)
    simulation.network.cut.add(frozenset((leader.node_id, away.node_id)))

    change = ask(leader, PROMOTE, newcomer)
    await asyncio.sleep(0.3)

    assert members(leader) == ([1, 2, 3, 4], [])
    assert not change.done()
    assert engine_of(leader).commit_index < log_of(leader).status.configuration_index
    simulation.heal()
    await change


@run_by(membership)
async def test_a_follower_goes_by_a_configuration_that_is_not_committed(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    leader = await simulation.leader()
    others = [node for node in simulation.nodes[:3] if node is not leader]
    for node in others:
        node.disk_delay_ms = 400

    ask(leader, PROMOTE, newcomer)
    await asyncio.sleep(0.05)

    for node in others:
        assert members(node) == ([1, 2, 3, 4], [])
        assert engine_of(node).commit_index < log_of(node).status.configuration_index


@pytest.mark.parametrize("restarts", [False, True])
def test_a_change_that_is_cut_off_is_undone(restarts: bool) -> None:
    async def scenario(simulation: MembershipSimulation) -> None:
        newcomer = simulation.node(4)
        await simulation.add_learner(newcomer)
        leader = await simulation.leader()
        simulation.cut_off(leader)
        lost = ask(leader, PROMOTE, newcomer)
        await until(lambda: engine_of(leader).journal.stalled is None, "it is written")
        await asyncio.sleep(0.1)
        assert members(leader) == ([1, 2, 3, 4], [])
        await until(lambda: not log_of(leader).is_leader, "it steps down")
        if restarts:
            await simulation.restart(leader)
            assert members(leader) == ([1, 2, 3, 4], [])

        await simulation.write("meanwhile")
        simulation.heal()
        await until(lambda: simulation.is_caught_up(leader), "it is back")

        assert [members(node) for node in simulation.nodes] == [([1, 2, 3], [4])] * 4
        assert log_of(newcomer).status.role is Role.LEARNER
        with pytest.raises(ProposalLost):
            await lost
        await simulation.leader_knows(leader)
        await simulation.restart(leader)
        assert members(leader) == ([1, 2, 3], [4])

    for seed in range(3):
        membership(scenario, seed=seed)


@run_by(membership)
async def test_a_change_that_reached_a_successor_is_completed_by_it(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await newcomer.start(joining=True)
    leader = await simulation.leader()
    for node in simulation.nodes[:3]:
        node.disk_delay_ms = 0.2 if node is leader else 60
    ask(leader, ADD, newcomer)
    await asyncio.sleep(0.03)
    assert engine_of(leader).commit_index < log_of(leader).status.configuration_index

    leader.crash()
    for node in simulation.nodes:
        node.disk_delay_ms = 1
    await simulation.write("after")

    assert members(await simulation.leader()) == ([1, 2, 3], [4])
    await until(lambda: simulation.is_caught_up(newcomer), "the newcomer follows")


# One at a time ---------------------------------------------------------------------------------


@run_by(membership, extra=2)
async def test_a_second_change_waits_for_the_first_to_be_committed(
    simulation: MembershipSimulation,
) -> None:
    leader = await simulation.leader()
    for node in simulation.nodes:
        node.disk_delay_ms = 100
    first = ask(leader, ADD, simulation.node(4))

    with pytest.raises(Refused, match="under way"):
        ask(leader, ADD, simulation.node(5))

    await first
    await ask(leader, ADD, simulation.node(5))
    assert members(leader) == ([1, 2, 3], [4, 5])


@run_by(membership)
async def test_a_replica_that_does_not_lead_changes_no_members(
    simulation: MembershipSimulation,
) -> None:
    follower = (await simulation.followers_of_three())[0]
    with pytest.raises(NotLeader):
        await log_of(follower).change_members(MemberChange(ADD, NodeId("node-4")))
    assert log_of(follower).status.configuration_index == 0


@run_by(membership, size=4)
async def test_a_leader_changes_nothing_before_an_entry_of_its_own_term_is_committed(
    simulation: MembershipSimulation,
) -> None:
    """The one bug of single-server changes (Ongaro, raft-dev, July 2015).

    node-1 appends a change and is cut off; node-2 takes over and, if it may, appends another
    one, which two of its three commit. Then node-1 and the others, with the first change,
    are a majority too, and cut the second one off.
    """
    one, two, three, four, newcomer = simulation.nodes
    await simulation.add_learner(newcomer)
    await simulation.lead(one)
    simulation.cut_off(one)
    ask(one, PROMOTE, newcomer)
    await asyncio.sleep(0.1)

    # node-2 is elected by three; what it writes reaches node-3 alone.
    simulation.network.tap = cut_when_elected(simulation, two, three)
    for node in (three, four):
        engine_of(node).election.stop()
    await until(lambda: engine_of(two).leadership is not None, "node-2 is elected")
    refused = []
    try:
        ask(two, REMOVE, one)
    except Refused as error:
        refused.append(error)
    await asyncio.sleep(0.2)
    await write_if_it_may(two)

    # node-1 comes back to the others, with its change.
    simulation.heal()
    simulation.cut_off(two, three)
    await until(lambda: engine_of(two).leadership is None, "node-2 steps down")
    with contextlib.suppress(TimeoutError):
        await simulation.write("with the first change", deadline_s=10)
    simulation.heal()
    await simulation.write("everybody")
    await until(lambda: all(map(simulation.is_caught_up, simulation.nodes)), "agreement")

    assert not simulation.broken, simulation.broken
    assert refused


def cut_when_elected(
    simulation: MembershipSimulation, elected: SimNode, friend: SimNode
) -> Callable[[NodeId, NodeId, Message], None]:
    """Return a tap that leaves a leader with one friend as soon as it speaks as a leader."""

    def tap(sender: NodeId, _target: NodeId, message: Message) -> None:
        if sender == elected.node_id and message["type"] == "append":
            simulation.cut_off(elected, friend)

    return tap


async def write_if_it_may(node: SimNode) -> None:
    with contextlib.suppress(MetadataError, TimeoutError):
        async with timeout(0.3):
            await log_of(node).propose(Record(b"with the second change", 1))


# Old and new together --------------------------------------------------------------------------


@run_by(membership, extra=0)
async def test_a_group_whose_members_never_changed_says_nothing_that_an_old_program_did_not(
    simulation: MembershipSimulation,
) -> None:
    spoken: list[Message] = []
    simulation.network.tap = lambda _s, _t, message: spoken.append(message)
    await simulation.restart(*simulation.nodes)
    await simulation.write()
    await simulation.restart(await simulation.leader())
    await simulation.write()

    assert spoken
    assert not [message for message in spoken if "configuration" in message]
