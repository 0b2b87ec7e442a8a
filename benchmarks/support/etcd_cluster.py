"""Three etcd members on loopback, and their key-value service spoken by hand.

The few messages that are used are described here by their field numbers, so that the clients of
both systems are the same grpc library, in the same language.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from tests.support.processes.free_ports import free_ports

HOST = "127.0.0.1"
MEMBERS = 3
START_DEADLINE_S = 20.0

_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_INT64 = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
_UINT64 = descriptor_pb2.FieldDescriptorProto.TYPE_UINT64
_BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE

_MESSAGES: dict[str, tuple[tuple[str, int, int, str], ...]] = {
    "ResponseHeader": (("member_id", 2, _UINT64, ""), ("revision", 3, _INT64, "")),
    "PutRequest": (("key", 1, _BYTES, ""), ("value", 2, _BYTES, "")),
    "PutResponse": (("header", 1, _MESSAGE, "ResponseHeader"),),
    "RequestOp": (("request_put", 2, _MESSAGE, "PutRequest"),),
    "TxnRequest": (("success", 2, _MESSAGE, "*RequestOp"),),
    "TxnResponse": (
        ("header", 1, _MESSAGE, "ResponseHeader"),
        ("succeeded", 2, _BOOL, ""),
    ),
    "RangeRequest": (
        ("key", 1, _BYTES, ""),
        ("range_end", 2, _BYTES, ""),
        ("count_only", 9, _BOOL, ""),
    ),
    "RangeResponse": (("count", 4, _INT64, ""),),
    "StatusRequest": (),
    "StatusResponse": (
        ("header", 1, _MESSAGE, "ResponseHeader"),
        ("version", 2, _STRING, ""),
        ("leader", 4, _UINT64, ""),
    ),
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="benchmarks/etcdserverpb.proto", package="etcdserverpb", syntax="proto3"
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, of in fields:
            field = message.field.add(name=name, number=number, type=kind)
            field.label = field.LABEL_REPEATED if of.startswith("*") else field.LABEL_OPTIONAL
            if of:
                field.type_name = f".etcdserverpb.{of.lstrip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"etcdserverpb.{name}"))
        for name in _MESSAGES
    }


_CLASS = _classes()


class EtcdCluster:
    """Members with the defaults of etcd (fsync on). A context manager; removes its data."""

    def __init__(self, directory: Path | None = None) -> None:
        if shutil.which("etcd") is None:
            raise SystemExit("needs etcd in PATH")
        self._temporary = tempfile.TemporaryDirectory(dir=directory, prefix=".etcd-benchmark-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self.endpoints: list[str] = []

    async def __aenter__(self) -> EtcdCluster:
        ports = free_ports(2 * MEMBERS)
        client_ports, peer_ports = ports[:MEMBERS], ports[MEMBERS:]
        members = ",".join(f"m{n}=http://{HOST}:{port}" for n, port in enumerate(peer_ports))
        for number, (client, peer) in enumerate(zip(client_ports, peer_ports, strict=True)):
            self._processes.append(self._start(number, client, peer, members))
            self.endpoints.append(f"{HOST}:{client}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._temporary.cleanup()

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def leader(self) -> EtcdClient:
        """Return a client of the leader, once there is one."""
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            for endpoint in self.endpoints:
                client = EtcdClient(endpoint)
                if await client.leads():
                    return client
                await client.close()
            await asyncio.sleep(0.1)
        raise SystemExit("etcd elected no leader")

    def _start(self, number: int, client: int, peer: int, members: str) -> subprocess.Popen[bytes]:
        directory = Path(self._temporary.name) / f"m{number}"
        urls = (f"http://{HOST}:{client}", f"http://{HOST}:{peer}")
        with (Path(self._temporary.name) / f"m{number}.log").open("wb") as log:
            return subprocess.Popen(
                [
                    *("etcd", "--name", f"m{number}", "--data-dir", str(directory)),
                    *("--listen-client-urls", urls[0], "--advertise-client-urls", urls[0]),
                    *("--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1]),
                    *("--initial-cluster", members, "--initial-cluster-state", "new"),
                    *("--log-level", "error"),
                ],
                stdout=log,
                stderr=log,
            )


class EtcdClient:
    """One connection to one member."""

    def __init__(self, endpoint: str) -> None:
        options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
        self.endpoint = endpoint
        self._channel = grpc.aio.insecure_channel(endpoint, options=options)
        self._put = self._method("KV/Put", "PutRequest", "PutResponse")
        self._txn = self._method("KV/Txn", "TxnRequest", "TxnResponse")
        self._range = self._method("KV/Range", "RangeRequest", "RangeResponse")
        self._status = self._method("Maintenance/Status", "StatusRequest", "StatusResponse")

    async def close(self) -> None:
        await self._channel.close()

    async def leads(self) -> bool:
        try:
            status = await self._status(_CLASS["StatusRequest"](), timeout=1)
        except grpc.RpcError:
            return False
        return bool(status.leader and status.leader == status.header.member_id)

    async def version(self) -> str:
        return str((await self._status(_CLASS["StatusRequest"](), timeout=1)).version)

    async def put(self, key: bytes, value: bytes) -> None:
        """Return when it is committed."""
        await self._put(_CLASS["PutRequest"](key=key, value=value), timeout=30)

    async def put_all(self, keys: list[bytes], value: bytes) -> None:
        """Put all of ``keys`` in one transaction: etcd allows 128 by default."""
        request = _CLASS["TxnRequest"]()
        for key in keys:
            operation = request.success.add().request_put
            operation.key, operation.value = key, value
        answer = await self._txn(request, timeout=60)
        assert answer.succeeded, "a transaction without conditions succeeds"

    async def count(self, prefix: bytes) -> int:
        """Return how many keys begin with ``prefix``: a linearizable read."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        request = _CLASS["RangeRequest"](key=prefix, range_end=end, count_only=True)
        return int((await self._range(request, timeout=60)).count)

    def _method(self, name: str, request: str, response: str) -> Any:
        return self._channel.unary_unary(
            f"/etcdserverpb.{name}",
            request_serializer=_CLASS[request].SerializeToString,
            response_deserializer=_CLASS[response].FromString,
        )
