"""Quotas are set by the leader, kept by the view, pushed to nodes, and obeyed by leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_manager.adapters.stored_view import StoredView
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.errors import NotLeader, ProposalLost, Refused
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1.events_pb2 import BrokerQuota, QuotasSet, TenantQuota
from tests.unit.cluster_manager.fakes import ManagerUnderTest, broker, hello, settle

FIRST = QuotasSet(
    version=1,
    brokers=[BrokerQuota(broker_id="broker-1", units=12)],
    tenants=[TenantQuota(tenant="acme", units=5), TenantQuota(tenant="zoo", units=7)],
    source="ab12",
)


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    """Two shards, one live broker of 80 units."""
    manager = ManagerUnderTest(tmp_path)
    first, _ = await manager.join_shard_nodes()
    manager.manager.receive(first, broker())
    await settle()
    yield manager
    manager.manager.stop()
    await manager.log.stop()


async def set_quotas(one: ManagerUnderTest, quotas: QuotasSet) -> QuotasSet:
    response = await one.manager.set_quotas(cluster_pb.SetQuotasRequest(quotas=quotas))
    return response.quotas


async def leased(one: ManagerUnderTest, shard_id: int, wanted: int = 0) -> int:
    request = cluster_pb.LeaseCapacityRequest(shard_id=shard_id, term=1, units_wanted=wanted)
    response = await one.manager.lease_capacity(request)
    return sum(lease.units for lease in response.leases)


async def test_quotas_hold_once_they_are_committed_and_are_shown(one: ManagerUnderTest) -> None:
    assert (await one.manager.quotas()).quotas == QuotasSet()

    assert await set_quotas(one, FIRST) == FIRST

    assert (await one.manager.quotas()).quotas == FIRST
    (account,) = (await one.manager.capacity()).accounts
    assert account.quota_units == 12


async def test_the_same_quotas_twice_are_one_event(one: ManagerUnderTest) -> None:
    await set_quotas(one, FIRST)
    position = one.log.status.commit_position

    await set_quotas(one, FIRST)

    assert one.log.status.commit_position == position


async def test_stale_quotas_are_refused_and_change_nothing(one: ManagerUnderTest) -> None:
    await set_quotas(one, FIRST)

    with pytest.raises(Refused, match="so the next are 2: these are 1"):
        await set_quotas(one, QuotasSet(version=1, source="another"))

    assert (await one.manager.quotas()).quotas == FIRST


async def test_a_refusal_waits_until_the_quotas_behind_it_are_committed(
    one: ManagerUnderTest,
) -> None:
    one.log.hold_commits()
    first = asyncio.ensure_future(set_quotas(one, FIRST))
    await settle()
    second = asyncio.ensure_future(set_quotas(one, QuotasSet(version=1, source="another")))
    await settle()
    assert not second.done()

    one.log.lose_leadership()

    for asking in (first, second):
        with pytest.raises((NotLeader, ProposalLost)):
            await asking


async def test_all_shards_together_are_leased_no_more_than_the_quota(
    one: ManagerUnderTest,
) -> None:
    await set_quotas(one, FIRST)

    first = [await leased(one, 1), await leased(one, 2)]
    assert first == [3, 3], "first blocks leave half of the quota over, not of the capacity"
    for _ in range(8):
        units = await leased(one, 1, wanted=50) + await leased(one, 2)
    assert units == 12


async def test_what_was_leased_before_is_kept_and_renewed(one: ManagerUnderTest) -> None:
    assert await leased(one, 1) == 20
    await set_quotas(one, FIRST)

    one.clock.advance(20_000)
    for node_id in ("a", "b"):
        await one.manager.join(hello(node_id))

    assert await leased(one, 1, wanted=5) == 20
    assert await leased(one, 2, wanted=5) == 0


async def test_a_new_leader_reads_the_quotas_from_its_view(one: ManagerUnderTest) -> None:
    await set_quotas(one, FIRST)
    one.log.lose_leadership()
    with pytest.raises(NotLeader):
        await set_quotas(one, FIRST)
    one.log.become_leader()
    await settle()

    assert (await one.manager.quotas()).quotas == FIRST
    state, _ = StoredView(one.store).load()
    assert state.ledger.quotas == {"broker-1": 12}
    with one.store.pinned_state() as pinned:
        assert one.store.running_digest == pinned.scan()


async def test_nodes_get_quotas_when_they_change_and_when_they_join(one: ManagerUnderTest) -> None:
    view = ClusterView()
    one.updates.clear()
    await set_quotas(one, FIRST)
    for update in one.updates:
        view.apply(update)
    assert view.tenant_quotas == {"acme": 5, "zoo": 7}
    assert view.broker_quotas == {"broker-1": 12}

    connection = await one.manager.join(hello("c"))
    full = await connection.next_update()
    assert full is not None
    assert full.full
    assert full.quotas == FIRST


async def test_a_view_keeps_the_later_quotas_and_tells_them_on(one: ManagerUnderTest) -> None:
    view = ClusterView()
    view.apply(cluster_pb.ClusterUpdate(quotas=QuotasSet(version=2)))
    view.apply(cluster_pb.ClusterUpdate(full=True, quotas=FIRST))

    assert view.tenant_quotas == {}
    assert view.to_update().quotas.version == 2
