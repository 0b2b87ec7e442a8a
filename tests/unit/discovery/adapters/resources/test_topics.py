"""/admin/v2/{domain}/{tenant}/{namespace}/{topic}: every case with its code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest

from discovery.adapters.resources.topic_catalogue import topic_routes
from nextgen.kernel.errors import ConnectionLost, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX
from nextgen.kernel.limits.rest import (
    REST_CHANGE_ATTEMPTS_MAX,
    REST_LONG_ANSWER_BYTES,
    TOPIC_UNITS_CALLED_MAX,
)
from nextgen.kernel.limits.stream import POSITION_MAX
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.broker_service_pb2 import (
    MessagePosition,
    SubscriptionStats,
    TopicStats,
)
from protos.nextgen.v1.shard_service_pb2 import UnassignOutcome
from tests.support.costs.processor_time import processor_time, slowness
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import RestClient, serving

BASE = "/admin/v2/persistent/acme/orders"
PLAIN = f"{BASE}/plain"
PARTED = f"{BASE}/parted"
PLAIN_NAME = "persistent://acme/orders/plain"
PARTED_NAME = "persistent://acme/orders/parted"
PARTS = [f"{PARTED_NAME}-partition-{number}" for number in range(3)]
TRANSIENT = "/admin/v2/non-persistent/acme/orders/transient"


@pytest.fixture
def inventory() -> FakeInventory:
    inventory = FakeInventory()
    inventory.add(PLAIN_NAME, color="red")
    inventory.add(PARTED_NAME, 3)
    inventory.add("non-persistent://acme/orders/transient")
    return inventory


@pytest.fixture
def owners() -> FakeOwners:
    return FakeOwners()


@pytest.fixture
async def client(inventory: FakeInventory, owners: FakeOwners):
    port: Any = inventory
    async with serving(topic_routes(owners, port, port, port)) as client:
        yield client


async def status(client: RestClient, method: str, path: str, **more: Any) -> int:
    return (await client.call(method, path, **more)).status


# Creation, partitions, deletion -----------------------------------------------------------------


async def test_a_topic_is_created_once_with_its_properties(client, inventory):
    assert await status(client, "PUT", f"{BASE}/a%2Bb+c", json={"k": "v"}) == 204
    assert await status(client, "PUT", f"{BASE}/a%2Bb%20c") == 409
    assert dict(inventory.topics["persistent://acme/orders/a+b c"].properties) == {"k": "v"}
    assert await status(client, "PUT", f"{BASE}/ok", json=["k"]) == 400


@pytest.mark.parametrize(
    "body",
    [
        {"json": 4},
        {
            "data": '{"partitions": 4, "properties": {"k": "v"}, "deleted": false}',
            "headers": {"Content-Type": "application/vnd.partitioned-topic-metadata+json"},
        },
    ],
)
async def test_partitions_are_a_number_or_metadata(client, inventory, body):
    assert await status(client, "PUT", f"{BASE}/new/partitions", **body) == 204
    assert inventory.topics["persistent://acme/orders/new"].partitions == 4
    assert await status(client, "PUT", f"{BASE}/new/partitions", **body) == 409


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_partitions_per_topic_max_are_allowed_and_one_more_is_406(client, method):
    name = "new" if method == "PUT" else "parted"
    path = f"{BASE}/{name}/partitions"

    for count in (0, -1, PARTITIONS_PER_TOPIC_MAX + 1):
        assert await status(client, method, path, json=count) == 406
    assert await status(client, method, path, json=PARTITIONS_PER_TOPIC_MAX) == 204
    assert await status(client, method, path, json="4") == 400
    assert await status(client, method, path) == 400


async def test_only_a_topic_with_partitions_grows_and_never_shrinks(client, inventory):
    assert await status(client, "POST", f"{PARTED}/partitions", json=5) == 204
    assert inventory.topics[PARTED_NAME].partitions == 5
    assert await status(client, "POST", f"{PARTED}/partitions", json=4) == 422
    assert await status(client, "POST", f"{PLAIN}/partitions", json=4) == 409
    assert await status(client, "POST", f"{BASE}/none/partitions", json=4) == 404
    assert await status(client, "PUT", f"{PARTED}-partition-0/partitions", json=4) == 412


async def test_a_topic_is_deleted_as_what_it_is_and_in_use_by_force_only(client, inventory):
    inventory.used = {PLAIN_NAME}

    assert await status(client, "DELETE", f"{PLAIN}/partitions") == 404
    assert await status(client, "DELETE", PARTED) == 409
    assert await status(client, "DELETE", PLAIN) == 412
    assert await status(client, "DELETE", f"{PLAIN}?force=true") == 204
    assert await status(client, "DELETE", f"{PARTED}/partitions?force=false") == 204
    assert await status(client, "DELETE", PLAIN) == 404
    assert list(inventory.topics) == ["non-persistent://acme/orders/transient"]


async def test_missed_subscriptions_are_created_and_an_absent_topic_is_404(client, inventory):
    assert await status(client, "POST", f"{PARTED}/createMissedPartitions") == 204
    assert await status(client, "POST", f"{BASE}/none/createMissedPartitions") == 404
    assert await status(client, "POST", f"{PARTED}-partition-0/createMissedPartitions") == 412
    assert inventory.completed == [PARTED_NAME]


async def test_all_partitions_are_unloaded(client, inventory):
    assert await status(client, "PUT", f"{PARTED}/unload") == 204
    assert await status(client, "PUT", f"{PARTED}-partition-1/unload") == 204
    assert inventory.unloaded == [*PARTS, PARTS[1]]
    assert await status(client, "PUT", f"{PARTED}-partition-3/unload") == 404
    assert await status(client, "PUT", f"{BASE}/none/unload") == 404


async def test_an_idle_topic_is_unloaded_already_and_a_shard_in_trouble_is_503(client, inventory):
    inventory.unload_outcome = UnassignOutcome(message="it is not assigned")
    assert await status(client, "PUT", f"{PLAIN}/unload") == 204
    inventory.unload_outcome = UnassignOutcome(message="no leader", failed=True)
    assert await status(client, "PUT", f"{PLAIN}/unload") == 503


# Properties -------------------------------------------------------------------------------------


async def test_properties_are_read_merged_and_removed(client):
    assert await status(client, "PUT", f"{PLAIN}/properties", json={"size": "5"}) == 204
    assert (await client.call("GET", f"{PLAIN}/properties")).json == {"color": "red", "size": "5"}
    assert await status(client, "DELETE", f"{PLAIN}/properties?key=color") == 204
    assert await status(client, "DELETE", f"{PLAIN}/properties?key=absent") == 204
    assert (await client.call("GET", f"{PLAIN}/properties")).json == {"size": "5"}
    assert await status(client, "DELETE", f"{PLAIN}/properties") == 412
    assert await status(client, "GET", f"{BASE}/none/properties") == 404


@pytest.mark.parametrize("excess", [0, 1])
async def test_after_rest_change_attempts_max_attempts_a_change_is_given_up(
    client, inventory, excess
):
    others = iter(range(REST_CHANGE_ATTEMPTS_MAX - 1 + excess))

    def change() -> None:
        if next(others, None) is not None:
            inventory.topics[PLAIN_NAME].version += 1

    inventory.before_set = change
    expected = 409 if excess else 204
    assert await status(client, "PUT", f"{PLAIN}/properties", json={"a": "b"}) == expected


# At brokers -------------------------------------------------------------------------------------


async def test_statistics_come_from_the_broker_of_the_topic_or_partition(client, owners):
    owners.answer = lambda _name, _request: TopicStats(messages_in=7)

    reply = await client.call("GET", f"{PLAIN}/stats?excludeConsumers=true")
    of_partition = await client.call("GET", f"{PARTED}-partition-2/stats")

    assert reply.json["msgInCounter"] == of_partition.json["msgInCounter"] == 7
    assert [name for name, _ in owners.calls] == [PLAIN_NAME, PARTS[2]]
    for path in (f"{PARTED}/stats", f"{PARTED}/internalStats", f"{BASE}/none/stats"):
        assert await status(client, "GET", path) == 404


async def test_statistics_of_partitions_are_added_up(client, owners):
    owners.answer = lambda _name, request: (
        TopicStats(messages_in=7) if isinstance(request, admin_pb.GetStatsRequest) else None
    )
    whole = (await client.call("GET", f"{PARTED}/partitioned-stats")).json
    alone = (await client.call("GET", f"{PARTED}/partitioned-stats?perPartition=false")).json

    assert (whole["msgInCounter"], whole["metadata"]["partitions"]) == (21, 3)
    assert {name: each["msgInCounter"] for name, each in whole["partitions"].items()} == (
        dict.fromkeys(PARTS, 7)
    )
    assert (alone["msgInCounter"], alone["partitions"]) == (21, {})
    assert await status(client, "GET", f"{PLAIN}/partitioned-stats") == 404
    assert await status(client, "GET", f"{PARTED}/partitioned-internalStats") == 200


@contextmanager
def held(owners: FakeOwners) -> Iterator[list[int]]:
    """Hold each call for a turn of the loop; give how many were under way at each."""
    under_way: list[int] = []
    plain_call, open_calls = owners.call, 0

    async def call(name: Any, request: Any) -> Any:
        nonlocal open_calls
        open_calls += 1
        under_way.append(open_calls)
        await asyncio.sleep(0)
        open_calls -= 1
        return await plain_call(name, request)

    owners.call = call  # type: ignore[method-assign]
    yield under_way


async def test_topic_units_called_max_partitions_are_called_at_a_time_and_not_one_more(
    client, owners, inventory
):
    inventory.add(f"{PARTED_NAME}-big", TOPIC_UNITS_CALLED_MAX * 3)
    with held(owners) as under_way:
        assert await status(client, "DELETE", f"{PARTED}-big/truncate") == 204

    assert max(under_way) == TOPIC_UNITS_CALLED_MAX
    assert len(under_way) == TOPIC_UNITS_CALLED_MAX * 3


@pytest.mark.parametrize("path", ["partitioned-stats", "partitioned-internalStats"])
async def test_a_partition_that_fails_has_a_status_unless_a_long_answer_was_begun(
    client, owners, inventory, path
):
    inventory.add(f"{PARTED_NAME}-big", 40)

    def answer(name: str, request: Any) -> Any:
        if name.endswith("-partition-39"):
            return ConnectionLost("the broker died")
        names = [f"{'s' * 200}-{number}" for number in range(subscriptions)]
        if isinstance(request, admin_pb.GetStatsRequest):
            return TopicStats(subscriptions=[SubscriptionStats(name=each) for each in names])
        cursors = [admin_pb.CursorStats(subscription=each) for each in names]
        return admin_pb.TopicInternalStats(cursors=cursors)

    owners.answer = answer
    subscriptions = 0
    assert await status(client, "GET", f"{PARTED}-big/{path}") == 503

    subscriptions = 2 * REST_LONG_ANSWER_BYTES // 40 // 200
    with pytest.raises(aiohttp.ClientError):
        await client.call("GET", f"{PARTED}-big/{path}")


async def longest_turn_ms(work: Awaitable[Any]) -> float:
    """Return the processor time that the loop's thread takes at most between two rounds."""
    loop, took_s = asyncio.get_running_loop(), [0.0]

    def tick(since: float) -> None:
        now = time.thread_time()
        took_s.append(now - since)
        ticking[0] = loop.call_soon(tick, now)

    with processor_time():  # Without collections of garbage.
        ticking = [loop.call_soon(tick, time.thread_time())]
        await work
        ticking[0].cancel()
    return 1_000 * max(took_s)


