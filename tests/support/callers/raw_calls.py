"""Calls that a client library would not make: bytes to a gRPC method, and what comes back."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from nextgen.client.wire.errors import ERROR_METADATA_KEY
from protos.nextgen import v1 as nextgen_v1
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import discovery_service_pb2 as discovery_pb
from protos.nextgen.v1 import errors_pb2 as errors_pb
from protos.nextgen.v1 import peer_service_pb2 as peer_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import stock_broker_pb2 as stock_broker_pb
from protos.nextgen.v1 import topic_admin_pb2 as topic_admin_pb

DEADLINE_S = 10
ANSWERS_MAX = 4
CALLS_MAX = 10
OF_SIDECARS = "nextgen.v1.StockBrokerService"
"""Served by sidecars alone, which no cluster of ours has by itself: see ``methods_of_sidecars``."""

_LOST_STATUS = "Internal error from Core"
_SIGNED_CPP_TYPES = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
_CPP_TYPES_OF_32_BITS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Shape(StrEnum):
    """How many messages go each way."""

    SINGLE = "unary_unary"
    ANSWERS = "unary_stream"
    STREAM = "stream_stream"


@dataclass(frozen=True)
class Method:
    """One method as its server has it. ``server`` is the kind of process."""

    server: str
    path: str
    shape: Shape
    request: type[Message]
    response: type[Message]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Outcome:
    """How a call ended, and the error that it carried: in its trailers or in its last answer."""

    status: str
    answers: tuple[bytes, ...]
    error: errors_pb.ErrorDetail | None
    text: str = ""

    @property
    def reason(self) -> str:
        return self.error.reason if self.error is not None else ""


def _each(_name: str) -> bool:
    return True


def methods() -> list[Method]:
    """Return every method that this release serves, from the contracts themselves."""
    return _served(
        ("discovery", discovery_pb, "DiscoveryService", lambda name: not name.startswith("Watch")),
        ("shard", shard_pb, "ShardService", _each),
        ("shard", broker_pb, "BrokerSessionService", _each),
        ("manager", cluster_pb, "ClusterService", _each),
        ("manager", shard_pb, "ShardService", lambda name: name == "ReadEvents"),
        ("broker", broker_pb, "BrokerService", _each),
        ("broker", topic_admin_pb, "TopicAdmin", _each),
    )


def methods_of_sidecars() -> list[Method]:
    """Return every method that the sidecar of a stock broker serves."""
    return _served(
        ("sidecar", broker_pb, "BrokerService", _each),
        ("sidecar", topic_admin_pb, "TopicAdmin", _each),
        ("sidecar", stock_broker_pb, OF_SIDECARS.rpartition(".")[2], _each),
    )


def _served(*services: tuple[str, ModuleType, str, Callable[[str], bool]]) -> list[Method]:
    """``services``: the kind of process, where its service is, its name, which methods it has."""
    found = []
    for server, module, service_name, is_served in services:
        service = module.DESCRIPTOR.services_by_name[service_name]
        for method in filter(lambda method: is_served(method.name), service.methods):
            if method.client_streaming:
                shape = Shape.STREAM
            else:
                shape = Shape.ANSWERS if method.server_streaming else Shape.SINGLE
            request, response = (
                kind._concrete_class for kind in (method.input_type, method.output_type)
            )
            path = f"/{service.full_name}/{method.name}"
            found.append(Method(server, path, shape, request, response))
    return found


def every_method() -> list[Method]:
    """Return ``methods`` and what each process answers whatever the request holds: unread."""
    service = peer_pb.DESCRIPTOR.services_by_name["PeerService"]
    unread = [
        Method(
            server,
            f"/{service.full_name}/{method.name}",
            Shape.SINGLE,
            method.input_type._concrete_class,
            method.output_type._concrete_class,
        )
        for server in ("discovery", "shard", "manager", "broker")
        for method in service.methods
    ]
    return [*methods(), *unread]


async def call(
    channel: grpc.aio.Channel, method: Method, *messages: bytes, deadline_s: float = DEADLINE_S
) -> Outcome:
    """Send ``messages``, say no more, and return how the server ends the call.

    grpc.aio loses the server's status if one of its own operations fails because the call has just
    ended; then the call is made once more.
    """
    for _ in range(CALLS_MAX):
        outcome = await call_once(channel, method, messages, deadline_s)
        if not (outcome.status == "INTERNAL" and outcome.text.startswith(_LOST_STATUS)):
            break
    return outcome


async def call_once(
    channel: grpc.aio.Channel, method: Method, messages: Sequence[bytes], deadline_s: float
) -> Outcome:
    """Do what ``call`` does, whether the server's status is lost or not."""
    make: Any = getattr(channel, method.shape.value)
    answers: list[bytes] = []
    try:
        if method.shape is Shape.SINGLE:
            answers.append(await make(method.path)(messages[0], timeout=deadline_s))
        elif method.shape is Shape.ANSWERS:
            stream = make(method.path)(messages[0], timeout=deadline_s)
            await _collect(stream, answers)
        else:
            stream = make(method.path)(timeout=deadline_s)
            await _say(stream, messages)
            await _collect(stream, answers)
    except grpc.aio.AioRpcError as error:
        return Outcome(error.code().name, tuple(answers), _trailing(error), error.details() or "")
    return Outcome("OK", tuple(answers), _error_in(method, answers))


