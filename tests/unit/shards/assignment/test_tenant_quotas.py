"""A tenant's quota: its share in this shard, counted by the fold, refused with the reason."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.capacity_blocks import share_of
from shards.assignment.tenant_quotas import TenantQuotas
from shards.domain.assignment import REASON_MOVED
from shards.state.state_reads import StateReads
from tests.support.scenarios import run_by
from tests.support.shards.harness import Cluster, Harness, in_shard

TENANT = "acme"


@given(st.integers(0, 10_000), st.sets(st.integers(1, 500), min_size=1, max_size=40))
def test_shares_add_up_to_the_quota_and_differ_by_one_at_most(units: int, ids: set[int]) -> None:
    shares = [share_of(units, each, sorted(ids)) for each in sorted(ids)]

    assert sum(shares) == units
    assert shares == sorted(shares, reverse=True), "what is left over goes to the lowest ids"
    assert max(shares) - min(shares) <= 1


def test_a_shard_that_is_not_of_the_map_has_no_share() -> None:
    assert share_of(100, 9, (1, 2)) == 0


async def ready(shard: Harness, quota: int, topics: int) -> list[str]:
    """Return the names of topics of a tenant that has a quota in a cluster with one broker."""
    await shard.start_broker("broker-1")
    names = await shard.create_topics(*(f"t-{number}" for number in range(topics)))
    shard.cluster.tenant_quotas[names[0].split("/")[2]] = quota
    return names


@run_by(in_shard)
async def test_what_is_beyond_the_quota_is_refused_with_the_reason(shard: Harness) -> None:
    names = await ready(shard, quota=3, topics=5)

    answers = await shard.lookup(*names)

    assert [bool(answer.broker_id) for answer in answers] == [True] * 3 + [False] * 2
    for answer in answers[3:]:
        assert answer.rejection_code == "LIMIT_EXCEEDED"
        assert "may have 3 units assigned by its quota" in answer.message
        assert not answer.retryable
    assert len(await shard.events("topic_assigned")) == 3


@run_by(in_shard)
async def test_a_quota_of_nothing_lets_nothing_be_assigned(shard: Harness) -> None:
    names = await ready(shard, quota=0, topics=1)

    (answer,) = await shard.lookup(*names)

    assert (answer.broker_id, answer.rejection_code) == ("", "LIMIT_EXCEEDED")


@run_by(in_shard)
async def test_lookups_at_the_same_time_do_not_exceed_it(shard: Harness) -> None:
    names = await ready(shard, quota=4, topics=40)

    answers = await asyncio.gather(*(shard.lookup(name) for name in names))

    assert sum(bool(answer.broker_id) for (answer,) in answers) == 4


@run_by(in_shard)
async def test_what_is_assigned_is_answered_and_stays_when_the_quota_shrinks(
    shard: Harness,
) -> None:
    names = await ready(shard, quota=3, topics=4)
    await shard.lookup(*names[:3])
    shard.cluster.tenant_quotas[names[0].split("/")[2]] = 1

    answers = await shard.lookup(*names)

    assert [bool(answer.broker_id) for answer in answers] == [True] * 3 + [False]
    assert not await shard.events("topic_unassigned")


@run_by(in_shard)
async def test_a_move_takes_nothing_from_the_quota(shard: Harness) -> None:
    (name,) = await ready(shard, quota=1, topics=1)
    await shard.lookup(name)
    await shard.start_broker("broker-2")

    (moved,) = await shard.move((name, "broker-2"))

    assert moved.broker_id == "broker-2"
    assert [e.topic_assigned.reason for e in await shard.events("topic_assigned")] == [
        "first_lookup",
        REASON_MOVED,
    ]
    assert shard.leader.state.reads.tenant_units(name.split("/")[2]) == 1


@run_by(in_shard)
async def test_a_unit_whose_broker_is_lost_is_assigned_again_though_the_quota_is_used_up(
    shard: Harness,
) -> None:
    (name,) = await ready(shard, quota=1, topics=1)
    await shard.lookup(name)
    await shard.start_broker("broker-2")
    shard.cluster.tenant_quotas[name.split("/")[2]] = 0
    shard.brokers["broker-1"].vanish()
    await asyncio.sleep(60)  # Virtual: its session expires.

    (answer,) = await shard.lookup(name)

    assert answer.broker_id == "broker-2"


@run_by(in_shard)
async def test_a_deleted_topic_makes_room_and_a_new_leader_knows_the_count(shard: Harness) -> None:
    names = await ready(shard, quota=2, topics=3)
    tenant = names[0].split("/")[2]
    await shard.lookup(*names[:2])
    shard.next_term()
    await shard.brokers["broker-1"].connect()
    assert shard.leader.state.reads.tenant_units(tenant) == 2
    (refused,) = await shard.lookup(names[2])
    assert refused.rejection_code == "LIMIT_EXCEEDED"

    await shard.execute(delete_topic={"name": names[0]})

    assert shard.leader.state.reads.tenant_units(tenant) == 1
    (answer,) = await shard.lookup(names[2])
    assert not answer.rejection_code


@pytest.mark.parametrize(("shard_id", "share"), [(1, 4), (2, 3)])
def test_a_shard_has_its_share_of_the_quota(shard_id: int, share: int) -> None:
    cluster = Cluster(units=0)
    cluster.tenant_quotas[TENANT] = 7
    assigned = 2
    reads = cast(StateReads, SimpleNamespace(tenant_units=lambda _: assigned))
    quotas = TenantQuotas(shard_id, reads, cluster, lambda: (1, 2))

    assert quotas.check(TENANT, share - assigned - 1) is None
    refused = quotas.check(TENANT, share - assigned)
    assert refused is not None
    assert f"{share} of them in shard {shard_id}, which has {share}" in refused.message


def test_without_a_shard_map_nobody_is_refused() -> None:
    def no_map() -> tuple[int, ...]:
        raise Unavailable("there is no shard map yet")

    cluster = Cluster(units=0)
    cluster.tenant_quotas[TENANT] = 0
    reads = cast(StateReads, SimpleNamespace(tenant_units=lambda _: 0))

    assert TenantQuotas(1, reads, cluster, no_map).check(TENANT, 0) is None


@run_by(in_shard)
async def test_tenants_without_a_quota_have_none(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    names = await shard.create_topics("one", "two")
    shard.cluster.tenant_quotas["other"] = 0

    assert all(answer.broker_id for answer in await shard.lookup(*names))
