"""Two tenants on little capacity: who borrows everything leaves the others their shares."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.placement import SHARE_RETRY_MS
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT, LookupAnswer
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard

UNITS = 1_000
"""Leased to the shard: a default share is 10 of them, the reserve 100."""


async def create(shard: Harness, tenant: str, count: int) -> list[str]:
    namespace = f"{tenant}/orders"
    await shard.execute(create_tenant=pb.CreateTenant(name=tenant))
    await shard.execute(create_namespace=pb.CreateNamespace(name=namespace))
    names = [f"persistent://{namespace}/t-{number}" for number in range(count)]
    for first in range(0, count, 1_000):
        specs = [pb.TopicSpec(name=name) for name in names[first : first + 1_000]]
        result = await shard.execute(create_topics=pb.CreateTopics(topics=specs))
        assert not any(outcome.rejection_code for outcome in result.topics)
    return names


async def set_share(shard: Harness, tenant: str, percent: int) -> None:
    said = policies_to_proto(Policies(capacity_share_percent=percent))
    command = pb.SetPolicies(kind=KIND_TENANT, name=tenant, policies=said)
    result = await shard.execute(set_policies=command)
    assert not result.rejection_code, result.message


async def look_up(shard: Harness, names: Sequence[str]) -> list[LookupAnswer]:
    answers: list[LookupAnswer] = []
    for first in range(0, len(names), 100):
        answers += await shard.lookup(*names[first : first + 100])
    return answers


def codes(answers: Sequence[LookupAnswer]) -> Counter[str]:
    return Counter(answer.rejection_code for answer in answers)


@run_by(in_shard, units=UNITS)
async def test_a_tenant_that_takes_all_leaves_a_new_tenant_its_share(shard: Harness) -> None:
    await shard.start_broker("broker-1", UNITS)
    noisy = await create(shard, "noisy", UNITS + 100)
    quiet = await create(shard, "quiet", 10)

    noisy_codes = codes(await look_up(shard, noisy))
    quiet_codes = codes(await look_up(shard, quiet))

    assert noisy_codes == {"": UNITS * 9 // 10, "SHARE_EXCEEDED": UNITS // 10 + 100}
    assert quiet_codes == {"": 10}


@run_by(in_shard, units=UNITS)
async def test_the_refusal_names_share_policy_and_reserve_and_may_be_retried(
    shard: Harness,
) -> None:
    await shard.start_broker("broker-1", UNITS)
    names = await create(shard, "noisy", 901)

    answer = (await look_up(shard, names))[-1]

    assert answer.retryable
    assert answer.rejection_code == "SHARE_EXCEEDED"
    assert (answer.retryable, answer.retry_after_ms) == (True, SHARE_RETRY_MS)
    assert answer.message == (
        "tenant noisy has 900 units here, its share is 10 of 1000 leased (1 % by default, "
        "capacity_share_percent); the last 10 % are kept for tenants below their share"
    )
    assert shard.node_metrics.share_refusals.labels("1")._value.get() == 1


@run_by(in_shard, units=100)
async def test_a_tenant_of_the_whole_capacity_may_have_all_of_it(shard: Harness) -> None:
    await shard.start_broker("broker-1", 100)
    names = await create(shard, "only", 101)
    await set_share(shard, "only", 100)

    assert codes(await look_up(shard, names)) == {"": 100, "NO_CAPACITY": 1}


@run_by(in_shard, units=UNITS)
async def test_ten_newcomers_find_their_default_shares_and_the_eleventh_hears_no_capacity(
    shard: Harness,
) -> None:
    await shard.start_broker("broker-1", UNITS)
    await look_up(shard, await create(shard, "noisy", UNITS))

    found = []
    for number in range(11):
        names = await create(shard, f"new-{number}", 10)
        found.append(codes(await look_up(shard, names)))

    assert found[:10] == [{"": 10}] * 10
    assert found[10] == {"NO_CAPACITY": 10}


@run_by(in_shard, units=UNITS)
async def test_shares_of_policies_are_kept_for_their_tenants(shard: Harness) -> None:
    await shard.start_broker("broker-1", UNITS)
    large = await create(shard, "large", 80)
    none = await create(shard, "none", 1)
    await set_share(shard, "large", 7)
    await set_share(shard, "none", 0)
    await look_up(shard, await create(shard, "noisy", UNITS))

    assert codes(await look_up(shard, large)) == {"": 70, "SHARE_EXCEEDED": 10}
    assert codes(await look_up(shard, none)) == {"SHARE_EXCEEDED": 1}


@run_by(in_shard, units=UNITS)
async def test_a_new_leader_keeps_to_the_shares_without_loading_anything(shard: Harness) -> None:
    await shard.start_broker("broker-1", UNITS)
    noisy = await create(shard, "noisy", UNITS)
    quiet = await create(shard, "quiet", 10)
    await look_up(shard, noisy[:900])
    shard.next_term()
    await shard.brokers["broker-1"].connect()

    assert codes(await look_up(shard, noisy[900:])) == {"SHARE_EXCEEDED": 100}
    assert codes(await look_up(shard, quiet)) == {"": 10}


@run_by(in_shard, units=100)
async def test_units_of_a_lost_broker_may_use_the_reserve_of_the_others(shard: Harness) -> None:
    lost = await shard.start_broker("broker-1", 100)
    names = await create(shard, "noisy", 100)
    await look_up(shard, names[:90])
    await shard.start_broker("broker-2", 100)
    await look_up(shard, names[90:])
    assert shard.leader.state.reads.used_units(shard.brokers["broker-2"].session_id) == 10
    lost.vanish()
    await asyncio.sleep(60)  # Virtual: its session expires, its units are assigned again.

    assert codes(await look_up(shard, names)) == {"": 100}


@run_by(in_shard, units=100)
async def test_more_capacity_is_asked_for_before_a_tenant_is_refused(shard: Harness) -> None:
    shard.cluster.answers_after_s = 0.05
    await shard.start_broker("broker-1", 10_000)
    names = await create(shard, "noisy", 150)
    await look_up(shard, names[:90])
    shard.cluster.units, shard.cluster.lease_version = 200, 2

    assert codes(await look_up(shard, names)) == {"": 150}


@run_by(in_shard, units=100)
async def test_a_tenant_beyond_its_share_is_refused_at_once_when_nothing_is_left_to_lease(
    shard: Harness,
) -> None:
    """A lookup's answer waits for all its names: those of others must not wait for capacity."""
    await shard.start_broker("broker-1", 100)
    names = await create(shard, "noisy", 100)
    await look_up(shard, names)
    asked_at = shard.clock.monotonic()

    answers = await look_up(shard, names[95:])

    assert codes(answers)["SHARE_EXCEEDED"] == 5
    assert shard.clock.monotonic() == asked_at


@run_by(in_shard, units=9)
async def test_a_lease_of_few_units_has_no_reserve(shard: Harness) -> None:
    await shard.start_broker("broker-1", 9)
    names = await create(shard, "small", 10)

    assert codes(await look_up(shard, names)) == {"": 9, "NO_CAPACITY": 1}


@run_by(in_shard, units=100)
async def test_a_preferred_broker_keeps_its_reserve_from_a_tenant_beyond_its_share(
    shard: Harness,
) -> None:
    for name in ("broker-1", "broker-2"):
        await shard.start_broker(name, 100)
    noisy = await create(shard, "noisy", 100)

    answers = await shard.lookup(*noisy, preferred="broker-1")

    assert Counter(answer.broker_id for answer in answers) == {"broker-1": 90, "broker-2": 10}
