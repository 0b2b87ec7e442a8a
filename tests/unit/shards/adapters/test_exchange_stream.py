"""One stream: answers out of order, and an error of one request fails that request only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nextgen.kernel.limits.stream import EXCHANGE_BATCH_REQUESTS_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT
from shards.adapters import exchange_stream
from shards.adapters.exchange_stream import ExchangeStream
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard


class Wire:
    """Both ends of a stream without gRPC. ``blocked`` is a client that reads nothing."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers: list[pb.ShardResponse] = []
        self.messages: list[int] = []
        """How many answers each message had."""
        self.unblocked = asyncio.Event()
        self.unblocked.set()

    async def write(self, data: bytes) -> None:
        await self.unblocked.wait()
        message = pb.ShardResponse.FromString(data)
        answers = [pb.ShardResponse.FromString(each) for each in message.batch] or [message]
        self.answers += answers
        self.messages.append(len(answers))

    async def read(self) -> AsyncIterator[bytes]:
        while (data := await self.requests.get()) is not None:
            yield data

    def send(self, request: pb.ShardRequest) -> None:
        self.requests.put_nowait(request.SerializeToString())

    def send_together(self, *requests: pb.ShardRequest) -> None:
        self.send(pb.ShardRequest(batch=[each.SerializeToString() for each in requests]))

    def end(self) -> None:
        self.requests.put_nowait(None)


def get(request_id: int, *, min_position: int = 0, timeout_ms: int = 1_000) -> pb.ShardRequest:
    names = [pb.ObjectName(kind=KIND_TENANT, name="acme")]
    return pb.ShardRequest(
        request_id=request_id,
        shard_id=1,
        timeout_ms=timeout_ms,
        get=pb.GetRequest(names=names, min_position=min_position),
    )


def serve(shard: Harness, wire: Wire) -> asyncio.Task[None]:
    stream = ExchangeStream(shard.dispatcher, wire, shard.node_metrics)
    return asyncio.create_task(stream.serve(wire.read()))


@run_by(in_shard)
async def test_a_slow_request_holds_nobody_up(shard: Harness) -> None:
    wire = Wire()
    serving = serve(shard, wire)

    wire.send(get(1, min_position=1_000))
    wire.send(get(2))
    await asyncio.sleep(0.5)

    assert [answer.request_id for answer in wire.answers] == [2]
    wire.end()
    await serving
    assert [answer.request_id for answer in wire.answers] == [2, 1]
    assert wire.answers[1].error.reason == "DEADLINE_EXCEEDED"


@run_by(in_shard)
async def test_a_request_whose_time_is_over_before_its_turn_is_not_begun(shard: Harness) -> None:
    loop: Any = asyncio.get_running_loop()
    carry_out = shard.dispatcher.carry_out
    begun: list[int] = []

    async def slow(request: pb.ShardRequest, *arguments: Any) -> pb.ShardResponse:
        begun.append(request.request_id)
        if request.request_id == 1:
            # As on a processor that others use: no timer runs meanwhile.
            loop.now_s += 1.5
        return await carry_out(request, *arguments)

    shard.dispatcher.carry_out = slow  # type: ignore[method-assign]
    wire = Wire()
    for request_id, timeout_ms in ((1, 3_000), (2, 1_000), (3, 2_000)):
        wire.send(get(request_id, timeout_ms=timeout_ms))
    wire.end()
    await serve(shard, wire)

    assert begun == [1, 3]
    reasons = {answer.request_id: answer.error.reason for answer in wire.answers}
    assert reasons == {1: "", 2: "DEADLINE_EXCEEDED", 3: ""}
    assert all(answer.error.indefinite for answer in wire.answers if answer.request_id == 2)


@run_by(in_shard)
async def test_what_cannot_be_read_is_refused_and_the_stream_goes_on(shard: Harness) -> None:
    wire = Wire()
    serving = serve(shard, wire)

    wire.requests.put_nowait(b"\xff\xff\xff")
    wire.send(get(2))
    wire.end()
    await serving

    reasons = [(answer.request_id, answer.error.reason) for answer in wire.answers]
    assert sorted(reasons) == [(0, "INVALID_REQUEST"), (2, "")]


def test_beyond_the_limit_requests_are_refused_as_overload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_stream, "EXCHANGE_IN_FLIGHT_MAX", 2)

    async def scenario(shard: Harness) -> None:
        wire = Wire()
        serving = serve(shard, wire)

        for number in range(1, 4):
            wire.send(get(number, min_position=1_000))
        await asyncio.sleep(0.1)

        (refused,) = wire.answers
        assert (refused.request_id, refused.error.reason) == (3, "OVERLOADED")
        wire.end()
        await serving
        assert len(wire.answers) == 3

    in_shard(tmp_path, scenario)


