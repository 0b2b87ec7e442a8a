"""Bytes that no client of ours would send, to every method of every process."""

from __future__ import annotations

import random

import grpc.aio
import pytest

from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import discovery_service_pb2 as discovery_pb
from tests.integration.bad_input.conftest import TOPIC, Site
from tests.support.callers.member_channel import member_channel
from tests.support.callers.raw_calls import (
    UNLIMITED,
    Method,
    Outcome,
    Shape,
    call,
    is_parsed,
    methods,
    random_message,
)

SEED = 20_240_607
METHODS = methods()
BROKEN_STATUSES = {"UNKNOWN", "INTERNAL"}
"""What gRPC answers when a handler broke."""

RANDOM_MESSAGES = [10, pytest.param(40, marks=pytest.mark.slow)]
"""Per method. They are the same at each run: `make nightly` goes on where `make test` stops."""

SHORT_DEADLINE_S = 0.5
SERVERS = ("discovery", "shard", "manager", "broker")


def methods_of(server: str) -> list[Method]:
    return [method for method in METHODS if method.server == server]


def broken_pieces(method: Method) -> list[bytes]:
    """Return bytes that are no message of the method: invented ones, and one cut short."""
    chooser = random.Random(f"{SEED} {method.path}")
    full = random_message(method.request, chooser).SerializeToString()
    invented = [b"\xff\xff\xff\xff", b"\x0a\x7f", b"\x00"]
    cut = [piece for end in range(len(full)) if not is_parsed(method, piece := full[:end])]
    broken = [piece for piece in invented if not is_parsed(method, piece)]
    return [*broken, *chooser.sample(cut, min(10, len(cut)))]


def unknown_field(size: int) -> bytes:
    """Return a message with nothing but an unknown field of ``size`` bytes."""
    return b"\xfa\xff\x03" + _varint(size) + bytes(size)


def check_refused(outcome: Outcome) -> None:
    assert outcome.reason == "INVALID_REQUEST", outcome
    assert outcome.error is not None
    assert outcome.error.message
    assert not outcome.error.indefinite


def test_every_service_of_the_contracts_is_covered() -> None:
    assert len(METHODS) > 30
    assert {method.server for method in METHODS} == set(SERVERS)


@pytest.mark.parametrize("server", SERVERS)
async def test_what_is_no_message_is_refused(site: Site, server: str) -> None:
    async with member_channel(site.endpoint(server)) as channel:
        for method in methods_of(server):
            for piece in broken_pieces(method):
                check_refused(await call(channel, method, piece))


@pytest.mark.parametrize("count", RANDOM_MESSAGES)
@pytest.mark.parametrize("server", SERVERS)
async def test_random_bytes_and_messages_break_nothing(site: Site, server: str, count: int) -> None:
    async def send_random(channel: grpc.aio.Channel, method: Method) -> None:
        chooser = random.Random(f"{SEED} {method.path}")
        for size in range(count):
            noise = chooser.randbytes(1 + 8 * size)
            if is_parsed(method, noise):
                outcome = await call(channel, method, noise, deadline_s=SHORT_DEADLINE_S)
                assert outcome.status not in BROKEN_STATUSES, outcome
            else:
                check_refused(await call(channel, method, noise))
            shaped = random_message(method.request, chooser).SerializeToString()
            outcome = await call(channel, method, shaped, deadline_s=SHORT_DEADLINE_S)
            assert outcome.status not in BROKEN_STATUSES, outcome

    async with (
        member_channel(site.endpoint(server)) as channel,
        TaskGroup() as sending,
    ):
        for method in methods_of(server):
            sending.create_task(send_random(channel, method))


@pytest.mark.parametrize("server", SERVERS)
async def test_a_message_beyond_the_limit_is_refused_unread(site: Site, server: str) -> None:
    oversized = unknown_field(GRPC_MESSAGE_BYTES_MAX + 1)
    # The limit is the server's: one method of each shape stands for the others.
    one_of_each_shape = {method.shape: method for method in methods_of(server)}.values()
    async with member_channel(site.endpoint(server), options=UNLIMITED) as channel:
        for method in one_of_each_shape:
            assert is_parsed(method, oversized), "only its size is wrong"

            outcome = await call(channel, method, oversized)

            assert outcome.status == "RESOURCE_EXHAUSTED", outcome
            sizes = f"larger than max ({len(oversized)} vs. {GRPC_MESSAGE_BYTES_MAX})"
            assert sizes in outcome.text


@pytest.mark.parametrize("server", SERVERS)
async def test_a_field_from_a_later_version_changes_nothing(site: Site, server: str) -> None:
    async with member_channel(site.endpoint(server)) as channel:
        for method in methods_of(server):
            without = await call(channel, method, b"")
            with_it = await call(channel, method, unknown_field(300))

            assert (with_it.status, with_it.reason) == (without.status, without.reason), method


async def test_a_lookup_with_an_unknown_field_is_answered(site: Site) -> None:
    method = next(method for method in METHODS if method.name == "Lookup")
    request = discovery_pb.LookupRequest(topics=[TOPIC]).SerializeToString()
    async with member_channel(site.discovery) as channel:
        outcome = await call(channel, method, request + b"\xfa\xff\x03\x01x")

    response = discovery_pb.LookupResponse.FromString(outcome.answers[0])
    assert response.answers[0].broker_id == "broker-1"


async def test_a_method_that_does_not_exist_is_unimplemented(site: Site) -> None:
    for server in SERVERS:
        unknown = Method(
            server,
            "/nextgen.v1.DiscoveryService/Abolish",
            Shape.SINGLE,
            discovery_pb.LookupRequest,
            discovery_pb.LookupResponse,
        )
        async with member_channel(site.endpoint(server)) as channel:
            assert (await call(channel, unknown, b"")).status == "UNIMPLEMENTED"


async def test_a_watch_that_cannot_be_read_is_refused(site: Site) -> None:
    service = discovery_pb.DESCRIPTOR.services_by_name["DiscoveryService"]
    watches = [method.name for method in service.methods if method.name.startswith("Watch")]
    assert len(watches) == 5
    async with member_channel(site.discovery) as channel:
        for name in watches:
            method = Method(
                "discovery",
                f"/{service.full_name}/{name}",
                Shape.ANSWERS,
                discovery_pb.WatchRequest,
                discovery_pb.WatchUpdate,
            )
            check_refused(await call(channel, method, b"\xff\xff"))


async def test_one_bad_message_of_a_stream_leaves_the_others_alone(site: Site) -> None:
    method = next(method for method in METHODS if method.name == "LookupStream")
    good = discovery_pb.LookupRequest(request_id=7, topics=[TOPIC]).SerializeToString()
    async with member_channel(site.discovery) as channel:
        outcome = await call(channel, method, b"\xff\xff", good, b"\x0a\x7f")

    responses = [discovery_pb.LookupResponse.FromString(each) for each in outcome.answers]
    assert outcome.status == "OK"
    assert sorted(response.error.reason for response in responses) == [
        *("", "INVALID_REQUEST", "INVALID_REQUEST")
    ]
    assert [each.answers[0].broker_id for each in responses if each.answers] == ["broker-1"]


async def test_a_bad_message_ends_a_join_and_no_other(site: Site) -> None:
    method = next(method for method in METHODS if method.name == "Join")
    hello = cluster_pb.Hello(cluster_id="test", node_id="a-client", kind="client")
    first = cluster_pb.NodeMessage(hello=hello).SerializeToString()
    async with member_channel(site.manager) as channel:
        outcome = await call(channel, method, first, b"\xff\xff")

    check_refused(outcome)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
