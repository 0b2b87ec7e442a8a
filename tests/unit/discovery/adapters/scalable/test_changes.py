"""Splits, merges, buckets and subscriptions over HTTP: which are sent to the shard, and the codes.

The shards of these tests decide and do not carry on: an operation that began stays under way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX, SCALABLE_SUBSCRIPTIONS_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import SubscriptionStats, TopicStats
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind
from shards.wire.scalable import scalable_topic_message
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.rest_world import RestWorld, rest_world
from tests.support.shards.scalable import changed

PAID = "/admin/v2/scalable/acme/orders/paid"
ABSENT = "/admin/v2/scalable/acme/orders/absent"
NAME = "topic://acme/orders/paid"


BOUGHT = "/admin/v2/scalable/acme/orders/bought"
MIGRATED = "topic://acme/orders/bought"


@pytest.fixture
def owners() -> FakeOwners:
    return FakeOwners()


@pytest.fixture
async def rest(owners: FakeOwners) -> AsyncIterator[RestWorld]:
    async with rest_world(owners=owners) as rest:
        for shard in rest.world.shards.values():
            await shard.state.proposer.confirm()
        await rest.world.create_tenant("acme")
        await rest.world.create_namespace("acme/orders")
        assert await status(rest, "PUT", f"{PAID}?numInitialSegments=4") == 204
        yield rest


async def status(rest: RestWorld, method: str, path: str, **more: Any) -> int:
    return (await rest.call(method, path, **more)).status


def topic(rest: RestWorld) -> ScalableTopic:
    found = rest.world.home_of_topic(NAME).state.reads.load_scalable(NAME)
    assert found is not None
    return found


# Segments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "parents", "ranges"),
    [
        ("split/1", ChangeKind.SPLIT, (1,), [(0x4000, 0x5FFF), (0x6000, 0x7FFF)]),
        ("merge/2/1", ChangeKind.MERGE, (2, 1), [(0x4000, 0xBFFF)]),
        ("rebucket/3?bucketCount=8", ChangeKind.REBUCKET, (3,), [(0xC000, 0xFFFF)]),
    ],
)
async def test_a_change_is_begun_as_the_path_says(
    rest: RestWorld,
    path: str,
    kind: ChangeKind,
    parents: tuple[int, ...],
    ranges: list[tuple[int, int]],
) -> None:
    assert await status(rest, "POST", f"{PAID}/{path}") == 204

    operation = topic(rest).operation
    assert operation is not None
    assert (operation.kind, operation.parents, operation.asked_by) == (kind, parents, "operator")
    assert [(each.hash_start, each.hash_end) for each in operation.children] == ranges


async def test_the_same_change_joins_and_another_one_is_in_conflict(rest: RestWorld) -> None:
    for path, expected in (
        ("split/1", 204),
        ("split/1", 204),
        ("split/2", 409),
        ("merge/0/1", 409),
    ):
        assert await status(rest, "POST", f"{PAID}/{path}") == expected
    assert topic(rest).last_operation_id == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("split/4", 404),
        ("split/9223372036854775807", 404),
        ("split/18446744073709551616", 412),
        ("split/-1", 412),
        ("split/x", 412),
        ("split/%31", 204),
        ("split/1%20", 412),
        ("merge/0/2", 412),
        ("merge/0/3", 412),
        ("merge/1/1", 412),
        ("merge/0/9", 404),
        ("merge/0/x", 412),
        ("rebucket/0", 412),
        ("rebucket/0?bucketCount=0", 412),
        ("rebucket/0?bucketCount=-1", 412),
        ("rebucket/0?bucketCount=1", 412),
        ("rebucket/0?bucketCount=x", 400),
        ("rebucket/9?bucketCount=2", 404),
    ],
)
async def test_what_cannot_be_changed_is_404_or_412(
    rest: RestWorld, path: str, expected: int
) -> None:
    assert await status(rest, "POST", f"{PAID}/{path}") == expected
    assert (topic(rest).operation is None) == (expected != 204)
    assert await status(rest, "POST", f"{ABSENT}/{path}") in (404, expected)


async def test_buckets_per_segment_max_are_given_and_one_more_refused(rest: RestWorld) -> None:
    path = f"{PAID}/rebucket/0?bucketCount="
    assert await status(rest, "POST", f"{path}{BUCKETS_PER_SEGMENT_MAX + 1}") == 412
    assert await status(rest, "POST", f"{path}{BUCKETS_PER_SEGMENT_MAX}") == 204


async def test_a_sealed_segment_and_one_of_one_hash_are_412(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = topic(rest)
    for _ in range(14):
        present = changed(present, ChangeKind.SPLIT, present.active[0].segment_id)
    first = present.active[0]
    assert first.hash_range.size == 1
    _answer_with(rest.world.home_of_topic(NAME), present, monkeypatch)

    assert await status(rest, "POST", f"{PAID}/split/{first.segment_id}") == 412
    assert await status(rest, "POST", f"{PAID}/split/0") == 412
    assert await status(rest, "POST", f"{PAID}/merge/0/1") == 412


def _answer_with(shard: Any, present: ScalableTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the shard answer reads with another layout."""
    get = shard.reader.get

    async def changed_get(request: pb.GetRequest) -> pb.GetResponse:
        response: pb.GetResponse = await get(request)
        for item in response.items:
            if item.HasField("scalable_topic"):
                item.scalable_topic.CopyFrom(scalable_topic_message(present))
        return response

    monkeypatch.setattr(shard.reader, "get", changed_get)


