"""A replica's leader: made when it may decide, closed when it may not, never reused."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import NotLeader
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard


@run_by(in_shard)
async def test_the_first_leader_adopts_the_slots_of_the_map(shard: Harness) -> None:
    await shard.create_topics("t")

    first = (await shard.events())[0]

    assert first.WhichOneof("payload") == "slots_adopted"
    (slots,) = first.slots_adopted.ranges
    assert (slots.first, slots.last) == (0, 16_383)


@run_by(in_shard)
async def test_a_later_leader_does_not_adopt_them_again(shard: Harness) -> None:
    await shard.create_topics("t")

    shard.next_term()
    await shard.create_topics("u")

    assert len(await shard.events("slots_adopted")) == 1


@run_by(in_shard)
async def test_a_later_leader_has_the_slots_of_its_log_whatever_the_map_says(
    shard: Harness,
) -> None:
    await shard.create_topics("t")
    shard._table = SlotTable(9, (2,) * SLOT_COUNT)

    shard.next_term()

    assert shard.leader.state.slots.map_version == 1
    assert sum(shard.leader.state.slots.owned()) == SLOT_COUNT
    await shard.create_topics("u")
    assert len(await shard.events("slots_adopted")) == 1


@run_by(in_shard)
async def test_each_term_has_a_leader_of_its_own(shard: Harness) -> None:
    first = shard.leader

    shard.log.lose_leadership()
    with pytest.raises(NotLeader):
        shard.replica.leading()
    shard.log.become_leader()

    assert shard.leader is not first
    assert shard.leads == [1, None, 3]


@run_by(in_shard)
async def test_winning_again_without_losing_in_between_is_a_new_term_too(shard: Harness) -> None:
    first = shard.leader

    shard.log.become_leader()

    assert shard.leader is not first
    assert shard.leads == [1, None, 2]


@run_by(in_shard)
async def test_a_stopped_replica_leads_nothing(shard: Harness) -> None:
    await shard.replica.stop()

    assert shard.replica.leader is None
    assert shard.leads[-1] is None


@run_by(in_shard)
async def test_its_status_is_what_the_log_says(shard: Harness) -> None:
    await shard.create_topics("t")

    status = shard.replica.status()

    log = shard.log.status
    assert (status.group_id, status.node_id, status.role) == (1, "node-1", "leader")
    assert (status.term, status.commit_position) == (log.term, log.commit_position)
    assert status.applied_position == log.applied.position
