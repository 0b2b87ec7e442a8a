"""Finds out which role a client has: providers, anonymous role, proxies, remembered checks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from nextgen.kernel.errors import Forbidden, Overloaded, Unauthenticated
from nextgen.kernel.governance.access import Principal
from nextgen.kernel.limits.inbound import (
    PASSWORD_CHECKS_RUNNING_MAX,
    PASSWORD_CHECKS_WAITING_MAX,
    VERIFIED_CREDENTIALS_MAX,
)
from nextgen.runtime.security.authentication.provider import (
    Authenticated,
    AuthenticationProvider,
    Credentials,
)

NO_METHOD = "none"
"""The method of a client that proves nothing."""

OTHER_METHOD = "other"
"""Stands for methods that no provider of ours has, among them those that clients invent."""

METHODS = ("token", "basic", "tls", NO_METHOD)
OUTCOMES = ("accepted", "refused")

WallClock = Callable[[], float]
"""Returns Unix seconds."""

_Key = tuple[str, bytes]


def counted(method: str, outcome: str) -> str:
    """Return the name of a count."""
    return f"authentications_{method}_{outcome}"


class Authenticator:
    """One for all listeners of a process. Owned by one event loop.

    ``anonymous_role`` is that of clients that prove nothing; without it they are refused.
    """

    def __init__(
        self,
        providers: Sequence[AuthenticationProvider],
        *,
        anonymous_role: str = "",
        proxy_roles: frozenset[str] = frozenset(),
        checks_original: bool = False,
        clock: WallClock = time.time,
    ) -> None:
        """``checks_original``: the data of a proxy's client is checked too, if it is there."""
        self._providers: dict[str, list[AuthenticationProvider]] = {}
        for provider in providers:
            self._providers.setdefault(provider.method, []).append(provider)
        self._anonymous_role = anonymous_role
        self._proxy_roles = proxy_roles
        self.checks_original = checks_original
        self._clock = clock
        self._remembered: OrderedDict[_Key, tuple[tuple[int, ...], Authenticated]] = OrderedDict()
        # Digests are of no use outside this process, not even to find equal credentials.
        self._digest_key = os.urandom(32)
        self._running: asyncio.Semaphore | None = None
        self._waiting = 0
        self.counts: Counter[str] = Counter()
        """How often proofs were accepted and refused, by the names that ``counted`` returns."""

    def __repr__(self) -> str:
        return f"<Authenticator {sorted(self._providers)} remembered={len(self._remembered)}>"

    @property
    def takes_certificates(self) -> bool:
        """Whether a client can prove its role by a certificate alone."""
        return "tls" in self._providers

    def now(self) -> float:
        """Return the Unix seconds by which proofs expire."""
        return self._clock()

    def authenticate_now(self, credentials: Credentials) -> Authenticated | None:
        """Return the role of a client; None if the check takes long: then call ``authenticate``.

        Raises:
            Unauthenticated: It has proved none; the message says why, without anything secret.
        """
        try:
            found = self._authenticate_now(credentials)
        except Unauthenticated:
            self._count(credentials, "refused")
            raise
        if found is not None:
            self._count(credentials, "accepted")
        return found

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        """Return the role of a client, also if the check takes long.

        Raises:
            Unauthenticated: As ``authenticate_now``.
            Overloaded: Too many passwords wait to be checked.
        """
        found = self.authenticate_now(credentials)
        if found is not None:
            return found
        if self._waiting >= PASSWORD_CHECKS_WAITING_MAX:
            raise Overloaded(f"{self._waiting} passwords wait to be checked")
        if self._running is None:
            self._running = asyncio.Semaphore(PASSWORD_CHECKS_RUNNING_MAX)
        generation = self._generation(credentials.method)
        self._waiting += 1
        try:
            async with self._running:
                found = await asyncio.to_thread(self._checked, credentials)
        except Unauthenticated:
            self._count(credentials, "refused")
            raise
        finally:
            self._waiting -= 1
        self._remember(credentials, generation, found)
        self._count(credentials, "accepted")
        return found

    def check_original(self, role: str, original: str) -> str:
        """Return the role for which a client of ``role`` acts: ``original`` behind a proxy.

        Raises:
            Forbidden: A proxy names nobody, or another proxy; or the client is no proxy and names
                somebody else.
        """
        if role in self._proxy_roles:
            if not original or original in self._proxy_roles:
                raise Forbidden("a proxy has to name the role of its client, which is no proxy's")
            return original
        if original and original != role:
            raise Forbidden("a client that is no proxy cannot act for another role")
        return role

    def principal(self, role: str, original: str = "") -> Principal:
        """Return the identity of a client of ``role`` that may act for ``original``.

        Raises:
            Forbidden: See ``check_original``.
        """
        acted_for = self.check_original(role, original)
        return Principal(acted_for, role if acted_for != role else "")

    # Inside -----------------------------------------------------------------------------------

    def _count(self, credentials: Credentials, outcome: str) -> None:
        # The method is the client's word, which may be any.
        method = credentials.method if credentials.method in METHODS else OTHER_METHOD
        self.counts[counted(method, outcome)] += 1

    def _authenticate_now(self, credentials: Credentials) -> Authenticated | None:
        method = credentials.method
        providers = self._providers.get(method)
        if providers is None:
            if method == NO_METHOD and self._anonymous_role:
                return Authenticated(self._anonymous_role)
            raise Unauthenticated(self._needed())
        generation = self._generation(method)
        key = self._key(credentials)
        remembered = self._remembered.get(key)
        if remembered is not None and remembered[0] == generation:
            found = remembered[1]
            if found.expires_at_s is None or found.expires_at_s > self._clock():
                self._remembered.move_to_end(key)
                return found
        if any(provider.is_slow for provider in providers):
            return None
        found = self._checked(credentials)
        self._remember(credentials, generation, found)
        return found

    def _checked(self, credentials: Credentials) -> Authenticated:
        refusal: Unauthenticated | None = None
        for provider in self._providers[credentials.method]:
            try:
                return provider.authenticate(credentials)
            except Unauthenticated as error:
                refusal = refusal or error
        assert refusal is not None, "a method has a provider"
        raise refusal

    def _generation(self, method: str) -> tuple[int, ...]:
        return tuple(provider.generation() for provider in self._providers[method])

    def _remember(
        self, credentials: Credentials, generation: tuple[int, ...], found: Authenticated
    ) -> None:
        if not all(provider.is_remembered for provider in self._providers[credentials.method]):
            return
        self._remembered[self._key(credentials)] = (generation, found)
        while len(self._remembered) > VERIFIED_CREDENTIALS_MAX:
            self._remembered.popitem(last=False)

    def _key(self, credentials: Credentials) -> _Key:
        digest = hashlib.blake2b(credentials.data, digest_size=32, key=self._digest_key).digest()
        return credentials.method, digest

    def _needed(self) -> str:
        return f"a client proves its role here by one of: {', '.join(sorted(self._providers))}"
