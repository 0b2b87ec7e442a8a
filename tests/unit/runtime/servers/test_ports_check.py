import socket
from collections.abc import Iterator

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.servers.ports_check import assert_port_free


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_what_it_was_for(taken_port: int) -> None:
    with pytest.raises(RefusesToStart) as refusal:
        assert_port_free("127.0.0.1", taken_port, "the shard service")

    assert f"127.0.0.1:{taken_port}" in str(refusal.value)
    assert "the shard service" in str(refusal.value)
    assert "choose another port" in str(refusal.value)


def test_a_free_port_is_still_free_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert_port_free("127.0.0.1", port, "a test")
    assert_port_free("127.0.0.1", port, "a test")


def test_port_zero_is_always_free() -> None:
    assert_port_free("not a host", 0, "a test")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(RefusesToStart, match=r"192\.0\.2\.1:4000"):
        assert_port_free("192.0.2.1", 4000, "a test")


def test_an_old_connection_that_lingers_does_not_take_the_port() -> None:
    """1. A server accepts and closes first. 2. Its port is in TIME_WAIT. 3. It is started again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = listener.accept()
            accepted.close()
            assert client.recv(1) == b""

    assert_port_free("127.0.0.1", port, "a test")
