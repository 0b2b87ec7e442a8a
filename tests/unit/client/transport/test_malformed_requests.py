import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from nextgen.client.transport.channel import open_channel
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.client.wire.errors import abort, error_of_rpc
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.inbound import GRPC_REQUEST_FIELDS_MAX
from nextgen.runtime.servers.grpc_server import new_server
from protos.nextgen.v1.broker_service_pb2 import ServesRequest, ServesResponse

SERVICE = "nextgen.test.Echo"
DEADLINE_S = 10
MALFORMED = b"\xff\xff"
GOOD = ServesRequest(topics=["a"]).SerializeToString()


async def single(request: ServesRequest, _context: object) -> ServesResponse:
    return ServesResponse(broker_id=request.topics[0])


async def yielding(request: ServesRequest, _context: object) -> AsyncIterator[ServesResponse]:
    yield ServesResponse(broker_id=request.topics[0])


async def writing(request: ServesRequest, context: Any) -> None:
    await context.write(ServesResponse(broker_id=request.topics[0]))


async def collecting(requests: AsyncIterator[ServesRequest], _context: object) -> ServesResponse:
    return ServesResponse(broker_id="".join([each.topics[0] async for each in requests]))


async def echoing(
    requests: AsyncIterator[ServesRequest], _context: object
) -> AsyncIterator[ServesResponse]:
    async for request in requests:
        yield ServesResponse(broker_id=request.topics[0])


async def reading(_requests: object, context: Any) -> None:
    while isinstance(request := await context.read(), ServesRequest):
        await context.write(ServesResponse(broker_id=request.topics[0]))


async def answering(_requests: object, context: Any) -> None:
    """Meets the error where it reads and answers in its own way."""
    try:
        await context.read()
    except InvalidRequest:
        await context.write(ServesResponse(broker_id="refused"))


class Held:
    """Stands for what a request holds."""


held: list[weakref.ref[Held]] = []


async def refusing(_request: ServesRequest, context: Any) -> None:
    kept = Held()
    held.append(weakref.ref(kept))
    try:
        raise InvalidRequest("no")
    except InvalidRequest as error:
        await abort(context, error)


async def refusing_answers(request: ServesRequest, context: Any) -> AsyncIterator[ServesResponse]:
    await refusing(request, context)
    yield ServesResponse()


async def refusing_all(_requests: object, context: Any) -> None:
    await refusing(ServesRequest(), context)


async def raw(request: bytes, _context: object) -> bytes:
    return request


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    coding: dict[str, Any] = {
        "request_deserializer": ServesRequest.FromString,
        "response_serializer": ServesResponse.SerializeToString,
    }
    server = new_server([SERVICE], interceptors=[MalformedRequests()])
    methods = {
        "Single": grpc.unary_unary_rpc_method_handler(single, **coding),
        "Yielding": grpc.unary_stream_rpc_method_handler(yielding, **coding),
        "Writing": grpc.unary_stream_rpc_method_handler(writing, **coding),
        "Collecting": grpc.stream_unary_rpc_method_handler(collecting, **coding),
        "Echoing": grpc.stream_stream_rpc_method_handler(echoing, **coding),
        "Reading": grpc.stream_stream_rpc_method_handler(reading, **coding),
        "Answering": grpc.stream_stream_rpc_method_handler(answering, **coding),
        "Refusing": grpc.unary_unary_rpc_method_handler(refusing, **coding),
        "RefusingRaw": grpc.unary_unary_rpc_method_handler(refusing),
        "RefusingAnswers": grpc.unary_stream_rpc_method_handler(refusing_answers, **coding),
        "RefusingAll": grpc.stream_stream_rpc_method_handler(refusing_all, **coding),
        "Raw": grpc.unary_unary_rpc_method_handler(raw),
    }
    server.server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, methods),)
    )
    await server.start("127.0.0.1", 0, "a test")
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel
    await server.stop(grace_ms=0)


async def call(channel: grpc.aio.Channel, method: str, data: bytes) -> list[bytes]:
    path = f"/{SERVICE}/{method}"
    if method in ("Single", "Raw", "Refusing", "RefusingRaw"):
        return [await channel.unary_unary(path)(data, timeout=DEADLINE_S)]
    if method in ("Yielding", "Writing", "RefusingAnswers"):
        return [each async for each in channel.unary_stream(path)(data, timeout=DEADLINE_S)]
    if method == "Collecting":
        return [await channel.stream_unary(path)(iter([data]), timeout=DEADLINE_S)]
    return [each async for each in channel.stream_stream(path)(iter([data]), timeout=DEADLINE_S)]


METHODS = ("Single", "Yielding", "Writing", "Collecting", "Echoing", "Reading")


@pytest.mark.parametrize("method", METHODS)
async def test_a_good_request_is_answered(channel: grpc.aio.Channel, method: str) -> None:
    (answer,) = await call(channel, method, GOOD)

    assert ServesResponse.FromString(answer).broker_id == "a"


@pytest.mark.parametrize("method", METHODS)
async def test_a_malformed_request_is_refused_with_its_reason(
    channel: grpc.aio.Channel, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call(channel, method, MALFORMED)

    error = error_of_rpc(failure.value)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, InvalidRequest)
    assert str(error) == f"a message of 2 bytes is not what {method} takes"
    assert [record for record in caplog.records if record.name.startswith("grpc")] == []


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_of_too_many_fields_is_refused_and_not_decoded(
    channel: grpc.aio.Channel, method: str
) -> None:
    # Behind the fields comes what no decoder takes: it would be refused for another reason.
    data = GOOD * (GRPC_REQUEST_FIELDS_MAX + 1) + MALFORMED

    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call(channel, method, data)

    error = error_of_rpc(failure.value)
    assert isinstance(error, InvalidRequest)
    assert str(error) == f"a ServesRequest has more than {GRPC_REQUEST_FIELDS_MAX} fields"


async def test_a_servicer_may_answer_in_its_own_way(channel: grpc.aio.Channel) -> None:
    (answer,) = await call(channel, "Answering", MALFORMED)

    assert ServesResponse.FromString(answer).broker_id == "refused"


async def test_a_method_that_takes_bytes_looks_for_itself(channel: grpc.aio.Channel) -> None:
    assert await call(channel, "Raw", MALFORMED) == [MALFORMED]


@pytest.mark.parametrize("method", ["Refusing", "RefusingRaw", "RefusingAnswers", "RefusingAll"])
async def test_a_refused_call_holds_nothing_until_garbage_is_collected(
    channel: grpc.aio.Channel, method: str
) -> None:
    held.clear()
    gc.disable()
    try:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel, method, GOOD)
        while held[-1]() is not None:
            await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_what_is_not_served_is_unimplemented(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await channel.unary_unary(f"/{SERVICE}/Nothing")(b"", timeout=DEADLINE_S)

    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
