from __future__ import annotations

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
