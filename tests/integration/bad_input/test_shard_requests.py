"""Requests between processes that make no sense: refused, each by itself, by the shard node."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nextgen.kernel.limits.cluster import (
    ASSIGNMENTS_PER_REQUEST_MAX,
    COMMANDS_PER_EXECUTE_MAX,
    NAMES_PER_GET_MAX,
    NAMES_PER_LOOKUP_MAX,
    PAGE_ITEMS_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT, KIND_TOPIC
from tests.integration.bad_input.conftest import TOPIC, Site
from tests.support.callers.member_channel import member_channel
from tests.support.callers.raw_calls import call, methods, random_message

SHARD = 1
SEED = 7_151
BODIES = [field.name for field in pb.ShardRequest.DESCRIPTOR.oneofs_by_name["body"].fields]
COMMANDS = [field.name for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields]
RANDOM_REQUESTS = [15, pytest.param(60, marks=pytest.mark.slow)]
"""Per body. They are the same at each run: `make nightly` goes on where `make test` stops."""

EXCHANGE = next(method for method in methods() if method.name == "Exchange")
UINT64_MAX = 2**64 - 1


def opening(**fields: Any) -> pb.WatchShardRequest:
    return pb.WatchShardRequest(open=pb.WatchOpen(**fields))


async def ask(site: Site, *requests: pb.ShardRequest) -> dict[int, pb.ShardResponse]:
    """Send requests on one stream and return the final answers by request id."""
    async with member_channel(site.shard) as channel:
        stream = channel.stream_stream(EXCHANGE.path)(timeout=60)
        for request in requests:
            await stream.write(request.SerializeToString())
        await stream.done_writing()
        answers = [pb.ShardResponse.FromString(data) async for data in stream]
    return {answer.request_id: answer for answer in answers}


async def reasons(site: Site, *requests: pb.ShardRequest) -> list[str]:
    for number, request in enumerate(requests):
        request.request_id = number
        request.timeout_ms = request.timeout_ms or 45_000
    answers = await ask(site, *requests)
    return [answers[number].error.reason for number in range(len(requests))]


def to_shard(**body: object) -> pb.ShardRequest:
    return pb.ShardRequest(shard_id=SHARD, shard_map_version=1, **body)  # type: ignore[arg-type]


def execute(*commands: pb.Command) -> pb.ShardRequest:
    return to_shard(execute=pb.ExecuteRequest(commands=commands))


@pytest.mark.parametrize("count", RANDOM_REQUESTS)
@pytest.mark.parametrize("body", BODIES)
async def test_random_requests_get_an_answer_each(site: Site, body: str, count: int) -> None:
    chooser = random.Random(SEED)
    requests = []
    for number in range(count):
        request = to_shard(request_id=number, timeout_ms=300)
        kind = pb.ShardRequest.DESCRIPTOR.fields_by_name[body].message_type._concrete_class
        getattr(request, body).CopyFrom(random_message(kind, chooser))
        requests.append(request)

    assert sorted(await ask(site, *requests)) == list(range(count))


@pytest.mark.parametrize("count", RANDOM_REQUESTS)
@pytest.mark.parametrize("body", COMMANDS)
async def test_random_commands_get_an_answer_each(site: Site, body: str, count: int) -> None:
    chooser = random.Random(SEED)
    requests = []
    for number in range(count):
        command = pb.Command(command_id=chooser.randbytes(16))
        kind = pb.Command.DESCRIPTOR.fields_by_name[body].message_type._concrete_class
        getattr(command, body).CopyFrom(random_message(kind, chooser))
        request = execute(command)
        request.request_id, request.timeout_ms = number, 2_000
        requests.append(request)

    assert sorted(await ask(site, *requests)) == list(range(count))


async def test_requests_without_a_known_body_or_shard_are_refused(site: Site) -> None:
    unknown_body = pb.ShardRequest.FromString(to_shard().SerializeToString() + b"\xa2\x06\x00")

    assert (
        await reasons(
            site,
            to_shard(),
            unknown_body,
            execute(pb.Command(command_id=bytes(16))),
            pb.ShardRequest(shard_id=77, get=pb.GetRequest()),
            pb.ShardRequest(get=pb.GetRequest()),
        )
        == ["INVALID_REQUEST"] * 3 + ["STALE_SHARD_MAP"] * 2
    )


async def test_a_map_version_of_another_time_is_judged_by_the_slots_alone(site: Site) -> None:
    """What counts is whether the shard has the slot, not by which map the caller came."""
    get = pb.GetRequest(names=[pb.ObjectName(kind=KIND_TOPIC, name=TOPIC)])
    old = pb.ShardRequest(shard_id=SHARD, shard_map_version=0, get=get)
    later = pb.ShardRequest(shard_id=SHARD, shard_map_version=UINT64_MAX, get=get)

    assert await reasons(site, old, later) == ["", ""]


async def test_counts_are_taken_at_the_limit_and_refused_beyond(site: Site) -> None:
    tenant = pb.ObjectName(kind=KIND_TENANT, name="well")
    no_one = pb.DeleteTenant(name="nobody")
    many = COMMANDS_PER_EXECUTE_MAX
    ids = [number.to_bytes(16, "big") for number in range(many + 1)]
    deletes = [pb.Command(command_id=each, delete_tenant=no_one) for each in ids]
    move = pb.TopicMove(topic="persistent://limits/tested/absent")

    assert await reasons(
        site,
        to_shard(get=pb.GetRequest(names=[tenant] * NAMES_PER_GET_MAX)),
        to_shard(get=pb.GetRequest(names=[tenant] * (NAMES_PER_GET_MAX + 1))),
        execute(*deletes[:many]),
        execute(*deletes),
        execute(),
        to_shard(lookup=pb.ShardLookupRequest(topics=[TOPIC] * NAMES_PER_LOOKUP_MAX)),
        to_shard(lookup=pb.ShardLookupRequest(topics=[TOPIC] * (NAMES_PER_LOOKUP_MAX + 1))),
        to_shard(list=pb.ListRequest(kind=KIND_TENANT, limit=PAGE_ITEMS_MAX)),
        to_shard(list=pb.ListRequest(kind=KIND_TENANT, limit=PAGE_ITEMS_MAX + 1)),
        to_shard(move=pb.MoveRequest(moves=[move] * ASSIGNMENTS_PER_REQUEST_MAX)),
        to_shard(move=pb.MoveRequest(moves=[move] * (ASSIGNMENTS_PER_REQUEST_MAX + 1))),
        to_shard(assign=pb.AssignRequest()),
        to_shard(release=pb.ReleaseRequest()),
    ) == [
        *("", "INVALID_REQUEST", "", "INVALID_REQUEST", "INVALID_REQUEST"),
        *("", "INVALID_REQUEST", "", "INVALID_REQUEST", "", "INVALID_REQUEST"),
        *("INVALID_REQUEST", "INVALID_REQUEST"),
    ]


@pytest.mark.parametrize("length", [1, 15, 17, 300])
async def test_a_command_id_has_its_length_or_none(site: Site, length: int) -> None:
    command = pb.Command(command_id=bytes(length), delete_tenant=pb.DeleteTenant(name="nobody"))

    assert await reasons(site, execute(command)) == ["INVALID_REQUEST"]


async def test_numbers_that_no_table_holds_are_refused(site: Site) -> None:
    """They would be accepted by the log and then stop every replica that folds them."""
    for attempt in (2**63, UINT64_MAX):
        names = {"parent_kind": "tenant", "parent_name": "nobody", "parent_id": "x"}
        close = pb.CloseParentGate(attempt=attempt, **names)
        reopen = pb.ReopenParentGate(attempt=attempt, **names)

        assert (
            await reasons(
                site,
                execute(pb.Command(close_parent_gate=close)),
                execute(pb.Command(reopen_parent_gate=reopen)),
            )
            == ["INVALID_REQUEST"] * 2
        )


async def test_a_record_that_is_too_big_leaves_nothing_behind(site: Site) -> None:
    """The command is refused after it was decided: later ones must not rest on it."""
    properties = {str(number): "v" * 4_096 for number in range(3)}
    specs = [
        pb.TopicSpec(name=f"persistent://limits/tested/big-{number}", properties=properties)
        for number in range(250)
    ]
    create = pb.Command(command_id=b"b" * 16, create_topics=pb.CreateTopics(topics=specs))
    one = pb.Command(command_id=b"o" * 16, create_topics=pb.CreateTopics(topics=specs[:1]))

    refused = await ask(site, execute(create))
    accepted = await ask(site, execute(one))

    assert refused[0].error.reason == "INVALID_REQUEST"
    assert "at most" in refused[0].error.message
    assert accepted[0].execute.results[0].topics[0].rejection_code == ""


async def test_reads_of_a_position_that_is_far_away_time_out_alone(site: Site) -> None:
    name = pb.ObjectName(kind=KIND_TOPIC, name=TOPIC)
    far = to_shard(timeout_ms=200, get=pb.GetRequest(names=[name], min_position=UINT64_MAX))
    near = to_shard(get=pb.GetRequest(names=[name]))

    assert await reasons(site, far, near) == ["DEADLINE_EXCEEDED", ""]


async def test_streams_of_unknown_shards_and_positions_say_why(site: Site) -> None:
    by_name = {method.name: method for method in methods() if method.server == "shard"}
    watch, read = by_name["Watch"], by_name["ReadEvents"]
    questions = [
        (watch, opening(shard_id=99, subscriber_id="x"), "STALE_SHARD_MAP"),
        (watch, opening(shard_id=SHARD), "INVALID_REQUEST"),
        (read, pb.ReadEventsRequest(shard_id=99), "STALE_SHARD_MAP"),
        (read, pb.ReadEventsRequest(shard_id=SHARD, types=["nothing"]), "INVALID_REQUEST"),
        (read, pb.ReadEventsRequest(shard_id=SHARD, from_position=UINT64_MAX), "POSITION_AHEAD"),
        (
            by_name["TransferLeadership"],
            pb.TransferLeadershipRequest(shard_id=SHARD, target="nobody"),
            "TRANSFER_FAILED",
        ),
    ]
    async with member_channel(site.shard) as channel:
        outcomes = [
            await call(channel, how, what.SerializeToString()) for how, what, _ in questions
        ]

    assert [outcome.reason for outcome in outcomes] == [reason for _, _, reason in questions]
