"""Embedded and stock brokers in one cluster: no topic ever comes to a broker of the other kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import Refused
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY
from nextgen.kernel.governance.policies import PlacementRules, Policies
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, LookupAnswer
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard

HANDED_OVER = "acme/handed-over"
SETTLED_S = 3.0


async def side_by_side(shard: Harness) -> None:
    for number in range(2):
        await shard.start_broker(f"embedded-{number}")
        await shard.start_broker(f"stock-{number}", kind="stock")
    await shard.execute(create_tenant=pb.CreateTenant(name="acme"))
    await shard.execute(create_namespace=pb.CreateNamespace(name=NAMESPACE))
    await create_namespace(shard, {BROKER_KIND_PROPERTY: "stock"})


async def create_namespace(shard: Harness, properties: dict[str, str]) -> None:
    made = pb.CreateNamespace(name=HANDED_OVER, properties=properties)
    result = await shard.execute(create_namespace=made)
    assert not result.rejection_code, result.message


async def create(shard: Harness, namespace: str, count: int, prefix: str = "t") -> list[str]:
    names = [f"persistent://{namespace}/{prefix}-{number}" for number in range(count)]
    specs = [pb.TopicSpec(name=name) for name in names]
    result = await shard.execute(create_topics=pb.CreateTopics(topics=specs))
    assert not any(each.rejection_code for each in result.topics), result
    return names


def kinds(answers: Sequence[LookupAnswer]) -> set[str]:
    """Return the kinds of the brokers of some answers, and codes of refusals."""
    return {each.rejection_code or each.broker_id.rpartition("-")[0] for each in answers}


async def check_log(shard: Harness) -> None:
    """Fail if any topic was ever assigned to a broker of the other kind."""
    for event in await shard.events("topic_assigned"):
        assigned = event.topic_assigned
        kind = "stock" if f"//{HANDED_OVER}/" in assigned.name else "embedded"
        assert assigned.broker_id.startswith(kind), assigned


@run_by(in_shard)
async def test_lookups_assign_each_topic_to_brokers_of_its_kind(shard: Harness) -> None:
    await side_by_side(shard)
    ours, theirs = await create(shard, NAMESPACE, 40), await create(shard, HANDED_OVER, 40)

    assert kinds(await shard.lookup(*ours)) == {"embedded"}
    assert kinds(await shard.lookup(*theirs)) == {"stock"}
    await check_log(shard)


@run_by(in_shard)
async def test_a_broker_that_a_client_came_to_gets_no_topic_of_the_other_kind(
    shard: Harness,
) -> None:
    await side_by_side(shard)
    (ours,), (theirs,) = await create(shard, NAMESPACE, 1), await create(shard, HANDED_OVER, 1)

    assert kinds(await shard.lookup(ours, preferred="stock-0")) == {"embedded"}
    assert kinds(await shard.lookup(theirs, preferred="embedded-0")) == {"stock"}


@run_by(in_shard)
async def test_moves_never_cross(shard: Harness) -> None:
    await side_by_side(shard)
    (ours,), (theirs,) = await create(shard, NAMESPACE, 1), await create(shard, HANDED_OVER, 1)
    before = await shard.lookup(ours, theirs)

    crossing = await shard.move((ours, "stock-1"), (theirs, "embedded-1"))
    anywhere = await shard.move((ours, ""), (theirs, ""))

    assert [each.rejection_code for each in crossing] == ["NOT_ALLOWED"] * 2
    assert "broker stock-1 is stock, the topic is served by embedded ones only" in (
        crossing[0].message
    )
    for answer, former in zip(anywhere, before, strict=True):
        assert answer.broker_id != former.broker_id
        assert kinds([answer]) == kinds([former])
    await check_log(shard)


@run_by(in_shard)
async def test_no_rule_brings_a_topic_to_the_other_kind(shard: Harness) -> None:
    await side_by_side(shard)
    (theirs,) = await create(shard, HANDED_OVER, 1)
    rules = Policies(placement=PlacementRules(pinned_brokers=("embedded-0",)))
    said = pb.SetPolicies(kind=KIND_NAMESPACE, name=HANDED_OVER, policies=policies_to_proto(rules))
    assert not (await shard.execute(set_policies=said)).rejection_code

    (answer,) = await shard.lookup(theirs)

    assert answer.rejection_code == "NO_BROKER"
    assert "placement.pinned_brokers (only embedded-0) leaves none of stock-" in answer.message


@run_by(in_shard)
async def test_where_the_last_broker_of_a_kind_died_its_topics_wait_for_another(
    shard: Harness,
) -> None:
    await side_by_side(shard)
    theirs = await create(shard, HANDED_OVER, 5)
    await shard.lookup(*theirs)
    for name in ("stock-0", "stock-1"):
        shard.brokers[name].vanish()
        await shard.wait_ended(name)

    answers = await shard.lookup(*theirs)
    assert kinds(answers) == {"NO_BROKER"}
    assert "no stock broker is alive" in answers[0].message
    await asyncio.sleep(10.0)
    await check_log(shard)

    await shard.start_broker("stock-2", kind="stock")
    await asyncio.sleep(SETTLED_S)
    assert {each.broker_id for each in await shard.lookup(*theirs)} == {"stock-2"}
    await check_log(shard)


@run_by(in_shard)
async def test_a_drain_empties_a_broker_into_others_of_its_kind(shard: Harness) -> None:
    await side_by_side(shard)
    theirs = await create(shard, HANDED_OVER, 20)
    await shard.lookup(*theirs)
    await asyncio.sleep(SETTLED_S)

    await shard.ask(drain=pb.DrainRequest(broker_id="stock-0"))
    await asyncio.sleep(30.0)

    assert {each.broker_id for each in await shard.lookup(*theirs)} == {"stock-1"}
    with pytest.raises(Refused, match="of 1 other stock brokers each is draining"):
        await shard.ask(drain=pb.DrainRequest(broker_id="stock-1"))
    await check_log(shard)


@run_by(in_shard)
async def test_topics_have_the_brokers_of_the_namespace_that_exists_now(shard: Harness) -> None:
    """1. Topics of a namespace are looked up, so that its properties are followed. 2. It is deleted
    and created for other brokers. 3. The next topics are those brokers' from the first on."""
    await side_by_side(shard)
    (theirs,) = await create(shard, HANDED_OVER, 1)
    assert kinds(await shard.lookup(theirs)) == {"stock"}
    await shard.execute(delete_topic=pb.DeleteTopic(name=theirs))
    deleted = await shard.execute(delete_namespace=pb.DeleteNamespace(name=HANDED_OVER))
    assert not deleted.rejection_code, deleted

    await create_namespace(shard, {})
    ours = await create(shard, HANDED_OVER, 10, prefix="later")

    assert kinds(await shard.lookup(*ours)) == {"embedded"}


