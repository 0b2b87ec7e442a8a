"""Method ``basic``: users and passwords in a file, whose hashes are scrypt or PBKDF2."""

from __future__ import annotations

from collections.abc import Mapping

from nextgen.kernel.errors import Unauthenticated
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX
from nextgen.runtime.security.authentication.key_source import ReloadedKey
from nextgen.runtime.security.authentication.passwords import (
    PasswordHash,
    parsed_hash,
    password_hash,
)
from nextgen.runtime.security.authentication.provider import Authenticated, Credentials

WRONG = "the user or the password is wrong"
"""One message for both: it must not tell which names are users."""


class BasicProvider:
    """Accepts ``user:password``; the user is the role."""

    method = "basic"
    is_slow = True
    is_remembered = True

    def __init__(self, users: ReloadedKey[Mapping[str, PasswordHash]]) -> None:
        self._users = users
        # An unknown user costs as much as a wrong password, or the time would tell them apart.
        self._unknown = parsed_hash(password_hash("nobody"))

    def generation(self) -> int:
        """See ``AuthenticationProvider``."""
        self._users.value()
        return self._users.generation

    def authenticate(self, credentials: Credentials) -> Authenticated:
        """See ``AuthenticationProvider``."""
        if len(credentials.data) > AUTH_DATA_BYTES_MAX:
            raise Unauthenticated(f"user and password have more than {AUTH_DATA_BYTES_MAX} bytes")
        name, colon, password = credentials.data.partition(b":")
        try:
            user = name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unauthenticated(WRONG) from error
        hashed = self._users.value().get(user)
        is_right = (hashed or self._unknown).is_of(password)
        if hashed is None or not colon or not is_right:
            raise Unauthenticated(WRONG)
        return Authenticated(user)
