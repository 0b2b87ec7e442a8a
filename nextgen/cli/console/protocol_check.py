"""Which protocol a port speaks: a client of another protocol gets silence there.

A discovery node has three ports beside each other, for gRPC, HTTP and Pulsar clients, and a wrong
one costs a command all of its time-out. So a command that waits looks, and names the right port.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum

from nextgen.cli.local.plan import ClusterPlan, NodePlan

PROBE_TIMEOUT_S = 0.5
"""Time-out to connect, and for the first bytes of an answer: a live port sends them at once."""

_HEAD_BYTES = 16
_HTTP_REQUEST = b"GET /livez HTTP/1.0\r\n\r\n"
_HTTP2_SETTINGS = 4


class Protocol(StrEnum):
    """What a port speaks."""

    GRPC = "gRPC"
    PULSAR = "Pulsar's protocol"
    HTTP = "HTTP"


_PORT_OF: dict[Protocol, Callable[[NodePlan], str]] = {
    Protocol.GRPC: lambda node: node.grpc,
    Protocol.PULSAR: lambda node: node.pulsar,
    Protocol.HTTP: lambda node: node.http,
}


def wrong_port(
    addresses: Iterable[str], wanted: Protocol, plan: ClusterPlan | None = None
) -> str | None:
    """Return a sentence about the first address that speaks another protocol than ``wanted``.

    None if no address does, and also if one could not be recognised. ``plan`` is that of the local
    cluster: the sentence names the right port if the address is in it. Blocks for a second at most
    at each address.
    """
    for address in addresses:
        found = protocol_at(address)
        if found is None or found is wanted:
            continue
        return f"{address} speaks {found}, and {wanted} is needed: {_advice(address, wanted, plan)}"
    return None


def protocol_at(address: str) -> Protocol | None:
    """Return what the process at ``host:port`` speaks, None if that cannot be recognised."""
    from nextgen.pulsar.frames import encode_command
    from protos.pulsar.PulsarApi_pb2 import BaseCommand

    greeting = BaseCommand(type=BaseCommand.CONNECT)
    greeting.connect.client_version = "nextgen"
    greeting.connect.protocol_version = 21
    for request in (encode_command(greeting), _HTTP_REQUEST):
        found = _recognised(_answer(address, request))
        if found is not None:
            return found
    return None


def _answer(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    head = b""
    with (
        suppress(OSError, ValueError),
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S) as connection,
    ):
        connection.settimeout(PROBE_TIMEOUT_S)
        connection.sendall(request)
        while len(head) < _HEAD_BYTES and (more := connection.recv(_HEAD_BYTES - len(head))):
            head += more
    return head


def _recognised(head: bytes) -> Protocol | None:
    if head.startswith(b"HTTP/"):
        return Protocol.HTTP
    if len(head) < 2 * struct.calcsize(">I"):
        return None
    total_bytes, command_bytes = struct.unpack_from(">II", head)
    if 0 < command_bytes <= total_bytes - 4:
        return Protocol.PULSAR
    # The first frame of an HTTP/2 server is SETTINGS, of stream 0.
    is_settings = head[3] == _HTTP2_SETTINGS and head[5:8] == bytes(3)
    return Protocol.GRPC if is_settings else None


def _advice(address: str, wanted: Protocol, plan: ClusterPlan | None) -> str:
    for node in plan.nodes if plan is not None else ():
        if address in (node.grpc, node.pulsar, node.http) and (right := _PORT_OF[wanted](node)):
            return f"use {right}, of {node.node_id}"
    return f"give the port for {wanted} of the same process"