async def test_no_turn_is_long_though_a_topic_has_thousands_of_partitions(
    client, owners, inventory
):
    partitions = 2_000
    inventory.add(f"{PARTED_NAME}-big", partitions)
    owners.answer = lambda _name, _request: TopicStats(subscriptions=[SubscriptionStats(name="s")])
    reply = asyncio.create_task(client.call("GET", f"{PARTED}-big/partitioned-stats"))

    took_ms = await longest_turn_ms(reply)

    assert len(reply.result().json["partitions"]) == partitions
    assert took_ms < 100 * slowness(), took_ms


async def test_the_last_message_and_the_end_of_a_topic(client, owners):
    position = MessagePosition(ledger_id=4, entry_id=2)
    owners.answer = lambda _name, _request: admin_pb.LastMessageId(
        position=position, batch_index=-1
    )
    expected = {"ledgerId": 4, "entryId": 2}

    last = await client.call("GET", f"{PLAIN}/lastMessageId")
    ended = await client.call("POST", f"{PLAIN}/terminate")
    all_ended = await client.call("POST", f"{PARTED}/terminate/partitions")

    assert last.json == ended.json == {**expected, "partitionIndex": -1}
    assert all_ended.json == {str(n): {**expected, "partitionIndex": n} for n in range(3)}
    assert await status(client, "GET", f"{PARTED}/lastMessageId") == 405
    assert await status(client, "POST", f"{PARTED}/terminate") == 406
    assert await status(client, "POST", f"{PLAIN}/terminate/partitions") == 405
    assert await status(client, "POST", f"{TRANSIENT}/terminate") == 405
    assert await status(client, "GET", f"{TRANSIENT}/lastMessageId") == 405