async def _say(stream: Any, messages: Sequence[bytes]) -> None:
    for message in messages:
        try:
            await stream.write(message)
        except grpc.aio.AioRpcError:
            return
        except Exception:
            # The server ended the call first; reading says why.
            return
    await stream.done_writing()


async def _collect(stream: Any, answers: list[bytes]) -> None:
    async for answer in stream:
        answers.append(answer)
        if len(answers) == ANSWERS_MAX:
            stream.cancel()
            return


def _trailing(error: grpc.aio.AioRpcError) -> errors_pb.ErrorDetail | None:
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_METADATA_KEY:
            return errors_pb.ErrorDetail.FromString(value)
    return None


def _error_in(method: Method, answers: Sequence[bytes]) -> errors_pb.ErrorDetail | None:
    if not answers or "error" not in method.response.DESCRIPTOR.fields_by_name:
        return None
    last: Any = method.response.FromString(answers[-1])
    return last.error if last.HasField("error") else None


def is_parsed(method: Method, data: bytes) -> bool:
    """Return whether ``data`` is a message that the method takes."""
    try:
        method.request.FromString(data)
    except DecodeError:
        return False
    return True


def random_message(kind: type[Message], chooser: random.Random, depth: int = 0) -> Any:
    """Return a message with arbitrary fields set, extreme values preferred."""
    message = kind()
    for descriptor in kind.DESCRIPTOR.fields:
        if chooser.random() < 0.3:
            continue
        if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
            key, value = (descriptor.message_type.fields_by_name[each] for each in ("key", "value"))
            for _ in range(chooser.randrange(3)):
                made = chooser.randrange(9) if value.type != value.TYPE_STRING else _text(chooser)
                # A key that is a number is any that its type has.
                getattr(message, descriptor.name)[_value(key, chooser, depth)] = made
        elif descriptor.is_repeated:
            values = [_value(descriptor, chooser, depth) for _ in range(chooser.randrange(3))]
            getattr(message, descriptor.name).extend(values)
        elif descriptor.message_type is not None:
            getattr(message, descriptor.name).CopyFrom(_value(descriptor, chooser, depth))
        else:
            setattr(message, descriptor.name, _value(descriptor, chooser, depth))
    return message


def _value(descriptor: Any, chooser: random.Random, depth: int) -> Any:
    if descriptor.message_type is not None:
        kind = descriptor.message_type._concrete_class
        return random_message(kind, chooser, depth + 1) if depth < 6 else kind()
    if descriptor.enum_type is not None:
        return chooser.choice([0, 1, 2, 3, 77, 2**31 - 1])
    if descriptor.type == descriptor.TYPE_STRING:
        return _text(chooser)
    if descriptor.type == descriptor.TYPE_BYTES:
        return chooser.randbytes(chooser.choice([0, 1, 15, 16, 17, 300]))
    if descriptor.type == descriptor.TYPE_BOOL:
        return chooser.random() < 0.5
    if descriptor.type == descriptor.TYPE_DOUBLE:
        return chooser.choice([0.0, -1.0, float("nan"), float("inf"), 1e308])
    bits = 32 if descriptor.cpp_type in _CPP_TYPES_OF_32_BITS else 64
    largest_signed = 2 ** (bits - 1) - 1
    if descriptor.cpp_type in _SIGNED_CPP_TYPES:
        return chooser.choice(
            [0, 1, -1, 2, 1_000, -1_000, largest_signed, -largest_signed, -largest_signed - 1]
        )
    return chooser.choice([0, 1, 1, 2, 1_000, largest_signed, largest_signed + 1, 2**bits - 1])


def _text(chooser: random.Random) -> str:
    return chooser.choice(
        [
            *("", "x", "acme", "acme/orders", "acme/orders/good", "persistent://acme/orders/good"),
            *("tenant", "namespace", "shard", "broker", "test", "broker-1", "shard-node-1"),
            *("\x00", "a\nb", "../../etc/passwd", "%s%n", "' OR 1=1 --", "\U0001f600" * 3),
            *("x" * 255, "x" * 256, "persistent://acme/orders/" + "y" * 1_025, "127.0.0.1:1"),
        ]
    )


def service_names() -> set[str]:
    """Return the full names of all services in the contracts, from every module there is."""
    folder = Path(broker_pb.__file__).parent
    modules = [
        importlib.import_module(f"{nextgen_v1.__name__}.{path.stem}")
        for path in sorted(folder.glob("*_pb2.py"))
    ]
    return {
        service.full_name
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
    }
