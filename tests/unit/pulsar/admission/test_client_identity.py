"""Who the client of a Pulsar connection is, from CONNECT to the end of its proof."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from nextgen.kernel.governance.access import Principal
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX
from nextgen.pulsar.admission.client_identity import REFRESH
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import encode_command
from nextgen.pulsar.greeting import NO_REQUEST_ID, Greeting
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.certificate_provider import CertificateProvider
from protos.pulsar.PulsarApi_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    FeatureFlags,
    ServerError,
)
from tests.support.callers.role_proofs import (
    OTHER_SECRET,
    PASSWORD,
    authenticator,
    basic_provider,
    token_of,
    token_provider,
)
from tests.support.pulsar.frames import connect_frame
from tests.support.pulsar.transport import MemoryTransport

REFRESHES = FeatureFlags(supports_auth_refresh=True)


class GreetedConnection(PulsarConnection):
    """Remembers that it was greeted."""

    greeted: CommandConnect | None = None

    def connected(self, connect: CommandConnect) -> None:
        self.greeted = connect


class CertifiedTransport(MemoryTransport):
    """One of TLS, whose client has shown a certificate."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return {"subject": ((("commonName", "billing"),),)}
        return super().get_extra_info(name, default)


def opened(checking: Authenticator | None = None) -> tuple[GreetedConnection, MemoryTransport]:
    greeting = Greeting(authenticator=checking or authenticator())
    connection = GreetedConnection(KeepAlive(), greeting)
    return connection, MemoryTransport(connection)


def connect(token: bytes, **more: Any) -> bytes:
    return connect_frame(auth_method_name="token", auth_data=token, **more)


def response(data: bytes) -> bytes:
    answer = CommandAuthResponse(response=AuthData(auth_method_name="token", auth_data=data))
    return encode_command(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=answer))


def assert_refused(transport: MemoryTransport, code: ServerError, why: str) -> None:
    last = transport.commands()[-1]
    assert last.type == BaseCommand.ERROR
    assert (last.error.request_id, last.error.error) == (NO_REQUEST_ID, code)
    assert why in last.error.message
    assert transport.is_closed


