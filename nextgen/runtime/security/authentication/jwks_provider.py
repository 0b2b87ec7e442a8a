"""Method ``token`` with tokens of an OpenID Connect provider, whose public keys are in a file.

The file is the provider's set of keys (JWKS), which a job of the operator fetches: servers make no
calls to the outside. It is read again when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jwt

from nextgen.kernel.errors import RefusesToStart, Unauthenticated
from nextgen.kernel.limits.inbound import JWKS_KEYS_MAX
from nextgen.runtime.security.authentication.key_source import ReloadedKey
from nextgen.runtime.security.authentication.provider import Authenticated, Credentials
from nextgen.runtime.security.authentication.token_keys import TokenKey, public_token_key
from nextgen.runtime.security.authentication.tokens import (
    TokenRules,
    authenticated_by,
    checked_claims,
    header_of,
)

KeySet = Mapping[str, TokenKey]
"""Keys by their ids."""


class JwksProvider:
    """Accepts tokens of allowed issuers that a key of the set has signed."""

    method = "token"
    is_slow = False
    is_remembered = True

    def __init__(
        self, keys: ReloadedKey[KeySet], issuers: frozenset[str], rules: TokenRules
    ) -> None:
        assert issuers, "whose tokens are accepted must be named"
        self._keys = keys
        self._issuers = issuers
        self._rules = rules

    def generation(self) -> int:
        """See ``AuthenticationProvider``."""
        self._keys.value()
        return self._keys.generation

    def authenticate(self, credentials: Credentials) -> Authenticated:
        """See ``AuthenticationProvider``."""
        token = credentials.data.strip()
        key_id = header_of(token).get("kid")
        key = self._keys.value().get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise Unauthenticated("the token names no key of the identity provider")
        claims = checked_claims(token, key, self._rules)
        if "exp" not in claims:
            raise Unauthenticated("the token has no end")
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or issuer not in self._issuers:
            raise Unauthenticated("the token's issuer is not allowed")
        return authenticated_by(claims, self._rules)


def parsed_keys(name: str, data: bytes) -> KeySet:
    """Return the signature keys of a JWKS document. Keys for other purposes are left out.

    Raises:
        RefusesToStart: It is none, has no usable key, or two with one id.
    """
    try:
        given = json.loads(data)["keys"]
        if not isinstance(given, list) or len(given) > JWKS_KEYS_MAX:
            raise RefusesToStart(f"{name} is no set of at most {JWKS_KEYS_MAX} keys")
        parsed = [(one["kid"], _key(name, one)) for one in given if _is_for_signatures(one)]
    except (ValueError, KeyError, TypeError, RecursionError, jwt.PyJWTError) as error:
        raise RefusesToStart(f"{name} is no set of public keys with ids (JWKS)") from error
    keys = dict(parsed)
    if not keys or len(keys) != len(parsed):
        raise RefusesToStart(f"{name} has no key for signatures, or two with one id")
    return keys


def _is_for_signatures(key: Mapping[str, Any]) -> bool:
    return key.get("kty") in ("RSA", "EC") and key.get("use", "sig") == "sig"


def _key(name: str, described: dict[str, Any]) -> TokenKey:
    return public_token_key(name, jwt.PyJWK(described, described.get("alg")).key)
