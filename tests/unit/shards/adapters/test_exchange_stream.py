"""One stream: answers out of order, and an error of one request fails that request only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT
from shards.adapters import exchange_stream
from shards.adapters.exchange_stream import ExchangeStream
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard


class Wire:
    """Both ends of a stream without gRPC. ``blocked`` is a client that reads nothing."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers: list[pb.ShardResponse] = []
        self.unblocked = asyncio.Event()
        self.unblocked.set()

    async def write(self, data: bytes) -> None:
        await self.unblocked.wait()
        self.answers.append(pb.ShardResponse.FromString(data))

    async def read(self) -> AsyncIterator[bytes]:
        while (data := await self.requests.get()) is not None:
            yield data

    def send(self, request: pb.ShardRequest) -> None:
        self.requests.put_nowait(request.SerializeToString())

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