def test_a_client_that_reads_nothing_is_refused_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_stream, "EXCHANGE_IN_FLIGHT_MAX", 3)

    async def scenario(shard: Harness) -> None:
        wire = Wire()
        wire.unblocked.clear()
        serving = serve(shard, wire)
        for number in range(1, 4):
            wire.send(get(number))
            await asyncio.sleep(0.1)

        wire.send(get(4))
        await asyncio.sleep(0.1)
        wire.unblocked.set()
        wire.end()
        await serving

        reasons = {answer.request_id: answer.error.reason for answer in wire.answers}
        assert reasons == {1: "", 2: "", 3: "", 4: "OVERLOADED"}

    in_shard(tmp_path, scenario)


def test_an_answer_that_fits_no_message_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_stream, "GRPC_MESSAGE_BYTES_MAX", 10)

    async def scenario(shard: Harness) -> None:
        await shard.create_topics("t")
        wire = Wire()
        serving = serve(shard, wire)

        wire.send(get(1))
        wire.end()
        await serving

        (answer,) = wire.answers
        assert (answer.request_id, answer.error.reason) == (1, "INVALID_REQUEST")

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_a_stream_that_breaks_gives_up_what_is_in_flight(shard: Harness) -> None:
    wire = Wire()
    serving = serve(shard, wire)
    wire.send(get(1, min_position=1_000, timeout_ms=60_000))
    await asyncio.sleep(0.1)

    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    gauge = shard.node_metrics.exchange_in_flight
    assert next(iter(gauge.collect())).samples[0].value == 0


def batching(request_id: int, **fields: Any) -> pb.ShardRequest:
    """Return a request of a client that takes batches."""
    request = get(request_id, **fields)
    request.takes_batches = True
    return request


async def begun_at(shard: Harness, *requests: pb.ShardRequest) -> list[tuple[int, int]]:
    """Send requests in one message; return their ids and the turns of the loop they began in."""
    begun: list[tuple[int, int]] = []
    turn = 0

    async def note(request: pb.ShardRequest, *_: Any) -> pb.ShardResponse:
        begun.append((request.request_id, turn))
        return pb.ShardResponse()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    shard.dispatcher.carry_out = note  # type: ignore[method-assign]
    counting = asyncio.create_task(count_turns())
    wire = Wire()
    wire.send_together(*requests)
    wire.end()
    await serve(shard, wire)
    counting.cancel()
    return begun


@run_by(in_shard)
async def test_requests_of_one_message_are_begun_in_its_order_in_one_turn(shard: Harness) -> None:
    begun = await begun_at(shard, get(1), get(2), get(3))

    assert [request_id for request_id, _ in begun] == [1, 2, 3]
    assert len({at for _, at in begun}) == 1


@run_by(in_shard)
async def test_requests_of_much_work_for_few_bytes_take_turns(shard: Harness) -> None:
    pages = [pb.ShardRequest(request_id=each, shard_id=1, list=pb.ListRequest()) for each in (1, 2)]

    begun = await begun_at(shard, *pages)

    (_, first), (_, second) = begun
    assert second > first


@run_by(in_shard)
async def test_an_error_in_a_message_fails_its_own_request_only(shard: Harness) -> None:
    wire = Wire()
    elsewhere = get(2)
    elsewhere.shard_id = 99
    requests = [get(1), elsewhere, get(3)]
    encoded = [each.SerializeToString() for each in requests]
    wire.send(pb.ShardRequest(batch=[encoded[0], b"\xff\xff\xff", *encoded[1:]]))
    wire.end()
    await serve(shard, wire)

    reasons = {answer.request_id: answer.error.reason for answer in wire.answers}
    assert reasons == {0: "INVALID_REQUEST", 1: "", 2: "STALE_SHARD_MAP", 3: ""}


@run_by(in_shard)
async def test_exchange_batch_requests_max_are_taken_in_a_message_and_no_more(
    shard: Harness,
) -> None:
    wire = Wire()
    numbers = range(1, EXCHANGE_BATCH_REQUESTS_MAX + 1)
    wire.send_together(*map(get, numbers))
    wire.send_together(*map(get, (*numbers, EXCHANGE_BATCH_REQUESTS_MAX + 1)))
    wire.end()
    await serve(shard, wire)

    reasons = sorted((answer.request_id, answer.error.reason) for answer in wire.answers)
    assert reasons == [(0, "INVALID_REQUEST"), *((number, "") for number in numbers)]


@run_by(in_shard)
async def test_answers_go_together_to_a_client_that_takes_batches(shard: Harness) -> None:
    wire = Wire()
    numbers = range(EXCHANGE_BATCH_REQUESTS_MAX + 1)
    wire.unblocked.clear()
    serving = serve(shard, wire)
    wire.send(batching(1_000))
    await asyncio.sleep(0.1)
    for number in numbers:
        wire.send(get(number))
    await asyncio.sleep(0.1)
    wire.unblocked.set()
    wire.end()
    await serving

    assert [answer.request_id for answer in wire.answers] == [1_000, *numbers]
    assert wire.messages == [1, EXCHANGE_BATCH_REQUESTS_MAX, 1]
    assert all(answer.takes_batches for answer in wire.answers)