async def test_every_partition_is_truncated(client, owners):
    assert await status(client, "DELETE", f"{PARTED}/truncate") == 204
    assert await status(client, "DELETE", f"{TRANSIENT}/truncate") == 405
    assert [name for name, _ in owners.calls] == PARTS


async def test_an_outcome_that_nobody_knows_is_503_with_retry_after(client, owners):
    owners.answer = lambda _name, _request: ConnectionLost("the broker died")

    reply = await client.call("POST", f"{PLAIN}/terminate")

    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert reply.reason == "the broker died"


# Subscriptions ----------------------------------------------------------------------------------


async def test_subscriptions_of_all_partitions_are_listed_once(client, owners):
    owners.answer = lambda name, _request: TopicStats(
        subscriptions=[SubscriptionStats(name="every"), SubscriptionStats(name=name[-1])]
    )

    assert (await client.call("GET", f"{PARTED}/subscriptions")).json == ["0", "1", "2", "every"]


@pytest.mark.parametrize(
    ("body", "start"),
    [
        (None, admin_pb.TopicPlace(latest=admin_pb.Latest())),
        ("earliest", admin_pb.TopicPlace(earliest=admin_pb.Earliest())),
        ("latest", admin_pb.TopicPlace(latest=admin_pb.Latest())),
        (
            {"ledgerId": POSITION_MAX, "entryId": POSITION_MAX, "partitionIndex": -1},
            admin_pb.TopicPlace(latest=admin_pb.Latest()),
        ),
        (
            {"ledgerId": -1, "entryId": -1, "properties": {"a": "b"}},
            admin_pb.TopicPlace(earliest=admin_pb.Earliest()),
        ),
        (
            {"ledgerId": 3, "entryId": 9, "excluded": True},
            admin_pb.TopicPlace(
                position=MessagePosition(ledger_id=3, entry_id=9), is_excluded=True
            ),
        ),
    ],
)
async def test_a_subscription_begins_where_the_body_says(client, owners, body, start):
    more = {} if body is None else {"json": body}

    assert await status(client, "PUT", f"{PLAIN}/subscription/s%2F1", **more) == 204

    ((name, request),) = owners.calls
    assert (name, request.subscription, request.start) == (PLAIN_NAME, "s/1", start)
    assert (
        dict(request.properties) == (body or {}).get("properties", {})
        if (isinstance(body, dict))
        else not request.properties
    )


