"""Checks one JSON web token by given keys. PyJWT checks signatures; the bounds are ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt

from nextgen.kernel.errors import Unauthenticated
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX
from nextgen.runtime.security.authentication.provider import Authenticated, checked_role
from nextgen.runtime.security.authentication.token_keys import TokenKey

PARTS = 3
"""Header, claims, signature. Encrypted tokens have five parts, and are refused."""

_JWT = jwt.PyJWT()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    role_claim: str = "sub"
    audience_claim: str = "aud"
    audiences: tuple[str, ...] = field(default=())
    """One of them must be the token's audience; empty: any token is for this server."""

    leeway_s: int = 0
    """Allowed difference of clocks, in seconds."""


def header_of(token: bytes) -> Mapping[str, Any]:
    """Return the header of a token whose signature was not checked yet.

    Raises:
        Unauthenticated: It is no signed token.
    """
    if not token:
        raise Unauthenticated("there is no token")
    if len(token) > AUTH_DATA_BYTES_MAX:
        raise Unauthenticated(f"the token has more than {AUTH_DATA_BYTES_MAX} bytes")
    if token.count(b".") != PARTS - 1:
        raise Unauthenticated("a signed token has three parts")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise Unauthenticated("the token's header cannot be read") from error
    if "cty" in header:
        raise Unauthenticated("a token inside a token is not accepted")
    return header


def checked_claims(token: bytes, key: TokenKey, rules: TokenRules) -> dict[str, Any]:
    """Return the claims of a token with a valid signature, now, and for this server.

    ``header_of`` MUST have accepted it.

    Raises:
        Unauthenticated: It has none, has expired, does not hold yet, or is for others.
    """
    try:
        claims: dict[str, Any] = _JWT.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            leeway=rules.leeway_s,
            options={"verify_aud": False, "verify_iat": False, "verify_sub": False},
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthenticated("the token has expired") from error
    except jwt.ImmatureSignatureError as error:
        raise Unauthenticated("the token does not hold yet") from error
    except jwt.InvalidAlgorithmError as error:
        allowed = ", ".join(key.algorithms)
        raise Unauthenticated(f"the token's algorithm is none of {allowed}") from error
    except jwt.InvalidSignatureError as error:
        raise Unauthenticated("the token's signature is not valid") from error
    except (jwt.PyJWTError, ValueError, OverflowError, RecursionError, TypeError) as error:
        raise Unauthenticated("the token cannot be read") from error
    _check_audience(claims, rules)
    return claims


def authenticated_by(claims: Mapping[str, Any], rules: TokenRules) -> Authenticated:
    """Return the role in checked claims, and until when they hold.

    The role may be the first of a list, as some identity providers write it.

    Raises:
        Unauthenticated: They have no role, or none that can be one.
    """
    role = claims.get(rules.role_claim)
    if isinstance(role, list):
        role = role[0] if role else None
    if role is None:
        raise Unauthenticated(f"the token has no claim {rules.role_claim!r}")
    expires = claims.get("exp")
    # PyJWT takes a text of digits for a number, too.
    return Authenticated(
        checked_role(role), None if expires is None else float(expires) + rules.leeway_s
    )


def _check_audience(claims: Mapping[str, Any], rules: TokenRules) -> None:
    if not rules.audiences:
        return
    given = claims.get(rules.audience_claim)
    named: Sequence[object] = given if isinstance(given, list) else [given]
    if not any(isinstance(one, str) and one in rules.audiences for one in named):
        raise Unauthenticated("the token is for another audience")


def shown_parts(token: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return header and claims of a token, unchecked, to show them to the one who has it.

    Raises:
        Unauthenticated: It is no token.
    """
    header = header_of(token)
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        json.dumps(claims)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise Unauthenticated("the token cannot be read") from error
    return header, claims
