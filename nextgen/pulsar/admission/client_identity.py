"""Who the client of one connection is: settled at CONNECT, checked again when its proof expires.

    CONNECT ─▶ check ─▶ CONNECTED                      ERROR AuthenticationError, and the end
                 │ it takes long: nothing is read meanwhile
                 ▼
    expired ─▶ AUTH_CHALLENGE ─▶ AUTH_RESPONSE ─▶ check ─▶ goes on
                 │ no answer until the next check of the keep-alive
                 ▼
               the end

An expiry is noticed by the keep-alive, so at most one of its intervals late. The role of a
connection never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from nextgen.kernel.errors import Forbidden, MetadataError, Overloaded, Unauthenticated
from nextgen.kernel.governance.access import Principal
from nextgen.pulsar.errors import server_error_of
from nextgen.runtime.security.authentication.authenticator import NO_METHOD, Authenticator
from nextgen.runtime.security.authentication.provider import (
    Authenticated,
    Certificate,
    Credentials,
)
from nextgen.tasks.background import start
from protos.pulsar.PulsarApi_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandAuthResponse,
    CommandConnect,
    FeatureFlags,
    ServerError,
)

REFRESH: Final = b"PulsarAuthRefresh"
"""The challenge by which clients know that they have to send their proof anew."""


class AuthenticatedConnection(Protocol):
    """A connection as its ``ClientIdentity`` uses it: a ``PulsarConnection``."""

    feature_flags: FeatureFlags
    protocol_version: int

    @property
    def is_open(self) -> bool: ...

    def admit(self, connect: CommandConnect, principal: Principal) -> None: ...

    def refuse_client(self, error: MetadataError, code: ServerError) -> None: ...

    def certificate(self) -> Certificate | None: ...

    def send_command(self, command: BaseCommand) -> None: ...

    def hold_reading(self) -> None: ...

    def release_reading(self) -> None: ...

    def abort(self, reason: str) -> None: ...


class ClientIdentity:
    """The proofs of one connection. ``close`` it with the connection."""

    __slots__ = (
        "_authenticator",
        "_connection",
        "_is_challenged",
        "_method",
        "_original",
        "_own",
        "_task",
    )

    def __init__(self, connection: AuthenticatedConnection, authenticator: Authenticator) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._own = Authenticated("")
        self._original: Authenticated | None = None
        """The client behind a proxy, if it sent a proof of its own."""
        self._method = NO_METHOD
        """Of the proof that the client sends anew."""
        self._is_challenged = False
        self._task: asyncio.Task[None] | None = None

    def begin(self, connect: CommandConnect) -> None:
        """Check the proof in ``connect``; then admit or refuse the client."""
        own = Credentials(
            connect.auth_method_name or NO_METHOD,
            connect.auth_data,
            self._connection.certificate(),
        )
        original = self._original_in(connect)
        try:
            found = self._authenticator.authenticate_now(own)
            behind = self._authenticator.authenticate_now(original) if original else None
            if found is None or (original is not None and behind is None):
                # What is kept meanwhile must not be a frame of any size.
                kept = CommandConnect()
                kept.CopyFrom(connect)
                kept.ClearField("auth_data")
                kept.ClearField("original_auth_data")
                self._check_later(self._begin_later(kept, own, original))
                return
            self._admit(connect, own.method, found, behind)
        except MetadataError as error:
            self._refuse(error)

    def refresh(self, response: CommandAuthResponse) -> None:
        """Check the proof in ``response``. One that was not requested is accepted, too.

        The connection ends if the proof is invalid, or is that of another role.
        """
        if self._task is not None:
            self._refuse(Unauthenticated("the last proof is still being checked"))
            return
        data = response.response
        credentials = Credentials(
            data.auth_method_name or self._method, data.auth_data, self._connection.certificate()
        )
        try:
            found = self._authenticator.authenticate_now(credentials)
            if found is None:
                self._check_later(self._refresh_later(credentials))
                return
            self._refreshed(found)
        except MetadataError as error:
            self._refuse(error)

    def check_expiry(self) -> None:
        """Ask for a new proof if one has expired; end the connection if none came."""
        now = self._authenticator.now()
        proof = self._own if self._original is None else self._original
        if self._original is not None and _has_expired(self._own, now):
            # Its client's answers are forwarded, a proxy's own proof is not asked for.
            self._connection.abort("the proxy's proof of its role has expired")
        elif not _has_expired(proof, now):
            self._is_challenged = False
        elif self._is_challenged:
            self._connection.abort(
                "the client's proof of its role has expired, and no new one came"
            )
        elif not self._connection.feature_flags.supports_auth_refresh:
            self._connection.abort("the client's proof of its role has expired")
        else:
            self._is_challenged = True
            self._connection.send_command(self._challenge())

    def close(self) -> None:
        """Stop what is being checked."""
        if self._task is not None:
            self._task.cancel()

    # Inside -----------------------------------------------------------------------------------

    def _original_in(self, connect: CommandConnect) -> Credentials | None:
        if not self._authenticator.checks_original or not connect.original_principal:
            return None
        method = connect.original_auth_method or connect.auth_method_name or NO_METHOD
        return Credentials(method, connect.original_auth_data.encode("utf-8", "surrogatepass"))

    def _check_later(self, work: Coroutine[Any, Any, None]) -> None:
        self._connection.hold_reading()
        self._task = start("client_authentication", work)

    def _admit(
        self,
        connect: CommandConnect,
        method: str,
        own: Authenticated,
        original: Authenticated | None,
    ) -> None:
        named = connect.original_principal if original is None else original.role
        principal = self._authenticator.principal(own.role, named)
        self._own, self._original = own, original
        self._method = method if original is None else connect.original_auth_method or method
        self._connection.admit(connect, principal)

    def _refreshed(self, found: Authenticated) -> None:
        before = self._own if self._original is None else self._original
        if found.role != before.role:
            raise Unauthenticated("the new proof is that of another role")
        if self._original is None:
            self._own = found
        else:
            self._original = found
        self._is_challenged = False

    async def _begin_later(
        self, connect: CommandConnect, own: Credentials, original: Credentials | None
    ) -> None:
        try:
            found = await self._authenticator.authenticate(own)
            behind = await self._authenticator.authenticate(original) if original else None
            if self._connection.is_open:
                self._admit(connect, own.method, found, behind)
        except MetadataError as error:
            self._refuse(error)
        finally:
            self._task = None
            self._connection.release_reading()

    async def _refresh_later(self, credentials: Credentials) -> None:
        try:
            self._refreshed(await self._authenticator.authenticate(credentials))
        except MetadataError as error:
            self._refuse(error)
        finally:
            self._task = None
            self._connection.release_reading()

    def _refuse(self, error: MetadataError) -> None:
        if isinstance(error, Unauthenticated):
            self._connection.refuse_client(error, ServerError.AuthenticationError)
        elif isinstance(error, Forbidden | Overloaded):
            self._connection.refuse_client(error, server_error_of(error))
        else:
            raise error

    def _challenge(self) -> BaseCommand:
        return BaseCommand(
            type=BaseCommand.AUTH_CHALLENGE,
            authChallenge=CommandAuthChallenge(
                challenge=AuthData(auth_method_name=self._method, auth_data=REFRESH),
                protocol_version=self._connection.protocol_version,
            ),
        )


def _has_expired(proof: Authenticated, now_s: float) -> bool:
    return proof.expires_at_s is not None and proof.expires_at_s <= now_s
