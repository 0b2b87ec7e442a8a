"""A follower's answers, message by message, in virtual time."""

from __future__ import annotations

import asyncio

from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import NodeId
from nextgen.replication.protocol.entry_codec import NO_RECORDS
from tests.support.scenarios import run_by
from tests.support.simulated.raft import RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual


def append(
    term: int,
    previous: tuple[int, int],
    entries: list[list[object]],
    *,
    commit_index: int = 0,
) -> Message:
    return {
        "type": "append",
        "term": term,
        "previous_index": previous[0],
        "previous_term": previous[1],
        "commit_index": commit_index,
        "read_round": 0,
        "entries": entries,
    }


async def given_follower_cut_off(simulation: RaftSimulation) -> tuple[SimNode, SimNode, SimNode]:
    """Return a follower and two others that it no longer hears."""
    await simulation.start()
    follower, *_ = await simulation.followers()
    one, other = (node for node in simulation.nodes if node is not follower)
    for node in (one, other):
        simulation.network.cut.add(frozenset((node.node_id, follower.node_id)))
    return follower, one, other


@run_by(run_virtual)
async def test_an_acknowledgement_is_not_given_in_a_later_term_than_its_leaders() -> None:
    """1. A leader's entry waits for a slow disk. 2. Another leader of a later term cuts it off.
    3. The disk is done: an acknowledgement now would speak of an entry that is not there."""
    simulation = RaftSimulation(seed=1)
    follower, old, new = await given_follower_cut_off(simulation)
    assert follower.log is not None
    engine = follower.log.engine
    end = engine.journal.last_index, engine.journal.last_term
    position, term = engine.journal.last_position + 1, engine.core.term
    answers: list[tuple[NodeId, Message]] = []
    simulation.network.tap = lambda sender, target, message: (
        answers.append((target, message)) if sender == follower.node_id else None
    )
    follower.disk_delay_ms = 500

    first = [[end[0] + n, term + 1, position, 0, NO_RECORDS] for n in (1, 2)]
    engine.on_message(old.node_id, append(term + 1, end, first))
    second = [[end[0] + 1, term + 2, position, 0, NO_RECORDS]]
    engine.on_message(new.node_id, append(term + 2, end, second))
    await asyncio.sleep(1.5)

    acknowledged = [
        (target, message["term"], message["index"])
        for target, message in answers
        if message["type"] == "append_answer" and message["success"]
    ]
    assert acknowledged == [(new.node_id, term + 2, end[0] + 1)]


def term_answer(term: int) -> Message:
    return {"type": "pre_vote_answer", "term": term, "granted": False, "asked_term": 0}


@run_by(run_virtual)
async def test_unverified_lasts_until_an_entry_of_the_leaders_own_term_is_committed_here() -> None:
    """1. A replica lost its disk; what it promised may be anywhere in the leader's log. No voter is
    in a later term than this leader. 2. It gets a part of that log: nothing says yet that this is
    all. 3. What it gets next is committed, and of the leader's term, so that everything ever
    acknowledged is before it."""
    simulation = RaftSimulation(seed=1)
    follower, leader, other = await given_follower_cut_off(simulation)
    follower.crash()
    follower.lose_disk()
    await follower.start(may_be_lost=True)
    assert follower.log is not None
    engine = follower.log.engine
    for voter in (leader, other):
        engine.on_message(voter.node_id, term_answer(8))
    earlier, own = [[1, 7, 1, 0, NO_RECORDS]], [[2, 8, 1, 0, NO_RECORDS]]

    engine.on_message(leader.node_id, append(8, (0, 0), earlier, commit_index=1))
    await asyncio.sleep(0.1)
    assert engine.journal.unverified_index, "entry 1 is of an earlier term: others may follow it"

    engine.on_message(leader.node_id, append(8, (1, 7), own, commit_index=1))
    await asyncio.sleep(0.1)
    assert engine.journal.unverified_index, "entry 2 may still be cut off"

    engine.on_message(leader.node_id, append(8, (2, 8), [], commit_index=2))
    assert not engine.journal.unverified_index