@run_by(in_shard)
async def test_topics_that_come_in_bulk_or_by_their_first_use_have_the_kind_too(
    shard: Harness,
) -> None:
    await side_by_side(shard)
    bulk, used = (f"persistent://{HANDED_OVER}/{name}" for name in ("bulk", "used"))

    await shard.ask(bulk_create=pb.BulkCreateRequest(names=[bulk]))
    await shard.ask(use_topics=pb.UseTopicsRequest(names=[used]))

    assert kinds(await shard.lookup(bulk, used)) == {"stock"}
    refused = await shard.execute(
        create_topics=pb.CreateTopics(topics=[pb.TopicSpec(name=f"topic://{HANDED_OVER}/many")])
    )
    assert refused.topics[0].rejection_code == "NOT_ALLOWED"
    await check_log(shard)


@run_by(in_shard)
async def test_a_topic_is_not_renamed_to_where_others_would_serve_it(shard: Harness) -> None:
    await side_by_side(shard)
    await asyncio.sleep(SETTLED_S)
    (ours,), (theirs,) = await create(shard, NAMESPACE, 1), await create(shard, HANDED_OVER, 1)

    for name, new_name in (
        (ours, f"persistent://{HANDED_OVER}/mine"),
        (theirs, f"persistent://{NAMESPACE}/mine"),
    ):
        order = pb.RenameTopic(name=name, new_name=new_name)
        result = await shard.execute(rename_topic=order)
        assert result.rejection_code == "NOT_ALLOWED", result
        assert "is served by" in result.message
    stays = pb.RenameTopic(name=theirs, new_name=f"persistent://{HANDED_OVER}/other")
    assert not (await shard.execute(rename_topic=stays)).rejection_code
    assert kinds(await shard.lookup(f"persistent://{HANDED_OVER}/other")) == {"stock"}


@run_by(in_shard)
async def test_a_plan_to_even_out_moves_nothing_to_the_other_kind(shard: Harness) -> None:
    await side_by_side(shard)
    theirs = await create(shard, HANDED_OVER, 60)
    await shard.lookup(*theirs)
    shard.brokers["stock-1"].vanish()
    await shard.wait_ended("stock-1")
    await shard.lookup(*theirs)

    response = await shard.ask(rebalance=pb.RebalanceRequest(plan_only=True))

    assert list(response.rebalance.moves) == []
    assert response.rebalance.count == 0