class Clock:
    """Unix seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def expiring(clock: Clock, **settings: Any) -> Authenticator:
    # PyJWT goes by the real clock, so the tokens end in the far future of both.
    return Authenticator([token_provider()], clock=clock, **settings)


ENDS = 4_000_000_000


async def test_a_client_with_a_valid_token_is_greeted_with_its_role() -> None:
    connection, transport = opened()

    transport.receive(connect(token_of("ada")))

    assert transport.commands()[0].type == BaseCommand.CONNECTED
    assert connection.principal == Principal("ada")
    assert connection.greeted is not None


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (connect_frame(), "proves its role"),
        (connect(b""), "no token"),
        (connect(token_of("ada", secret=OTHER_SECRET)), "signature"),
        (connect(token_of("ada", lasts_s=-5)), "expired"),
        (connect(b"a" * (AUTH_DATA_BYTES_MAX + 1)), str(AUTH_DATA_BYTES_MAX)),
        (connect_frame(auth_method_name="athenz", auth_data=b"x"), "proves its role"),
    ],
)
async def test_another_client_gets_an_authentication_error_and_nothing_else(
    frame: bytes, why: str
) -> None:
    connection, transport = opened()

    transport.receive(frame)

    assert_refused(transport, ServerError.AuthenticationError, why)
    assert len(transport.commands()) == 1
    assert connection.greeted is None


async def test_nothing_of_a_token_is_logged_or_answered() -> None:
    token = token_of("ada", secret=OTHER_SECRET)
    with capture_logs() as logs:
        _, transport = opened()
        transport.receive(connect(token))

    seen = repr(logs) + repr(transport.commands())
    assert logs
    assert not any(part.decode() in seen for part in token.split(b"."))


async def test_a_password_is_checked_beside_the_loop_and_the_client_is_not_read_meanwhile() -> None:
    connection, transport = opened()
    basic = connect_frame(auth_method_name="basic", auth_data=f"ada:{PASSWORD}".encode())

    transport.receive(basic)
    assert (transport.commands(), transport.is_reading_paused) == ([], True)
    while connection.greeted is None:
        await asyncio.sleep(0.001)

    assert connection.principal == Principal("ada")
    assert connection.greeted.auth_data == b""
    assert not transport.is_reading_paused


async def test_a_wrong_password_and_a_client_that_left_disturb_nobody() -> None:
    connection, transport = opened()
    transport.receive(connect_frame(auth_method_name="basic", auth_data=b"ada:wrong"))
    while not transport.is_closed:
        await asyncio.sleep(0.001)
    assert_refused(transport, ServerError.AuthenticationError, "wrong")

    connection, transport = opened()
    transport.receive(connect_frame(auth_method_name="basic", auth_data=f"ada:{PASSWORD}".encode()))
    connection.abort("the test ends it")
    connection.connection_lost(None)
    await asyncio.sleep(0.01)
    assert connection.greeted is None


async def test_a_second_connect_while_the_first_is_checked_ends_the_connection() -> None:
    connection, transport = opened()
    frame = connect_frame(auth_method_name="basic", auth_data=f"ada:{PASSWORD}".encode())
    connection.data_received(frame + frame)

    assert transport.is_closed
    assert connection.greeted is None


async def test_an_expired_client_is_asked_for_a_new_proof_and_goes_on_with_it() -> None:
    clock = Clock()
    connection, transport = opened(expiring(clock))
    transport.receive(connect(token_of("ada", exp=ENDS), feature_flags=REFRESHES))
    connection.check_alive()
    assert BaseCommand.AUTH_CHALLENGE not in {one.type for one in transport.commands()}

    clock.now = ENDS
    transport.receive(encode_command(BaseCommand(type=BaseCommand.PONG, pong={})))
    connection.check_alive()
    await asyncio.sleep(0)
    challenge = transport.commands()[-1]
    assert challenge.type == BaseCommand.AUTH_CHALLENGE
    assert challenge.authChallenge.challenge.auth_data == REFRESH
    assert challenge.authChallenge.challenge.auth_method_name == "token"

    transport.receive(response(token_of("ada", exp=ENDS + 60)))
    connection.check_alive()
    assert connection.is_open


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (token_of("eve", exp=ENDS + 60), "another role"),
        (token_of("ada", exp=ENDS + 60, secret=OTHER_SECRET), "signature"),
    ],
)
async def test_a_new_proof_of_another_role_or_none_ends_the_connection(
    answer: bytes, why: str
) -> None:
    _, transport = opened()
    transport.receive(connect(token_of("ada", exp=ENDS), feature_flags=REFRESHES))

    transport.receive(response(answer))

    assert_refused(transport, ServerError.AuthenticationError, why)


@pytest.mark.parametrize(("flags", "checks"), [(REFRESHES, 2), (FeatureFlags(), 1)])
async def test_a_client_that_sends_no_new_proof_is_dropped(
    flags: FeatureFlags, checks: int
) -> None:
    clock = Clock()
    connection, transport = opened(expiring(clock))
    transport.receive(connect(token_of("ada", exp=ENDS), feature_flags=flags))
    clock.now = ENDS

    for _ in range(checks):
        assert connection.is_open
        transport.receive(encode_command(BaseCommand(type=BaseCommand.PONG, pong={})))
        connection.check_alive()

    assert transport.was_aborted


async def test_a_proxy_acts_for_its_client() -> None:
    connection, transport = opened(authenticator(proxy_roles=frozenset({"proxy"})))

    transport.receive(connect(token_of("proxy"), original_principal="ada"))

    assert connection.principal == Principal("ada", "proxy")


async def test_a_client_that_is_no_proxy_cannot_act_for_another() -> None:
    _, transport = opened(authenticator(proxy_roles=frozenset({"proxy"})))

    transport.receive(connect(token_of("eve"), original_principal="ada"))

    assert_refused(transport, ServerError.AuthorizationError, "no proxy")


async def test_the_proof_of_a_proxys_client_is_checked_if_that_is_set() -> None:
    clock = Clock()
    settings: dict[str, Any] = {"proxy_roles": frozenset({"proxy"}), "checks_original": True}
    behind = {"original_principal": "x", "original_auth_method": "token"}
    proxy = token_of("proxy", exp=ENDS + 120)
    given = token_of("ada", exp=ENDS).decode()
    connection, transport = opened(expiring(clock, **settings))
    transport.receive(connect(proxy, original_auth_data=given, feature_flags=REFRESHES, **behind))
    assert connection.principal == Principal("ada", "proxy")

    transport.receive(response(token_of("ada", exp=ENDS + 60)))
    clock.now = ENDS + 1
    connection.check_alive()
    assert connection.is_open
    clock.now = ENDS + 121
    transport.receive(encode_command(BaseCommand(type=BaseCommand.PONG, pong={})))
    connection.check_alive()
    assert transport.was_aborted

    _, transport = opened(expiring(clock, **settings))
    transport.receive(connect(proxy, **behind))
    assert_refused(transport, ServerError.AuthenticationError, "no token")


async def test_a_verified_certificate_is_a_proof() -> None:
    connection = GreetedConnection(
        KeepAlive(), Greeting(authenticator=Authenticator([CertificateProvider()]))
    )
    transport = CertifiedTransport(connection)

    transport.receive(connect_frame(auth_method_name="tls"))

    assert connection.principal == Principal("billing")


async def test_a_new_password_is_checked_beside_the_loop_too() -> None:
    connection, transport = opened(Authenticator([token_provider(), basic_provider()]))
    transport.receive(connect(token_of("ada")))
    answer = CommandAuthResponse(
        response=AuthData(auth_method_name="basic", auth_data=f"ada:{PASSWORD}".encode())
    )
    frame = encode_command(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=answer))

    transport.receive(frame)
    connection.data_received(frame)

    assert_refused(transport, ServerError.AuthenticationError, "still being checked")
