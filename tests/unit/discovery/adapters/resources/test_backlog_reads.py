"""Messages by time, sizes and analyses of backlogs, trimming: every case with its code."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.adapters.resources.topic_catalogue import topic_routes
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import serving

PLAIN = "/admin/v2/persistent/acme/orders/plain"
PARTED = "/admin/v2/persistent/acme/orders/parted"
PART = f"{PARTED}-partition-1"
TRANSIENT = "/admin/v2/non-persistent/acme/orders/transient"
ABSENT = "/admin/v2/persistent/acme/orders/absent"
SCHEMA = "/admin/v2/schemas/acme/orders/plain/metadata"
ANALYSIS = "subscription/s/analyzeBacklog"


@pytest.fixture
def owners() -> FakeOwners:
    return FakeOwners()


@pytest.fixture
async def client(owners: FakeOwners):
    inventory: Any = FakeInventory()
    inventory.add("persistent://acme/orders/plain")
    inventory.add("persistent://acme/orders/parted", 2)
    inventory.add("non-persistent://acme/orders/transient")
    async with serving(topic_routes(owners, inventory, inventory, inventory)) as client:
        yield client


@pytest.mark.parametrize(("path", "partition"), [(PLAIN, -1), (PART, 1)])
async def test_a_message_id_by_time_is_answered_as_javas_library_reads_it(
    client, owners, path, partition
):
    position = MessagePosition(ledger_id=4, entry_id=9)
    owners.answer = lambda _name, _request: admin_pb.FoundPosition(position=position)

    reply = await client.call("GET", f"{path}/messageid/1700000000000")

    assert reply.json == {"ledgerId": 4, "entryId": 9, "partitionIndex": partition}
    assert [request.publish_time_ms for _, request in owners.calls] == [1_700_000_000_000]


LEDGERS = admin_pb.TopicInternalStats(
    bytes=1_000,
    ledgers=[
        admin_pb.LedgerExtent(ledger_id=3, entries=10, bytes=300),
        admin_pb.LedgerExtent(ledger_id=7, entries=4, bytes=400),
        admin_pb.LedgerExtent(ledger_id=8, entries=0, bytes=0),
        admin_pb.LedgerExtent(ledger_id=9, entries=3, bytes=300),
    ],
)


@pytest.mark.parametrize(
    ("ledger", "entry", "expected"),
    [
        (-1, -1, 1_000),
        (0, 5, 1_000),
        (3, -1, 1_000),
        (3, 0, 1_000),
        (3, 5, 850),
        (7, 1, 600),
        (7, 99, 300),
        (8, 3, 300),
        (9, 2, 100),
        (9, 3, 0),
        (2**63 - 1, 2**63 - 1, 0),
    ],
)
async def test_the_size_of_a_backlog_counts_from_a_message_on(
    client, owners, ledger, entry, expected
):
    owners.answer = lambda _name, _request: LEDGERS

    body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
    reply = await client.call("PUT", f"{PLAIN}/backlogSize", json=body)

    assert (reply.status, reply.json) == (200, expected)


async def test_an_analysis_is_answered_as_javas_library_reads_it(client, owners):
    owners.answer = lambda _name, _request: admin_pb.BacklogAnalysis(
        entries=2,
        messages=7,
        is_aborted=True,
        first=MessagePosition(ledger_id=4, entry_id=9),
        last=MessagePosition(ledger_id=5, entry_id=0),
    )

    place = {"ledgerId": 4, "entryId": 9, "partitionIndex": -1}
    reply = await client.call("POST", f"{PLAIN}/{ANALYSIS}", json=place)
    await client.call("POST", f"{PLAIN}/{ANALYSIS}")

    assert reply.json == {
        "entries": 2,
        "messages": 7,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": 2,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": 7,
        "filterRescheduledMessages": 0,
        "aborted": True,
        "firstMessageId": "4:9",
        "lastMessageId": "5:0",
    }
    start = MessagePosition(ledger_id=4, entry_id=9)
    assert [request for _, request in owners.calls] == [
        admin_pb.AnalyzeBacklogRequest(subscription="s", start=start),
        admin_pb.AnalyzeBacklogRequest(subscription="s"),
    ]


async def test_every_partition_is_trimmed(client, owners):
    reply = await client.call("POST", f"{PARTED}/trim")

    assert reply.status == 204
    parts = [f"persistent://acme/orders/parted-partition-{number}" for number in range(2)]
    assert [(name, type(request)) for name, request in owners.calls] == [
        (name, admin_pb.TrimRequest) for name in parts
    ]


async def test_the_places_of_schemas_are_their_versions(client, owners):
    def answer(_name: str, request: admin_pb.ListSchemasRequest) -> Any:
        versions = [admin_pb.SchemaVersion(version=number) for number in range(4)]
        rest = versions[request.first_version :]
        return admin_pb.ListSchemasResponse(versions=rest[:2], has_more=len(rest) > 2)

    owners.answer = answer
    rows = [{"ledgerId": -1, "entryId": -1, "version": number} for number in range(4)]

    assert (await client.call("GET", SCHEMA)).json == {"info": rows[3], "index": rows}
    owners.answer = lambda _name, _request: None
    assert (await client.call("GET", SCHEMA)).status == 404


PLACE = {"ledgerId": 1, "entryId": 1}


@pytest.mark.parametrize(
    ("method", "path", "more", "code"),
    [
        ("GET", f"{ABSENT}/messageid/1", {}, 404),
        ("GET", f"{PARTED}/messageid/1", {}, 405),
        ("GET", f"{TRANSIENT}/messageid/1", {}, 405),
        ("GET", f"{PLAIN}/messageid/-1", {}, 412),
        ("GET", f"{PLAIN}/messageid/soon", {}, 412),
        ("PUT", f"{ABSENT}/backlogSize", {"json": PLACE}, 404),
        ("PUT", f"{PARTED}/backlogSize", {"json": PLACE}, 405),
        ("PUT", f"{TRANSIENT}/backlogSize", {"json": PLACE}, 405),
        ("PUT", f"{PLAIN}/backlogSize", {"json": "soon"}, 400),
        ("PUT", f"{PLAIN}/backlogSize", {}, 400),
        ("POST", f"{ABSENT}/{ANALYSIS}", {}, 404),
        ("POST", f"{PARTED}/{ANALYSIS}", {}, 405),
        ("POST", f"{TRANSIENT}/{ANALYSIS}", {}, 405),
        ("POST", f"{PLAIN}/{ANALYSIS}", {"json": [1]}, 400),
        ("POST", f"{ABSENT}/trim", {}, 404),
        ("POST", f"{TRANSIENT}/trim", {}, 405),
    ],
)
async def test_what_cannot_be_is_refused_before_a_broker_is_called(
    client, owners, method, path, more, code
):
    assert (await client.call(method, path, **more)).status == code
    assert not owners.calls


async def test_a_subscription_that_is_not_there_is_404(client, owners):
    owners.answer = lambda _name, _request: Refused(RejectionCode.NOT_FOUND, "no subscription")

    assert (await client.call("POST", f"{PLAIN}/{ANALYSIS}")).status == 404