@run_by(in_shard)
async def test_a_client_of_an_earlier_release_gets_answers_one_by_one(shard: Harness) -> None:
    wire = Wire()
    for number in (1, 2, 3):
        wire.send(get(number))
    wire.end()
    await serve(shard, wire)

    assert wire.messages == [1, 1, 1]


def test_answers_beyond_exchange_batch_bytes_max_go_in_further_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, encoded = exchange_stream._encoded, list[int]()

    def note_and_encode(response: pb.ShardResponse) -> bytes:
        encoded.append(response.request_id)
        return encode(response)

    monkeypatch.setattr(exchange_stream, "_encoded", note_and_encode)

    async def scenario(shard: Harness) -> None:
        async def answer(*_: Any) -> pb.ShardResponse:
            return pb.ShardResponse()

        shard.dispatcher.carry_out = answer  # type: ignore[method-assign]
        answers = [pb.ShardResponse(request_id=each, takes_batches=True) for each in (1, 2, 3, 4)]
        version = shard.dispatcher._view.shard_map_version
        for each in answers:
            each.shard_map_version = version
        two = sum(len(each.SerializeToString()) for each in answers[:2])
        for bytes_max, messages in ((two, [2, 2]), (two - 1, [1, 1, 1, 1])):
            monkeypatch.setattr(exchange_stream, "EXCHANGE_BATCH_BYTES_MAX", bytes_max)
            encoded.clear()
            wire = Wire()
            wire.send_together(*map(batching, (1, 2, 3, 4)))
            wire.end()
            await serve(shard, wire)
            assert wire.messages == messages
            assert encoded == [1, 2, 3, 4], "each once, though one may not fit its message"

    in_shard(tmp_path, scenario)


def test_the_limit_of_a_stream_counts_the_requests_of_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_stream, "EXCHANGE_IN_FLIGHT_MAX", 2)

    async def scenario(shard: Harness) -> None:
        wire = Wire()
        wire.send_together(*map(get, (1, 2, 3)))
        wire.end()
        await serve(shard, wire)

        reasons = {answer.request_id: answer.error.reason for answer in wire.answers}
        assert reasons == {1: "", 2: "", 3: "OVERLOADED"}

    in_shard(tmp_path, scenario)


def create(request_id: int, name: str, command_id: bytes, shard_id: int = 1) -> pb.ShardRequest:
    body = pb.CreateTopics(topics=[pb.TopicSpec(name=name)])
    command = pb.Command(command_id=command_id, create_topics=body)
    execute = pb.ExecuteRequest(commands=[command])
    return pb.ShardRequest(
        request_id=request_id, shard_id=shard_id, timeout_ms=1_000, execute=execute
    )


@run_by(in_shard)
async def test_creates_of_one_message_are_looked_up_in_one_read(shard: Harness) -> None:
    await shard.create_topics("t")
    state = shard.leader.state
    statements: list[str] = []

    def noted(query: Any) -> Any:
        def note(sql: str, *parameters: Any) -> Any:
            statements.append(sql.split(" WHERE ")[0])
            return query(sql, *parameters)

        return note

    for part in (state.outcomes, state.reads):
        part._query = noted(part._query)  # type: ignore[attr-defined]
    wire = Wire()
    names = [f"persistent://{NAMESPACE}/x{number}" for number in range(8)]
    wire.send_together(
        *(create(number, name, b"%016d" % number) for number, name in enumerate(names))
    )
    wire.end()
    await serve(shard, wire)

    assert not any(answer.HasField("error") for answer in wire.answers)
    assert max(Counter(statements).values()) == 1


@run_by(in_shard)
async def test_a_command_that_is_twice_in_a_message_is_carried_out_once(shard: Harness) -> None:
    await shard.create_topics("t")
    wire = Wire()
    name, command_id = f"persistent://{NAMESPACE}/x", b"command-00000001"
    wire.send_together(create(1, name, command_id), create(2, name, command_id))
    wire.end()
    await serve(shard, wire)

    first, second = (answer.execute.results[0] for answer in wire.answers)
    assert first.topics[0].topic_id
    assert first == second


@run_by(in_shard)
async def test_creates_for_a_shard_that_is_led_elsewhere_fail_alone(shard: Harness) -> None:
    await shard.create_topics("t")
    wire = Wire()
    name = f"persistent://{NAMESPACE}/x"
    wire.send_together(
        create(1, name, b"", shard_id=99),
        create(2, name, b"", shard_id=99),
        create(3, name, b""),
        create(4, f"{name}2", b""),
    )
    wire.end()
    await serve(shard, wire)

    reasons = {answer.request_id: answer.error.reason for answer in wire.answers}
    assert reasons == {1: "STALE_SHARD_MAP", 2: "STALE_SHARD_MAP", 3: "", 4: ""}
