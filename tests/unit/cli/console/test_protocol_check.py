"""Which protocol a port speaks, recognised by the first bytes that it answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from nextgen.cli.console import protocol_check
from nextgen.cli.console.protocol_check import Protocol, protocol_at, wrong_port
from nextgen.cli.local.plan import MINIMAL, make_plan
from nextgen.pulsar.frames import encode_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnected

CONNECTED = encode_command(
    BaseCommand(type=BaseCommand.CONNECTED, connected=CommandConnected(server_version="x"))
)
SETTINGS = bytes.fromhex("000012040000000000000300000080")
ANSWERS = {
    Protocol.PULSAR: CONNECTED,
    Protocol.GRPC: SETTINGS,
    Protocol.HTTP: b"HTTP/1.0 200 OK\r\n\r\n{}",
    None: b"",
}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve ``answer`` to each connection; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                # A client closes when it has read enough: what it left resets the connection.
                with connection, suppress(OSError):
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1_000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(30)


@pytest.mark.parametrize(("protocol", "answer"), ANSWERS.items())
def test_a_port_is_known_by_what_it_answers(protocol: Protocol | None, answer: bytes) -> None:
    with answering(answer) as address:
        assert protocol_at(address) is protocol


def test_an_address_of_the_right_protocol_and_an_unknown_one_are_not_wrong() -> None:
    with answering(SETTINGS) as right, answering(b"") as unknown:
        assert wrong_port([unknown, right], Protocol.GRPC) is None


def test_a_wrong_port_is_named_and_the_right_one_of_the_local_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = make_plan(MINIMAL)
    monkeypatch.setattr(protocol_check, "protocol_at", lambda _address: Protocol.PULSAR)

    sentence = wrong_port(["127.0.0.1:17003"], Protocol.GRPC, plan)
    elsewhere = wrong_port(["10.0.0.1:6650"], Protocol.GRPC, plan)

    assert sentence == (
        "127.0.0.1:17003 speaks Pulsar's protocol, and gRPC is needed: "
        "use 127.0.0.1:17000, of discovery-1"
    )
    assert elsewhere is not None
    assert "give the port for gRPC of the same process" in elsewhere