async def test_a_subscription_that_some_partitions_have_is_made_at_the_others(client, owners):
    known: set[str] = {PARTS[0]}

    def answer(name: str, _request: Any) -> Any:
        if name in known:
            return Refused(RejectionCode.ALREADY_EXISTS, "it is there")
        known.add(name)
        return None

    owners.answer = answer
    assert await status(client, "PUT", f"{PARTED}/subscription/s", json="earliest") == 204
    assert known == set(PARTS)
    assert await status(client, "PUT", f"{PARTED}/subscription/s", json="earliest") == 409


async def test_a_subscription_in_use_is_412_an_absent_one_404_and_half_deleted_is_finished(
    client, owners
):
    path = f"{PARTED}/subscription/s"
    owners.answer = lambda _name, _request: Refused(RejectionCode.NOT_EMPTY, "consumers")
    assert await status(client, "DELETE", path) == 412
    owners.answer = lambda name, _request: (
        Refused(RejectionCode.NOT_FOUND, "none") if name == PARTS[1] else None
    )
    assert await status(client, "DELETE", f"{path}?force=true") == 204
    assert owners.calls[-1][1].is_forced
    owners.answer = lambda _name, _request: Refused(RejectionCode.NOT_FOUND, "none")
    assert await status(client, "DELETE", path) == 404


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("skip_all", None, admin_pb.SkipMessagesRequest(is_all=True)),
        ("skip/7", None, admin_pb.SkipMessagesRequest(entries=7)),
        (
            "resetcursor/1700000000000",
            None,
            admin_pb.ResetCursorRequest(
                place=admin_pb.TopicPlace(publish_time_ms=1_700_000_000_000)
            ),
        ),
        (
            "resetcursor",
            {"ledgerId": 1, "entryId": 2, "partitionIndex": -1, "isExcluded": True},
            admin_pb.ResetCursorRequest(
                place=admin_pb.TopicPlace(
                    position=MessagePosition(ledger_id=1, entry_id=2), is_excluded=True
                )
            ),
        ),
        ("expireMessages/60", None, admin_pb.ExpireMessagesRequest(older_than_s=60)),
        (
            "expireMessages",
            {"ledgerId": 1, "entryId": 2},
            admin_pb.ExpireMessagesRequest(up_to=MessagePosition(ledger_id=1, entry_id=2)),
        ),
    ],
)
async def test_cursors_move_as_the_path_and_the_body_say(client, owners, path, body, expected):
    more = {} if body is None else {"json": body}

    assert await status(client, "POST", f"{PLAIN}/subscription/s/{path}", **more) == 204

    ((name, request),) = owners.calls
    expected.subscription = "s"
    assert (name, request) == (PLAIN_NAME, expected)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("skip_all", None, 204),
        ("resetcursor/5", None, 204),
        ("expireMessages/5", None, 204),
        ("skip/7", None, 405),
        ("resetcursor", {"ledgerId": 1, "entryId": 2}, 405),
        ("expireMessages", {"ledgerId": 1, "entryId": 2}, 405),
    ],
)
async def test_a_place_in_one_log_is_refused_for_a_topic_with_partitions(
    client, owners, path, body, code
):
    more = {} if body is None else {"json": body}

    assert await status(client, "POST", f"{PARTED}/subscription/s/{path}", **more) == code
    assert [name for name, _ in owners.calls] == (PARTS if code == 204 else [])


