from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.kernel.limits.cluster import READ_REQUESTS_MAX
from nextgen.replication.ports import GroupId
from nextgen.replication.raft.read_rounds import ReadRounds


async def test_a_read_waits_for_a_round_that_began_after_it() -> None:
    """1. A round is under way. 2. A read comes. 3. The round is confirmed: too early for it."""
    rounds = ReadRounds(GroupId(1))
    early = rounds.ask(5)
    assert rounds.begin()
    late = rounds.ask(6)
    assert not rounds.begin(), "one round at a time"

    rounds.confirm(rounds.round)
    assert (early.done(), late.done()) == (True, False)
    assert rounds.begin()
    rounds.confirm(rounds.round - 1)
    assert not late.done()
    rounds.confirm(rounds.round)

    assert (await early, await late) == (5, 6)


async def test_without_leadership_every_read_fails_with_the_hint() -> None:
    rounds = ReadRounds(GroupId(1))
    reads = [rounds.ask(1)]
    rounds.begin()
    reads.append(rounds.ask(1))

    rounds.fail("node-2")

    for read in reads:
        with pytest.raises(NotLeader) as raised:
            await read
        assert raised.value.leader_hint == "node-2"


async def test_no_reads_no_round() -> None:
    assert not ReadRounds(GroupId(1)).begin()


async def test_reads_beyond_the_limit_are_refused() -> None:
    rounds = ReadRounds(GroupId(1))
    reads = [rounds.ask(1) for _ in range(READ_REQUESTS_MAX)]

    with pytest.raises(Overloaded):
        rounds.ask(1)
    rounds.begin()
    rounds.confirm(1)
    assert all(read.done() for read in reads)


async def test_each_heartbeat_begins_a_round_and_its_beginning_is_remembered() -> None:
    loop = asyncio.get_running_loop()
    rounds = ReadRounds(GroupId(1))
    assert rounds.began_at(rounds.round) == float("-inf")

    before = loop.time()
    rounds.begin_with_heartbeat()
    answered = rounds.round
    await asyncio.sleep(0.01)
    between = loop.time()
    rounds.begin_with_heartbeat()

    assert rounds.began_at(answered - 1) == float("-inf")
    assert before <= rounds.began_at(answered) < between <= rounds.began_at(rounds.round)


async def test_a_heartbeat_begins_no_round_while_reads_wait_for_one() -> None:
    rounds = ReadRounds(GroupId(1))
    read = rounds.ask(5)
    assert rounds.begin()
    under_way = rounds.round

    rounds.begin_with_heartbeat()
    rounds.confirm(under_way)

    assert rounds.round == under_way
    assert await read == 5


async def test_a_read_joins_the_round_of_the_next_heartbeat() -> None:
    rounds = ReadRounds(GroupId(1))
    read = rounds.ask(5)

    rounds.begin_with_heartbeat()
    rounds.confirm(rounds.round - 1)
    assert not read.done()
    rounds.confirm(rounds.round)

    assert await read == 5
