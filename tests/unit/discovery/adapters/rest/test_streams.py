"""Streamed answers: lists of any size, refused with a status or cut off, never cut short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import aiohttp
import pytest

from discovery.adapters.resources.topic_names import TopicNames
from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, PARTITIONS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import NamespaceName
from protos.nextgen.v1 import discovery_service_pb2 as pb
from tests.support.discovery.rest_server import RestClient, serving

TOPICS = "/admin/v2/namespaces/acme/orders/topics"
PERSISTENT = "/admin/v2/persistent/acme/orders"
NAMES = [f"persistent://acme/orders/{number:05}" for number in range(3_000)]
BIG = "persistent://acme/orders/big"

Entries = list[tuple[str, int, None]]


class Names:
    """The listing and the namespaces of a test: ``batches`` are yielded, an error is raised."""

    def __init__(self) -> None:
        self.batches: list[Entries | Exception] = []
        self.wanted: list[str] = []
        self.yielded = 0
        self.open = 0

    async def get_namespace(
        self, request: pb.GetObjectRequest, _timeout_ms: int
    ) -> pb.GetObjectResponse:
        response = pb.GetObjectResponse()
        if request.name == "acme/orders":
            response.item.namespace.name = request.name
        return response

    async def stream_topics(
        self, _namespace: NamespaceName, *, domain: str, prefix: str = "", names_only: bool = True
    ) -> AsyncGenerator[Sequence[tuple[str, int, None]]]:
        assert names_only
        self.wanted.append(f"{domain}{prefix}")
        self.open += 1
        try:
            for batch in self.batches:
                if isinstance(batch, Exception):
                    raise batch
                self.yielded += 1
                yield batch
        finally:
            self.open -= 1


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
async def client(names: Names):
    async with serving(TopicNames(names, names).routes()) as client:
        yield client


def plain(listed: Sequence[str]) -> Entries:
    return [(name, 0, None) for name in listed]


async def test_all_batches_are_one_list_sent_in_chunks(client: RestClient, names: Names):
    names.batches = [plain(NAMES[:1_000]), plain(NAMES[1_000:2_999]), plain(NAMES[2_999:])]

    reply = await client.call("GET", TOPICS)

    assert (reply.status, reply.json) == (200, NAMES)
    assert reply.headers["Transfer-Encoding"] == "chunked"
    assert names.open == 0


@pytest.mark.parametrize("path", [TOPICS, PERSISTENT, f"{PERSISTENT}/partitioned"])
@pytest.mark.parametrize(
    "batches", [[], [[]], [plain(["persistent://acme/orders/__change_events"])]]
)
async def test_a_namespace_without_topics_is_an_empty_list(client, names, path, batches):
    names.batches = batches

    reply = await client.call("GET", path)

    assert (reply.status, reply.body) == (200, b"[]")


async def test_partitions_come_in_the_order_of_their_numbers_and_never_all_at_once(client, names):
    names.batches = [
        [("persistent://acme/orders/a", 0, None), (BIG, PARTITIONS_PER_TOPIC_MAX, None)]
    ]

    reply = await client.call("GET", PERSISTENT)

    partitions = [f"{BIG}-partition-{number}" for number in range(PARTITIONS_PER_TOPIC_MAX)]
    assert reply.json == ["persistent://acme/orders/a", *partitions]
    assert reply.body.count(BIG.encode()) == PARTITIONS_PER_TOPIC_MAX
    assert PARTITIONS_PER_TOPIC_MAX > PAGE_ITEMS_MAX


async def test_only_topics_with_partitions_are_listed_as_partitioned(client, names):
    names.batches = [[("persistent://acme/orders/a", 0, None), (BIG, 2, None)]]

    assert (await client.call("GET", f"{PERSISTENT}/partitioned")).json == [BIG]


async def test_system_topics_are_listed_if_they_are_asked_for(client, names):
    system = [
        "persistent://acme/orders/__change_events",
        "persistent://acme/orders/x-sub__transaction_pending_ack",
    ]
    names.batches = [plain([*system, NAMES[0]])]

    assert (await client.call("GET", TOPICS)).json == [NAMES[0]]
    everything = (await client.call("GET", f"{TOPICS}?includeSystemTopic=true")).json
    assert everything == [*system, NAMES[0]]


@pytest.mark.parametrize(
    ("path", "domain"),
    [
        (TOPICS, "persistent"),
        (f"{TOPICS}?mode=NON_PERSISTENT", "non-persistent"),
        (f"{TOPICS}?mode=all", ""),
        (PERSISTENT, "persistent"),
        ("/admin/v2/non-persistent/acme/orders?bundle=0x00000000_0xffffffff", "non-persistent"),
    ],
)
async def test_the_path_or_the_mode_says_which_domain(client, names, path, domain):
    assert (await client.call("GET", path)).status == 200
    assert names.wanted == [domain]


@pytest.mark.parametrize(
    "path", ["/admin/v2/persistent/acme/none", "/admin/v2/namespaces/a/b/topics"]
)
async def test_an_absent_namespace_is_404(client, names, path):
    reply = await client.call("GET", path)

    assert reply.status == 404
    assert "does not exist" in reply.reason
    assert not names.wanted


@pytest.mark.parametrize("error", [Unavailable("no leader"), Overloaded("too many")])
async def test_trouble_before_the_first_name_is_503(client, names, error):
    names.batches = [error]

    reply = await client.call("GET", TOPICS)

    assert (reply.status, reply.reason) == (503, str(error))
    assert reply.headers["Retry-After"] == "1"
    assert names.open == 0


@pytest.mark.parametrize("error", [Unavailable("no leader"), ZeroDivisionError("ours")])
async def test_trouble_in_the_middle_cuts_the_connection_off(client, names, error):
    names.batches = [plain(NAMES), error]

    with pytest.raises(aiohttp.ClientError):
        await client.call("GET", TOPICS)

    assert names.open == 0


async def test_a_client_that_stops_reading_stops_the_listing_and_leaving_ends_it(client, names):
    names.batches = [plain(NAMES)] * 1_000
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(f"GET {TOPICS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    yielded = -1
    while yielded != names.yielded:
        yielded = names.yielded
        await asyncio.sleep(0.05)

    assert 0 < names.yielded < 500
    assert names.open == 1
    writer.transport.abort()
    while names.open:
        await asyncio.sleep(0.01)


async def test_only_the_header_is_sent_for_head(client, names):
    names.batches = [plain(NAMES)]

    reply = await client.call("HEAD", TOPICS)

    assert (reply.status, reply.body) == (200, b"")
    assert names.open == 0