@pytest.mark.parametrize(
    "path", ["skip/-1", "skip/x", "skip/9999999999999999999", "resetcursor/1.5", "skip/%C2%B2"]
)
async def test_numbers_that_are_none_are_412(client, owners, path):
    assert await status(client, "POST", f"{PLAIN}/subscription/s/{path}") == 412
    assert not owners.calls


async def test_a_message_that_cannot_be_is_412(client, owners):
    for body in ({"ledgerId": POSITION_MAX + 1, "entryId": 0}, {"ledgerId": 1 << 70, "entryId": 0}):
        path = f"{PLAIN}/subscription/s/resetcursor"
        assert await status(client, "POST", path, json=body) == 412
    assert not owners.calls


async def test_messages_of_all_subscriptions_expire_at_once(client, owners):
    path = f"{PLAIN}/all_subscription/expireMessages/60"

    assert await status(client, "POST", path) == 204

    ((_, request),) = owners.calls
    assert (request.subscription, request.older_than_s) == ("", 60)


async def test_a_topic_that_stores_nothing_has_no_cursor(client, owners):
    owners.answer = lambda _name, _request: Refused(RejectionCode.NOT_ALLOWED, "not persistent")

    assert await status(client, "PUT", f"{TRANSIENT}/subscription/s") == 405
    assert await status(client, "POST", f"{TRANSIENT}/subscription/s/skip_all") == 405
    assert await status(client, "GET", f"{TRANSIENT}/internalStats") == 405


async def test_properties_of_a_subscription(client, owners):
    owners.answer = lambda _name, request: (
        TopicStats(subscriptions=[SubscriptionStats(name="s", properties={"a": "b"})])
        if isinstance(request, admin_pb.GetStatsRequest)
        else None
    )
    path = f"{PLAIN}/subscription/s/properties"

    assert await status(client, "PUT", path, json={"c": "d"}) == 204
    assert dict(owners.calls[-1][1].properties) == {"c": "d"}
    assert (await client.call("GET", path)).json == {"a": "b"}
    assert await status(client, "GET", f"{PLAIN}/subscription/none/properties") == 404