# Migration ---------------------------------------------------------------------------------------


async def test_a_classic_topic_is_migrated(rest: RestWorld) -> None:
    await rest.world.create_topic("persistent://acme/orders/bought", partitions=2)

    assert await status(rest, "POST", f"{BOUGHT}/migrate") == 204
    layout = rest.world.home_of_topic(MIGRATED).state.reads.load_scalable(MIGRATED)
    assert layout is not None
    assert layout.operation is not None
    assert layout.operation.kind is ChangeKind.MIGRATE
    assert await status(rest, "POST", f"{PAID}/migrate") == 409
    assert await status(rest, "POST", f"{ABSENT}/migrate") == 404


async def test_connected_classic_clients_keep_a_topic_from_it_unless_forced(
    rest: RestWorld, owners: FakeOwners
) -> None:
    await rest.world.create_topic("persistent://acme/orders/bought", partitions=2)
    owners.answer = lambda name, _: TopicStats(classic_clients=int(name.endswith("-1")))

    refused = await rest.call("POST", f"{BOUGHT}/migrate")
    assert refused.status == 409
    assert "has 1 producers and consumers of classic clients" in refused.json["reason"]
    # An earlier release does not tell who is classic.
    owners.answer = lambda _, __: TopicStats(producers=1)
    assert await status(rest, "POST", f"{BOUGHT}/migrate") == 409
    owners.answer = lambda name, _: TopicStats(classic_clients=int(name.endswith("-1")))
    assert await status(rest, "POST", f"{BOUGHT}/migrate?force=true") == 204


async def test_scalable_subscriptions_max_are_carried_over_and_no_more(
    rest: RestWorld, owners: FakeOwners
) -> None:
    await rest.world.create_topic("persistent://acme/orders/bought")

    def has(count: int) -> None:
        names = [SubscriptionStats(name=f"s{each}", is_durable=True) for each in range(count)]
        readers = [SubscriptionStats(name=f"r{each}") for each in range(count)]
        owners.answer = lambda _, __: TopicStats(subscriptions=[*names, *readers])

    has(SCALABLE_SUBSCRIPTIONS_MAX + 1)
    assert await status(rest, "POST", f"{BOUGHT}/migrate?force=true") == 412
    has(SCALABLE_SUBSCRIPTIONS_MAX)
    assert await status(rest, "POST", f"{BOUGHT}/migrate") == 204


# Subscriptions -----------------------------------------------------------------------------------


async def test_a_subscription_is_created_sought_and_deleted(rest: RestWorld) -> None:
    path = f"{PAID}/subscriptions/mine%2F1"
    assert await status(rest, "PUT", f"{path}?type=STREAM") == 204
    assert await status(rest, "PUT", f"{path}?type=QUEUE") == 409
    assert await status(rest, "PUT", f"{path}?type=STREAM") == 204
    subscription = topic(rest).subscriptions["mine/1"]
    assert (subscription.type, subscription.phase) == ("stream", "creating")

    assert await status(rest, "POST", f"{path}/seek?timestamp=1700000000000") == 204
    subscription = topic(rest).subscriptions["mine/1"]
    assert (subscription.seek_to_ms, subscription.skips_all) == (1_700_000_000_000, False)
    assert await status(rest, "POST", f"{path}/skip-all") == 204
    assert topic(rest).subscriptions["mine/1"].skips_all

    assert await status(rest, "DELETE", path) == 204
    assert topic(rest).subscriptions["mine/1"].phase == "deleting"
    assert await status(rest, "POST", f"{path}/seek?timestamp=1") == 412
    assert await status(rest, "PUT", f"{path}?type=STREAM") == 409


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("PUT", "none", 412),
        ("PUT", "none?type=stream", 412),
        ("PUT", "none?type=CHECKPOINT", 412),
        ("PUT", f"{'x' * (SUBSCRIPTION_NAME_BYTES_MAX + 1)}?type=QUEUE", 412),
        ("PUT", f"{'x' * SUBSCRIPTION_NAME_BYTES_MAX}?type=QUEUE", 204),
        ("DELETE", "none", 404),
        ("POST", "none/seek", 412),
        ("POST", "none/seek?timestamp=-1", 412),
        ("POST", "none/seek?timestamp=x", 400),
        ("POST", "none/seek?timestamp=1", 404),
        ("POST", "none/skip-all", 404),
    ],
)
async def test_bad_requests_about_subscriptions_have_their_codes(
    rest: RestWorld, method: str, path: str, expected: int
) -> None:
    assert await status(rest, method, f"{PAID}/subscriptions/{path}") == expected
    if expected in (204, 404):
        assert await status(rest, method, f"{ABSENT}/subscriptions/{path}") == 404
