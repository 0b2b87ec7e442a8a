"""Method ``token`` with the cluster's own keys: Pulsar's AuthenticationProviderToken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nextgen.kernel.errors import Unauthenticated
from nextgen.runtime.security.authentication.key_source import ReloadedKey
from nextgen.runtime.security.authentication.provider import Authenticated, Credentials
from nextgen.runtime.security.authentication.token_keys import TokenKey
from nextgen.runtime.security.authentication.tokens import (
    TokenRules,
    authenticated_by,
    checked_claims,
    header_of,
)


class TokenProvider:
    """Accepts tokens that any of ``keys`` has signed: during a change of keys there are two."""

    method = "token"
    is_slow = False
    is_remembered = True

    def __init__(self, keys: Sequence[ReloadedKey[TokenKey]], rules: TokenRules) -> None:
        assert keys, "without a key no token is valid"
        self._keys = tuple(keys)
        self._rules = rules

    def generation(self) -> int:
        """See ``AuthenticationProvider``."""
        for key in self._keys:
            key.value()
        return sum(key.generation for key in self._keys)

    def authenticate(self, credentials: Credentials) -> Authenticated:
        """See ``AuthenticationProvider``."""
        token = credentials.data.strip()
        header_of(token)
        refusal: Unauthenticated | None = None
        for key in self._keys:
            try:
                claims = checked_claims(token, key.value(), self._rules)
            except Unauthenticated as error:
                # Of several reasons, that of the first key: the others are on their way out.
                refusal = refusal or error
            else:
                return authenticated_by(claims, self._rules)
        assert refusal is not None, "there is a key"
        raise refusal


KeyLoader = Callable[[str, bytes], TokenKey]
"""Makes a key of its setting's name and its bytes."""


def token_keys(sources: Sequence[tuple[str, str, KeyLoader]]) -> list[ReloadedKey[TokenKey]]:
    """Return the keys of settings: each has a name, a source and a loader.

    Raises:
        RefusesToStart: One cannot be used.
    """

    def reloaded(name: str, source: str, load: KeyLoader) -> ReloadedKey[TokenKey]:
        return ReloadedKey(name, source, lambda data: load(name, data))

    return [reloaded(name, source, load) for name, source, load in sources]
