"""Keys, tokens and an authenticator for tests of who a client is."""

from __future__ import annotations

import time
from typing import Any

from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.basic_provider import BasicProvider
from nextgen.runtime.security.authentication.key_source import ReloadedKey
from nextgen.runtime.security.authentication.passwords import parsed_users, password_hash
from nextgen.runtime.security.authentication.token_keys import secret_key
from nextgen.runtime.security.authentication.token_maker import make_token
from nextgen.runtime.security.authentication.token_provider import TokenProvider
from nextgen.runtime.security.authentication.tokens import TokenRules

SECRET = b"0123456789abcdef0123456789abcdef"
OTHER_SECRET = b"another secret key of 32 bytes..."
PASSWORD = "correct horse"


def token_of(
    role: str, *, secret: bytes = SECRET, lasts_s: float | None = None, **more: Any
) -> bytes:
    """Return a token; it ends ``lasts_s`` seconds from now, which may be negative."""
    ends = {} if lasts_s is None else {"exp": int(time.time() + lasts_s)}
    return make_token(secret, "HS256", {"sub": role} | ends | more).encode()


def token_provider(*secrets: bytes, rules: TokenRules | None = None) -> TokenProvider:
    keys = [
        ReloadedKey("key", f"data:,{secret.decode()}", lambda data: secret_key("key", data))
        for secret in secrets or (SECRET,)
    ]
    return TokenProvider(keys, rules or TokenRules())


def basic_provider() -> BasicProvider:
    """Return one with the user ``ada`` and ``PASSWORD``."""
    line = f"data:,ada:{password_hash(PASSWORD)}".replace("+", "%2B")
    return BasicProvider(ReloadedKey("users", line, lambda data: parsed_users("users", data)))


def authenticator(**settings: Any) -> Authenticator:
    """Return one for tokens of ``SECRET`` and the password of ``ada``."""
    return Authenticator([token_provider(), basic_provider()], **settings)
