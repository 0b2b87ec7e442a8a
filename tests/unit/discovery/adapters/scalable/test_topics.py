"""/admin/v2/scalable over shards in this process: every case with its code."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from discovery.adapters.scalable.stats_sum import StatsSum
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.pulsar import TOPIC_ADMIN_ROWS_MAX
from nextgen.kernel.limits.rest import REST_SUBSCRIPTIONS_SUMMED_MAX
from nextgen.kernel.limits.scalable import SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable.segments import SegmentEnd
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import (
    ClientStats,
    ConsumerStats,
    ProducerStats,
    SubscriptionStats,
    TopicStats,
    TrafficRates,
)
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from protos.nextgen.v1.layouts_pb2 import ScalableSubscription, ScalableTopic, TopicSegment
from shards.domain.scalable import decider
from shards.domain.scalable.commands import MarkChildrenReady, PlanLayoutChange, SealSegment
from shards.domain.scalable.vocabulary import ChangeKind
from shards.state.shard_state import ShardState
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.rest_world import RestWorld, rest_world

AT = "/admin/v2/scalable/acme/orders"
PAID = f"{AT}/paid"
NAME = "topic://acme/orders/paid"
LOWER = "segment://acme/orders/paid/0000-7fff-0"
UPPER = "segment://acme/orders/paid/8000-ffff-1"


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
        yield rest


async def status(rest: RestWorld, method: str, path: str, **more: Any) -> int:
    return (await rest.call(method, path, **more)).status


async def carry_out(rest: RestWorld, **command: Any) -> None:
    shard = rest.world.home_of_topic(NAME)
    result = await rest.world.run(shard, pb.Command(**command))
    assert result.rejection_code == "", result.message


def state(rest: RestWorld) -> ShardState:
    return rest.world.home_of_topic(NAME).state


# Creation and layout -----------------------------------------------------------------------------


async def test_a_topic_is_created_once_with_segments_and_properties(rest: RestWorld) -> None:
    path = f"{PAID}?numInitialSegments=2"
    assert await status(rest, "PUT", path, json={"b": "2", "a": "1"}) == 204
    assert await status(rest, "PUT", path) == 409

    code, layout = await rest.get(PAID)

    created_ms = layout["segments"]["0"]["createdAtMs"]
    assert code == 200
    assert layout == {
        "epoch": 0,
        "nextSegmentId": 2,
        "properties": {"a": "1", "b": "2"},
        "autoScalePolicy": None,
        "segments": {
            str(number): {
                "segmentId": number,
                "hashRange": {"start": start, "end": end},
                "state": "ACTIVE",
                "parentIds": [],
                "childIds": [],
                "createdAtMs": created_ms,
                "sealedAtMs": -1,
                "createdAtEpoch": 0,
                "sealedAtEpoch": -1,
                "legacyTopicName": None,
                "entryBucketSplits": [32768],
            }
            for number, (start, end) in enumerate([(0, 0x7FFF), (0x8000, 0xFFFF)])
        },
    }


async def test_a_topic_begins_with_segments_per_topic_max_segments_at_most(rest: RestWorld) -> None:
    for count in (0, -1, SEGMENTS_PER_TOPIC_MAX + 1, 10_000, 10**17):
        assert await status(rest, "PUT", f"{PAID}?numInitialSegments={count}") == 412
    for count in ("x", "1.0", "0x1", "1" * 19, "%00", "٣"):
        assert await status(rest, "PUT", f"{PAID}?numInitialSegments={count}") == 400
    assert await status(rest, "PUT", f"{PAID}?numInitialSegments={SEGMENTS_PER_TOPIC_MAX}") == 204
    assert len((await rest.get(PAID))[1]["segments"]) == SEGMENTS_PER_TOPIC_MAX


async def test_a_classic_topic_of_the_name_is_in_the_way_and_has_no_layout(rest: RestWorld) -> None:
    await rest.world.create_topic("persistent://acme/orders/paid")

    assert await status(rest, "PUT", PAID) == 409
    assert await status(rest, "GET", PAID) == 404
    assert await status(rest, "DELETE", PAID) == 404


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{AT}/a%2Fb", 204),
        (f"{AT}/a-partition-1", 412),
        (f"{AT}/a%2F%2Fb", 412),
        (f"{AT}/%00", 412),
        (f"{AT}/{'x' * 4_000}", 412),
        ("/admin/v2/scalable/acme/none/paid", 404),
        ("/admin/v2/scalable/a%20b/orders/paid", 412),
    ],
)
async def test_names_have_the_codes_of_classic_topics(
    rest: RestWorld, path: str, code: int
) -> None:
    assert await status(rest, "PUT", path) == code


async def test_a_body_of_another_form_is_400(rest: RestWorld) -> None:
    for body in ([1], {"a": 1}, "text"):
        assert await status(rest, "PUT", PAID, json=body) == 400
    assert await status(rest, "PUT", PAID, json={}) == 204


async def test_a_sealed_segment_is_shown_with_its_end_and_children(rest: RestWorld) -> None:
    await status(rest, "PUT", PAID)
    split_once(rest)

    layout = (await rest.get(PAID))[1]

    first, second = layout["segments"]["0"], layout["segments"]["2"]
    assert layout["epoch"] == 1
    assert (first["state"], first["childIds"], first["sealedAtEpoch"]) == ("SEALED", [1, 2], 1)
    assert first["sealedAtMs"] > 0
    assert (second["state"], second["parentIds"]) == ("ACTIVE", [0])
    assert second["hashRange"] == {"start": 0x8000, "end": 0xFFFF}


def split_once(rest: RestWorld) -> None:
    """Carry out a split of segment 0, all steps at once."""
    for command in (
        PlanLayoutChange(ChangeKind.SPLIT, (0,), 7),
        MarkChildrenReady(1, ()),
        SealSegment(1, 0, SegmentEnd(3, 4), 8),
    ):
        decision = decider.decide(state(rest).reads.load_scalable(NAME), command)
        assert isinstance(decision, Accepted)
        state(rest).proposer.propose(decision.events)


# Listing -----------------------------------------------------------------------------------------


async def test_topics_are_listed_that_have_all_properties(rest: RestWorld) -> None:
    await rest.world.create_topic("persistent://acme/orders/classic")
    for name, properties in (("b", {"x": "1", "y": "2"}), ("a", {"x": "1", "y": "3"}), ("c", {})):
        await status(rest, "PUT", f"{AT}/{name}", json=properties)

    async def listed(query: str = "") -> list[str]:
        return [name.rpartition("/")[2] for name in (await rest.get(f"{AT}{query}"))[1]]

    assert (await rest.get(AT))[1] == [f"topic://acme/orders/{name}" for name in "abc"]
    assert await listed("?property=x%3D1") == ["a", "b"]
    assert await listed("?property=x%3D1&property=y%3D2") == ["b"]
    assert await listed("?property=x=1&property=x=1") == ["a", "b"]
    assert await listed("?property=x%3D") == []
    assert await listed("?property=none=1") == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{AT}?property=x", 412),
        (f"{AT}?property==1", 412),
        (f"{AT}?property=", 412),
        (f"{AT}?property=x=1&property=x=2", 412),
        ("/admin/v2/scalable/acme/none", 404),
        ("/admin/v2/scalable/a%20b/orders", 412),
    ],
)
async def test_a_malformed_filter_is_412(rest: RestWorld, path: str, code: int) -> None:
    assert await status(rest, "GET", path) == code


async def test_lists_of_classic_topics_have_no_scalable_one(rest: RestWorld) -> None:
    await rest.world.create_topic("persistent://acme/orders/classic")
    await status(rest, "PUT", PAID)

    of_all = await rest.get("/admin/v2/namespaces/acme/orders/topics?mode=ALL")

    assert of_all == (200, ["persistent://acme/orders/classic"])


async def test_the_openapi_document_has_every_route(rest: RestWorld) -> None:
    code, document = await rest.get("/openapi.json")

    assert code == 200
    assert {
        path.removeprefix("/admin/v2/scalable/{tenant}/{namespace}"): sorted(methods)
        for path, methods in document["paths"].items()
        if path.startswith("/admin/v2/scalable")
    } == {
        "": ["get"],
        "/{topic}": ["delete", "get", "put"],
        "/{topic}/stats": ["get"],
        "/{topic}/segments/{segment}/stats": ["get"],
        "/{topic}/split/{segment}": ["post"],
        "/{topic}/merge/{segment}/{other}": ["post"],
        "/{topic}/migrate": ["post"],
        "/{topic}/rebucket/{segment}": ["post"],
        "/{topic}/subscriptions/{subscription}": ["delete", "put"],
        "/{topic}/subscriptions/{subscription}/seek": ["post"],
        "/{topic}/subscriptions/{subscription}/skip-all": ["post"],
        "/{topic}/autoScalePolicy": ["delete", "get", "post"],
    }


# Deletion ----------------------------------------------------------------------------------------


async def test_a_topic_is_deleted_with_its_layout(rest: RestWorld) -> None:
    await status(rest, "PUT", PAID)

    assert await status(rest, "DELETE", f"{PAID}?force=maybe") == 400
    assert await status(rest, "DELETE", PAID) == 204

    assert await status(rest, "GET", PAID) == 404
    assert await status(rest, "DELETE", PAID) == 404
    assert state(rest).reads.load_scalable(NAME) is None


# Statistics --------------------------------------------------------------------------------------


def segment_stats(messages: int) -> TopicStats:
    client = ClientStats(address="1.2.3.4:5", client_version="v5", connected_since_ms=1_000)
    rates = TrafficRates(messages_per_s=messages, bytes_per_s=10 * messages)
    consumer = ConsumerStats(name="c", client=client, rates_out=rates, messages_out=messages)
    return TopicStats(
        topic="it",
        bytes=100,
        messages_in=messages,
        bytes_in=10 * messages,
        backlog_bytes=7,
        rates_in=rates,
        publishers=[ProducerStats(name="p", client=client, rates_in=rates, access_mode="Shared")],
        subscriptions=[
            SubscriptionStats(name="s", consumers=1, backlog_entries=messages, rows=[consumer])
        ],
    )


def answers_of(stats: dict[str, Any]) -> Callable[[str, Any], Any]:
    return lambda name, _request: stats[name]


async def test_statistics_are_the_sum_of_the_segments(rest: RestWorld, owners: FakeOwners) -> None:
    await status(rest, "PUT", f"{PAID}?numInitialSegments=2")
    consumer = pb.RegisterScalableConsumer(
        name=NAME, subscription="s", consumer_name="c", type="stream"
    )
    idle = pb.RegisterScalableConsumer(
        name=NAME, subscription="s", consumer_name="idle", type="stream"
    )
    await carry_out(rest, register_scalable_consumer=consumer)
    await carry_out(rest, register_scalable_consumer=idle)
    owners.answer = answers_of({LOWER: segment_stats(3), UPPER: segment_stats(5)})

    code, stats = await rest.get(f"{PAID}/stats")

    assert code == 200
    counts = ("epoch", "totalSegments", "activeSegments", "sealedSegments")
    assert [stats[each] for each in counts] == [0, 2, 2, 0]
    assert (stats["msgRateIn"], stats["msgThroughputIn"], stats["msgInCounter"]) == (8, 80, 8)
    assert (stats["averageMsgSize"], stats["storageSize"], stats["backlogSize"]) == (10, 200, 14)
    lower = stats["segments"]["0"]
    assert (lower["topic"], lower["name"], lower["state"]) == (LOWER, LOWER, "ACTIVE")
    assert (lower["entryBuckets"], lower["msgRateIn"], lower["storageSize"]) == (2, 3, 100)
    (producer,) = stats["producers"]
    assert (producer["producerName"], producer["segmentIds"]) == ("p", [0, 1])
    assert (producer["msgRateIn"], producer["address"]) == (8, "/1.2.3.4:5")
    subscription = stats["subscriptions"]["s"]
    assert (subscription["type"], subscription["msgBacklog"]) == ("STREAM", 8)
    assert subscription["consumerCount"] == 2
    assert subscription["segments"]["1"]["msgBacklog"] == 5
    by_name = {each["consumerName"]: each for each in subscription["consumers"]}
    assert (by_name["c"]["segmentIds"], by_name["c"]["connected"]) == ([0, 1], True)
    assert by_name["c"]["msgOutCounter"] == 8
    assert "connected" not in by_name["idle"]


async def test_a_segment_without_an_answer_has_no_owner_and_no_load(
    rest: RestWorld, owners: FakeOwners
) -> None:
    await status(rest, "PUT", f"{PAID}?numInitialSegments=2")
    owners.answer = answers_of({LOWER: Unavailable("it is gone"), UPPER: segment_stats(5)})
    units = [UnitAssignment(name=name, broker_id="b-1") for name in (LOWER, UPPER)]
    rest.shards.units = pb.TopicUnitsResponse(units=units)

    code, stats = await rest.get(f"{PAID}/stats")

    assert (code, stats["msgRateIn"], stats["totalSegments"]) == (200, 5, 2)
    shown = [(each["ownerBroker"], each["msgRateIn"]) for each in stats["segments"].values()]
    assert shown == [(None, 0), ("b-1", 5)]


def stats_sum(*, subscriptions: Sequence[str] = ()) -> StatsSum:
    layout = ScalableTopic(
        subscriptions=[ScalableSubscription(name=name) for name in subscriptions]
    )
    return StatsSum(parse_topic(NAME), layout)


def test_rest_subscriptions_summed_max_counts_those_that_the_layout_has_not() -> None:
    most = [SubscriptionStats(name=f"r{number}") for number in range(REST_SUBSCRIPTIONS_SUMMED_MAX)]
    found = stats_sum(subscriptions=["s"])

    found.add(TopicSegment(segment_id=0), TopicStats(subscriptions=most))
    found.add(TopicSegment(segment_id=1), TopicStats(subscriptions=[SubscriptionStats(name="s")]))

    with pytest.raises(Refused, match="name one segment"):
        found.add(TopicSegment(segment_id=2), TopicStats(subscriptions=most[:1]))


def test_topic_admin_rows_max_are_shown_of_all_clients() -> None:
    found = stats_sum()
    half = TOPIC_ADMIN_ROWS_MAX // 2
    names = [f"c{number}" for number in range(half + 1)]
    rows = [ConsumerStats(name=name) for name in names]
    subscription = SubscriptionStats(name="s", rows=rows)
    producers = [ProducerStats(name=name) for name in names]

    found.add(
        TopicSegment(segment_id=0), TopicStats(publishers=producers, subscriptions=[subscription])
    )

    shown = json.loads("".join(found.texts({})))
    assert len(shown["producers"]) == half + 1
    assert len(shown["subscriptions"]["s"]["consumers"]) == half - 1


async def test_statistics_of_one_segment_are_those_of_a_topic(
    rest: RestWorld, owners: FakeOwners
) -> None:
    await status(rest, "PUT", f"{PAID}?numInitialSegments=2")
    owners.answer = answers_of({UPPER: segment_stats(5)})

    code, stats = await rest.get(f"{PAID}/segments/1/stats")

    assert (code, stats["msgInCounter"], len(stats["publishers"])) == (200, 5, 1)
    assert [name for name, _ in owners.calls] == [UPPER]
    for segment, expected in (("2", 404), ("-1", 412), ("x", 412), (str(2**64), 412)):
        assert await status(rest, "GET", f"{PAID}/segments/{segment}/stats") == expected
    assert await status(rest, "GET", f"{AT}/none/segments/0/stats") == 404
    assert await status(rest, "GET", f"{AT}/none/stats") == 404


# Policies ----------------------------------------------------------------------------------------


async def test_the_auto_scale_policy_wins_over_that_of_the_namespace(rest: RestWorld) -> None:
    await status(rest, "PUT", PAID)
    of_namespace = "/admin/v2/namespaces/acme/orders/scalableTopicAutoScalePolicy"
    path = f"{PAID}/autoScalePolicy"
    assert await status(rest, "POST", of_namespace, json={"maxSegments": 9}) == 204
    assert await status(rest, "GET", path) == 204
    assert await rest.get(f"{path}?applied=true") == (200, {"maxSegments": 9})

    assert await status(rest, "POST", path, json={"minSegments": 0}) == 412
    assert await status(rest, "POST", path, json={"minSegments": 2**31 - 1}) == 204
    assert await status(rest, "POST", path, json={"enabled": False}) == 204

    assert await rest.get(path) == (200, {"enabled": False})
    assert (await rest.get(PAID))[1]["autoScalePolicy"] == {"enabled": False}
    assert await status(rest, "DELETE", path) == 204
    assert await status(rest, "GET", path) == 204
    assert await status(rest, "GET", f"{AT}/none/autoScalePolicy") == 404
